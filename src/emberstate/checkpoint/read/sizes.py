"""The sizes of a location. Every number of bytes that a person reads is one of these three, and is called so:

    live       the encoded bytes of the entries: keys, namespaces, user keys, values (see `usage`)
    stored     the state files that a checkpoint names, each part once, however many slots share it
    retained   whole files that are kept: of a location all of them; of a checkpoint its manifest, and each file that
               has something it needs, outputs too; `alone` is the part of it that no other checkpoint needs

Files are compressed, and hold superseded rows: so stored may be less or more than live. Two checkpoints share files: so
the retained sizes of checkpoints add up to more than the location's.

Thread safety: as the storage; the results are immutable.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.layout import MANIFEST, SAVEPOINTS, manifest_path
from emberstate.checkpoint.manifest.model import Manifest, Operator, StateFile
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError, StorageNotFoundError
from emberstate.storage.interface import Storage


def state_files(operators: Iterable[Operator]) -> list[StateFile]:
    """Return the state files of operators, each once: after a change of parallelism several slots share one."""
    found = {(file.place.path, file.place.offset): file for op in operators for slot in op.slots for file in slot.files}
    return list(found.values())


def stored_bytes(operators: Iterable[Operator]) -> int:
    """Return the stored size of operators."""
    return sum(file.place.size for file in state_files(operators))


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """The part of a stored size that was written for the checkpoint itself."""

    delta: int
    base: int


def written_bytes(manifest: Manifest) -> Written:
    """Return what a commit has written; an opening and a savepoint repeat what others wrote."""
    new = [
        file
        for file in state_files(manifest.operators)
        if file.number == manifest.number and manifest.kind == "commit"
    ]
    return Written(
        delta=sum(file.place.size for file in new if file.kind == "delta"),
        base=sum(file.place.size for file in new if file.kind == "base"),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FolderSize:
    """The retained size of a folder of the location."""

    files: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointSize:
    """The retained size of a checkpoint."""

    retained: int
    alone: int


@dataclasses.dataclass(frozen=True, slots=True)
class RetainedSizes:
    """The retained sizes of a location and of its parts."""

    #: Every file, and its bytes.
    files: Mapping[str, int]
    #: Largest first.
    folders: Mapping[str, FolderSize]
    #: Without those whose manifest cannot be read.
    checkpoints: Mapping[int, CheckpointSize]
    savepoints: Mapping[str, int]

    @property
    def total(self) -> int:
        """The retained size of the location."""
        return sum(self.files.values())


def retained_sizes(storage: Storage, files: Mapping[str, int] | None = None) -> RetainedSizes:
    """Return the retained sizes. Looks at every file, unless `files` has the sizes of all.

    >>> from emberstate.storage.memory import MemoryStorage
    >>> retained_sizes(MemoryStorage()).total
    0
    """
    files = file_sizes(storage, storage.list()) if files is None else files
    needs = _needs(storage)
    users = Counter(path for needed in needs.values() for path in needed)
    folders: dict[str, FolderSize] = {}
    savepoints: dict[str, int] = {}
    for path, size in files.items():
        folder, _, rest = path.partition("/")
        before = folders.get(folder, FolderSize(0, 0))
        folders[folder] = FolderSize(before.files + 1, before.bytes + size)
        name, _, _ = rest.partition("/")
        if folder == SAVEPOINTS and f"{SAVEPOINTS}/{name}/{MANIFEST}" in files:
            savepoints[name] = savepoints.get(name, 0) + size
    return RetainedSizes(
        files=files,
        folders=dict(sorted(folders.items(), key=lambda item: -item[1].bytes)),
        checkpoints={
            number: CheckpointSize(
                retained=sum(files.get(path, 0) for path in needed),
                alone=sum(files.get(path, 0) for path in needed if users[path] == 1),
            )
            for number, needed in needs.items()
        },
        savepoints=savepoints,
    )


def file_sizes(
    storage: Storage, paths: Iterable[str], progress: Callable[[int], None] | None = None
) -> dict[str, int]:
    """Return the bytes of files; those that are gone meanwhile are left out. `progress` gets the number seen."""
    sizes = {}
    for path in paths:
        with contextlib.suppress(StorageNotFoundError):  # collected, or released, just now
            sizes[path] = storage.size(path)
        if progress is not None:
            progress(1)
    return sizes


def _needs(storage: Storage) -> dict[int, set[str]]:
    """The files of each checkpoint."""
    needs = {}
    for number in checkpoint_numbers(storage):
        try:
            manifest = read_checkpoint(storage, number)
        except (CheckpointCollectedError, CorruptionError, RestoreRefusedError):
            continue
        needs[number] = {manifest_path(number), *(ref.path for ref in manifest.file_refs())}
    return needs
