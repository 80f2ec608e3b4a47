"""`BaseStorage`: what the storages share. It checks paths, explains errors, counts calls and settles lost replies.

Thread safety: every method may be called from any thread.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import errno
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, cast

from emberstate.errors import CorruptionError, StorageError, StorageExistsError, StorageNotFoundError
from emberstate.storage.interface import BytesLike, Paths, Storage, StorageOutcomeUnknownError, StorageStatistics
from emberstate.storage.paths import TEMPORARY, check_path, is_path

#: How many probes of the conditional create may fail before the storage is rejected.
_PROBES: Final = 5

_WRITER = re.compile(r"[A-Za-z0-9._-]{1,100}")

_SPACE = "Free space or raise the quota, then continue; the last committed checkpoint is untouched"
_FILES = "Raise the limit of open files (ulimit -n); the last committed checkpoint is untouched"
_SERVICE = "Check the network and the service's state; the last committed checkpoint is untouched"
_ACCESS = "Let the process read and write there, or choose another location"
_ADVICE: Final = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f); the last committed checkpoint is untouched",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "Mount it writable, or choose another location; what is stored can still be read",
    errno.ENOENT: "Check the location; if a checkpoint names the file, verify that checkpoint",
    errno.EIO: "Check the disk and the system's log; the last committed checkpoint is untouched",
    errno.ECONNABORTED: _SERVICE,
    errno.EPROTO: _SERVICE,
    errno.EXDEV: "Mount nothing below the location",
    errno.ENOTDIR: "A file is where a directory is needed: move it, or choose another location",
}


def explain(
    error: OSError, doing: str, kind: type[StorageError] = StorageError, *, path: str | None = None
) -> StorageError:
    """Return a storage error that says what failed and where, what the system said, and what to do."""
    number = error.errno or errno.EIO
    said = error.strerror or str(error) or os.strerror(number)
    if isinstance(error, StorageError):
        return kind(number, f"{doing}: {said}", **error.place).located(path=path)
    advice = _ADVICE.get(number, "The last committed checkpoint is untouched")
    return kind(number, f"{doing}: {said}. {advice}.", path=path)


def as_parts(data: BytesLike | Sequence[BytesLike]) -> list[memoryview]:
    """Return one buffer or several as views of bytes, to write one after the other."""
    parts = data if isinstance(data, list | tuple) else [cast(BytesLike, data)]  # Arrow's buffers work too
    return [memoryview(part).cast("B") for part in parts]


class BaseStorage(Storage):
    """The common part of the storages.

    A subclass implements the six methods at the end. They get checked paths and may raise any `OSError`. `writer` is
    part of temporary names (default: a random id).
    """

    def __init__(self, writer: str | None = None) -> None:
        self.writer = secrets.token_hex(8) if writer is None else writer
        if not _WRITER.fullmatch(self.writer):
            what = f"the writer {writer!r} is rejected. Use letters, digits, . _ -"
            raise StorageError(errno.EINVAL, what, option="writer", found=writer)
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()  # guarded by _lock

    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        views = as_parts(data)
        with self._call("writes", f"writing {check_path(path)}", path):
            try:
                self._put_new(path, views)
            except StorageOutcomeUnknownError as unknown:
                if not self._settle(path, b"".join(views), unknown):
                    raise self._taken(path) from unknown
            self._count("bytes_written", sum(view.nbytes for view in views))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        if not data:
            raise StorageError(errno.EINVAL, f"creating {path}: expected data with a writer's id, got none", path=path)
        with self._call("writes", f"creating {check_path(path)}", path):
            try:
                self._put_new(path, [memoryview(data)])
            except StorageExistsError as exists:
                if not self._settle(path, data, exists):
                    return False
            except StorageOutcomeUnknownError as unknown:
                if not self._settle(path, data, unknown):
                    return False
            self._count("bytes_written", len(data))
            return True

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        with self._call("reads", f"reading {check_path(path)}", path):
            return self._counted(self._get(path, limit))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with self._call("reads", f"reading {length} bytes at {offset} of {check_path(path)}", path):
            if offset < 0 or length < 0:
                raise OSError(errno.EINVAL, "offset and length must not be negative")
            return self._counted(self._get_range(path, offset, length))

    def size(self, path: str) -> int:
        with self._call("reads", f"looking up the size of {check_path(path)}", path):
            return self._size(path)

    def list(self, prefix: str = "") -> Paths:
        folder = prefix.removesuffix("/")
        with self._call("lists", f"listing {check_path(folder, 'prefix') if folder else 'everything'}"):
            return sorted(path for path in self._list(folder) if is_path(path))

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        checked = [check_path(path) for path in paths]
        doing = f"deleting {', '.join(checked[:3])}{' …' if checked[3:] else ''}"
        with self._call("deletes", doing, checked[0] if len(checked) == 1 else None):
            self._delete(checked)

    def ensure_durable(self, path: str) -> None:
        with self._call("reads", f"making durable {check_path(path)}", path):
            self._sync(path)

    def check_conditional_create(self) -> None:
        with self._call("writes", "testing the conditional create"):
            # A process that starts deletes temporary files, the probe too; so one failed probe proves nothing.
            if not any(self._probe() for _ in range(_PROBES)):
                raise self._overwrites()

    def _probe(self) -> bool:
        """Return whether a second creation of one name failed."""
        probe = f"{TEMPORARY}/{self.writer}~{secrets.token_hex(8)}"
        try:
            self._put_new(probe, [memoryview(b"first")])
            with contextlib.suppress(StorageExistsError, StorageOutcomeUnknownError):
                self._put_new(probe, [memoryview(b"second")])
                return False
            return self._get(probe, None) == b"first"
        except FileNotFoundError:
            return False
        finally:
            with contextlib.suppress(OSError):  # an error from above is the one to report
                self._delete([probe])

    def remove_leftovers(self, is_live: Callable[[str], bool]) -> int:
        with self._call("deletes", "removing temporary files"):
            names = [path for path in self._list(TEMPORARY) if not is_live(path.split("/")[1].split("~")[0])]
            self._delete(names)
            return len(names)

    def statistics(self) -> StorageStatistics:
        with self._lock:
            names = [field.name for field in dataclasses.fields(StorageStatistics)]
            return StorageStatistics(**{name: self._counts[name] for name in names})

    def _settle(self, path: str, data: bytes, error: StorageError) -> bool:
        """Return whether the existing file has our bytes, and make it durable; after "exists" or an unknown outcome."""
        try:
            ours = self._size(path) == len(data) and self._get(path, len(data)) == data
            if ours:
                self._sync(path)
                self._count("recovered")
            return ours
        except OSError as failed:
            if isinstance(error, StorageOutcomeUnknownError):
                raise error from failed  # absent now, but a request in flight may still arrive
            doing = f"creating {path} in {self.describe()}: the file exists, but its writer cannot be read"
            raise explain(failed, doing, StorageOutcomeUnknownError, path=path) from failed

    def _taken(self, path: str) -> StorageExistsError:
        return StorageExistsError(errno.EEXIST, f"writing {path} in {self.describe()}: the name is taken", path=path)

    def _too_large(self, path: str, size: int, limit: int) -> StorageError:
        return StorageError(
            errno.EFBIG,
            f"reading {path} in {self.describe()}: expected at most {limit} bytes, found {size}",
            path=path,
            expected=limit,
            found=size,
        )

    def _too_short(self, path: str, size: int, offset: int, length: int) -> CorruptionError:
        return CorruptionError(
            f"{path} in {self.describe()} is damaged: expected {length} bytes at {offset}, but the file has {size} "
            "bytes. Verify the checkpoint, or restore an older one.",
            path=path,
            expected=offset + length,
            found=size,
        )

    def _overwrites(self) -> StorageError:
        return StorageError(
            errno.ENOTSUP,
            f"{self.describe()} is rejected: a second creation of one name did not fail, so two writers could "
            "overwrite each other's checkpoints. Use a storage with a true conditional create.",
        )

    @contextlib.contextmanager
    def _call(self, kind: str, doing: str, path: str | None = None) -> Iterator[None]:
        """Count a call; an error that leaves it is a `StorageError` or `CorruptionError` with the path."""
        self._count(kind)
        try:
            yield
        except (OSError, CorruptionError) as error:
            self._count("failures")
            if isinstance(error, StorageError | CorruptionError):
                error.path = error.path or path
                raise
            missing = isinstance(error, FileNotFoundError | NotADirectoryError) and kind == "reads"
            found = StorageNotFoundError if missing else StorageError
            raise explain(error, f"{doing} in {self.describe()}", found, path=path) from error

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def _counted(self, data: bytes) -> bytes:
        self._count("bytes_read", len(data))
        return data

    @abc.abstractmethod
    def _put_new(self, path: str, parts: Sequence[memoryview]) -> None: ...

    @abc.abstractmethod
    def _get(self, path: str, limit: int | None) -> bytes: ...

    @abc.abstractmethod
    def _get_range(self, path: str, offset: int, length: int) -> bytes: ...

    @abc.abstractmethod
    def _size(self, path: str) -> int: ...

    @abc.abstractmethod
    def _list(self, folder: str) -> Paths: ...

    @abc.abstractmethod
    def _delete(self, paths: Sequence[str]) -> None: ...

    def _sync(self, path: str) -> None:
        """Make a file durable. By default a visible file is durable, so this only checks that it exists."""
        self._size(path)
