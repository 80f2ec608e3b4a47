"""Savepoints: a checkpoint under a name, copied whole into a folder of its own. Nothing ever collects them.

A savepoint needs nothing outside `savepoints/<name>/`: the folder can be copied to another storage as it is. It
has the state, chains as they were, and the source's position, but no outputs. Its manifest is created
conditionally and last; before that there is no savepoint, and what an attempt has copied is only in the way of
nobody. The attempt that succeeds removes what earlier ones left.

Every byte is compared with its checksum while it is copied, out and in.

Thread safety: as the storages; two that write one name at the same time: one of them is refused.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from emberstate.checkpoint.manifest.catalogue import naming_missing, read_savepoint
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import bundle_path, new_id, savepoint_path, state_path
from emberstate.checkpoint.manifest.model import FileRef, Holder, Manifest, Operator, Parent
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.clock import Clock, SystemClock
from emberstate.errors import StorageError, StorageExistsError, StorageNotFoundError
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError

#: How often a manifest whose outcome is unknown is created again, with the same bytes.
_TRIES: Final = 5


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

    Whoever does not hold the job pins the checkpoint meanwhile. `progress` is told of bytes that were copied.

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
    """Make savepoint `name` of a checkpoint, with the operators that `write` gives.

    `write` stores all files that they name under paths which it is given one by one. If it fails, nothing is left.
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
    """Make a manifest, whose files stand in the savepoint's folder, the savepoint; remove what others left there.

    If it is known not to be there afterwards, its files are deleted.

    Raises:
        StorageExistsError: there is a savepoint of that name.
        StorageOutcomeUnknownError: nobody knows whether this one is there now.
    """
    path, files = savepoint_path(name), [ref.path for ref in manifest.file_refs()]
    with _undoing(target, files):
        data = manifest.to_bytes()
        open_manifest(data, path)  # what nobody could read is not written
        if not _create(target, path, data):
            raise _taken(target, name)
    _remove_others(target, name, {path, *files})


def import_savepoint(source: Storage, name: str, target: Storage, holder: Holder, number: int) -> Manifest:
    """Copy a savepoint to where a job's own files stand, for its checkpoint `number`; what it holds, there.

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
    """Delete a savepoint, or what an attempt to write one has left; it is no error if there is none."""
    storage.delete(savepoint_path(name))
    _remove_others(storage, name, set())


# -- parts ----------------------------------------------------------------------------------------------------


def _copied(
    source: Storage,
    operators: tuple[Operator, ...],
    target: Storage,
    file_path: Callable[[], str],
    parts_path: Callable[[], str],
    progress: Callable[[int], None] | None = None,
) -> tuple[Operator, ...]:
    """The operators with their files in the target: a copy of each file, or of the parts of it that are needed."""
    wanted: dict[str, dict[tuple[int, int], FileRef]] = {}
    for operator in operators:
        for slot in operator.slots:
            for file in slot.files:  # one may be there for several slots
                wanted.setdefault(file.place.path, {})[file.place.offset, file.place.size] = file.place
    places: dict[FileRef, FileRef] = {}
    for parts in wanted.values():
        path = file_path() if len(parts) == 1 else parts_path()
        data, offset = [], 0
        for _, place in sorted(parts.items()):
            data.append(read_ref(source, place))
            places[place] = msgspec.structs.replace(place, path=path, offset=offset)
            offset += place.size
        target.write_new(path, data)
        if progress is not None:
            progress(offset)
    return tuple(_moved(operator, places) for operator in operators)


def _moved(operator: Operator, places: dict[FileRef, FileRef]) -> Operator:
    slots = tuple(
        msgspec.structs.replace(
            slot, files=tuple(msgspec.structs.replace(file, place=places[file.place]) for file in slot.files)
        )
        for slot in operator.slots
    )
    return msgspec.structs.replace(operator, slots=slots)


@contextlib.contextmanager
def _undoing(target: Storage, written: Iterable[str]) -> Iterator[None]:
    """Delete the files if what is done with them fails."""
    try:
        yield
    except StorageOutcomeUnknownError:
        raise  # it may be there: its files stay
    except BaseException:
        with contextlib.suppress(StorageError):  # the first error is the one that says something
            target.delete_all(written)
        raise


def _create(target: Storage, path: str, data: bytes) -> bool:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(StorageOutcomeUnknownError):
            return target.create_if_absent(path, data)
    return target.create_if_absent(path, data)


def _remove_others(storage: Storage, name: str, kept: Iterable[str]) -> None:
    folder = savepoint_path(name, "").removesuffix("/")
    storage.delete_all(sorted(set(storage.list(folder)) - set(kept)))


def _taken(target: Storage, name: str) -> StorageExistsError:
    return StorageExistsError(
        errno.EEXIST,
        f"savepoint {name!r} is in {target.describe()} already, and savepoints are never changed: take another name, "
        f"or delete it first",
    )
