"""Manifests put together by hand: for what no writer writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.storage.interface import Storage
from tests.checkpoint.stored import StorageBackend

SUM = "0123456789abcdef" * 2


def place(path: Any = "state/000001/a.arrow", **changes: Any) -> dict[str, Any]:
    return {"path": path, "size": 10, "checksum": SUM, **changes}


def file(ident: str = "a", kind: Any = "delta", groups: Any = (0, 7), **changes: Any) -> dict[str, Any]:
    plain = {"id": ident, "kind": kind, "groups": list(groups), "place": place(f"state/000001/{ident}.arrow")}
    return {**plain, "seal": SUM, "number": 1, **changes}


def slot(groups: Any = (0, 7), files: Any = (), **changes: Any) -> dict[str, Any]:
    return {"groups": list(groups), "attempt": "x", "files": list(files), **changes}


def operator(name: Any = "counts", slots: Any = None, **changes: Any) -> dict[str, Any]:
    plain = {"name": name, "key_schema": ["string"], "max_parallelism": 8}
    return {**plain, "slots": [slot(files=[file()])] if slots is None else slots, **changes}


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "job": "job",
        "id": "m",
        "number": 2,
        "kind": "commit",
        "writer": {"incarnation": 1, "host": "h", "pid": 1, "started": "2024-01-01T00:00:00+00:00", "token": "t"},
        "created": 1,
        "origin": "m",
        "parent": {"number": 1, "id": "p"},
        "batch": {"id": 0, "query": "q", "source": "s", "processing_time": 5},
        "operators": [operator()],
        "outputs": [{"operator": "counts", "name": "main", "slot": 0, "rows": 1, "place": place("output/000001/o")}],
        "library": "0.1.0",
        **changes,
    }


def body(plain: Any) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()


def sealed(content: Any, what: str = "manifest", version: Any = 1) -> bytes:
    """A small file with a right checksum, whatever it holds."""
    data = content if isinstance(content, bytes) else body(content)
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    return f"emberstate {what} {version} {digest} {len(data)}\n".encode() + data


def body_of(data: bytes) -> Any:
    return json.loads(data.partition(b"\n")[2])


def replace(storage: Storage, path: str, data: bytes) -> None:
    """Write over a file, as no storage does by itself."""
    storage.delete(path)
    storage.write_new(path, data)


def forge(storage: Storage, number: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a stored manifest in place, under a right checksum."""
    plain = body_of(storage.read(manifest_path(number)))
    change(plain)
    replace(storage, manifest_path(number), sealed(plain))


def copied(storage: Storage) -> StorageBackend:
    """The same files in a storage of their own."""
    made = StorageBackend()
    for path in storage.list():
        made.storage.write_new(path, storage.read(path))
    return made


class Exploit:
    """Pickled, it is a command to run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        import os

        return os.system, (f"touch '{self.marker}'",)
