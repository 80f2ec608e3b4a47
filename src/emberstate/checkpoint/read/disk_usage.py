"""What a location takes on disk: every file, and the files of each checkpoint and savepoint.

Thread safety: as the storage.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, savepoint_names
from emberstate.checkpoint.manifest.layout import SAVEPOINTS, manifest_path
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError, StorageNotFoundError
from emberstate.storage.interface import Storage


@dataclasses.dataclass(frozen=True, slots=True)
class DiskUsage:
    """The sizes of the files of a location."""

    #: By path.
    files: dict[str, int]
    #: `number`, `bytes` of its files, and `alone_bytes` of those that no other checkpoint has; oldest first.
    checkpoints: list[dict[str, Any]]
    #: `name` and `bytes`, by name.
    savepoints: list[dict[str, Any]]

    @property
    def bytes(self) -> int:
        """The size of everything."""
        return sum(self.files.values())

    def folders(self) -> list[dict[str, Any]]:
        """Return the first folder of paths with `name`, `files` and `bytes`, largest first."""
        sizes: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for path, size in self.files.items():
            folder = path.split("/")[0]
            sizes[folder] += size
            counts[folder] += 1
        return [{"name": name, "files": counts[name], "bytes": size} for name, size in sizes.most_common()]


def disk_usage(storage: Storage, progress: Callable[[int], None] | None = None) -> DiskUsage:
    """Look up the size of every file; `progress` gets the number of files done."""
    files = file_sizes(storage, storage.list(), progress)
    needs = _needs(storage)
    users = Counter(path for needed in needs.values() for path in needed)
    checkpoints = [
        {
            "number": number,
            "bytes": sum(files.get(path, 0) for path in needed),
            "alone_bytes": sum(files.get(path, 0) for path in needed if users[path] == 1),
        }
        for number, needed in needs.items()
    ]
    savepoints = [
        {"name": name, "bytes": sum(size for path, size in files.items() if path.startswith(f"{SAVEPOINTS}/{name}/"))}
        for name in savepoint_names(storage)
    ]
    return DiskUsage(files, checkpoints, savepoints)


def file_sizes(
    storage: Storage, paths: Iterable[str], progress: Callable[[int], None] | None = None
) -> dict[str, int]:
    """Return the size of each file, without those that are gone."""
    sizes = {}
    for path in paths:
        with contextlib.suppress(StorageNotFoundError):  # collected, or released, just now
            sizes[path] = storage.size(path)
        if progress is not None:
            progress(1)
    return sizes


def _needs(storage: Storage) -> dict[int, set[str]]:
    """Return the files of each checkpoint that can be read."""
    needs = {}
    for number in checkpoint_numbers(storage):
        try:
            manifest = read_checkpoint(storage, number)
        except (CheckpointCollectedError, CorruptionError, RestoreRefusedError):
            continue
        needs[number] = {manifest_path(number), *(ref.path for ref in manifest.file_refs())}
    return needs
