"""Checkpoints as plain data, from their manifests, for listings and plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emberstate.checkpoint.manifest.catalogue import (
    checkpoint_numbers,
    read_checkpoint,
    read_savepoint,
    savepoint_names,
)
from emberstate.checkpoint.manifest.model import Manifest, Operator, StateFile
from emberstate.checkpoint.manifest.pins import pins
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError
from emberstate.storage.interface import Storage
from emberstate.units import time_text


def files_of(operators: tuple[Operator, ...]) -> list[StateFile]:
    """The state files of operators, each once: after a change of parallelism several slots share one."""
    found = {(file.place.path, file.place.offset): file for op in operators for slot in op.slots for file in slot.files}
    return list(found.values())


def summary(manifest: Manifest) -> dict[str, Any]:
    """A checkpoint in a few numbers.

    `delta_bytes` and `base_bytes` were written for this checkpoint, `bytes` is the size of all its files. `seconds`
    is the time from the beginning of its batch to its commit.
    """
    files, batch = files_of(manifest.operators), manifest.batch
    new = [file for file in files if file.number == manifest.number and manifest.kind == "commit"]
    seconds = None
    if manifest.kind == "commit" and batch is not None:
        seconds = (manifest.created - batch.processing_time) / 1e6
    return {
        "number": manifest.number,
        "kind": manifest.kind,
        "batch": None if batch is None else batch.id,
        "created": time_text(manifest.created),
        "watermark": None if batch is None else time_text(batch.watermark),
        "seconds": seconds,
        "sync_seconds": _seconds(manifest, "sync"),
        "async_seconds": _seconds(manifest, "async"),
        "incarnation": manifest.writer.incarnation,
        "files": len(files),
        "bytes": sum(file.place.size for file in files),
        "delta_bytes": sum(file.place.size for file in new if file.kind == "delta"),
        "base_bytes": sum(file.place.size for file in new if file.kind == "base"),
        "output_rows": sum(output.rows for output in manifest.outputs),
    }


def checkpoint_summaries(storage: Storage) -> Iterator[dict[str, Any]]:
    """Every checkpoint, oldest first; one that cannot be read has a `problem` instead of numbers."""
    reasons: dict[int, list[str]] = {}
    for pin in pins(storage):
        reasons.setdefault(pin.number, []).append(repr(pin) if pin.record is None else pin.record.reason)
    for number in checkpoint_numbers(storage):
        try:
            found = {**summary(read_checkpoint(storage, number)), "problem": None}
        except CheckpointCollectedError:
            continue  # the job has just collected it
        except (CorruptionError, RestoreRefusedError) as error:
            found = {"number": number, "problem": str(error)}
        yield {**found, "pins": reasons.get(number, [])}


def savepoint_summaries(storage: Storage) -> Iterator[dict[str, Any]]:
    """Every savepoint, by name."""
    for name in savepoint_names(storage):
        try:
            yield {"name": name, **summary(read_savepoint(storage, name)), "problem": None}
        except CheckpointCollectedError:
            continue
        except (CorruptionError, RestoreRefusedError) as error:
            yield {"name": name, "problem": str(error)}


def _seconds(manifest: Manifest, part: str) -> float | None:
    """The time of a part of the batch; None if unknown."""
    micros = manifest.micros.get(part)
    return None if micros is None else micros / 1e6
