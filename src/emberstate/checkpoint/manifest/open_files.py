"""Opening what a manifest names: nothing is used that is not what was written.

A small file, or a part of a bundle, is read whole and compared with its checksum. Of a large one only the end
is read at first; it must have the seal that the manifest knows, and holds the checksums of all other parts.

Thread safety: as the storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from emberstate.checkpoint.files.limits import DEFAULT_LIMITS, FileLimits
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.model import FileRef, StateFile
from emberstate.errors import CorruptionError
from emberstate.storage.checksums import checksum, checksum_of
from emberstate.storage.interface import Storage

#: Files up to this size are read in one request.
WHOLE_BYTES: Final = 256 * 1024

#: What verifying holds in memory at once.
_CHUNK_BYTES: Final = 8 * 1024 * 1024


def read_ref(storage: Storage, place: FileRef) -> bytes:
    """The bytes at a place; CorruptionError unless they are what was written."""
    return checked(place, storage.read_range(place.path, place.offset, place.size))


def checked(place: FileRef, data: bytes) -> bytes:
    """The data itself, if it has the place's checksum."""
    found = checksum(data)
    if len(data) != place.size or found != place.checksum:
        raise _damaged(place, len(data), found)
    return data


def verify_ref(storage: Storage, place: FileRef) -> None:
    """CorruptionError unless the bytes at a place are what was written; few of them are in memory at once."""
    end = place.offset + place.size

    def chunks() -> Iterator[bytes]:
        for at in range(place.offset, end, _CHUNK_BYTES):
            yield storage.read_range(place.path, at, min(_CHUNK_BYTES, end - at))

    storage.read_range(place.path, end, 0)  # a file that is shorter is known at once
    found = checksum_of(chunks())
    if found != place.checksum:
        raise _damaged(place, place.size, found)


def _damaged(place: FileRef, size: int, found: str) -> CorruptionError:
    return CorruptionError(
        f"{place.path}, bytes {place.offset} to {place.offset + place.size}: {size} bytes with checksum {found} are "
        f"there, {place.size} with {place.checksum} were written. The file is damaged or was exchanged: restore an "
        f"older checkpoint or a savepoint."
    )


def open_state_file(
    storage: Storage | None,
    file: StateFile,
    *,
    contents: Mapping[str, bytes] | None = None,
    limits: FileLimits = DEFAULT_LIMITS,
) -> StateFileReader:
    """Open a state file that a manifest names; `contents` has those that are in hand already, by id.

    Without a storage, all must be in hand.
    """
    place = file.place
    content = None if contents is None else contents.get(file.id)
    if content is not None:
        reader = StateFileReader.of_bytes(checked(place, content), limits, name=place.path)
    elif storage is None:
        raise CorruptionError(f"the content of {place.path} did not come with the task that names it")
    elif place.size <= WHOLE_BYTES:
        reader = StateFileReader.of_bytes(read_ref(storage, place), limits, name=place.path)
    else:
        reader = StateFileReader(
            lambda offset, length: storage.read_range(place.path, place.offset + offset, length),
            place.size,
            limits,
            name=place.path,
        )
    if reader.seal != file.seal or reader.meta.kind != file.kind:
        raise CorruptionError(
            f"{place.path}: its footer is not that of {file.kind} {file.id!r}, which the manifest names: the file was "
            f"exchanged for another. Restore an older checkpoint or a savepoint."
        )
    groups = reader.meta.key_groups
    if groups.intersection(file.key_groups) != file.key_groups:
        raise CorruptionError(f"{place.path}: it covers key groups {groups}, the manifest takes {file.key_groups}")
    return reader
