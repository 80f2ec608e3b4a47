"""`emberstate checkpoints diff`: what changed from one checkpoint to another, state by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from emberstate.checkpoint.read.change_feed import ADDED, CHANGED, REMOVED, ChangeFeed
from emberstate.checkpoint.read.plain_rows import plain_rows, value_text
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.cli.console import finish, print_json, print_line, print_table, progress
from emberstate.cli.exit_codes import PROBLEM
from emberstate.cli.selection import chosen, json_option, location_argument, open_location, operator_option
from emberstate.errors import RestoreRefusedError
from emberstate.storage.interface import Storage

_SAVEPOINT = "savepoint:"


@click.command()
@location_argument
@click.argument("old")
@click.argument("new", default="latest")
@operator_option
@click.option("--state", "only", metavar="NAME", help="This state alone; a timer queue is timers/NAME.")
@click.option("--keys", is_flag=True, help="Show what changed too, not only how much.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Changes shown by --keys, per state."
)
@json_option
def diff(
    location: str, old: str, new: str, operator: str | None, only: str | None, keys: bool, limit: int, as_json: bool
) -> None:
    """What changed from checkpoint OLD to NEW: a number, `latest`, or `savepoint:NAME`.

    Counted are values, elements of lists (by position), user keys of maps and timers. Exit code 1 if anything differs.
    """
    storage = open_location(location)
    with _opened(storage, old) as before, _opened(storage, new) as after:
        found = list(_compared(before, after, operator, only, limit if keys else 0))
        if only is not None and not found:
            raise click.UsageError(f"neither checkpoint has a state {only!r}")
        differs = any(item["problem"] or item[ADDED] or item[REMOVED] or item[CHANGED] for item in found)
        if as_json:
            print_json(
                {
                    "old": chosen(before.manifest),
                    "new": chosen(after.manifest),
                    "differs": differs,
                    "states": found if keys else [{k: v for k, v in item.items() if k != "changes"} for item in found],
                }
            )
        else:
            _print(found, keys)
    finish(PROBLEM if differs else 0)


def _opened(storage: Storage, which: str) -> CheckpointReader:
    if which == "latest":
        return CheckpointReader.open(storage)
    if which.startswith(_SAVEPOINT):
        return CheckpointReader.open(storage, savepoint=which.removeprefix(_SAVEPOINT))
    if not (which.isascii() and which.isdecimal()):
        raise click.BadParameter(f"{which!r} is neither a number, nor `latest`, nor `savepoint:NAME`")
    return CheckpointReader.open(storage, int(which))


def _compared(
    before: CheckpointReader, after: CheckpointReader, operator: str | None, only: str | None, limit: int
) -> Iterator[dict[str, Any]]:
    names = dict.fromkeys([*after.operators, *before.operators])
    if operator is not None:
        if operator not in names:
            raise click.UsageError(f"neither checkpoint has an operator {operator!r}; there are {list(names)}")
        names = {operator: None}
    todo = [(name, state) for name in names for state in _states(before, after, name) if only in (None, state)]
    with progress("comparing", len(todo)) as tick:
        for name, state in todo:
            yield {"operator": name, "state": state, **_changes(before, after, name, state, limit)}
            tick(1)


def _states(before: CheckpointReader, after: CheckpointReader, operator: str) -> list[str]:
    """The states of either, as the newer calls them; what was renamed in between is there once."""
    try:
        return ChangeFeed.states(before, after, operator)
    except RestoreRefusedError:  # each state says why
        sides = [side for side in (after, before) if operator in side.operators]
        return list(dict.fromkeys(stored.address for side in sides for stored in side.states(operator)))


def _changes(
    before: CheckpointReader, after: CheckpointReader, operator: str, state: str, limit: int
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    changes: list[dict[str, Any]] = []
    problem = None
    try:
        feed = ChangeFeed(before, after, operator, state)
        if limit:
            for batch in feed.batches():
                counts.update(batch.column("change").to_pylist())
                if len(changes) < limit:
                    changes += plain_rows(batch.slice(0, limit - len(changes)))
        else:
            counts.update(change.kind for change in feed.changes())
    except RestoreRefusedError as error:
        problem = str(error)
    return {kind: counts[kind] for kind in (ADDED, REMOVED, CHANGED)} | {"problem": problem, "changes": changes}


def _print(found: list[dict[str, Any]], keys: bool) -> None:
    rows = (
        (item["operator"], item["state"], item[ADDED], item[REMOVED], item[CHANGED], item["problem"]) for item in found
    )
    print_table(("operator", "state", ADDED, REMOVED, CHANGED, "remarks"), rows, right=(ADDED, REMOVED, CHANGED))
    for item in found if keys else ():
        changes = item["changes"]
        if not changes:
            continue
        print_line()
        total = item[ADDED] + item[REMOVED] + item[CHANGED]
        more = f", the first {len(changes)} of {total}" if total > len(changes) else ""
        print_line(f"{item['operator']}: {item['state']}{more}")
        columns = [name for name in changes[0] if any(change[name] not in ("", None) for change in changes)]
        print_table(columns, ([_cell(change[name]) for name in columns] for change in changes), right=("key_group",))


def _cell(value: Any) -> str | None:
    return None if value is None else value_text(value)
