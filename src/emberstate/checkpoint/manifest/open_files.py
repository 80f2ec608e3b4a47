"""Writing and opening the files that a manifest names. Nothing is used before its checksum was compared.

A small file, or a part of a bundle, is read whole. Of a large one only the end is read at first; it must have the seal
that the manifest names, and it holds the checksums of all other parts.

Thread safety: as the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from emberstate.checkpoint.files.limits import DEFAULT_LIMITS, FileLimits
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.model import FileRef, StateFile
from emberstate.errors import CorruptionError
from emberstate.storage.checksums import checksum, checksum_of
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError

#: Files up to this size are read in one request.
WHOLE_BYTES: Final = 256 * 1024

#: How often a create with an unknown outcome is tried.
_TRIES: Final = 5

#: Bytes that verifying holds in memory at once.
_CHUNK_BYTES: Final = 8 * 1024 * 1024


def store_file(storage: Storage, path: str, parts: Sequence[bytes]) -> FileRef:
    """Write a new file, durable on return, and return a reference to it."""
    storage.write_new(path, parts)
    return FileRef(path, sum(len(part) for part in parts), checksum_of(parts))


def create_surely(storage: Storage, path: str, data: bytes, retried: Callable[[], None] = lambda: None) -> bool:
    """As `create_if_absent`; after an unknown outcome, call `retried` and try again with the same bytes."""
    for _ in range(_TRIES - 1):
        try:
            return storage.create_if_absent(path, data)
        except StorageOutcomeUnknownError:
            retried()
    return storage.create_if_absent(path, data)


def read_ref(storage: Storage, ref: FileRef) -> bytes:
    """Return the bytes of a reference. Raises `CorruptionError` if they are damaged."""
    return checked(ref, storage.read_range(ref.path, ref.offset, ref.size))


def checked(ref: FileRef, data: bytes) -> bytes:
    """Return the data if it has the reference's size and checksum, else raise `CorruptionError`."""
    found = checksum(data)
    if len(data) != ref.size or found != ref.checksum:
        raise _damaged(ref, len(data), found)
    return data


def verify_ref(storage: Storage, ref: FileRef) -> None:
    """Raise `CorruptionError` if the bytes of a reference are damaged. Reads them in chunks."""
    end = ref.offset + ref.size

    def chunks() -> Iterator[bytes]:
        for at in range(ref.offset, end, _CHUNK_BYTES):
            yield storage.read_range(ref.path, at, min(_CHUNK_BYTES, end - at))

    storage.read_range(ref.path, end, 0)  # finds a file that is too short at once
    found = checksum_of(chunks())
    if found != ref.checksum:
        raise _damaged(ref, ref.size, found)


def _damaged(ref: FileRef, size: int, found: str) -> CorruptionError:
    return CorruptionError(
        f"{ref.path}, bytes {ref.offset} to {ref.offset + ref.size}: expected {ref.size} bytes with checksum "
        f"{ref.checksum}, found {size} with {found}. The file is damaged or was replaced. Restore an older checkpoint "
        f"or a savepoint.",
        path=ref.path,
        expected=(ref.size, ref.checksum),
        found=(size, found),
    )


def open_state_file(
    storage: Storage | None,
    file: StateFile,
    *,
    contents: Mapping[str, bytes] | None = None,
    limits: FileLimits = DEFAULT_LIMITS,
) -> StateFileReader:
    """Open a state file that a manifest names; `contents` has the bytes of some files, by id.

    Without a storage, all must be there.
    """
    ref = file.place
    content = None if contents is None else contents.get(file.id)
    if content is not None:
        reader = StateFileReader.of_bytes(checked(ref, content), limits, name=ref.path)
    elif storage is None:
        raise CorruptionError(f"the task names {ref.path}, but does not contain its content", path=ref.path)
    elif ref.size <= WHOLE_BYTES:
        reader = StateFileReader.of_bytes(read_ref(storage, ref), limits, name=ref.path)
    else:
        reader = StateFileReader(
            lambda offset, length: storage.read_range(ref.path, ref.offset + offset, length),
            ref.size,
            limits,
            name=ref.path,
        )
    if reader.seal != file.seal or reader.meta.kind != file.kind:
        raise CorruptionError(
            f"{ref.path}: expected {file.kind} {file.id!r}, which the manifest names, found another file's footer. "
            f"The file was replaced. Restore an older checkpoint or a savepoint.",
            path=ref.path,
            expected=(file.kind, file.seal),
            found=(reader.meta.kind, reader.seal),
        )
    groups = reader.meta.key_groups
    if groups.intersection(file.key_groups) != file.key_groups:
        raise CorruptionError(
            f"{ref.path}: it covers key groups {groups}, the manifest takes {file.key_groups} from it",
            path=ref.path,
            expected=file.groups,
            found=(groups.start, groups.end),
        )
    return reader
