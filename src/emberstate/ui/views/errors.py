"""What went wrong: failed batches and attempts out of the history, and what cannot be read at the location."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from emberstate.checkpoint.history.model import FailureRecord, HistoryRecord
from emberstate.checkpoint.read.summaries import checkpoint_summaries, savepoint_summaries
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable

_MOST: Final = 100
_RECORDS: Final = 2000


def errors(location: Location) -> dict[str, Any]:
    """Return the last failures, newest first, and all damage."""
    history = location.history.read(_RECORDS)
    found = [item for record in history.records for item in _failures(record)]
    return {
        "failures": found[: -_MOST - 1 : -1],
        "more": max(0, len(found) - _MOST),
        "records": len(history.records),
        "damage": list(_damage(location, history.damaged)),
    }


def _failures(record: HistoryRecord) -> Iterator[dict[str, Any]]:
    for failure in record.failures or ((FailureRecord(),) if record.kind == "failure" else ()):
        yield {
            "time": record.time,
            "batch": record.batch,
            "whole": record.kind == "failure",
            "error": printable(failure.error),
            "message": printable(failure.message),
            "stage": printable(failure.stage),
            "slot": failure.slot,
            "executor": printable(failure.executor),
        }


def _damage(location: Location, damaged: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for item in checkpoint_summaries(location.storage):
        if item["problem"] is not None:
            yield {"what": f"checkpoint {item['number']}", "problem": printable(item["problem"])}
    for item in savepoint_summaries(location.storage):
        if item["problem"] is not None:
            yield {"what": f"savepoint {printable(item['name'])}", "problem": printable(item["problem"])}
    for text in damaged:
        yield {"what": "history", "problem": printable(text)}
