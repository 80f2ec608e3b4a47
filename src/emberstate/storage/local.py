"""Storage in a directory of a local or shared file system.

A write creates a temporary file in `.tmp` below the root (the same file system), writes its bytes, syncs the file,
makes a hard link with the final name, which fails if the name is taken, syncs the directory, and deletes the temporary
name. So the final name appears atomically, with all its bytes on disk.

Invariants
1. A failed fsync is final: the write fails and the descriptor is not synced again, since the kernel may have dropped
   the dirty pages and would report success. A failed sync of a directory fails every thread that was adding a name
   to it.
2. A directory counts as durable only after this object has synced its parent. Its existence proves nothing: another
   process may have made it and died before the sync.
3. Reads through a symbolic link that leads outside the root are rejected, and so are writes and listings through a
   link to a directory.
4. Nothing is created before the first write, so a read-only root can be read.
5. Permissions come from the parent directory, not from the umask. A root that is made here is accessible to its owner
   only. A file gets the read permissions of its directory, a directory all permissions of its parent.

Thread safety: every method may be called from any thread, and from any number of processes.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import logging
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from emberstate.errors import StorageError
from emberstate.storage.base import BaseStorage, explain
from emberstate.storage.file_system import FileSystem
from emberstate.storage.interface import Paths, StorageOutcomeUnknownError
from emberstate.storage.paths import TEMPORARY

_LOG = logging.getLogger(__name__)
_ONE_READ = 1 << 30  # the kernel returns at most 2 GiB per call
_JOINED = 1 << 20  # up to this size, parts are joined and written by one call
_OWNERS = stat.S_IRUSR | stat.S_IWUSR
_READ = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH


def _given_by(directory: Path) -> int:
    """Return the permissions of a directory that is made in this one."""
    return stat.S_IRWXU | directory.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


#: How often a file is written again after others deleted its temporary file.
WRITES: Final = 20


class _TemporaryGone(FileNotFoundError):
    """Another process deleted the temporary file before it was linked; nothing is visible, and the write can repeat."""


class LocalStorage(BaseStorage):
    """Files below a directory, which the first write creates."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        writer: str | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        super().__init__(writer)
        self._root = Path(os.path.realpath(root))
        self.directory = str(self._root)
        self._disk = FileSystem() if file_system is None else file_system
        # Both guarded by _lock: durable directories (invariant 2), and how often the sync of a directory failed.
        self._durable: set[Path] = set()
        self._failed_syncs: collections.Counter[Path] = collections.Counter()

    def describe(self) -> str:
        return str(self._root)

    def _put_new(self, path: str, parts: Sequence[memoryview]) -> None:
        target = self._root / path
        for last in (*(False,) * (WRITES - 1), True):
            self._make_directories(target.parent)
            self._make_directories(self._root / TEMPORARY)
            temporary = self._root / TEMPORARY / f"{self.writer}~{secrets.token_hex(8)}"
            try:
                self._put_through(temporary, target, path, parts)
                return
            except _TemporaryGone:
                if last:
                    raise

    def _put_through(self, temporary: Path, target: Path, path: str, parts: Sequence[memoryview]) -> None:
        try:
            self._write_temporary(temporary, parts, _OWNERS | _given_by(target.parent) & _READ)
            # Opened before the link: without a free descriptor this fails before anything is visible.
            with self._opened_directory(target.parent) as directory:
                failed_syncs = self._failed(target.parent)
                self._link(temporary, target, path)
                try:
                    self._sync_opened(directory, target.parent, failed_syncs)
                except OSError as error:
                    raise self._not_durable(path, error) from error
        finally:
            self._discard(temporary)

    def _write_temporary(self, temporary: Path, parts: Sequence[memoryview], mode: int) -> None:
        if sum(part.nbytes for part in parts) <= _JOINED:
            parts = [memoryview(b"".join(parts))]
        file = self._disk.create(temporary, mode)
        try:
            for part in parts:
                while part:
                    part = part[self._disk.write(file, part) :]
            self._disk.fsync(file)
        finally:
            self._disk.close(file)

    def _link(self, temporary: Path, target: Path, path: str) -> None:
        try:
            self._disk.link(temporary, target)
        except FileExistsError:
            raise self._taken(path) from None
        except FileNotFoundError as error:
            if target.parent.is_dir() and not temporary.exists():
                raise _TemporaryGone(error.errno, "a process that started deleted the temporary file") from error
            raise
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise StorageError(
                    error.errno,
                    f"creating {path} in {self._root}: {error.strerror}. The file system seems to have no hard links, "
                    "which atomic creation needs. Choose another location.",
                    path=path,
                ) from error
            raise

    def _discard(self, temporary: Path) -> None:
        try:
            self._disk.unlink(temporary)
        except FileNotFoundError:
            pass
        except OSError as error:  # the write itself has succeeded or failed; a later start deletes the file
            _LOG.warning("could not delete the temporary file %s: %s", temporary, error)

    def _make_directories(self, folder: Path) -> None:
        """Create a directory below the root and make its entry in every parent durable."""
        for directory in [*reversed(folder.parents), folder]:
            known = self._is_durable(directory) or not directory.is_relative_to(self._root)
            if not (known and directory.is_dir()):
                self._make_directory(directory)
        self._refuse_linked(folder)

    def _make_directory(self, directory: Path) -> None:
        made = True
        below = self._root in directory.parents
        try:
            self._disk.make_directory(directory, _given_by(directory.parent) if below else stat.S_IRWXU)
        except OSError:  # the error for an existing directory depends on the file system and permissions
            if not directory.is_dir():
                if directory.exists():
                    raise NotADirectoryError(errno.ENOTDIR, f"{directory} is not a directory") from None
                raise
            made = False
        self._refuse_linked(directory)
        if made or not self._is_durable(directory):
            try:
                self._sync_directory(directory.parent)
            except PermissionError:
                # The root's parent may not be ours to open. If we did not make the root, its owner syncs it.
                if made or directory != self._root:
                    raise
            with self._lock:
                self._durable.add(directory)

    @contextlib.contextmanager
    def _opened_directory(self, folder: Path) -> Iterator[int]:
        directory = self._disk.open_directory(folder)
        try:
            yield directory
        finally:
            with contextlib.suppress(OSError):  # fsync has reported success or failure
                self._disk.close(directory)

    def _sync_directory(self, folder: Path) -> None:
        with self._opened_directory(folder) as directory:
            self._sync_opened(directory, folder, self._failed(folder))

    def _sync_opened(self, directory: int, folder: Path, failed_before: int) -> None:
        try:
            self._disk.fsync_directory(directory)
        except OSError:
            with self._lock:
                self._failed_syncs[folder] += 1
            raise
        if self._failed(folder) != failed_before:
            raise OSError(errno.EIO, "another thread's sync of the directory failed meanwhile")

    def _sync(self, path: str) -> None:
        target = self._locate(path)
        with self._opened(path) as (file, _):
            self._disk.fsync(file)
        if self._failed(target.parent):
            raise self._not_durable(path, OSError(errno.EIO, "a sync of its directory has failed before"))
        self._make_directories(target.parent)
        self._sync_directory(target.parent)

    def _not_durable(self, path: str, error: OSError) -> StorageError:
        doing = f"writing {path} in {self._root}: the file exists, but a power loss may delete it"
        return explain(error, doing, StorageOutcomeUnknownError, path=path)

    def _is_durable(self, folder: Path) -> bool:
        with self._lock:
            return folder in self._durable

    def _failed(self, folder: Path) -> int:
        with self._lock:
            return self._failed_syncs[folder]

    def _inside(self, place: Path) -> Path:
        """Return the path with all links followed; reject one outside the root."""
        real = Path(os.path.realpath(place))
        if real.is_relative_to(self._root):
            return real
        raise self._linked(place, f"outside {self._root}")

    def _refuse_linked(self, folder: Path) -> None:
        """Reject a directory behind a link: whether the entries on the way are durable is unknown."""
        real = Path(os.path.realpath(folder))
        if real != folder:
            raise self._linked(folder, f"to {real}")

    def _linked(self, place: Path, where: str) -> StorageError:
        why = f"{place} is rejected: a symbolic link leads {where}. Remove it."
        return StorageError(errno.EPERM, why, path=str(place))

    def _locate(self, path: str) -> Path:
        return self._inside(self._root / path)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, int]]:
        """Yield a descriptor of the file, and its size. Opened without blocking: a pipe must not hang a restore."""
        file = os.open(self._locate(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError(errno.ENOENT, "it is not a file")
            yield file, found.st_size
        finally:
            os.close(file)

    def _get(self, path: str, limit: int | None) -> bytes:
        with self._opened(path) as (file, size):
            if limit is not None and size > limit:
                raise self._too_large(path, size, limit)
            return self._read(file, path, 0, size)

    def _get_range(self, path: str, offset: int, length: int) -> bytes:
        with self._opened(path) as (file, size):
            if offset + length > size:
                raise self._too_short(path, size, offset, length)
            return self._read(file, path, offset, length)

    def _read(self, file: int, path: str, offset: int, length: int) -> bytes:
        parts = []
        at, end = offset, offset + length
        while at < end:
            part = os.pread(file, min(end - at, _ONE_READ), at)
            if not part:
                raise self._too_short(path, at, offset, length)
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _size(self, path: str) -> int:
        with self._opened(path) as (_, size):
            return size

    def _list(self, folder: str) -> Paths:
        found: Paths = []
        waiting = [folder]
        while waiting:
            name = waiting.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in list(os.scandir(self._locate(name))):
                    path = f"{name}/{entry.name}" if name else entry.name
                    if path == TEMPORARY:
                        continue
                    if entry.is_symlink() and self._locate(path).is_dir():
                        raise self._linked(self._root / path, "to a directory")
                    if entry.is_dir():
                        waiting.append(path)
                    elif entry.is_file():
                        found.append(path)
        return found

    def _delete(self, paths: Sequence[str]) -> None:
        folders = set()
        for path in paths:
            folder = self._locate(path.rpartition("/")[0])
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._disk.unlink(folder / path.rpartition("/")[2])
            folders.add(folder)
        for folder in folders:  # also if nothing was deleted: an earlier deletion may not be durable
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._sync_directory(folder)
