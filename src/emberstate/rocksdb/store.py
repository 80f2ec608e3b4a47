"""`RocksDBStore`: one RocksDB with all pairs of a backend, and the points in time that it can roll back to.

All states share one column family, so that one RocksDB snapshot, which costs next to nothing, is a point in time of
everything. While a point is live, written keys are logged (`TouchedKeys`): a roll-back writes what the RocksDB snapshot
has for them, and changes are found by comparing the two. A write reads nothing, and logs a key once. The log goes to
disk when it outgrows its share of memory.

The database is scratch space: it has no write-ahead log, and reads nothing that another process wrote. `raw_mode` is on
everywhere: without it rocksdict unpickles what it reads.

rocksdict raises bare exceptions, and its iterators over items end early where a block cannot be read (tried).
So every call to it is in this module, iterators are asked for their status, and a failure is a StorageError.
After one, nothing can be committed or rolled back any more: a write may have been done by half.

Invariants: points are in the order they were taken; a key that differs from what a live point saw is in the log of
that point or of a later one.

Thread safety: one owner thread. Any thread may call a point's `read`, `scan` and `release`.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_END: Final = b"\xff\xff\xff"  # after all keys
_NOT_FOUND: Final = "key not found"  # the message of rocksdict's snapshots


@dataclasses.dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What a store holds, in bytes unless it is a count; RocksDB's own numbers are estimates."""

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

    Single keys are read from RocksDB's snapshot. Scans use an iterator that was made at the same time, because the
    iterators of rocksdict's snapshots see later writes (tried).
    """

    __slots__ = ("_iterator", "_reading", "_store", "_view", "entries", "touched")

    def __init__(self, store: RocksDBStore, view: Any, iterator: Any) -> None:
        self._store = store
        self._view = view
        self._iterator = iterator
        self._reading = threading.Lock()  # guards the iterator's position
        #: The keys written between this point and the next.
        self.touched = TouchedKeys()
        #: The number of entries of all states at this point, if the backend knew it.
        self.entries: int | None = None

    @property
    def store(self) -> RocksDBStore:
        """The store that took the point."""
        return self._store

    @property
    def released(self) -> bool:
        """Whether the point was released."""
        return self._view is None

    def check_live(self) -> None:
        """Raise LifecycleError if the point was released."""
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
        """Iterate over the pairs whose keys begin with `prefix`, as they were, in order."""
        position: bytes | None = prefix
        while position is not None:
            chunk, position = self._chunk(prefix, position)
            yield from chunk

    def _chunk(self, prefix: bytes, position: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Some pairs from `position` on, and the position of the next; other readers may run between two calls."""
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
        """Release the point; a second call does nothing."""
        self._store.release(self)

    def _forget(self) -> None:
        self._view = self._iterator = None


def _released() -> LifecycleError:
    return LifecycleError("the snapshot was released: read it, and roll back to it, before its release")


