"""The log of the keys written between two points in time; beyond a size it is on disk.

A set of raw keys in memory, and sorted runs of keys in files. A key may be in several of them: the log says what may
have changed, and its reader compares. The values before are not in the log; a RocksDB snapshot has them.

Invariants: every run is sorted and without duplicates; a run file is written once and never changed.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from emberstate.errors import StorageError

#: More runs than this are merged into one, because a reader opens them all.
MOST_RUNS: Final = 32
_BUFFER: Final = 32 * 1024
_LENGTH: Final = 4


class TouchedKeys:
    """The keys touched between a point in time and the next."""

    __slots__ = ("keys", "runs", "size")

    def __init__(self) -> None:
        #: The keys in memory.
        self.keys: set[bytes] = set()
        #: Their memory in bytes; may count a key twice.
        self.size = 0
        #: The files of sorted runs.
        self.runs: list[Path] = []

    def absorb(self, later: TouchedKeys) -> None:
        """Take over the keys and runs of `later`, which must not be used afterwards."""
        self.keys |= later.keys
        self.size += later.size
        self.runs += later.runs

    def discard(self) -> None:
        """Forget everything."""
        self.keys.clear()
        self.size = 0
        for run in self.runs:
            run.unlink(missing_ok=True)
        self.runs = []

    def spill(self, file: Path) -> None:
        """Move the keys in memory to a new run."""
        if self.keys:
            write_run(file, sorted(self.keys))
            self.runs.append(file)
            self.keys.clear()
            self.size = 0

    def compact(self, file: Path) -> None:
        """Merge the runs into one, in a new file."""
        write_run(file, merged([read_run(run) for run in self.runs]))
        old, self.runs = self.runs, [file]
        for run in old:
            run.unlink(missing_ok=True)


def merged(sources: list[Iterable[bytes]]) -> Iterator[bytes]:
    """The keys of sorted sources, sorted, each once.

    >>> list(merged([[b"a", b"c"], [b"a", b"b"]]))
    [b'a', b'b', b'c']
    """
    last = None
    for key in heapq.merge(*sources):
        if key != last:
            last = key
            yield key


def write_run(file: Path, keys: Iterable[bytes]) -> None:
    """Write sorted keys to a new file; raises StorageError, for instance if the disk is full."""
    try:
        with file.open("xb", buffering=_BUFFER) as out:
            for key in keys:
                out.write(len(key).to_bytes(_LENGTH, "big") + key)
            out.write((0).to_bytes(_LENGTH, "big"))  # no key is empty: this is the end
    except OSError as error:
        raise StorageError(
            f"writing the log of touched keys to {file} failed: {error}. Is the disk full or broken? Nothing is "
            f"committed from here on; a restart restores from the last checkpoint.",
            path=str(file),
        ) from error


def read_run(file: Path) -> Iterator[bytes]:
    """Iterate over the keys of a run in order; raises StorageError if the file is cut short."""
    try:
        with file.open("rb", buffering=_BUFFER) as source:
            while length := int.from_bytes(_exactly(source, _LENGTH), "big"):
                yield _exactly(source, length)
    except OSError as error:
        raise StorageError(f"reading the log of touched keys from {file} failed: {error}", path=str(file)) from error


def _exactly(source: BinaryIO, count: int) -> bytes:
    data = source.read(count)
    if len(data) != count:
        raise OSError("the file is cut short")
    return data
