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
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.manifest.pins import pins
from emberstate.checkpoint.read.sizes import state_files, stored_bytes, written_bytes
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError
from emberstate.storage.interface import Storage
from emberstate.units import time_text


def summary(manifest: Manifest) -> dict[str, Any]:
    """A checkpoint in a few numbers.

    `stored_bytes` is its stored size (`checkpoint.read.sizes`); of that, `delta_bytes` and `base_bytes` were written
    for it. `seconds` is the time from the beginning of its batch to its commit.
    """
    written, batch = written_bytes(manifest), manifest.batch
    seconds = None
    if manifest.kind == "commit" and batch is not None:
        seconds = (manifest.created - batch.processing_time) / 1e6
    return {
        "job": manifest.job,
        "number": manifest.number,
        "kind": manifest.kind,
        "batch": None if batch is None else batch.id,
        "created": time_text(manifest.created),
        "watermark": None if batch is None else time_text(batch.watermark),
        "seconds": seconds,
        "sync_seconds": _seconds(manifest, "sync"),
        "async_seconds": _seconds(manifest, "async"),
        "incarnation": manifest.writer.incarnation,
        "files": len(state_files(manifest.operators)),
        "stored_bytes": stored_bytes(manifest.operators),
        "delta_bytes": written.delta,
        "base_bytes": written.base,
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
