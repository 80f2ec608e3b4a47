"""`RocksDBStore`: one RocksDB with all pairs of a backend, and the points in time that can be gone back to.

All states share one column family, so that one RocksDB snapshot, which costs next to nothing, is a point in
time of everything. While a point is live, the keys that are written to are logged (`TouchedKeys`): going back
writes what the RocksDB snapshot has for them, and what changed is found by comparing the two. A write reads
nothing, and logs a key once. The log goes to disk when it outgrows its share of memory.

The database is scratch space: no write-ahead log, nothing is read that another process wrote. `raw_mode`
everywhere: without it rocksdict unpickles what it reads.

rocksdict raises bare exceptions, and its iterators over items end early where a block cannot be read (tried).
So every call to it is here, iterators are asked for their status, and what goes wrong is a StorageError.
After one, nothing can be committed nor rolled back any more: a write may have been done by half.

Invariants: points ascend by age; a key that differs from what a live point saw is in the log of that point or
of a later one.

Thread safety: one owner thread. A point's `read` and `scan`, and `release`, are for any thread.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from rocksdict import Rdict, ReadOptions, WriteBatch, WriteOptions

from emberstate.errors import InvariantError, LifecycleError, StorageError
from emberstate.rocksdb.local_directory import LocalDirectory
from emberstate.rocksdb.memory_budget import MemoryBudget, options_for
from emberstate.rocksdb.pair_access import PairAccess
from emberstate.rocksdb.raw_keys import successor
from emberstate.rocksdb.touched_keys import MOST_RUNS, TouchedKeys, merged, read_run

_log = logging.getLogger("emberstate.rocksdb")

_BATCH_BYTES: Final = 256 * 1024
_PAIR_OVERHEAD: Final = 150  # of the objects that a pair in memory is
_END: Final = b"\xff\xff\xff"  # behind all keys
_NOT_FOUND: Final = "key not found"  # how rocksdict's snapshots say so


@dataclasses.dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What a store holds, in bytes where not said otherwise; numbers of RocksDB's are its estimates."""

    memory_limit: int
    block_cache: int
    write_buffers: int
    touched: int
    touched_runs: int
    live_points: int
    estimated_pairs: int
    table_files: int


class Point:
    """A point in time of a store; until it is released.

    Single keys are read by RocksDB's snapshot. For scans it has an iterator that was made at the same time,
    for rocksdict's snapshots give iterators that see what was written later (tried).
    """

    __slots__ = ("_iterator", "_reading", "_store", "_view", "entries", "touched")

    def __init__(self, store: RocksDBStore, view: Any, iterator: Any) -> None:
        self._store = store
        self._view = view
        self._iterator = iterator
        self._reading = threading.Lock()  # whoever has it may move the iterator
        #: What was written to since, up to the next point.
        self.touched = TouchedKeys()
        #: How many entries the states had, if whoever took the point knew.
        self.entries: int | None = None

    @property
    def store(self) -> RocksDBStore:
        """Whose point in time it is."""
        return self._store

    @property
    def released(self) -> bool:
        """Whether it was given up."""
        return self._view is None

    def check_live(self) -> None:
        """Raise LifecycleError if this was given up."""
        if self._view is None:
            raise _released()

    def read(self, raw: bytes) -> bytes | None:
        """The value that a raw key had, or None."""
        view = self._view
        if view is None:
            raise _released()
        try:
            value: bytes = view[raw]
        except Exception as error:
            if str(error) == _NOT_FOUND:
                return None
            raise self._store.failed("read", error) from error
        return value

    def holds(self, prefix: bytes) -> bool:
        """Whether there was a key that begins with `prefix`."""
        with self._reading:
            iterator = self._iterator
            if iterator is None:
                raise _released()
            try:
                iterator.seek(prefix)
                raw = iterator.key()
                iterator.status()
            except Exception as error:
                raise self._store.failed("read", error) from error
        return raw is not None and raw.startswith(prefix)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs whose keys begin with `prefix`, as they were, in order."""
        position: bytes | None = prefix
        while position is not None:
            chunk, position = self._chunk(prefix, position)
            yield from chunk

    def _chunk(self, prefix: bytes, position: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Some pairs from `position` on, and where the next ones are; other readers may come between."""
        chunk: list[tuple[bytes, bytes]] = []
        held = 0
        with self._reading:
            iterator = self._iterator
            if iterator is None:
                raise _released()
            try:
                iterator.seek(position)
                raw = iterator.key()
                while raw is not None and raw.startswith(prefix):
                    if held > _BATCH_BYTES:
                        return chunk, raw
                    value = iterator.value()
                    chunk.append((raw, value))
                    held += len(raw) + len(value) + _PAIR_OVERHEAD
                    iterator.next()
                    raw = iterator.key()
                iterator.status()
            except Exception as error:
                raise self._store.failed("read", error) from error
        return chunk, None

    def release(self) -> None:
        """Give it up; a second call does nothing."""
        self._store.release(self)

    def _forget(self) -> None:
        self._view = self._iterator = None


