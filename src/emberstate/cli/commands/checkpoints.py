"""`emberstate checkpoints`: lists and verifies checkpoints, compares them, and shows and frees disk space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from emberstate.checkpoint.manifest.catalogue import (
    Verification,
    checkpoint_numbers,
    read_checkpoint,
    read_savepoint,
    savepoint_names,
    verify,
)
from emberstate.checkpoint.manifest.incarnation import newest
from emberstate.checkpoint.manifest.model import Manifest, Operator, plain
from emberstate.checkpoint.read.sizes import stored_bytes
from emberstate.checkpoint.read.summaries import checkpoint_summaries, savepoint_summaries, summary
from emberstate.cli.commands.diff import diff
from emberstate.cli.commands.disk_usage import du, gc
from emberstate.cli.commands.plot import plot_checkpoints
from emberstate.cli.console import (
    Refused,
    finish,
    note,
    print_json,
    print_line,
    print_table,
    progress,
    with_old_sizes,
)
from emberstate.cli.exit_codes import PROBLEM
from emberstate.cli.selection import checkpoint_options, json_option, location_argument, open_location, open_reader
from emberstate.cli.watch import watch_option
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError
from emberstate.storage.interface import Storage
from emberstate.units import size_text, time_text


@click.group()
def checkpoints() -> None:
    """List, verify and compare checkpoints; show and free disk space."""


checkpoints.add_command(diff)
checkpoints.add_command(du)
checkpoints.add_command(gc)
checkpoints.add_command(plot_checkpoints)


@checkpoints.command("ls")
@location_argument
@json_option
@watch_option
def list_all(location: str, as_json: bool) -> None:
    """The checkpoints and savepoints of a job, oldest first."""
    storage = open_location(location)
    found, saved = list(checkpoint_summaries(storage)), list(savepoint_summaries(storage))
    if as_json:
        print_json(
            {
                "location": storage.describe(),
                "incarnation": newest(storage),
                "checkpoints": with_old_sizes(found),
                "savepoints": with_old_sizes(saved),
            }
        )
        return
    if found:
        columns = ("checkpoint", "kind", "batch", "created", "files", "stored", "delta", "base", "seconds", "remarks")
        numbers = ("checkpoint", "batch", "files", "stored", "delta", "base", "seconds")
        print_table(columns, (_row(item["number"], item) for item in found), right=numbers)
    if saved:
        if found:
            print_line()
        rows = ((item["name"], *_row(item.get("number"), item)[2:6], item["problem"]) for item in saved)
        print_table(
            ("savepoint", "batch", "created", "files", "stored", "remarks"), rows, right=("batch", "files", "stored")
        )


def _row(number: int | None, item: dict[str, Any]) -> tuple[Any, ...]:
    if item["problem"] is not None:
        return (number, "damaged", *[None] * 7, item["problem"])
    pins = "; ".join(f"pinned: {reason}" for reason in item.get("pins", ()))
    seconds = None if item["seconds"] is None else f"{item['seconds']:.3f}"
    sizes = (size_text(item[name]) for name in ("stored_bytes", "delta_bytes", "base_bytes"))
    return (number, item["kind"], item["batch"], item["created"], item["files"], *sizes, seconds, pins)


@checkpoints.command()
@location_argument
@checkpoint_options
@json_option
def show(location: str, checkpoint: int | None, savepoint: str | None, as_json: bool) -> None:
    """One checkpoint: its batch, its operators, the chains of its slots; with --json the whole manifest."""
    with open_reader(location, checkpoint, savepoint) as reader:
        manifest = reader.manifest
    if as_json:
        print_json({"summary": with_old_sizes(summary(manifest)), "manifest": plain(manifest)})
        return
    for name, value in facts(manifest):
        print_line(f"{name:<16}{value}")
    for operator in manifest.operators:
        print_line()
        types = ", ".join(operator.key_schema)
        print_line(
            f"operator {operator.name!r}: keys of {types}, {operator.parallelism} of {operator.max_parallelism} "
            f"possible slots, stored {size_text(stored_bytes((operator,)))}"
        )
        columns = ("slot", "key groups", "kind", "for", "size", "file", "decisions")
        print_table(columns, _chain_rows(operator), right=("slot", "for", "size"))


def facts(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """What is worth knowing about a checkpoint as a whole, by name."""
    yield "job", manifest.job
    yield manifest.kind, manifest.number
    yield "created", time_text(manifest.created)
    yield "written by", f"{manifest.writer}, emberstate {manifest.library}"
    if manifest.parent is not None:
        yield "follows", manifest.parent.number
    batch = manifest.times
    if batch is None:
        yield "batch", "none yet"
        return
    started = "" if manifest.batch is not None else "none yet, started from a savepoint after "
    yield "batch", f"{started}{batch.id} of query {batch.query}"
    yield "source", batch.source
    yield "processing time", time_text(batch.processing_time)
    yield "watermark", time_text(batch.watermark) or "none"
    if manifest.outputs:
        yield "output rows", sum(output.rows for output in manifest.outputs)


def _chain_rows(operator: Operator) -> Iterator[tuple[Any, ...]]:
    for number, slot in enumerate(operator.slots):
        if not slot.files:
            yield number, f"{slot.groups[0]}-{slot.groups[1]}", "no state", None, None, None, None
        for file in slot.files:
            groups, place = f"{file.groups[0]}-{file.groups[1]}", file.place
            where = f"{place.path}:{place.offset}" if place.offset else place.path
            decided = ", ".join(file.evolution)
            yield number, groups, file.kind, file.number, size_text(place.size), where, decided


@checkpoints.command("verify")
@location_argument
@checkpoint_options
@click.option("--all", "everything", is_flag=True, help="Every checkpoint and savepoint.")
@json_option
def verify_some(location: str, checkpoint: int | None, savepoint: str | None, everything: bool, as_json: bool) -> None:
    """Read all files of a checkpoint and compare them with their checksums. Exit code 1 if one is damaged."""
    if everything and (checkpoint is not None or savepoint is not None):
        raise click.UsageError("--all means every checkpoint: give no other")
    if checkpoint is not None and savepoint is not None:
        raise click.UsageError("give --checkpoint or --savepoint, not both")
    storage = open_location(location)
    numbers: list[int | str] = [*checkpoint_numbers(storage)]
    if everything:
        numbers += savepoint_names(storage)
    elif savepoint is not None:
        numbers = [savepoint]
    elif checkpoint is not None:
        numbers = [checkpoint]
    elif not numbers:
        raise Refused(f"there is no checkpoint in {storage.describe()}: name a savepoint, or give --all")
    else:
        numbers = numbers[-1:]
    results = []
    for number in numbers:
        try:
            results.append(_verified(storage, number))
        except CheckpointCollectedError as error:
            if not everything:
                raise
            note(f"skipped: {error}")
    damaged = [result for result in results if result["problems"]]
    if as_json:
        print_json({"location": storage.describe(), "ok": not damaged, "checkpoints": results})
    else:
        for result in results:
            name = result["savepoint"] or result["number"]
            kind = "savepoint" if result["savepoint"] else "checkpoint"
            state = "damaged" if result["problems"] else "sound"
            print_line(f"{kind} {name}: {state}, {result['files']} files, {size_text(result['bytes'])}")
            for problem in result["problems"]:
                print_line(f"  {problem}")
    finish(PROBLEM if damaged else 0)


def _verified(storage: Storage, number: int | str) -> dict[str, Any]:
    named = isinstance(number, str)
    try:
        manifest = read_savepoint(storage, number) if isinstance(number, str) else read_checkpoint(storage, number)
        found = _verify(storage, manifest, f"{'savepoint' if named else 'checkpoint'} {number}")
    except CorruptionError as error:
        found = Verification(0 if isinstance(number, str) else number, 0, 0, (str(error),))
    except RestoreRefusedError as error:
        raise Refused(str(error)) from None
    return {
        "number": None if named else number,
        "savepoint": number if named else None,
        "files": found.files,
        "bytes": found.bytes,
        "problems": list(found.problems),
    }


def _verify(storage: Storage, manifest: Manifest, name: str) -> Verification:
    with progress(name, sum(ref.size for ref in manifest.file_refs())) as tick:
        found = verify(storage, manifest, lambda place: tick(place.size))
    if found.problems and manifest.kind != "savepoint" and manifest.number not in checkpoint_numbers(storage):
        raise CheckpointCollectedError(f"{manifest.describe()} was collected while it was verified")
    return found
