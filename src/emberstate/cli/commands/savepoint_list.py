"""`emberstate savepoint ls`, `describe` and `rm`: what savepoints there are, what is in one, and its end.

`rm` deletes the manifest and then the files that it names. A savepoint needs nothing outside its folder, and nothing
outside needs it: a job that started from it has copied its files. So `rm` touches no checkpoint and no other savepoint,
and needs no hold of the job. What it does protect is the last state of a location: without another savepoint, and
without a newest checkpoint whose manifest can be read, it refuses.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import click

from emberstate.checkpoint.commit.savepoint import delete_savepoint
from emberstate.checkpoint.manifest.catalogue import (
    checkpoint_numbers,
    read_checkpoint,
    read_savepoint,
    savepoint_names,
)
from emberstate.checkpoint.manifest.layout import SAVEPOINTS
from emberstate.checkpoint.read.listing import describe_state
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.sizes import file_sizes
from emberstate.checkpoint.read.summaries import savepoint_summaries, summary
from emberstate.cli.commands.checkpoints import facts
from emberstate.cli.console import Refused, print_json, print_line, print_table, progress
from emberstate.cli.selection import json_option, location_argument, open_location, savepoint_argument
from emberstate.cli.watch import watch_option
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError
from emberstate.storage.interface import Storage
from emberstate.units import size_text

_UNREADABLE: Final = (CheckpointCollectedError, CorruptionError, RestoreRefusedError)


@click.command("ls")
@location_argument
@json_option
@watch_option
def list_savepoints(location: str, as_json: bool) -> None:
    """The savepoints of a location, by name."""
    storage = open_location(location)
    retained = _retained(storage)
    found = [{**item, "retained_bytes": retained.get(item["name"], 0)} for item in savepoint_summaries(storage)]
    if as_json:
        print_json({"location": storage.describe(), "savepoints": found})
        return
    if not found:
        print_line(f"there is no savepoint in {storage.describe()}")
        return
    columns = ("savepoint", "job", "checkpoint", "batch", "created", "files", "stored", "retained", "remarks")
    print_table(columns, map(_row, found), right=("checkpoint", "batch", "files", "stored", "retained"))


def _row(item: dict[str, Any]) -> tuple[Any, ...]:
    retained = size_text(item["retained_bytes"])
    if item["problem"] is not None:
        return (item["name"], *[None] * 6, retained, item["problem"])
    known = (item[column] for column in ("name", "job", "number", "batch", "created", "files"))
    return (*known, size_text(item["stored_bytes"]), retained, None)


def _retained(storage: Storage) -> dict[str, int]:
    """The retained size of each folder of savepoints."""
    paths = storage.list(SAVEPOINTS)
    with progress("looking up sizes", len(paths)) as tick:
        sizes = file_sizes(storage, paths, tick)
    found: dict[str, int] = {}
    for path, size in sizes.items():
        name = path.split("/")[1]
        found[name] = found.get(name, 0) + size
    return found


@click.command()
@location_argument
@savepoint_argument
@json_option
def describe(location: str, name: str, as_json: bool) -> None:
    """One savepoint: where it comes from, its size, its operators and their states."""
    storage = open_location(location)
    with CheckpointReader(storage, read_savepoint(storage, name)) as reader:
        manifest = reader.manifest
        states = [describe_state(owner, stored) for owner in reader.operators for stored in reader.states(owner)]
    numbers = {**summary(manifest), "retained_bytes": _retained(storage).get(name, 0)}
    if as_json:
        operators = [
            {
                "name": operator.name,
                "key_schema": list(operator.key_schema),
                "parallelism": operator.parallelism,
                "max_parallelism": operator.max_parallelism,
            }
            for operator in manifest.operators
        ]
        print_json(
            {
                "location": storage.describe(), "name": name, "job": manifest.job, **numbers, "operators": operators,
                "states": states,
            }
        )  # fmt: skip
        return
    lines: list[tuple[str, Any]] = [("name", name)]
    # What it follows is the checkpoint that it is a copy of.
    known = ((label, value) for label, value in facts(manifest) if label != "follows")
    lines += [("of checkpoint" if label == "savepoint" else label, value) for label, value in known]
    lines.append(("files", f"{numbers['files']}, stored {size_text(numbers['stored_bytes'])}"))
    lines.append(("retained", size_text(numbers["retained_bytes"])))
    for operator in manifest.operators:
        keys = ", ".join(operator.key_schema)
        slots = f"{operator.parallelism} of {operator.max_parallelism} possible slots"
        lines.append(("operator", f"{operator.name}: keys of {keys}, {slots}"))
    for label, value in lines:
        print_line(f"{label:<16}{value}")
    if states:
        print_line()
        columns = ("operator", "state", "kind", "type", "user_key", "ttl")
        print_table(columns, ([item[column] for column in columns] for item in states))


@click.command()
@location_argument
@savepoint_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--last", is_flag=True, help="Even if nothing else in the location can be restored.")
@json_option
def rm(location: str, name: str, yes: bool, last: bool, as_json: bool) -> None:
    """Delete savepoint NAME. Asks before, unless --yes is given.

    No checkpoint and no other savepoint needs its files. If nothing else in the location can be restored, --last is
    needed too.
    """
    storage = open_location(location)
    if name not in savepoint_names(storage):
        read_savepoint(storage, name)  # raises, with the names that are there
    others = _restorable(storage, name)
    if others is None and not last:
        raise Refused(
            f"savepoint {name!r} is the last state in {storage.describe()}: there is no other savepoint, and no newest "
            f"checkpoint that can be read. Copy it to another location first (emberstate savepoint create, --to), or "
            f"give --last to delete it for good"
        )
    size = _retained(storage).get(name, 0)
    if not yes:
        left = "nothing that can be restored" if others is None else others
        question = f"delete savepoint {name} in {storage.describe()}, {size_text(size)}? What stays there: {left}"
        if not click.confirm(question, err=True):
            raise Refused("nothing was deleted")
    delete_savepoint(storage, name)
    if as_json:
        print_json({"location": storage.describe(), "name": name, "deleted": True, "retained_bytes": size})
        return
    print_line(f"deleted: savepoint {name} in {storage.describe()}, {size_text(size)}")


def _restorable(storage: Storage, name: str) -> str | None:
    """What a job could still start from without a savepoint; None if nothing."""
    found = []
    numbers = checkpoint_numbers(storage)
    if numbers:
        with contextlib.suppress(*_UNREADABLE):
            found.append(f"checkpoint {read_checkpoint(storage, numbers[-1]).number}")
    for other in savepoint_names(storage):
        if other != name:
            with contextlib.suppress(*_UNREADABLE):
                read_savepoint(storage, other)
                found.append(f"savepoint {other}")
    return ", ".join(found) or None