def _released() -> LifecycleError:
    return LifecycleError("the snapshot was released: read it, and roll back to it, before that")


class Cursor:
    """Walks over the keys that begin with a prefix, in order; what is written meanwhile is not seen.

    `key()` is None behind the last one, and where something could not be read: `check` tells the two apart.
    """

    __slots__ = ("_iterator", "_options", "_store", "advance", "key", "seek", "value")

    def __init__(self, store: RocksDBStore, db: Rdict, prefix: bytes) -> None:
        # RocksDB has a pointer to the bound, which is the options': they must live as long as the iterator.
        # rocksdict does not see to that (tried): an iteration then ends at whatever the memory holds.
        self._options = ReadOptions()
        self._options.set_iterate_upper_bound(successor(prefix))
        self._store = store
        try:
            self._iterator = db.iter(self._options)
            self._iterator.seek(prefix)
        except Exception as error:
            raise store.failed("read", error) from error
        self.key: Callable[[], bytes | None] = self._iterator.key
        self.value: Callable[[], bytes] = self._iterator.value
        self.advance: Callable[[], None] = self._iterator.next
        self.seek: Callable[[bytes], None] = self._iterator.seek

    def check(self) -> None:
        """Raise StorageError if it ended because something could not be read."""
        try:
            self._iterator.status()
        except Exception as error:
            raise self._store.failed("read", error) from error


