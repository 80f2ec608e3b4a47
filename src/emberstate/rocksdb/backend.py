"""`RocksDBKeyedStateBackend`: all keyed state of one slot, on local disk, with bounded memory.

It does what `HeapKeyedStateBackend` does, for state that is larger than memory, and is several times slower. Every
state is a table of pairs in one `RocksDBStore`. A snapshot of everything is O(1); a roll-back, or the list of changes,
costs what was touched.

It differs from the heap because values are encoded when they are written and decoded when they are read: a change to a
value that was read, or handed in, counts only once it is written; a value of a wrong type deep inside is rejected when
it is written, not at the commit; maps iterate in the order of their user keys' bytes; `number_of_entries` and the sizes
of lists and maps are counted, not known.

The local files are scratch space of this process and are deleted on `close`. If they cannot be written or read, a
StorageError is raised and nothing can be committed any more: restore from the last checkpoint.

Thread safety: see `AbstractKeyedStateBackend`.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Hashable, Iterable
from typing import Any, Final

from emberstate.codec import Codec
from emberstate.errors import InvariantError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.rocksdb.local_directory import LocalDirectory
from emberstate.rocksdb.map_state import RocksDBMapState
from emberstate.rocksdb.memory_budget import DEFAULT_LIMIT, MemoryBudget
from emberstate.rocksdb.raw_keys import table_prefix
from emberstate.rocksdb.row_loader import RocksDBRowLoader
from emberstate.rocksdb.state_table import RocksDBStateTable, Tables
from emberstate.rocksdb.states import RocksDBFoldingState, RocksDBListState, RocksDBValueState
from emberstate.rocksdb.store import Point, RocksDBStore, StoreStatistics
from emberstate.rocksdb.timer_queue import RocksDBTimerQueue
from emberstate.rocksdb.ttl_sweep import RocksDBTtlSweep
from emberstate.state.changes import EntryChange
from emberstate.state.declarations import StateHandles
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.keyed_state_backend import AbstractKeyedStateBackend, BackendStatistics
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.row_loading import FileRules, RowDecoders

# The tables of states and those of timer queues are numbered in two ranges, so that either can be listed alone.
_FIRST_STATE: Final = 1
_FIRST_QUEUE: Final = 0x8000
_END: Final = 0xFE00


@dataclasses.dataclass(frozen=True, slots=True)
class RocksDBBackendStatistics(BackendStatistics):
    """What a backend holds."""

    store: StoreStatistics
    states: tuple[str, ...]


class RocksDBKeyedStateBackend(AbstractKeyedStateBackend[RocksDBStateTable, RocksDBTimerQueue, Point]):
    """The keyed state of a range of key groups.

    >>> import tempfile
    >>> from emberstate.state.descriptors import ValueStateDescriptor
    >>> with tempfile.TemporaryDirectory() as local:
    ...     backend = RocksDBKeyedStateBackend(KeySchema.from_python(str), local)
    ...     total = backend.get_partitioned_state(ValueStateDescriptor("total", int, default=0))
    ...     backend.set_current_key("ann")
    ...     with backend.snapshot() as before:
    ...         total.update(total.value() + 5)
    ...         [(state, change) for state, group, change in backend.changes(before)]
    ...     backend.close()
    [('total', ('ann', '', ((<Op.REPLACED: 1>, 5),)))]
    """

    _handles = StateHandles(RocksDBValueState, RocksDBListState, RocksDBMapState, RocksDBFoldingState)
    _point_class = Point

    def __init__(
        self,
        key_schema: KeySchema,
        directory: str | os.PathLike[str],
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_group_range: KeyGroupRange | None = None,
        memory_limit: int = DEFAULT_LIMIT,
    ) -> None:
        """Make an empty backend that owns `key_group_range` (default: all) of `max_parallelism` key groups.

        Its files are in a directory of their own below `directory`, which several backends may share. Block
        cache, write buffers and the log of touched keys stay within `memory_limit` bytes together.

        Raises:
            StorageError: the directory cannot be used.
        """
        super().__init__(key_schema, max_parallelism, key_group_range)
        budget = MemoryBudget.of(memory_limit)
        local = LocalDirectory(directory)
        #: The directory of the local files.
        self.local_path = local.path
        self._store = RocksDBStore(local, budget)
        self._tables = Tables(self._store, self.context)
        self._ttl_sweep = RocksDBTtlSweep(self.ttl_clock)
        self._counted = (0, 0)  # (number of writes, number of entries after them)

    # -- tables, timer queues and points --------------------------------------------------------------------

    def _new_table(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> RocksDBStateTable:
        number = _FIRST_STATE + len(self._states)
        return RocksDBStateTable.of(number, descriptor, self._tables, namespace_codec)

    def _new_timer_queue(self, name: str, namespace_codec: Codec[Any]) -> RocksDBTimerQueue:
        number = _FIRST_QUEUE + 2 * len(self._timer_queues)
        return RocksDBTimerQueue(number, name, self._tables, namespace_codec)

    def _keys_to_visit(self, name: str, namespace: Hashable) -> Iterable[Any]:
        return self.get_keys(name, namespace)  # RocksDB's iterators do not see later writes

    def _take_point(self) -> Point:
        point = self._store.take()
        point.entries = self._known_entries()
        return point

    def _is_own(self, point: Point) -> bool:
        return point.store is self._store

    def _roll_back_to(self, point: Point) -> None:
        self._store.roll_back(point)
        if point.entries is not None:
            self._count(point.entries)

    def changes(self, snapshot: KeyedStateSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (state, key group, record) for every entry that differs from `snapshot`."""
        point = self._point(snapshot)
        tables = {registered.table.prefix: registered.table for registered in self._states.values()}
        for table in tables.values():
            table.gained = 0
        found = self._changes(point, tables, _FIRST_STATE, _FIRST_QUEUE)
        if point.entries is not None:
            self._count(point.entries + sum(table.gained for table in tables.values()))
        return found

    def timer_changes(self, snapshot: KeyedStateSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (queue, key group, record) for every key whose timers differ from `snapshot`."""
        point = self._point(snapshot)
        tables = {queue.table.prefix: queue.table for queue in self._timer_queues.values()}
        return self._changes(point, tables, _FIRST_QUEUE, _END)

    def _changes(
        self, point: Point, tables: dict[bytes, RocksDBStateTable], first: int, end: int
    ) -> list[tuple[str, int, EntryChange]]:
        found = []
        touched = self._store.touched_since(point, table_prefix(first), table_prefix(end))
        for prefix, raws in itertools.groupby(touched, key=lambda raw: raw[:2]):
            table = tables.get(prefix)
            if table is not None:  # the order of a timer queue is in none of the tables
                found += [(table.name, group, change) for group, change in table.changes(raws, point)]
        return found

    # -- restoring ------------------------------------------------------------------------------------------

    def _was_snapshotted(self) -> bool:
        return self._store.points_taken > 0

    def _is_empty(self) -> bool:
        return self._store.get_first() is None

    def loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RocksDBRowLoader:
        """Return a loader that fills state `name` from the rows of one file."""
        return RocksDBRowLoader(self._states[name].table, None, decoders, rules)

    def timer_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RocksDBRowLoader:
        """Return a loader that fills timer queue `name` from the rows of one file."""
        queue = self._timer_queues[name]
        return RocksDBRowLoader(queue.table, queue, decoders, rules)

    def after_load(self) -> None:
        """Adopt what the loaders loaded."""
        self._store.check_sound()
        self._count(self.number_of_entries())

    # -- maintenance ----------------------------------------------------------------------------------------

    def statistics(self) -> RocksDBBackendStatistics:
        """What the backend holds; O(timers), and O(entries) if changes were not listed since the last write."""
        self.context.check_open()
        store = self._store.statistics()
        entries = self._known_entries()
        if entries is None:
            entries = self.number_of_entries()
            self._count(entries)
        return RocksDBBackendStatistics(
            entries=entries,
            store=store,
            live_snapshots=store.live_points,
            states=tuple(self._states),
            timers=tuple(queue.statistics() for queue in self._timer_queues.values()),
            clean_up=self._clean_up.statistics(),
        )

    # Writes do not maintain the number of entries: they would have to read first. Listing the changes since a snapshot
    # reads anyway, and adds its result to the number at the snapshot; the sum holds until the next write.

    def _count(self, entries: int) -> None:
        self._counted = (self._store.pairs.writes, entries)

    def _known_entries(self) -> int | None:
        writes, entries = self._counted
        return entries if writes == self._store.pairs.writes else None

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken. O(all pairs), for every live snapshot."""
        self._store.check_invariants()
        known, found = self._known_entries(), self.number_of_entries()
        if known is not None and known != found:
            raise InvariantError(f"the backend has {found} entries, counted were {known}")
        super().check_invariants()

    def close(self) -> None:
        """Drop all state and delete the local files; see `AbstractKeyedStateBackend.close`.

        While snapshots are live, the release of the last one deletes the files.
        """
        super().close()
        self._store.close()
