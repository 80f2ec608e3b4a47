"""Slots by executor: their key groups, and what each did in the last batches, also as a Gantt chart.

In the chart every batch has a column as wide as it was long, and every slot a lane: so waiting between batches takes no
room, and batches of all lengths can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from emberstate.checkpoint.history.model import HistoryRecord, SlotRecord
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable

#: Batches and lanes of the chart.
_BATCHES: Final = 12
_LANES: Final = 64
#: The width of the chart, in its own units, and that of the gaps between batches.
_WIDTH: Final = 1000.0
_GAP: Final = 4.0

Lane = tuple[str, int]


def slots(location: Location) -> dict[str, Any]:
    """Return every slot of the newest checkpoint, with what the history says of it, and the chart."""
    with location.open() as reader:
        manifest = reader.manifest
    records = [record for record in location.history.read(4 * _BATCHES).records if record.kind == "batch"]
    last = records[-1] if records else None
    rows = _rows(manifest, last)
    executors: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        executors.setdefault(row["executor"] or "", []).append(row)
    return {
        "batch": None if last is None else last.batch,
        "slowest": max((row["seconds"] for row in rows if row["seconds"] is not None), default=0.0),
        "median": None if last is None else last.median_slot_seconds,
        "executors": [
            {
                "name": printable(name),
                "slots": found,
                "rows": sum(row["rows"] or 0 for row in found),
                "stored_bytes": sum(row["stored_bytes"] for row in found),
                "memory": sum(row["memory"] or 0 for row in found),
            }
            for name, found in sorted(executors.items())
        ],
        "gantt": _gantt(records[-_BATCHES:]),
    }


def _rows(manifest: Manifest, last: HistoryRecord | None) -> list[dict[str, Any]]:
    known = {} if last is None else {(slot.stage, slot.slot): slot for slot in last.slots}
    rows = []
    for operator in manifest.operators:
        for number, chain in enumerate(operator.slots):
            rows.append(
                {
                    "operator": printable(operator.name),
                    "slot": number,
                    "groups": f"{chain.groups[0]}–{chain.groups[1]}",
                    "files": len(chain.files),
                    "stored_bytes": sum(file.place.size for file in chain.files),
                    **_did(known.get((operator.name, number))),
                }
            )
    return rows


def _did(slot: SlotRecord | None) -> dict[str, Any]:
    names = ("executor", "start", "rows", "late_rows", "timers", "entries", "delta_bytes", "memory", "memory_limit")
    if slot is None:
        return dict.fromkeys((*names, "seconds", "user_seconds", "start_seconds"))
    parts = {f"{part}_seconds": slot.micros.get(part, 0) / 1e6 for part in ("user", "start")}
    return {name: getattr(slot, name) for name in names} | parts | {"seconds": slot.seconds}


def _gantt(records: Sequence[HistoryRecord]) -> dict[str, Any] | None:
    places: dict[Lane, str] = {}
    for record in records:
        places |= {(slot.stage, slot.slot): slot.executor for slot in record.slots}
    lanes = sorted(places, key=lambda lane: (places[lane], lane))
    if not lanes:
        return None
    shown = {lane: number for number, lane in enumerate(lanes[:_LANES])}
    spans = [_span(record) for record in records]
    unit = (_WIDTH - _GAP * (len(records) - 1)) / max(1, sum(length for _, length in spans))
    columns, left = [], 0.0
    for record, (begin, length) in zip(records, spans, strict=True):
        width = length * unit
        columns.append(
            {
                "batch": record.batch,
                "seconds": length / 1e6,
                "x": round(left, 2),
                "width": round(width, 2),
                "bars": [
                    _bar(slot, shown[slot.stage, slot.slot], begin, length, left, unit)
                    for slot in record.slots
                    if (slot.stage, slot.slot) in shown
                ],
                "failures": [
                    {"lane": shown[one.stage, one.slot], "text": printable(f"{one.error}: {one.message}"[:200])}
                    for one in record.failures
                    if one.slot is not None and (one.stage, one.slot) in shown
                ],
            }
        )
        left += width + _GAP
    return {
        "lanes": [
            {"stage": printable(stage), "slot": slot, "executor": printable(places[stage, slot])}
            for stage, slot in shown
        ],
        "left_out": len(lanes) - len(shown),
        "columns": columns,
        "width": _WIDTH,
    }


def _span(record: HistoryRecord) -> tuple[int, int]:
    """When a batch began and how long it took, in µs; its slots count too, whose clocks may differ."""
    end = max((slot.began + slot.micros.get("total", 0) for slot in record.slots if slot.began), default=record.time)
    return record.time, max(1, record.micros.get("total", 0), min(end - record.time, 2 * record.micros.get("total", 0)))


def _bar(slot: SlotRecord, lane: int, begin: int, length: int, left: float, unit: float) -> dict[str, Any]:
    start = min(max(0, slot.began - begin), length)
    taken = min(slot.micros.get("total", 0), length - start)
    getting = min(slot.micros.get("start", 0), taken)
    return {
        "lane": lane,
        "x": round(left + start * unit, 2),
        "width": round(max(1.0, taken * unit), 2),
        "start_width": round(getting * unit, 2),
        "start": slot.start,
        "seconds": slot.seconds,
        "start_seconds": slot.micros.get("start", 0) / 1e6,
        "rows": slot.rows,
    }
