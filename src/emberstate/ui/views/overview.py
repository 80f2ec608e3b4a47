"""The jobs at a glance: one per location."""

from __future__ import annotations

from typing import Any, Final

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, savepoint_names
from emberstate.checkpoint.manifest.location_hints import nothing_in
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.manifest.pins import pinned_numbers
from emberstate.checkpoint.read.summaries import summary
from emberstate.clock import SystemClock
from emberstate.errors import EmberstateError
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable
from emberstate.ui.views.batches import durations, last_failure

#: Records of the history that are read, and batches of the line on a job's card.
_RECORDS: Final = 100
_BATCHES: Final = 80


def overview(locations: list[Location]) -> dict[str, Any]:
    """Return every job, with what is wrong with it."""
    return {"jobs": [_job(location) for location in locations]}


def _job(location: Location) -> dict[str, Any]:
    about: dict[str, Any] = {
        "number": location.number,
        "location": printable(location.name),
        "job": None,
        "problem": None,
        "newest": None,
        "durations": [],
        "failed": None,
    }
    try:
        storage = location.storage
        numbers, names = checkpoint_numbers(storage), savepoint_names(storage)
        about |= {"checkpoints": len(numbers), "savepoints": len(names), "pinned": len(pinned_numbers(storage))}
        if not numbers and not names:
            return about | {"problem": printable(nothing_in(storage))}
        history = location.history.read(_RECORDS)
        about |= {"durations": durations(history, _BATCHES), "failed": last_failure(history)}
        with location.open() as reader:
            return about | newest(reader.manifest)
    except EmberstateError as error:
        return about | {"problem": printable(str(error))}


def newest(manifest: Manifest) -> dict[str, Any]:
    """Return a job as its newest checkpoint tells it: how old that is, and how far its event time was behind."""
    batch = manifest.times
    behind = None if batch is None or batch.watermark is None else batch.processing_time - batch.watermark
    return {
        "job": printable(manifest.job),
        "newest": summary(manifest),
        "age": max(0.0, (SystemClock().now_micros() - manifest.created) / 1e6),
        "lag": None if behind is None else max(0.0, behind / 1e6),
        "writer": printable(str(manifest.writer)),
        "library": printable(manifest.library),
        "operators": [
            {
                "name": printable(operator.name),
                "slots": operator.parallelism,
                "key_groups": operator.max_parallelism,
                "key": ", ".join(map(printable, operator.key_schema)),
            }
            for operator in manifest.operators
        ],
    }
