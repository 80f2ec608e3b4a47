"""Batches over time, from the history of a location: durations by part, rows, lag, state; and what else happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.reader import History
from emberstate.errors import StateDeclarationError
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable

#: How many records a page may show.
RANGES: Final = (100, 500, 2000, 10000)
#: Parts of a batch in the order in which they are stacked; background work runs beside a batch and is no part of it.
PARTS: Final = ("spark", "transport", "user", "snapshot", "state", "delta", "output", "commit", "sink")
_OTHER: Final = "other"
_BESIDE: Final = ("total", "background")
_TABLE: Final = 20
_EVENTS: Final = 30
_BATCHES: Final = ("batch", "redelivery")


def batches(location: Location, last: str) -> dict[str, Any]:
    """Return the last records as series for charts, the newest batches as rows, and other events."""
    chosen = RANGES[0] if not last else int(last) if last.isascii() and last.isdecimal() and len(last) < 6 else 0
    if chosen not in RANGES:
        raise StateDeclarationError(f"last: expected one of {RANGES}, got {last!r:.50}", option="last", found=last[:50])
    history = location.history.read(chosen)
    done = [record for record in history.records if record.kind in _BATCHES]
    return {
        "last": chosen,
        "ranges": RANGES,
        "records": len(history.records),
        "damaged": [printable(text) for text in history.damaged],
        "series": _series(done),
        "marks": [
            {"time": record.time / 1e6, "kind": record.kind}
            for record in history.records
            if record.kind in ("opening", "failure")
        ],
        "rows": [_row(record) for record in done[: -_TABLE - 1 : -1]],
        "events": [_event(record) for record in history.records if record.kind not in _BATCHES][: -_EVENTS - 1 : -1],
    }


def durations(history: History, most: int) -> list[float]:
    """Return the seconds of the last batches, oldest first."""
    return [record.seconds for record in history.records if record.kind in _BATCHES][-most:]


def last_failure(history: History) -> str | None:
    """Return why the last batch failed; None if it did not, or the job was started again since."""
    last = next((record for record in reversed(history.records) if record.kind != "savepoint"), None)
    return printable(_event_text(last)) if last is not None and last.kind == "failure" else None


def _series(done: Sequence[HistoryRecord]) -> dict[str, Any]:
    parts = {name: [_part(record, name) for record in done] for name in (*PARTS, _OTHER)}
    return {
        "time": [record.time / 1e6 for record in done],
        "batch": [record.batch for record in done],
        "total": [record.seconds for record in done],
        "parts": {name: values for name, values in parts.items() if any(values)},
        "slowest": [None if record.worst_slot is None else record.worst_slot.seconds for record in done],
        "median": [record.median_slot_seconds for record in done],
        "rows_in": [record.rows_in for record in done],
        "rows_out": [sum(record.rows_out.values()) for record in done],
        "late_rows": [record.late_rows for record in done],
        "lag": [None if record.lag is None else record.lag / 1e6 for record in done],
        "stored_bytes": [record.state_bytes for record in done],
        "delta_bytes": [record.delta_bytes for record in done],
    }


def _part(record: HistoryRecord, name: str) -> float:
    if name != _OTHER:
        return record.micros.get(name, 0) / 1e6
    known = sum(micros for part, micros in record.micros.items() if part in PARTS)
    return max(0, record.micros.get("total", 0) - known) / 1e6


def _row(record: HistoryRecord) -> dict[str, Any]:
    parts = {name: micros for name, micros in record.micros.items() if name not in _BESIDE and micros}
    largest = max(parts, key=lambda name: parts[name], default=None)
    return {
        "batch": record.batch,
        "kind": record.kind,
        "checkpoint": record.checkpoint,
        "time": record.time,
        "seconds": record.seconds,
        "largest_part": None if largest is None else printable(largest),
        "largest_share": 0 if largest is None else parts[largest] / max(1, sum(parts.values())),
        "rows_in": record.rows_in,
        "rows_out": sum(record.rows_out.values()),
        "late_rows": record.late_rows,
        "timers_fired": record.timers_fired,
        "lag": None if record.lag is None else record.lag / 1e6,
        "entries": record.state_entries,
        "stored_bytes": record.state_bytes,
        "delta_bytes": record.delta_bytes,
        "restored": sum(slot.start == "restored" for slot in record.slots),
        "rolled_back": sum(slot.start == "rolled back" for slot in record.slots),
        "retried": len(record.failures),
    }


def _event(record: HistoryRecord) -> dict[str, Any]:
    return {
        "time": record.time,
        "kind": record.kind,
        "batch": record.batch,
        "checkpoint": record.checkpoint,
        "incarnation": record.incarnation,
        "text": printable(_event_text(record)),
    }


def _event_text(record: HistoryRecord) -> str:
    if record.kind == "failure":
        return "; ".join(f"{one.error}: {one.message}" if one.error else one.message for one in record.failures)[:300]
    if record.kind == "savepoint":
        return f"savepoint {record.savepoint}"
    changed = [f"{stage} from {before} to {now} slots" for stage, (before, now) in record.rescaled.items()]
    slots = ", ".join(f"{stage} × {now}" for stage, now in record.parallelism.items())
    return f"rescaled: {'; '.join(changed)}" if changed else f"started with {slots}" if slots else "started"
