"""Savepoints: a checkpoint under a name, copied whole into a folder of its own. Nothing ever collects them.

A savepoint needs nothing outside `savepoints/<name>/`, so the folder can be copied to another storage. It has the
state, in unchanged chains, and the source's position, but no outputs. Its manifest is created conditionally and last;
before that there is no savepoint, and files that an attempt has copied are unreferenced and harmless. The attempt that
succeeds deletes what earlier ones left.

Every byte is compared with its checksum while it is copied, out and in.

Thread safety: as the storages. If two callers write one name at the same time, one of them is rejected.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator

import msgspec

from emberstate.checkpoint.manifest.catalogue import naming_missing, read_savepoint
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import bundle_path, new_id, savepoint_path, state_path
from emberstate.checkpoint.manifest.model import FileRef, Holder, Manifest, Operator, Parent
from emberstate.checkpoint.manifest.open_files import create_surely, read_ref
from emberstate.clock import Clock, SystemClock
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    RestoreRefusedError,
    StorageError,
    StorageExistsError,
    StorageNotFoundError,
)
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError


def write_savepoint(
    source: Storage,
    manifest: Manifest,
    target: Storage,
    name: str,
    *,
    clock: Clock | None = None,
    progress: Callable[[int], None] | None = None,
) -> Manifest:
    """Copy a checkpoint, or another savepoint, to savepoint `name` of `target`, which may be the same storage.

    A caller that does not hold the job pins the checkpoint meanwhile. `progress` gets the number of bytes copied.

    Raises:
        StorageExistsError: there is a savepoint of that name; nothing was changed.
        CheckpointCollectedError: the checkpoint was collected while it was copied.
        CorruptionError: it is damaged.
    """

    def copy(new_path: Callable[[], str]) -> tuple[Operator, ...]:
        with naming_missing(source, manifest):
            return _copied(source, manifest.operators, target, new_path, new_path, progress)

    return make_savepoint(manifest, target, name, copy, clock=clock)


def make_savepoint(
    manifest: Manifest,
    target: Storage,
    name: str,
    write: Callable[[Callable[[], str]], tuple[Operator, ...]],
    *,
    clock: Clock | None = None,
) -> Manifest:
    """Make savepoint `name` of a checkpoint, with the operators that `write` returns.

    `write` gets a function that returns new paths, and stores all files of the operators there. If it fails, they are
    deleted.
    """
    check_free(target, name)
    attempt, number = new_id(), iter(range(2**62))
    written: list[str] = []

    def new_path() -> str:
        written.append(savepoint_path(name, f"{attempt}-{next(number)}"))
        return written[-1]

    with _undoing(target, written):
        operators = write(new_path)
        saved = msgspec.structs.replace(
            manifest,
            id=attempt,
            kind="savepoint",
            created=(SystemClock() if clock is None else clock).now_micros(),
            parent=Parent(manifest.number, manifest.id),
            operators=operators,
            outputs=(),
            stages=(),
            delivered=False,
            location="",
            requires=(),  # so far only outputs require something
        )
    publish(target, name, saved)
    return saved


def check_free(target: Storage, name: str) -> None:
    """Raise `StorageExistsError` if there is a savepoint of that name."""
    try:
        target.size(savepoint_path(name))
    except StorageNotFoundError:
        return
    raise _taken(target, name)


def publish(target: Storage, name: str, manifest: Manifest) -> None:
    """Create a savepoint's manifest, whose files are in its folder, and delete what other attempts left there.

    If it fails, the files are deleted, unless the outcome is unknown.

    Raises:
        StorageExistsError: there is a savepoint of that name.
        StorageOutcomeUnknownError: the savepoint may exist or not.
    """
    path, files = savepoint_path(name), [ref.path for ref in manifest.file_refs()]
    with _undoing(target, files):
        data = manifest.to_bytes()
        open_manifest(data, path)  # never write what no reader accepts
        if not create_surely(target, path, data):
            raise _taken(target, name)
    _remove_others(target, name, {path, *files})


def import_savepoint(source: Storage, name: str, target: Storage, holder: Holder, number: int) -> Manifest:
    """Copy a savepoint's files to a job's location, for its checkpoint `number`, and return a manifest of the copies.

    Nothing refers to the copies until that checkpoint is committed; if it never is, they are collected.
    """
    manifest = read_savepoint(source, name)
    with naming_missing(source, manifest):
        operators = _copied(
            source,
            manifest.operators,
            target,
            lambda: state_path(holder.incarnation, new_id()),
            lambda: bundle_path(number),
        )
    return msgspec.structs.replace(manifest, operators=operators)


def delete_savepoint(storage: Storage, name: str) -> None:
    """Delete a savepoint, or what a failed attempt left. Does nothing if there is none.

    Of a savepoint only the files that its manifest names are deleted, so that another process may be writing a new one
    of this name; without a manifest that can be read, everything in its folder.
    """
    try:
        files = [ref.path for ref in read_savepoint(storage, name).file_refs()]
    except (CheckpointCollectedError, CorruptionError, RestoreRefusedError):
        files = _listed(storage, name)
    storage.delete(savepoint_path(name))
    storage.delete_all(sorted(set(files)))


# -- parts ----------------------------------------------------------------------------------------------------


def _copied(
    source: Storage,
    operators: tuple[Operator, ...],
    target: Storage,
    file_path: Callable[[], str],
    parts_path: Callable[[], str],
    progress: Callable[[int], None] | None = None,
) -> tuple[Operator, ...]:
    """Copy the files of the operators, or the parts they need; return the operators with references to the copies."""
    wanted: dict[str, dict[tuple[int, int], FileRef]] = {}
    for operator in operators:
        for slot in operator.slots:
            for file in slot.files:  # one file may serve several slots
                wanted.setdefault(file.place.path, {})[file.place.offset, file.place.size] = file.place
    copies: dict[FileRef, FileRef] = {}
    for parts in wanted.values():
        path = file_path() if len(parts) == 1 else parts_path()
        data, offset = [], 0
        for _, ref in sorted(parts.items()):
            data.append(read_ref(source, ref))
            copies[ref] = msgspec.structs.replace(ref, path=path, offset=offset)
            offset += ref.size
        target.write_new(path, data)
        if progress is not None:
            progress(offset)
    return tuple(_moved(operator, copies) for operator in operators)


def _moved(operator: Operator, copies: dict[FileRef, FileRef]) -> Operator:
    slots = tuple(
        msgspec.structs.replace(
            slot, files=tuple(msgspec.structs.replace(file, place=copies[file.place]) for file in slot.files)
        )
        for slot in operator.slots
    )
    return msgspec.structs.replace(operator, slots=slots)


@contextlib.contextmanager
def _undoing(target: Storage, written: Iterable[str]) -> Iterator[None]:
    """Delete the files if the body fails."""
    try:
        yield
    except StorageOutcomeUnknownError:
        raise  # the savepoint may exist: its files stay
    except BaseException:
        with contextlib.suppress(StorageError):  # report the first error
            target.delete_all(written)
        raise


def _remove_others(storage: Storage, name: str, kept: Iterable[str]) -> None:
    storage.delete_all(sorted(set(_listed(storage, name)) - set(kept)))


def _listed(storage: Storage, name: str) -> list[str]:
    return storage.list(savepoint_path(name, "").removesuffix("/"))


def _taken(target: Storage, name: str) -> StorageExistsError:
    return StorageExistsError(
        errno.EEXIST,
        f"savepoint {name!r} exists in {target.describe()}, and savepoints are never changed. Use another name, or "
        f"delete it first.",
        path=savepoint_path(name),
    )
