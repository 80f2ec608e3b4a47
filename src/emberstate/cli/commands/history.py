"""`emberstate history`: what the batches of a job were like, from the records that it leaves in its location."""

from __future__ import annotations

from typing import Any, Final

import click

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.reader import History, HistoryReader
from emberstate.cli.console import Refused, print_json, print_line, print_table
from emberstate.cli.selection import json_option, location_argument, open_location
from emberstate.cli.watch import watch_option
from emberstate.units import time_text

_COLUMNS: Final = (
    "time", "event", "batch", "rows", "late", "seconds", "spark", "slots", "commit", "sink", "lag", "slowest", "median",
    "remarks",
)  # fmt: skip
#: The parts of a batch that a column adds up.
_PARTS: Final = {
    "spark": ("spark", "transport"),
    "slots": ("user", "snapshot", "state", "delta", "output"),
    "commit": ("commit",),
    "sink": ("sink",),
}


@click.command()
@location_argument
@click.option("--last", type=click.IntRange(min=1), default=20, metavar="N", help="How many records. Default: 20.")
@json_option
@watch_option
def history(location: str, last: int, as_json: bool) -> None:
    """Show the last batches of a job: rows, times by part, lag, slots, failures.

    Starts and savepoints too; oldest first.
    """
    storage = open_location(location)
    found = HistoryReader(storage).read(last)
    if not found.records and not found.damaged:
        raise Refused(
            f"{storage.describe()} has no history: no batch has ended there yet, or an older emberstate ran them"
        )
    if as_json:
        records = [record.as_dict() for record in found.records]
        print_json({"location": storage.describe(), "records": records, "damaged": list(found.damaged)})
    else:
        _print(found)


def _print(found: History) -> None:
    print_table(_COLUMNS, map(_row, found.records), right=_COLUMNS[2:-1])
    for problem in found.damaged:
        print_line(f"skipped: {problem}")


def _row(record: HistoryRecord) -> tuple[Any, ...]:
    seconds: list[str | None] = [None] * (1 + len(_PARTS))
    if record.micros:
        parts = [sum(record.micros.get(name, 0) for name in names) for names in _PARTS.values()]
        seconds = [f"{micros / 1e6:.3f}" for micros in (record.micros.get("total", 0), *parts)]
    ran = record.kind == "batch"
    slowest, median = record.worst_slot, record.median_slot_seconds
    return (
        time_text(record.time // 1000 * 1000),
        record.kind,
        record.batch,
        record.rows_in if ran else None,
        record.late_rows if ran else None,
        *seconds,
        None if record.lag is None else f"{record.lag / 1e6:.1f}",
        None if slowest is None else f"{slowest.seconds:.3f}",
        None if median is None else f"{median:.3f}",
        "; ".join(_remarks(record)),
    )


def _remarks(record: HistoryRecord) -> list[str]:
    remarks = [f"{stage}: {before} → {now} slots" for stage, (before, now) in record.rescaled.items()]
    if record.savepoint:
        remarks.append(f"savepoint {record.savepoint}")
    for how in ("restored", "rolled back"):
        slots = [slot for slot in record.slots if slot.start == how]
        if slots:
            longest = max(slot.micros.get("start", 0) for slot in slots) / 1e6
            remarks.append(f"{len(slots)} {how} in {longest:.3f} s")
    for failure in record.failures:
        where = "" if failure.slot is None else f"slot {failure.slot} of {failure.stage}: "
        said = "".join(char if char.isprintable() else " " for char in failure.message)  # no escapes for a terminal
        remarks.append(f"{where}{said if len(said) <= 120 else said[:119] + '…'}")
    return remarks
