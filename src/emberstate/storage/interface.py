"""Where checkpoints are kept: one small interface, and what all its implementations share.

Invariants
1. A file is written once, whole, under a name of its own; nothing is ever changed or overwritten.
2. When `write_new` or `create_if_absent` returns, the file survives a power loss. Before that, a reader sees
   the whole file or none.
3. Of all callers of `create_if_absent` for one path, at most one is told True, in any number of processes.
4. A path is a relative POSIX name of plain parts; it cannot lead outside the storage.

An error after which nobody knows whether the file is there is a `StorageOutcomeUnknownError`, never a plain
failure: who commits must not conclude from it that the commit did not happen.

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
from dataclasses import dataclass
from typing import Final, cast

from emberstate.errors import CorruptionError, StorageError, StorageExistsError, StorageNotFoundError

BytesLike = bytes | bytearray | memoryview
Paths = list[str]  # inside the classes `list` is the method

#: The part under which temporary files and probes stand. No path begins with it, and it is never listed.
TEMPORARY: Final = ".tmp"
#: Most file systems take 255 bytes for a name; S3 takes 1024 for a key, of which half is the prefix's.
MAX_PART_BYTES: Final = 255
MAX_PATH_BYTES: Final = 512

#: How often the conditional create is tested before it is said not to be one.
_PROBES: Final = 5

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WRITER = re.compile(r"[A-Za-z0-9._-]{1,100}")

_SPACE = "Free space or raise the quota, then go on; the last committed checkpoint is untouched"
_FILES = "Raise the limit of open files (ulimit -n); the last committed checkpoint is untouched"
_SERVICE = "Check the network and the service's state; the last committed checkpoint is untouched"
_ACCESS = "Give the process the right to read and write there, or choose another location"
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
    errno.EXDEV: "Let no directory below the location be a mount point of its own",
    errno.ENOTDIR: "A file stands where a directory is needed: move it away, or choose another location",
}


class StorageOutcomeUnknownError(StorageError):
    """A write failed in such a way that the file may be there all the same, now or after a restart.

    Operator action: none if the writer retries; otherwise restart it, and it goes on from what is there.
    """


@dataclass(frozen=True)
class StorageStatistics:
    """What a storage has done since it was opened."""

    writes: int
    reads: int
    lists: int
    deletes: int
    failures: int
    #: Writes whose reply was lost and whose file was found to be there.
    recovered: int
    bytes_written: int
    bytes_read: int

    @property
    def calls(self) -> int:
        """All calls together."""
        return self.writes + self.reads + self.lists + self.deletes


def explain(error: OSError, doing: str, kind: type[StorageError] = StorageError) -> StorageError:
    """The system's error in our words: what was being done, where, what the system said, what to do next."""
    number = error.errno or errno.EIO
    said = error.strerror or str(error) or os.strerror(number)
    if isinstance(error, StorageError):
        return kind(number, f"{doing}: {said}")
    advice = _ADVICE.get(number, "The last committed checkpoint is untouched")
    return kind(number, f"{doing}: {said}. {advice}.")


def check_path(path: str, what: str = "path") -> str:
    """The path itself, if it names a file inside a storage.

    >>> check_path("chk/00000012.manifest")
    'chk/00000012.manifest'
    >>> check_path("../secrets")
    Traceback (most recent call last):
    emberstate.errors.StorageError: [Errno 22] the path '../secrets' is refused: it has a part '..'. ...
    """
    why = _objection(path)
    if why is not None:
        raise StorageError(
            errno.EINVAL,
            f"the {what} {path[:200]!r} is refused: {why}. Paths are relative names like "
            "'chk/00000012.manifest'; one that comes from a checkpoint means that the checkpoint is damaged.",
        )
    return path


def is_path(path: str) -> bool:
    """Whether a storage could hold a file of this name."""
    return _objection(path) is None


