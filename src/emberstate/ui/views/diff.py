"""The difference between two checkpoints or savepoints of a location, state by state."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, Final

from emberstate.checkpoint.read.change_feed import ADDED, CHANGED, REMOVED, ChangeFeed
from emberstate.checkpoint.read.plain_rows import plain_rows
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.errors import RestoreRefusedError
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable, shown_rows

#: Changes of one state that are counted, and that are shown.
_COUNTED: Final = 20_000
_SHOWN: Final = 50


def difference(location: Location, old: str, new: str) -> dict[str, Any]:
    """Return what changed from `old` to `new`; by default from the checkpoint before the newest to the newest."""
    choices = location.choices()
    numbers = [which for which in choices if which.isdecimal()]
    new = new or (choices[0] if choices else "")
    if not old:
        older = numbers[numbers.index(new) + 1 :] if new in numbers else []
        old = (older or choices or [""])[0]
    view: dict[str, Any] = {"choices": choices, "old": old, "new": new, "states": []}
    if not choices:
        return view
    with location.open(old) as before, location.open(new) as after:
        for operator in dict.fromkeys([*after.operators, *before.operators]):
            for state in _states(before, after, operator):
                view["states"].append(_changes(before, after, operator, state))
    return view


def _states(before: CheckpointReader, after: CheckpointReader, operator: str) -> list[str]:
    try:
        return ChangeFeed.states(before, after, operator)
    except RestoreRefusedError:  # each state says why
        sides = [side for side in (after, before) if operator in side.operators]
        return list(dict.fromkeys(stored.address for side in sides for stored in side.states(operator)))


def _changes(before: CheckpointReader, after: CheckpointReader, operator: str, state: str) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    problem = None
    try:
        feed = ChangeFeed(before, after, operator, state)
        kinds = (change.kind for change in feed.changes())
        counts.update(itertools.islice(kinds, _COUNTED))
        if counts:
            batch = next(feed.batches(rows=_SHOWN))
            rows = plain_rows(batch.slice(0, _SHOWN))
    except RestoreRefusedError as error:
        problem = printable(str(error))
    total = sum(counts.values())
    return {
        "operator": printable(operator),
        "state": printable(state),
        **{kind: counts[kind] for kind in (ADDED, REMOVED, CHANGED)},
        "total": total,
        "more": total >= _COUNTED,
        "problem": problem,
        **shown_rows(rows),
    }
