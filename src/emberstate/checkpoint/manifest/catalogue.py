"""Listing, reading and verifying checkpoints and savepoints, without locks.

Thread safety: as the storage.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections.abc import Callable, Iterator

from emberstate.checkpoint.manifest.envelope import MAX_BYTES
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import (
    CHECKPOINTS,
    MANIFEST,
    SAVEPOINTS,
    manifest_path,
    number_in,
    savepoint_path,
)
from emberstate.checkpoint.manifest.location_hints import nothing_in
from emberstate.checkpoint.manifest.model import FileRef, Manifest
from emberstate.checkpoint.manifest.open_files import open_state_file, verify_ref
from emberstate.errors import CheckpointCollectedError, CorruptionError, StorageError, StorageNotFoundError
from emberstate.storage.interface import Storage


def checkpoint_numbers(storage: Storage) -> list[int]:
    """Return the numbers of all checkpoints, readable or not, ascending."""
    return sorted(
        number
        for path in storage.list(CHECKPOINTS)
        if path.endswith(f"/{MANIFEST}") and (number := number_in(path)) is not None and path == manifest_path(number)
    )


def savepoint_names(storage: Storage) -> list[str]:
    """Return the names of all savepoints, sorted."""
    return [
        parts[1] for path in storage.list(SAVEPOINTS) if len(parts := path.split("/")) == 3 and parts[2] == MANIFEST
    ]


def read_checkpoint(storage: Storage, number: int) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises:
        CheckpointCollectedError: there is none of this number, or no longer.
        CorruptionError: it is damaged.
    """
    path = manifest_path(number)
    try:
        data = _read_manifest(storage, path)
    except StorageNotFoundError:
        there = checkpoint_numbers(storage)
        if not there and not savepoint_names(storage):
            raise CheckpointCollectedError(
                f"there is no checkpoint {number}: {nothing_in(storage)}", checkpoint=number
            ) from None
        raise CheckpointCollectedError(
            f"checkpoint {number} is not in {storage.describe()}: it was collected, or never existed. There are "
            f"{'none' if not there else f'{there[0]} to {there[-1]}'}. Pin a checkpoint to keep it while it is read.",
            checkpoint=number,
            found=tuple(there[:1] + there[-1:]),
        ) from None
    return _of_number(open_manifest(data, path), number, path)


def read_savepoint(storage: Storage, name: str) -> Manifest:
    """Return the manifest of a savepoint. Raises as `read_checkpoint` does."""
    path = savepoint_path(name)
    try:
        data = _read_manifest(storage, path)
    except StorageNotFoundError:
        there = savepoint_names(storage)
        if not there and not checkpoint_numbers(storage):
            raise CheckpointCollectedError(
                f"there is no savepoint {name!r}: {nothing_in(storage)}", path=path
            ) from None
        raise CheckpointCollectedError(
            f"there is no savepoint {name!r} in {storage.describe()}; there are {there}",
            path=path,
            expected=name,
            found=tuple(there),
        ) from None
    return _self_contained(open_manifest(data, path), path)


@contextlib.contextmanager
def naming_missing(storage: Storage, manifest: Manifest) -> Iterator[None]:
    """Translate the error for a missing file of a manifest: its checkpoint was collected, or is damaged."""
    try:
        yield
    except StorageNotFoundError as error:
        home = _home(manifest)
        try:
            storage.size(home)
        except StorageNotFoundError:
            raise CheckpointCollectedError(
                f"{manifest.describe()} was collected while it was read: {home} is gone from {storage.describe()}. "
                f"Open a newer one, or pin a checkpoint to keep it while it is read.",
                path=error.path,
                checkpoint=manifest.number,
            ) from None
        raise CorruptionError(
            f"{manifest.describe()} is damaged: it names a missing file ({error.strerror}). Restore an older "
            f"checkpoint or a savepoint.",
            path=error.path,
            checkpoint=manifest.number,
        ) from error


def _home(manifest: Manifest) -> str:
    """Return the path of the manifest itself."""
    if manifest.kind == "savepoint":
        return next(f"{ref.path.rpartition('/')[0]}/{MANIFEST}" for ref in manifest.file_refs())
    return manifest_path(manifest.number)


def _self_contained(manifest: Manifest, path: str) -> Manifest:
    folder = path.removesuffix(MANIFEST)
    outside = [ref.path for ref in manifest.file_refs() if not ref.path.startswith(folder)]
    if manifest.kind != "savepoint" or outside:
        raise CorruptionError(
            f"{path}: expected a savepoint whose files are all in {folder}, found a {manifest.kind} with {outside[:3]} "
            f"outside. The file was replaced.",
            path=path,
            expected="savepoint",
            found=manifest.kind,
        )
    return manifest


def _read_manifest(storage: Storage, path: str) -> bytes:
    try:
        return storage.read(path, limit=MAX_BYTES)
    except StorageError as error:
        if error.errno != errno.EFBIG:
            raise
        raise CorruptionError(f"{path}: {error.strerror}. The file is damaged.", **error.place) from None


def _of_number(manifest: Manifest, number: int, path: str) -> Manifest:
    if manifest.number != number:
        raise CorruptionError(
            f"{path}: expected checkpoint {number}, found checkpoint {manifest.number}. The file was replaced.",
            path=path,
            checkpoint=number,
            expected=number,
            found=manifest.number,
        )
    return manifest


@dataclasses.dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a checkpoint."""

    number: int
    files: int
    bytes: int
    problems: tuple[str, ...]


def verify(storage: Storage, manifest: Manifest, progress: Callable[[FileRef], None] | None = None) -> Verification:
    """Read every file of a checkpoint, compare it with its checksums, and return all problems.

    Raises:
        StorageError: a file could not be read. That does not mean that it is damaged: the network may be down.
    """
    problems: list[str] = []
    files = size = 0

    def attempt(what: FileRef, check: Callable[[], object], may_be_gone: bool = False) -> None:
        nonlocal files, size
        files += 1
        size += what.size
        try:
            check()
        except (CorruptionError, StorageNotFoundError) as error:
            if not (may_be_gone and isinstance(error, StorageNotFoundError)):
                problems.append(str(error))
        if progress is not None:
            progress(what)

    for operator in manifest.operators:
        for slot in operator.slots:
            for file in slot.files:

                def read(file=file) -> None:  # type: ignore[no-untyped-def]
                    verify_ref(storage, file.place)
                    open_state_file(storage, file)

                attempt(file.place, read)
    # Outputs live as long as their checkpoint; older versions deleted them once a later batch had committed.
    followed = manifest.number < max(checkpoint_numbers(storage), default=0)
    for output in manifest.outputs:
        attempt(output.place, lambda place=output.place: verify_ref(storage, place), followed)  # type: ignore[misc]
    return Verification(manifest.number, files, size, tuple(problems))