def _objection(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it has characters that are not Unicode text"
    if len(encoded) > MAX_PATH_BYTES:
        return f"it has {len(encoded)} bytes, more than {MAX_PATH_BYTES}"
    if "\\" in path or _CONTROL.search(path):
        return "it has a backslash or a control character"
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", ".."):
            return f"it has a part {part!r}"
        if len(part.encode()) > MAX_PART_BYTES:
            return f"it has a part of more than {MAX_PART_BYTES} bytes"
    return f"{TEMPORARY} is kept for temporary files" if parts[0] == TEMPORARY else None


def as_parts(data: BytesLike | Sequence[BytesLike]) -> list[memoryview]:
    """One buffer or several, as bytes to write one after the other."""
    parts = data if isinstance(data, list | tuple) else [cast(BytesLike, data)]  # Arrow's buffers work too
    return [memoryview(part).cast("B") for part in parts]


class Storage(abc.ABC):
    """Checkpoint storage. See the module for what every implementation promises."""

    #: Whether other processes reach the same files by `describe`.
    shared: bool = True

    @abc.abstractmethod
    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        """Write a file, durable on return; `StorageExistsError` if the name is taken."""

    @abc.abstractmethod
    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file atomically, durable on return. True: it is ours. False: another's file is there.

        The data must hold an id of the writer: a file of equal bytes counts as ours, since a reply may have
        been lost.
        """

    @abc.abstractmethod
    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """The whole file; one larger than `limit` is refused before it is read."""

    @abc.abstractmethod
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly so many bytes; `CorruptionError` if the file ends before."""

    @abc.abstractmethod
    def size(self, path: str) -> int:
        """The file's length in bytes."""

    @abc.abstractmethod
    def list(self, prefix: str = "") -> Paths:
        """The files below a directory, or all of them, sorted. Temporary files are never among them."""

    @abc.abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file, durably; it is no error if there is none."""

    @abc.abstractmethod
    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove files, in no particular order; all are durably gone on return."""

    @abc.abstractmethod
    def ensure_durable(self, path: str) -> None:
        """Make a file that another process wrote, perhaps while dying, survive a power loss."""

    @abc.abstractmethod
    def check_conditional_create(self) -> None:
        """Prove by a probe that of two creations of one name the second fails; writers call it at start."""

    @abc.abstractmethod
    def remove_leftovers(self, is_live: Callable[[str], bool]) -> int:
        """Remove temporary files of writers that are not live, and say how many. Age plays no part."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Where it is, for messages; `open_storage` takes it too."""

    @abc.abstractmethod
    def statistics(self) -> StorageStatistics:
        """What has been done so far."""


class BaseStorage(Storage):
    """What is alike everywhere: paths are checked, errors explained, calls counted, lost replies settled.

    An implementation has the six methods at the end. They get checked paths and may raise any `OSError`.
    `writer` names who writes, in temporary names; an id of the process if not given.
    """

    def __init__(self, writer: str | None = None) -> None:
        self.writer = secrets.token_hex(8) if writer is None else writer
        if not _WRITER.fullmatch(self.writer):
            raise StorageError(errno.EINVAL, f"the writer {writer!r} is refused: use letters, digits, . _ -")
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()  # guarded by _lock

    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        views = as_parts(data)
        with self._call("writes", f"writing {check_path(path)}"):
            try:
                self._put_new(path, views)
            except StorageOutcomeUnknownError as unknown:
                if not self._settle(path, b"".join(views), unknown):
                    raise self._taken(path) from unknown
            self._count("bytes_written", sum(view.nbytes for view in views))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        if not data:
            raise StorageError(errno.EINVAL, f"creating {path}: no data, so no id to know its writer by")
        with self._call("writes", f"creating {check_path(path)}"):
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
        with self._call("reads", f"reading {check_path(path)}"):
            return self._counted(self._get(path, limit))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with self._call("reads", f"reading {length} bytes at {offset} of {check_path(path)}"):
            if offset < 0 or length < 0:
                raise OSError(errno.EINVAL, "offset and length must not be negative")
            return self._counted(self._get_range(path, offset, length))

    def size(self, path: str) -> int:
        with self._call("reads", f"looking up the size of {check_path(path)}"):
            return self._size(path)

    def list(self, prefix: str = "") -> Paths:
        folder = prefix.removesuffix("/")
        with self._call("lists", f"listing {check_path(folder, 'prefix') if folder else 'everything'}"):
            return sorted(path for path in self._list(folder) if is_path(path))

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        checked = [check_path(path) for path in paths]
        with self._call("deletes", f"deleting {', '.join(checked[:3])}{' …' if checked[3:] else ''}"):
            self._delete(checked)

    def ensure_durable(self, path: str) -> None:
        with self._call("reads", f"making durable {check_path(path)}"):
            self._sync(path)

    def check_conditional_create(self) -> None:
        with self._call("writes", "testing the conditional create"):
            # Another process that starts removes what is temporary, the probe too: then one try says nothing.
            if not any(self._probe() for _ in range(_PROBES)):
                raise self._overwrites()

    def _probe(self) -> bool:
        """Whether of two creations of one name the second failed."""
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
            with contextlib.suppress(OSError):  # the first error is the one that says something
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
        """After "exists" or an unknown outcome: whether the file there is ours, by its bytes, and durable."""
        try:
            ours = self._size(path) == len(data) and self._get(path, len(data)) == data
            if ours:
                self._sync(path)
                self._count("recovered")
            return ours
        except OSError as failed:
            if isinstance(error, StorageOutcomeUnknownError):
                raise error from failed  # absent perhaps, but a request on its way may still land
            doing = f"creating {path} in {self.describe()}: it is there, but whose it is, is unknown"
            raise explain(failed, doing, StorageOutcomeUnknownError) from failed

    def _taken(self, path: str) -> StorageExistsError:
        return StorageExistsError(errno.EEXIST, f"writing {path} in {self.describe()}: the name is taken")

    def _too_large(self, path: str, size: int, limit: int) -> StorageError:
        why = f"it has {size} bytes, and at most {limit} are expected"
        return StorageError(errno.EFBIG, f"reading {path} in {self.describe()} is refused: {why}")

    def _too_short(self, path: str, size: int, offset: int, length: int) -> CorruptionError:
        return CorruptionError(
            f"{path} in {self.describe()} has {size} bytes, and {length} were to be read at {offset}: it is "
            "not the file that was written. Verify the checkpoint, or restore an older one."
        )

    def _overwrites(self) -> StorageError:
        return StorageError(
            errno.ENOTSUP,
            f"{self.describe()} is refused: a second creation of one name did not fail, so that two writers "
            "could overwrite each other's checkpoints. Use a storage with a true conditional create.",
        )

    @contextlib.contextmanager
    def _call(self, kind: str, doing: str) -> Iterator[None]:
        self._count(kind)
        try:
            yield
        except (OSError, CorruptionError) as error:
            self._count("failures")
            if isinstance(error, StorageError | CorruptionError):
                raise
            missing = isinstance(error, FileNotFoundError | NotADirectoryError) and kind == "reads"
            found = StorageNotFoundError if missing else StorageError
            raise explain(error, f"{doing} in {self.describe()}", found) from error

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
        """Where a write is durable once it is visible there is nothing to do but to see that it is there."""
        self._size(path)
