"""`emberstate checkpoints du` and `gc`: show and free disk space.

Only the holder of a job may collect (see `checkpoint.commit.retention`), so `gc` takes the job over: the process that
held it before is fenced and stops at its next commit. Nothing is lost, but the job must be started again. So `gc` shows
what it would do, and does it only with `--yes`. Even then it refuses while the job seems to run, that is, if its newest
checkpoint is young or its process runs on this machine, unless `--take-over` is given. It opens the job as a start
would, with the stored operators and slots, which commits an opening: from then on, nothing that an older process
writes can become part of a checkpoint.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.commit.garbage import CollectionPlan, plan_collection
from emberstate.checkpoint.commit.retention import DEFAULT_RETAINED
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.read.sizes import file_sizes, retained_sizes
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.cli.console import Refused, print_json, print_line, print_table, progress, with_old_sizes
from emberstate.cli.selection import json_option, location_argument, open_location
from emberstate.cli.watch import watch_option
from emberstate.clock import Clock, SystemClock
from emberstate.keygroups import KeySchema
from emberstate.storage.interface import Storage
from emberstate.units import size_text, time_text

#: A job whose newest checkpoint is younger than this seems to run.
_ALIVE_MICROS: Final = 15 * 60 * 1_000_000

retained_option = click.option(
    "--retained", type=click.IntRange(min=1), default=DEFAULT_RETAINED, show_default=True, help="Commits to keep."
)


@click.command()
@location_argument
@retained_option
@json_option
@watch_option
def du(location: str, retained: int, as_json: bool) -> None:
    """Show what is retained on disk, by folder, checkpoint and savepoint, and what a collection would free."""
    storage = open_location(location)
    found = retained_sizes(storage, _sizes(storage, storage.list()))
    free = _freed(plan_collection(storage, retained), found.files)
    if as_json:
        print_json(with_old_sizes(
            {
                "location": storage.describe(),
                "retained_bytes": found.total,
                "folders": [
                    {"name": name, "files": size.files, "retained_bytes": size.bytes}
                    for name, size in sorted(found.folders.items())
                ],
                "checkpoints": [
                    {"number": number, "retained_bytes": size.retained, "alone_bytes": size.alone}
                    for number, size in found.checkpoints.items()
                ],
                "savepoints": [{"name": name, "retained_bytes": size} for name, size in found.savepoints.items()],
                "collectable_bytes": free,
            }
        ))  # fmt: skip
        return
    rows = [(name, size.files, size_text(size.bytes)) for name, size in found.folders.items()]
    rows.append(("all", len(found.files), size_text(found.total)))
    print_table(("folder", "files", "retained"), rows, ("files", "retained"))
    if found.checkpoints:
        print_line()
        print_table(
            ("checkpoint", "retained", "alone"),
            ((n, size_text(size.retained), size_text(size.alone)) for n, size in found.checkpoints.items()),
            ("checkpoint", "retained", "alone"),
        )
    if found.savepoints:
        print_line()
        saved = ((name, size_text(size)) for name, size in found.savepoints.items())
        print_table(("savepoint", "retained"), saved, ("retained",))
    print_line()
    print_line(f"a collection that keeps {retained} commits would free {size_text(free)}: emberstate checkpoints gc")


def _sizes(storage: Storage, paths: Sequence[str]) -> dict[str, int]:
    with progress("looking up sizes", len(paths)) as tick:
        return file_sizes(storage, paths, tick)


def _freed(plan: CollectionPlan, sizes: Mapping[str, int]) -> int:
    return sum(sizes.get(path, 0) for path in (*plan.files, *map(manifest_path, plan.checkpoints)))


@click.command()
@location_argument
@retained_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing; this is the default.")
@click.option("--yes", is_flag=True, help="Take the job over and delete it. Stop the job first.")
@click.option("--take-over", is_flag=True, help="With --yes: even if the job looks alive. It stops at its next commit.")
@json_option
def gc(location: str, retained: int, dry_run: bool, yes: bool, take_over: bool, as_json: bool) -> None:
    """Delete files that no kept checkpoint needs; a running job does this by itself.

    Without --yes it shows what it would delete, including files that a running job has just written. Savepoints and
    pinned checkpoints stay.
    """
    if yes and dry_run:
        raise click.UsageError("--dry-run and --yes exclude each other")
    if take_over and not yes:
        raise click.UsageError("--take-over is for --yes")
    storage = open_location(location)
    plan = plan_collection(storage, retained)
    sizes = file_sizes(storage, [*plan.files, *map(manifest_path, plan.checkpoints)])
    if yes:
        _collect(storage, retained, take_over, SystemClock())
    result = {
        "location": storage.describe(),
        "deleted": yes,
        "kept": list(plan.kept),
        "pinned": list(plan.pinned),
        "unreadable": list(plan.unreadable),
        "checkpoints": list(plan.checkpoints),
        "files": list(plan.files),
        "bytes": _freed(plan, sizes),
    }
    if as_json:
        print_json(result)
        return
    _print_plan(plan, result)


def _print_plan(plan: CollectionPlan, result: dict[str, Any]) -> None:
    verb = "deleted" if result["deleted"] else "to delete"
    print_line(f"kept: checkpoints {_numbers(plan.kept)}{f' (pinned: {_numbers(plan.pinned)})' if plan.pinned else ''}")
    if plan.unreadable:
        print_line(f"no state files go while checkpoints {_numbers(plan.unreadable)} cannot be read")
    print_line(
        f"{verb}: checkpoints {_numbers(plan.checkpoints)}; {len(plan.files)} files; {size_text(result['bytes'])}"
    )
    if not result["deleted"]:
        for path in plan.files:
            print_line(f"  {path}")
        if plan.files or plan.checkpoints:
            print_line("nothing was deleted: stop the job, and give --yes")


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _collect(storage: Storage, retained: int, take_over: bool, clock: Clock) -> None:
    numbers = checkpoint_numbers(storage)
    if not numbers:
        raise Refused(f"there is no checkpoint in {storage.describe()}: nothing to collect")
    latest = read_checkpoint(storage, numbers[-1])
    alive = _alive(latest, clock)
    if alive is not None and not take_over:
        raise Refused(
            f"job {latest.job!r} looks alive: {alive}. A running job collects by itself. If it is stopped, or may be "
            f"stopped (it fails at its next commit, and resumes when it is started again), give --take-over"
        )
    specs = [
        OperatorSpec(
            name=operator.name,
            key_schema=KeySchema(operator.key_schema),
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
        )
        for operator in latest.operators
    ]
    CheckpointCoordinator.open(storage, latest.job, specs, clock=clock, retained=retained).collect()


def _alive(latest: Manifest, clock: Clock) -> str | None:
    """Why the job seems to be running; None if it does not."""
    if clock.now_micros() - latest.created < _ALIVE_MICROS:
        return f"checkpoint {latest.number} was written at {time_text(latest.created)}"
    if latest.writer.host == socket.gethostname() and _runs(latest.writer.pid):
        return f"its process {latest.writer.pid} runs on this machine"
    return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