class Cursor:
    """Walks over the keys that begin with a prefix, in order; later writes are invisible.

    `key()` is None after the last one, and after a failed read: `check` tells the two apart.
    """

    __slots__ = ("_iterator", "_options", "_store", "advance", "key", "seek", "value")

    def __init__(self, store: RocksDBStore, db: Rdict, prefix: bytes) -> None:
        # RocksDB has a pointer to the bound in the options, which must live as long as the iterator. rocksdict does not
        # keep them alive (tried): an iteration then ends at whatever the memory holds.
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
        """Open an empty store in `directory`, which `close` removes."""
        options, self._cache, self._buffers = options_for(budget)
        try:
            self._db: Any = Rdict(str(directory.path / "db"), options)
        except Exception as error:
            directory.remove()
            path = str(directory.path)
            raise StorageError(f"opening RocksDB in {path} failed: {error}", path=path) from error
        db = self._db
        #: Reads and writes by key, and logs touched keys.
        self.pairs = PairAccess(db.get, db.put, db.delete, budget.touched, self)
        self.get, self.put = self.pairs.get, self.pairs.put
        self.delete, self.append = self.pairs.delete, self.pairs.append
        self.budget = budget
        #: The first failure of the local files, if any.
        self.failure: StorageError | None = None
        #: Counts points in time.
        self.points_taken = 0
        self._directory = directory
        self._points: list[Point] = []
        self._runs = 0
        self._lock = threading.Lock()  # guards release and close, which two threads may call
        self._closed = False
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]  # an attribute, stubs err
        self._db.set_write_options(self._write_options)

    # -- pairs ----------------------------------------------------------------------------------------------

    def cursor(self, prefix: bytes) -> Cursor:
        """A cursor at the first of the keys that begin with `prefix`."""
        return Cursor(self, self._db, prefix)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the pairs whose keys begin with `prefix`, in order; later writes are invisible."""
        cursor = self.cursor(prefix)
        key, value, advance = cursor.key, cursor.value, cursor.advance
        raw = key()
        while raw is not None:
            yield raw, value()
            advance()
            raw = key()
        cursor.check()

    def get_first(self) -> bytes | None:
        """The first key, or None if the store is empty."""
        chunk = next(Point(self, None, self._db.iter()).scan(b""), None)
        return None if chunk is None else chunk[0]

    def write_all(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Set pairs, or remove those whose value is None, without logging them."""
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
        """Note a failure of rocksdict and return the error to raise; from here on the store is unusable."""
        failure = StorageError(
            f"the local files of RocksDB in {self._directory.path} could not be {what}: {error}. Is the disk full or "
            f"broken? Nothing is committed from here on; a restart restores from the last checkpoint.",
            path=str(self._directory.path),
        )
        if self.failure is None:
            self.failure = failure
        return failure

    def check_sound(self) -> None:
        """Raise the first failure, if there was one."""
        if self.failure is not None:
            raise self.failure

    # -- points in time -------------------------------------------------------------------------------------

    @property
    def points(self) -> int:
        """The number of live points."""
        return sum(not point.released for point in self._points)

    def take(self) -> Point:
        """Take a point in time."""
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
        """Release a point, from any thread; the owner thread settles its log."""
        with self._lock:
            if point.released:
                return
            point._forget()
            self.pairs.unsettled = True
            self._remove_if_unused()

    def touched_since(self, point: Point, low: bytes, high: bytes) -> Iterator[bytes]:
        """Iterate over the keys in [low, high) that may differ from what `point` saw, in order, each once."""
        self.check_sound()
        self.settle()  # removes points that were released; one that is released from here on stays until the next time
        point.check_live()
        sources: list[Iterable[bytes]] = []
        for later in self._points[self._points.index(point) :]:
            sources += [read_run(run) for run in later.touched.runs]
            if later.touched.keys:
                sources.append(sorted(later.touched.keys))
        return (key for key in merged(sources) if low <= key < high)

    def roll_back(self, point: Point) -> None:
        """Restore what `point` saw. The cost is that of what was touched since."""
        keys = self.touched_since(point, b"", _END)
        self.pairs.generation += 1
        if self._points[-1] is point:
            self.write_all((raw, point.read(raw)) for raw in keys)
            point.touched.discard()
            self._count_touched()
            return
        # A later point is live and may be rolled back to as well: for it, these are ordinary changes.
        for raw in keys:
            value = point.read(raw)
            if value is None:
                self.delete(raw)
            else:
                self.put(raw, value)

    def spill(self) -> None:
        """Move the logs in memory to disk."""
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
        """Set the size of the newest log; writes only count the sum of all logs."""
        if self._points:
            *older, newest = self._points
            newest.touched.size = self.pairs.touched_bytes - sum(point.touched.size for point in older)

    def _count_touched(self) -> None:
        self.pairs.touched_bytes = sum(point.touched.size for point in self._points)

    # -- maintenance ---------------------------------------------------------------------------------------

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
        for point in list(self._points):
            try:
                self._check_point(point, now)
            except LifecycleError:
                if not point.released:  # by another thread, meanwhile
                    raise

    def _check_point(self, point: Point, now: Mapping[bytes, bytes]) -> None:
        before = dict(point.scan(b""))
        changed = {raw for raw in {*before, *now} if before.get(raw) != now.get(raw)}
        logged = set(self.touched_since(point, b"", _END))
        if not changed <= logged:
            raise InvariantError(f"{sorted(changed - logged)[:3]} changed since a snapshot and are not logged")
        if any(before.get(raw) != point.read(raw) for raw in logged):
            raise InvariantError("a snapshot reads by key other values than in order")

    def close(self) -> None:
        """Close and delete the files; a second call does nothing.

        While points are live, they can be read; the last release deletes the files.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            db, self._db = self._db, None
            self.pairs.disconnect()
            try:
                db.close()
            except Exception as error:  # closing flushes, which fails on a full disk; the files are not needed
                _log.warning("RocksDB in %s did not close in order: %s", self._directory.path, error)
            del db
            self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        if self._closed and not self.points:
            self._directory.remove()