class RocksDBStore:
    """Pairs of bytes in a RocksDB of its own."""

    __slots__ = (
        "_buffers", "_cache", "_closed", "_db", "_directory", "_lock", "_points", "_runs", "_write_options", "append",
        "budget", "delete", "failure", "get", "pairs", "points_taken", "put",
    )  # fmt: skip

    def __init__(self, directory: LocalDirectory, budget: MemoryBudget) -> None:
        """Open an empty store in `directory`, which it removes when it is closed."""
        options, self._cache, self._buffers = options_for(budget)
        try:
            self._db: Any = Rdict(str(directory.path / "db"), options)
        except Exception as error:
            directory.remove()
            path = str(directory.path)
            raise StorageError(f"RocksDB could not be opened in {directory.path}: {error}", path=path) from error
        db = self._db
        #: Reading and writing by key; the log of what is touched.
        self.pairs = PairAccess(db.get, db.put, db.delete, budget.touched, self)
        self.get, self.put = self.pairs.get, self.pairs.put
        self.delete, self.append = self.pairs.delete, self.pairs.append
        self.budget = budget
        #: What went wrong with the local files, once something did.
        self.failure: StorageError | None = None
        #: Counts points in time.
        self.points_taken = 0
        self._directory = directory
        self._points: list[Point] = []
        self._runs = 0
        self._lock = threading.Lock()  # guards releasing and closing, which may come from two threads
        self._closed = False
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]  # an attribute, stubs err
        self._db.set_write_options(self._write_options)

    # -- pairs ----------------------------------------------------------------------------------------------

    def cursor(self, prefix: bytes) -> Cursor:
        """At the first of the keys that begin with `prefix`."""
        return Cursor(self, self._db, prefix)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs whose keys begin with `prefix`, in order; what is written meanwhile is not seen."""
        cursor = self.cursor(prefix)
        key, value, advance = cursor.key, cursor.value, cursor.advance
        raw = key()
        while raw is not None:
            yield raw, value()
            advance()
            raw = key()
        cursor.check()

    def get_first(self) -> bytes | None:
        """The first key of all, or None if there is nothing."""
        chunk = next(Point(self, None, self._db.iter()).scan(b""), None)
        return None if chunk is None else chunk[0]

    def write_all(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Set pairs, or remove them if their value is None, past the log: only for what it need not have."""
        self.pairs.writes += 1
        batch = WriteBatch(raw_mode=True)
        held = 0
        for raw, value in pairs:
            if value is None:
                batch.delete(raw)
            else:
                batch.put(raw, value)
                held += len(value)
            held += len(raw)
            if held > _BATCH_BYTES:
                self._write(batch)
                batch = WriteBatch(raw_mode=True)
                held = 0
        self._write(batch)

    def _write(self, batch: WriteBatch) -> None:
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise self.failed("written", error) from error

    def failed(self, what: str, error: Exception) -> StorageError:
        """What to raise when rocksdict raised; from here on the store is good for nothing."""
        failure = StorageError(
            f"the local files of RocksDB in {self._directory.path} could not be {what}: {error}. Is the disk full or "
            f"broken? Nothing is committed from here on; a restart restores from the last checkpoint.",
            path=str(self._directory.path),
        )
        if self.failure is None:
            self.failure = failure
        return failure

    def check_sound(self) -> None:
        """Raise what went wrong before, if something did."""
        if self.failure is not None:
            raise self.failure

    # -- points in time -------------------------------------------------------------------------------------

    @property
    def points(self) -> int:
        """How many points are live."""
        return sum(not point.released for point in self._points)

    def take(self) -> Point:
        """A point in time to read, and to go back to."""
        self.check_sound()
        self.settle()
        self._size_newest()
        try:
            point = Point(self, self._db.snapshot(), self._db.iter())
        except Exception as error:
            raise self.failed("read", error) from error
        self.points_taken += 1
        self._points.append(point)
        self.pairs.touched = point.touched.keys
        return point

    def release(self, point: Point) -> None:
        """Give up a point, from any thread; the owner tidies up after it."""
        with self._lock:
            if point.released:
                return
            point._forget()
            self.pairs.unsettled = True
            self._remove_if_unused()

    def touched_since(self, point: Point, low: bytes, high: bytes) -> Iterator[bytes]:
        """The keys in [low, high) that may differ from what `point` saw, in order, each once."""
        self.check_sound()
        point.check_live()
        self.settle()
        sources: list[Iterable[bytes]] = []
        for later in self._points[self._points.index(point) :]:
            sources += [read_run(run) for run in later.touched.runs]
            if later.touched.keys:
                sources.append(sorted(later.touched.keys))
        return (key for key in merged(sources) if low <= key < high)

    def roll_back(self, point: Point) -> None:
        """Make everything what `point` saw. The cost is that of what was touched since."""
        keys = self.touched_since(point, b"", _END)
        self.pairs.generation += 1
        if self._points[-1] is point:
            self.write_all((raw, point.read(raw)) for raw in keys)
            point.touched.discard()
            self._count_touched()
            return
        # A later point is live, and may be gone back to as well: for it, these are changes like others.
        for raw in keys:
            value = point.read(raw)
            if value is None:
                self.delete(raw)
            else:
                self.put(raw, value)

    def spill(self) -> None:
        """Move the log's memory to disk."""
        try:
            for point in self._points:
                point.touched.spill(self._directory.path / f"touched-{self._next_run()}.run")
                if len(point.touched.runs) > MOST_RUNS:
                    point.touched.compact(self._directory.path / f"touched-{self._next_run()}.run")
        except StorageError as error:
            self.failure = error
            raise
        self._count_touched()

    def _next_run(self) -> int:
        self._runs += 1
        return self._runs

    def settle(self) -> None:
        """Hand the logs of released points to the next older ones."""
        if not self.pairs.unsettled:
            return
        with self._lock:
            self.pairs.unsettled = False
            released = [point.released for point in self._points]
        self._size_newest()
        kept: list[Point] = []
        for point, gone in zip(self._points, released, strict=True):
            if not gone:
                kept.append(point)
            elif kept:
                kept[-1].touched.absorb(point.touched)
            else:
                point.touched.discard()
        self._points = kept
        self.pairs.touched = kept[-1].touched.keys if kept else None
        self._count_touched()

    def _size_newest(self) -> None:
        """Give the newest log what was counted for it; a write counts once, for all of them."""
        if self._points:
            *older, newest = self._points
            newest.touched.size = self.pairs.touched_bytes - sum(point.touched.size for point in older)

    def _count_touched(self) -> None:
        self.pairs.touched_bytes = sum(point.touched.size for point in self._points)

    # -- looking after it -----------------------------------------------------------------------------------

    def statistics(self) -> StoreStatistics:
        """What the store holds."""
        return StoreStatistics(
            memory_limit=self.budget.limit,
            block_cache=self._cache.get_usage(),
            write_buffers=self._buffers.get_usage(),
            touched=self.pairs.touched_bytes,
            touched_runs=sum(len(point.touched.runs) for point in self._points),
            live_points=self.points,
            estimated_pairs=self._db.property_int_value("rocksdb.estimate-num-keys") or 0,
            table_files=self._db.property_int_value("rocksdb.total-sst-files-size") or 0,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a change since a live point is in no log. O(all pairs), for every point."""
        self.settle()
        now = dict(Point(self, None, self._db.iter()).scan(b""))
        for point in self._points:
            before = dict(point.scan(b""))
            changed = {raw for raw in {*before, *now} if before.get(raw) != now.get(raw)}
            logged = set(self.touched_since(point, b"", _END))
            if not changed <= logged:
                raise InvariantError(f"{sorted(changed - logged)[:3]} changed since a snapshot and are in no log")
            if any(before.get(raw) != point.read(raw) for raw in logged):
                raise InvariantError("what a snapshot reads by key is not what it reads in order")

    def close(self) -> None:
        """Close and delete the files; a second call does nothing.

        While points are live, their readers may go on: the last release deletes the files.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            db, self._db = self._db, None
            self.pairs.disconnect()
            try:
                db.close()
            except Exception as error:  # it flushes, which a full disk refuses; nobody needs what it flushes
                _log.warning("RocksDB in %s did not close in order: %s", self._directory.path, error)
            del db
            self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        if self._closed and not self.points:
            self._directory.remove()
