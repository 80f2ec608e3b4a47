"""`RocksDBKeyedStateBackend`: all keyed state of one slot, on local disk, with bounded memory.

It does what `HeapKeyedStateBackend` does, for state that is larger than memory, and is several times slower.
Every state is a table of pairs in one `RocksDBStore`. A snapshot of everything is O(1); a roll-back, or the
list of what changed, costs what was touched.

Where it differs from the heap, because values are encoded when they are written and decoded when they are
read: a change to a value that was read, or handed in, counts only once it is written; a value of a wrong type
deep inside is refused when it is written, not when a checkpoint is; maps are iterated in the order of their
user keys' bytes; `number_of_entries` and the sizes of lists and maps are counted, not known.

The local files are scratch space of this process and are deleted on `close`. If they cannot be written or
read, a StorageError says so and nothing can be committed any more: restore from the last checkpoint.

Thread safety: one owner thread. A `RocksDBSnapshot` may be read and released by any thread.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

from emberstate.codec import Codec, key_codec_for
from emberstate.errors import (
    InvariantError,
    LifecycleError,
    RestoreRefusedError,
    StateDeclarationError,
    StateTypeError,
)
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.rocksdb.local_directory import LocalDirectory
from emberstate.rocksdb.memory_budget import DEFAULT_LIMIT, MemoryBudget
from emberstate.rocksdb.raw_keys import table_prefix
from emberstate.rocksdb.rocksdb_map_state import RocksDBMapState
from emberstate.rocksdb.rocksdb_row_loader import RocksDBRowLoader
from emberstate.rocksdb.rocksdb_snapshot import RegisteredState, RocksDBSnapshot
from emberstate.rocksdb.rocksdb_state_table import RocksDBStateTable, Tables
from emberstate.rocksdb.rocksdb_states import (
    RocksDBFoldingState,
    RocksDBListState,
    RocksDBValueState,
)
from emberstate.rocksdb.rocksdb_store import Point, RocksDBStore, StoreStatistics
from emberstate.rocksdb.rocksdb_timer_queue import RocksDBTimerQueue
from emberstate.rocksdb.rocksdb_ttl_sweep import RocksDBTtlSweep
from emberstate.state.changes import EntryChange
from emberstate.state.declarations import StateHandles, check_declared, check_room, check_same_declaration, user_facing
from emberstate.state.descriptors import StateDescriptor, check_state_name
from emberstate.state.key_context import KeyContext
from emberstate.state.points import point_of
from emberstate.state.row_loading import FileRules, RowDecoders
from emberstate.state.timers import VOID_NAMESPACE, TimerQueueStatistics
from emberstate.state.ttl.clean_up import Sweep, TtlCleanUp, TtlCleanUpStatistics
from emberstate.state.ttl.config import TtlClock
from emberstate.state.ttl.states import Expiry

# Tables of states are numbered from here, those of timer queues from there: so either can be listed alone.
_FIRST_STATE: Final = 1
_FIRST_QUEUE: Final = 0x8000
_END: Final = 0xFE00

_HANDLES: Final = StateHandles(RocksDBValueState, RocksDBListState, RocksDBMapState, RocksDBFoldingState)


@dataclasses.dataclass(frozen=True, slots=True)
class RocksDBBackendStatistics:
    """What a backend holds."""

    entries: int
    store: StoreStatistics
    live_snapshots: int
    states: tuple[str, ...]
    timers: tuple[TimerQueueStatistics, ...]
    clean_up: TtlCleanUpStatistics


class RocksDBKeyedStateBackend:
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
        owned = KeyGroupRange(0, max_parallelism - 1) if key_group_range is None else key_group_range
        budget = MemoryBudget.of(memory_limit)
        self.context = KeyContext(key_schema, max_parallelism, owned)
        self.ttl_clock = TtlClock()
        local = LocalDirectory(directory)
        #: Where the local files are.
        self.local_path = local.path
        self._store = RocksDBStore(local, budget)
        self._tables = Tables(self._store, self.context)
        self._states: dict[str, RegisteredState] = {}
        self._timer_queues: dict[str, RocksDBTimerQueue] = {}
        self._given = False  # whether somebody may hold these two dicts, so that they must not change
        self._ttl_sweep = RocksDBTtlSweep(self.ttl_clock)
        self._clean_up = TtlCleanUp(self._sweeps)
        self._counted = (0, 0)  # how many writes there had been when there were so many entries

    # -- the current key ------------------------------------------------------------------------------------

    @property
    def current_key(self) -> Any:
        """The current key, or None."""
        return self.context.key

    def set_current_key(self, key: Any) -> None:
        """Make `key` the one that states are about.

        Refuses a wrong type, and a key group that is not owned.
        """
        self.context.set_current_key(key)

    # -- states ---------------------------------------------------------------------------------------------

    @property
    def registered_kv_states(self) -> Mapping[str, RocksDBStateTable]:
        """The state tables by state name, as they are now."""
        return MappingProxyType({name: registered.table for name, registered in self._states.items()})

    @property
    def registered_states(self) -> Mapping[str, RegisteredState]:
        """The states by name, as they are now."""
        self._given = True
        return MappingProxyType(self._states)

    @property
    def timer_queues(self) -> Mapping[str, RocksDBTimerQueue]:
        """The timer queues by name, as they are now."""
        self._given = True
        return MappingProxyType(self._timer_queues)

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor,
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> Any:
        """Return a handle on a state, bound to `namespace`; a state is registered when it is first asked for.

        A handle stays bound: asking for another namespace gives another handle. Namespaces other than strings
        need their type declared.
        """
        internal = self.get_internal_state(descriptor, namespace, namespace_type=namespace_type)
        return user_facing(internal, self._states[descriptor.name].descriptor)

    def get_internal_state(
        self,
        descriptor: StateDescriptor,
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> Any:
        """As `get_partitioned_state`, without the wrapper for users.

        For windows, which merge namespaces and reach for accumulators. It checks no types.
        """
        registered = self._register(descriptor, namespace_type)
        try:
            registered.namespace_codec.check_deep(namespace)
        except StateTypeError as error:
            raise StateTypeError(f"namespace of state {descriptor.name!r}: {error}") from None
        ttl = registered.descriptor.ttl
        expiry = None if ttl is None else Expiry(ttl, self.ttl_clock, self.context)
        return _HANDLES.internal(registered.descriptor, registered.table, namespace, expiry)

    def get_timer_queue(self, name: str, *, namespace_type: Any = str) -> RocksDBTimerQueue:
        """Return the timer queue of that name, made when it is first asked for.

        Timers with namespaces other than strings need their type declared.
        """
        self.context.check_open()
        queue = self._timer_queues.get(name)
        if queue is not None:
            check_declared(f"timer queue {name!r}", queue.namespace_codec)
        if queue is not None and queue.namespace_codec.type is namespace_type:
            return queue
        namespace_codec = key_codec_for(namespace_type, where=f"namespace of timer queue {name!r}")
        if queue is None:
            return self._make_queue(name, namespace_codec)
        if queue.namespace_codec.schema != namespace_codec.schema:
            raise StateDeclarationError(
                f"timer queue {name!r} is there already with namespaces of type "
                f"{queue.namespace_codec.schema.label}, now {namespace_codec.schema.label}: "
                f"choose another name, or declare it the same everywhere."
            )
        return queue

    def get_keys(self, name: str, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Any]:
        """Iterate over the keys that have state `name` in `namespace`; nothing if no such state is registered."""
        registered = self._readable(name)
        return iter(()) if registered is None else registered.table.keys(namespace)

    def get_keys_and_namespaces(self, name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over all (key, namespace) pairs of state `name`; nothing if no such state is registered."""
        registered = self._readable(name)
        return iter(()) if registered is None else registered.table.keys_and_namespaces()

    def _readable(self, name: str) -> RegisteredState | None:
        self.context.check_open()
        registered = self._states.get(name)
        if registered is not None:
            check_declared(f"state {name!r}", registered.namespace_codec)
        return registered

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor,
        function: Callable[[Any, Any], None],
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> None:
        """Call `function(key, state)` for every key that has the state, with that key as the current one.

        The function may clear and add: the keys are those that are there when this begins. Afterwards the
        current key is what it was.
        """
        state = self.get_partitioned_state(descriptor, namespace, namespace_type=namespace_type)
        before = self.context.key  # never None, for None is no key
        try:
            for key in self.get_keys(descriptor.name, namespace):
                self.context.set_current_key(key)
                function(key, state)
        finally:
            self.context.clear()
            if before is not None and not self.context.closed:
                self.context.set_current_key(before)

    def number_of_entries(self) -> int:
        """How many (key, namespace) entries all states have; a map with ten user keys counts as one. O(entries)."""
        self.context.check_open()
        return sum(len(registered.table) for registered in self._states.values())

    # -- restoring ------------------------------------------------------------------------------------------

    def keep_state(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> None:
        """Hold a state that the program does not declare.

        It is encoded bytes throughout (`codec.opaque`): nobody gets a handle on it, snapshots and changes
        have it.
        """
        self.context.check_open()
        if descriptor.name in self._states:
            raise StateDeclarationError(f"state {descriptor.name!r} is registered already and cannot be kept as bytes")
        self._make_state(descriptor, namespace_codec)

    def keep_timer_queue(self, name: str, namespace_codec: Codec[Any]) -> None:
        """Hold a timer queue that the program does not declare; its namespaces are encoded bytes."""
        self.context.check_open()
        if name in self._timer_queues:
            raise StateDeclarationError(f"timer queue {name!r} is there already and cannot be kept as bytes")
        self._make_queue(name, namespace_codec)

    def check_unused(self) -> None:
        """Refuse to be filled from files unless nothing was ever written to it or saw it."""
        self.context.check_open()
        if self._store.points_taken:
            raise RestoreRefusedError(
                "state can be restored only before the backend's first snapshot: use a new backend"
            )
        if self._store.get_first() is not None:
            raise RestoreRefusedError("the backend holds state already: restore into a new one")

    def row_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RocksDBRowLoader:
        """What fills state `name` from the rows of a file."""
        registered = self._states[name]
        return RocksDBRowLoader(registered.table, None, decoders, rules)

    def timer_row_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RocksDBRowLoader:
        """What fills timer queue `name` from the rows of a file."""
        queue = self._timer_queues[name]
        return RocksDBRowLoader(queue.table, queue, decoders, rules)

    def after_load(self) -> None:
        """Take over what was loaded."""
        self._store.check_sound()
        self._count(self.number_of_entries())

    # -- points in time -------------------------------------------------------------------------------------

    def snapshot(self) -> RocksDBSnapshot:
        """Take a snapshot of everything: O(1).

        It may be read by another thread while this backend goes on.
        """
        self.context.check_open()
        self._given = True
        point = self._store.take()
        point.entries = self._known_entries()
        return RocksDBSnapshot(point, self._states, self._timer_queues, self.ttl_clock.stopped())

    def changes(self, snapshot: RocksDBSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (state, key group, record) for every entry that differs from `snapshot`.

        States first made since are in it too. The cost, in time and memory, is that of what was touched.
        """
        point = self._point(snapshot)
        tables = {registered.table.prefix: registered.table for registered in self._states.values()}
        for table in tables.values():
            table.gained = 0
        found = self._changes(point, tables, _FIRST_STATE, _FIRST_QUEUE)
        if point.entries is not None:
            self._count(point.entries + sum(table.gained for table in tables.values()))
        return found

    def timer_changes(self, snapshot: RocksDBSnapshot) -> list[tuple[str, int, EntryChange]]:
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
            if table is not None:  # else the order of a timer queue
                found += [(table.name, group, change) for group, change in table.changes(raws, point)]
        return found

    def roll_back(self, snapshot: RocksDBSnapshot) -> None:
        """Put everything back to what `snapshot` saw; no key is current afterwards."""
        point = self._point(snapshot)
        self._store.roll_back(point)
        if point.entries is not None:
            self._count(point.entries)
        self.context.clear()

    # -- looking after it -----------------------------------------------------------------------------------

    def clean_up(self, budget: int) -> int:
        """Remove some of what has expired, looking at about `budget` values; how many were removed.

        For the end of a transaction: see `emberstate.state.ttl.clean_up`. The next call goes on from there.
        """
        self.context.check_open()
        return self._clean_up.run(budget)

    def _sweeps(self) -> Iterator[Sweep]:
        for registered in [*self._states.values()]:  # a sweep goes on while states are registered
            if registered.descriptor.ttl is not None:
                yield self._ttl_sweep.sweep(registered.table, registered.descriptor.ttl)

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

    # Writes do not keep the number of entries: they would have to read what was there. Listing the changes since a
    # snapshot reads it anyway: from the number at the snapshot follows that of now, which holds until the next write.

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
            raise InvariantError(f"{found} entries found, counted were {known}")
        for registered in self._states.values():
            registered.table.check_invariants()
        for queue in self._timer_queues.values():
            queue.check_invariants()

    def close(self) -> None:
        """Drop all state and delete the local files.

        A second call does nothing, and using the backend afterwards is an error. Snapshots that are still live
        can be read to the end; the files are deleted when the last one is released.
        """
        self.context.close()
        self._states = {}
        self._timer_queues = {}
        self._store.close()

    def __reduce__(self) -> NoReturn:
        raise LifecycleError(
            "a backend cannot be pickled or copied: its state belongs to one process. Was it caught in a "
            "closure that Spark sends elsewhere? Make a backend where it is used."
        )

    def _point(self, snapshot: RocksDBSnapshot) -> Point:
        self.context.check_open()
        point = point_of(snapshot, Point)
        if point.store is not self._store:
            raise ValueError("the snapshot was taken of another backend: use it there")
        point.check_live()
        return point

    def _register(self, descriptor: StateDescriptor, namespace_type: Any) -> RegisteredState:
        self.context.check_open()
        if not isinstance(descriptor, StateDescriptor):
            raise StateDeclarationError(f"a state is asked for by its descriptor, found {descriptor!r}")
        registered = self._states.get(descriptor.name)
        if registered is not None:
            check_declared(f"state {descriptor.name!r}", registered.namespace_codec)
        if (
            registered is not None
            and registered.descriptor is descriptor
            and registered.namespace_codec.type is namespace_type
        ):
            return registered
        namespace_codec = key_codec_for(namespace_type, where=f"namespace of state {descriptor.name!r}")
        if registered is None:
            return self._make_state(descriptor, namespace_codec)
        check_same_declaration(registered.descriptor, registered.namespace_codec, descriptor, namespace_codec)
        return registered

    def _make_state(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> RegisteredState:
        self._make_room(descriptor.name)
        number = _FIRST_STATE + len(self._states)
        table = RocksDBStateTable.of(number, descriptor, self._tables, namespace_codec)
        registered = RegisteredState(descriptor, namespace_codec, table)
        self._states[descriptor.name] = registered
        return registered

    def _make_queue(self, name: str, namespace_codec: Codec[Any]) -> RocksDBTimerQueue:
        self._make_room(check_state_name(name))
        number = _FIRST_QUEUE + 2 * len(self._timer_queues)
        queue = RocksDBTimerQueue(number, name, self._tables, namespace_codec)
        self._timer_queues[name] = queue
        return queue

    def _make_room(self, name: str) -> None:
        """Before one more state or timer queue: what a snapshot or a caller was given stays as it is."""
        check_room(len(self._states), len(self._timer_queues), name)
        if self._given:
            self._states, self._timer_queues, self._given = {**self._states}, {**self._timer_queues}, False
