"""The directory of a backend's local files: deleted with the backend, and never taken over.

Its content is worthless without its process, because all committed state is in the checkpoints. So the next backend
that opens a directory beside it deletes one that a killed process left behind.

Beside each directory `<name>` is a file `<name>.lock`, made before it and deleted after it, on which the owner holds a
lock (`flock`) until its process ends. A process that gets the lock knows that the owner is gone.

Thread safety: any one thread at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

from emberstate.errors import StorageError

_log = logging.getLogger("emberstate.rocksdb")

PREFIX: Final = "emberstate-rocksdb-"
_LOCK: Final = ".lock"


class LocalDirectory:
    """A directory of one backend, below a parent that backends share.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     directory = LocalDirectory(parent)
    ...     directory.path.is_dir(), directory.path.parent == Path(parent)
    ...     directory.remove()
    ...     directory.path.exists()
    (True, True)
    False
    """

    __slots__ = ("_lock", "_owner", "path", "reclaimed")

    def __init__(self, parent: str | os.PathLike[str]) -> None:
        """Reclaim what dead processes left in `parent`, then make a directory there.

        Raises:
            StorageError: the directory cannot be made.
        """
        where = Path(parent)
        try:
            where.mkdir(parents=True, exist_ok=True)
            #: The directories of dead processes that were deleted.
            self.reclaimed = reclaim(where)
            name, self._lock = _claim(where)
            self._owner = os.getpid()
            #: The directory of the files.
            self.path = where / name
            self.path.mkdir(mode=0o700)  # readable by this user only
        except OSError as error:
            raise StorageError(
                f"making a directory for RocksDB's local files in {where} failed: {error}. Name one on a local disk "
                f"that this process may write to.",
                path=str(where),
            ) from error

    def remove(self) -> None:
        """Delete the directory and everything in it.

        A second call does nothing, nor does one in a forked process: the files are its parent's.
        """
        if self._lock < 0 or self._owner != os.getpid():
            return
        _delete(self.path)
        os.close(self._lock)
        self._lock = -1


def reclaim(parent: Path) -> tuple[str, ...]:
    """Delete the directories in `parent` whose owners are gone, and return their names."""
    found = []
    for lock_file in sorted(parent.glob(f"{PREFIX}*{_LOCK}")):
        try:
            lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):  # reclaimed by another process; another user's
            continue
        try:
            if not _locked(lock, lock_file):
                continue
            directory = lock_file.with_suffix("")
            _delete(directory)
            found.append(directory.name)
            _log.warning("Deleted %s: the process that owned it is gone; its state is in the checkpoints.", directory)
        finally:
            os.close(lock)
    return tuple(found)


def _claim(parent: Path) -> tuple[str, int]:
    """Return an unused name, and the lock on it."""
    while True:
        name = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:12]}"
        lock_file = parent / (name + _LOCK)
        lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if _locked(lock, lock_file):
            return name, lock
        os.close(lock)  # another process reclaimed it between the two steps


def _locked(lock: int, lock_file: Path) -> bool:
    """Try to take the lock; False if another process has it, or the file was replaced meanwhile."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), lock_file.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _delete(directory: Path) -> None:
    """Delete a directory, then the file beside it: never the other way round."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)
    directory.with_name(directory.name + _LOCK).unlink(missing_ok=True)
