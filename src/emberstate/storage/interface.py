"""`Storage`: where checkpoints are kept. `BaseStorage` has what the implementations share.

Invariants
1. A file is written once, whole, under a name of its own; nothing is ever changed or overwritten.
2. When `write_new` or `create_if_absent` returns, the file survives a power loss. Before that, a reader sees
   the whole file or none.
3. Of all callers of `create_if_absent` for one path, in any number of processes, at most one gets True.
4. A path is a relative POSIX name of plain parts; it cannot lead outside the storage.

An error that leaves open whether the file exists is a `StorageOutcomeUnknownError`, never a plain failure: a caller
that commits must not conclude from it that the commit did not happen.

Thread safety: every method may be called from any thread.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from emberstate.errors import StorageError

BytesLike = bytes | bytearray | memoryview
Paths = list[str]  # inside the classes `list` is the method


class StorageOutcomeUnknownError(StorageError):
    """A write failed, but the file may exist all the same, now or after a restart.

    Operator action: none if the writer retries; otherwise restart it: it resumes from what is there.
    """


@dataclass(frozen=True)
class StorageStatistics:
    """Counts of a storage since it was opened."""

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
        """The number of all calls."""
        return self.writes + self.reads + self.lists + self.deletes


class Storage(abc.ABC):
    """Checkpoint storage. The module lists the invariants of every implementation."""

    #: Whether other processes reach the same files by `describe`.
    shared: bool = True
    #: The directory of a local or shared file system whose files these are; None if they are no files.
    directory: str | None = None

    @abc.abstractmethod
    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        """Write a file, durable on return. Raises `StorageExistsError` if the name is taken."""

    @abc.abstractmethod
    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file atomically, durable on return. Returns whether this caller created it.

        The data must hold an id of the writer: a file of equal bytes counts as this caller's, since a reply may have
        been lost.
        """

    @abc.abstractmethod
    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Return the whole file. Rejects one larger than `limit` before reading it."""

    @abc.abstractmethod
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes. Raises `CorruptionError` if the file ends before."""

    @abc.abstractmethod
    def size(self, path: str) -> int:
        """Return the file's length in bytes."""

    @abc.abstractmethod
    def list(self, prefix: str = "") -> Paths:
        """Return the files below a directory, or all of them, sorted. Temporary files are never listed."""

    @abc.abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, durably. Does nothing if there is none."""

    @abc.abstractmethod
    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files, in any order; all are durably gone on return."""

    @abc.abstractmethod
    def ensure_durable(self, path: str) -> None:
        """Make a file durable that another process wrote, perhaps without syncing it."""

    @abc.abstractmethod
    def check_conditional_create(self) -> None:
        """Test with a probe that a second creation of one name fails. Writers call it when they start."""

    @abc.abstractmethod
    def remove_leftovers(self, is_live: Callable[[str], bool]) -> int:
        """Delete temporary files of writers that are not live, whatever their age. Returns how many."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return the location, for messages; `open_storage` accepts it."""

    @abc.abstractmethod
    def statistics(self) -> StorageStatistics:
        """Return the counts."""
