"""Checkpoints, savepoints and pins of a location, and what they take: stored and retained sizes (`read.sizes`)."""

from __future__ import annotations

from typing import Any, Final

from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.manifest.pins import Pin, pins
from emberstate.checkpoint.read.sizes import file_sizes, retained_sizes, stored_bytes
from emberstate.checkpoint.read.summaries import checkpoint_summaries, savepoint_summaries, summary
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.ui.locations import Location
from emberstate.ui.shown import printable

#: Files whose sizes are looked up without being asked, where that is no request over a network.
_FEW: Final = 2000


def checkpoints(location: Location, disk: bool) -> dict[str, Any]:
    """Return all checkpoints, newest first, all savepoints and pins; and retained sizes, if asked for or cheap."""
    storage = location.storage
    found = [_readable(item) for item in checkpoint_summaries(storage)]
    paths = storage.list()
    cheap = isinstance(storage, LocalStorage | MemoryStorage) and len(paths) <= _FEW
    return {
        "checkpoints": found[::-1],
        "savepoints": [_readable(item) for item in savepoint_summaries(storage)],
        "pins": [_pin(pin) for pin in pins(storage)],
        "most_written": max(
            (item["delta_bytes"] + item["base_bytes"] for item in found if item["problem"] is None), default=0
        ),
        "retained": _retained(location, paths) if disk or cheap else None,
    }


def _readable(item: dict[str, Any]) -> dict[str, Any]:
    """A summary whose texts can be shown."""
    problem = None if item["problem"] is None else printable(item["problem"])
    return item | {"problem": problem, "pins": [printable(reason) for reason in item.get("pins", ())]}


def _retained(location: Location, paths: list[str]) -> dict[str, Any]:
    sizes = retained_sizes(location.storage, file_sizes(location.storage, paths))
    return {
        "bytes": sizes.total,
        "files": len(sizes.files),
        "folders": [
            {"name": printable(name), "files": folder.files, "bytes": folder.bytes}
            for name, folder in sizes.folders.items()
        ],
        "checkpoints": {
            number: {"retained_bytes": size.retained, "alone_bytes": size.alone}
            for number, size in sizes.checkpoints.items()
        },
        "savepoints": {printable(name): size for name, size in sizes.savepoints.items()},
    }


def _pin(pin: Pin) -> dict[str, Any]:
    record = pin.record
    if record is None:
        reason = "its record cannot be read; it holds all the same"
        return {"number": pin.number, "reason": reason, "by": "", "since": None}
    by = f"process {record.pid} on {record.host}"
    return {
        "number": pin.number,
        "reason": printable(record.reason),
        "by": printable(by),
        "since": printable(record.created),
    }


def checkpoint(location: Location, which: str) -> dict[str, Any]:
    """Return one checkpoint or savepoint: its batch, and the chains of its slots."""
    with location.open(which) as reader:
        manifest = reader.manifest
    batch = manifest.times
    return {
        "which": which or str(manifest.number),
        "summary": summary(manifest),
        "writer": printable(str(manifest.writer)),
        "library": printable(manifest.library),
        "parent": None if manifest.parent is None else manifest.parent.number,
        "query": None if batch is None else printable(batch.query),
        "source": None if batch is None else printable(batch.source)[:2000],
        "operators": [_chains(manifest, operator) for operator in manifest.operators],
    }


def _chains(manifest: Manifest, operator: Operator) -> dict[str, Any]:
    slots = [
        {
            "slot": number,
            "groups": f"{slot.groups[0]}–{slot.groups[1]}",
            "bases": sum(file.kind == "base" for file in slot.files),
            "deltas": sum(file.kind == "delta" for file in slot.files),
            "stored_bytes": sum(file.place.size for file in slot.files),
            "written_bytes": sum(file.place.size for file in slot.files if file.number == manifest.number),
            "files": [
                {
                    "kind": file.kind,
                    "groups": f"{file.groups[0]}–{file.groups[1]}",
                    "number": file.number,
                    "bytes": file.place.size,
                    "path": printable(file.place.path),
                }
                for file in slot.files
            ],
        }
        for number, slot in enumerate(operator.slots)
    ]
    return {
        "name": printable(operator.name),
        "slots": slots,
        "stored_bytes": stored_bytes((operator,)),
    }
