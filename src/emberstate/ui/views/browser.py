"""The state of one key: its values, and what they were in the checkpoints that are retained.

It needs no class of the job and runs no code of it. Everything is as stored: an expired value is there until it is
cleaned up, and marked.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from emberstate.checkpoint.files.meta import StoredState
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.read.plain_rows import key_rows
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.codec.key_text import key_of_text
from emberstate.errors import CheckpointCollectedError, EmberstateError, StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.ui.keys import key_input
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable, shown, shown_rows
from emberstate.units import time_text

#: Rows of one key in one state that are shown.
MOST_ROWS: Final = 100
#: Rows per checkpoint in a history, and checkpoints in it.
_HISTORY_ROWS: Final = 20
_HISTORY_CHECKPOINTS: Final = 50
_EXAMPLES: Final = 12


def browse(location: Location, operator: str, key: str, at: str, state: str) -> dict[str, Any]:
    """Return all states of a key in a checkpoint, and the history of one of them; without a key, some keys."""
    with location.open(at) as reader:
        manifest = reader.manifest
        found = _operator(manifest, operator)
        view: dict[str, Any] = {
            "checkpoint": manifest.number,
            "kind": manifest.kind,
            "choices": location.choices(),
            "operators": [one.name for one in manifest.operators],
            "operator": None if found is None else found.name,
            "key_types": None if found is None else ", ".join(map(printable, found.key_schema)),
            "key": key,
            "at": at,
            "state": state,
            "found": None,
            "history": None,
            "examples": [],
        }
        if found is None:
            return view
        if not key:
            return view | {"examples": _examples(reader, found)}
        schema = KeySchema(found.key_schema)
        parsed = key_of_text(key, schema)
        stored = reader.states(found.name)
        names = [one.address for one in stored]
        if state and state not in names:
            what = f"operator {found.name!r} has no state {state!r:.100}; it has {names}"
            raise StateDeclarationError(what, operator=found.name, state=state[:100])
        values = [_values(reader, found, one, parsed) for one in stored]
    shown_as = shown(parsed if not isinstance(parsed, tuple) else list(parsed))
    view["found"] = {
        "key": shown_as,
        "key_group": schema.key_group(parsed, found.max_parallelism),
        "anything": any(value["count"] for value in values),
        "states": values,
    }
    if state:
        view["history"] = _history(location, found.name, state, parsed)
    return view


def _operator(manifest: Manifest, name: str) -> Operator | None:
    """Return the operator, or the first; None if there is none at all."""
    if not name:
        return manifest.operators[0] if manifest.operators else None
    found = manifest.operator(name)
    if found is None:
        there = [operator.name for operator in manifest.operators]
        raise StateDeclarationError(f"there is no operator {name!r:.100}; there are {there}", operator=name[:100])
    return found


def _examples(reader: CheckpointReader, operator: Operator) -> list[dict[str, Any]]:
    """Return some keys of the first state that has any."""
    for stored in sorted(reader.states(operator.name), key=lambda one: one.kind == "timers"):
        keys = itertools.islice(reader.keys(operator.name, stored.address), _EXAMPLES)
        if some := [{"key": shown(key), "input": key_input(key)} for key in keys]:
            return some
    return []


def _values(reader: CheckpointReader, operator: Operator, stored: StoredState, key: Any) -> dict[str, Any]:
    rows, count = key_rows(reader, operator.name, stored, key, MOST_ROWS)
    return {
        "state": stored.address,
        "kind": stored.kind,
        "type": None if stored.type is None else printable(stored.type.label),
        "count": count,
        **shown_rows(rows),
    }


def _history(location: Location, operator: str, state: str, key: Any) -> dict[str, Any]:
    """Return what the key had in each retained checkpoint, newest first, and whether that was a change."""
    numbers = [which for which in location.choices() if which.isdecimal()]
    points: list[dict[str, Any]] = []
    before: Any = None
    for which in reversed(numbers[:_HISTORY_CHECKPOINTS]):
        try:
            with location.open(which) as reader:
                point = _point(reader, operator, state, key)
        except CheckpointCollectedError:
            continue  # the job has just collected it
        except EmberstateError as error:
            points.append({"number": int(which), "problem": printable(str(error))})
            continue
        rows = point.pop("compared")
        change = "first" if not points else "same" if rows == before else "changed"
        before = rows
        points.append(point | {"change": change, "problem": None})
    return {"state": state, "points": points[::-1], "left_out": max(0, len(numbers) - _HISTORY_CHECKPOINTS)}


def _point(reader: CheckpointReader, operator: str, state: str, key: Any) -> dict[str, Any]:
    manifest = reader.manifest
    stored = None
    if manifest.operator(operator) is not None:
        stored = next((one for one in reader.states(operator) if one.address == state), None)
    rows: list[dict[str, Any]] = []
    compared: Any = None
    count = 0
    if stored is not None:
        every, count = key_rows(reader, operator, stored, key)
        compared = [{name: value for name, value in row.items() if name != "expired"} for row in every]
        rows = every[:_HISTORY_ROWS]
    return {
        "number": manifest.number,
        "kind": manifest.kind,
        "batch": None if manifest.batch is None else manifest.batch.id,
        "created": time_text(manifest.created),
        "known": stored is not None,
        "count": count,
        "compared": compared,
        **shown_rows(rows),
    }
