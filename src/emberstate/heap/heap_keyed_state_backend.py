"""`HeapKeyedStateBackend`: all keyed state of one slot, as live Python objects on the heap.

It holds the registered states (a `StateTable` each), the timer queues, the current key, and one `SnapshotRegistry` for
all of them: so a snapshot of everything is O(1), and a roll-back or the list of what changed costs what was touched.

A state keeps being registered when a roll-back goes behind its first use; it is empty then, as if never written to.

Thread safety: one owner thread. A `HeapSnapshot` may be read and released by any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from emberstate.codec import Codec, key_codec_for
from emberstate.errors import KeyContextError, StateDeclarationError, StateTypeError
from emberstate.heap.heap_map_state import HeapMapState
from emberstate.heap.heap_snapshot import HeapSnapshot
from emberstate.heap.heap_states import HeapAggregatingState, HeapListState, HeapReducingState, HeapValueState
from emberstate.heap.heap_timer_queue import HeapTimerQueue
from emberstate.heap.kinds import kind_for
from emberstate.heap.map_value import MapKind
from emberstate.heap.snapshots import SnapshotRegistry
from emberstate.heap.state_table import CopyOnWriteStateTable, StateTable, StateTableStatistics
from emberstate.heap.value_kind import IMMUTABLE
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.state.changes import EntryChange
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    check_state_name,
)
from emberstate.state.key_context import KeyContext
from emberstate.state.timers import VOID_NAMESPACE, TimerQueueStatistics
from emberstate.state.ttl import TtlClock
from emberstate.state.ttl_states import (
    Expiry,
    StampedAggregate,
    StampedReduce,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)
from emberstate.state.user_facing_map_state import UserFacingMapState
from emberstate.state.user_facing_states import (
    UserFacingAggregatingState,
    UserFacingListState,
    UserFacingReducingState,
    UserFacingValueState,
)


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredState:
    """A state as the backend knows it."""

    descriptor: StateDescriptor
    namespace_codec: Codec[Any]
    table: StateTable


@dataclasses.dataclass(frozen=True, slots=True)
class HeapBackendStatistics:
    """What a backend holds."""

    entries: int
    version: int
    live_snapshots: int
    states: tuple[StateTableStatistics, ...]
    timers: tuple[TimerQueueStatistics, ...]


class HeapKeyedStateBackend:
    """The keyed state of a range of key groups.

    >>> backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    >>> total = backend.get_partitioned_state(ValueStateDescriptor("total", int, default=0))
    >>> backend.set_current_key("ann")
    >>> with backend.snapshot() as before:
    ...     total.update(total.value() + 5)
    ...     [(state, change) for state, group, change in backend.changes(before)]
    [('total', ('ann', '', ((<Op.REPLACED: 1>, 5),)))]
    """

    def __init__(
        self,
        key_schema: KeySchema,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_group_range: KeyGroupRange | None = None,
        table_type: type[StateTable] = CopyOnWriteStateTable,
    ) -> None:
        """Make an empty backend that owns `key_group_range` (default: all) of `max_parallelism` key groups."""
        owned = KeyGroupRange(0, max_parallelism - 1) if key_group_range is None else key_group_range
        self.context = KeyContext(key_schema, max_parallelism, owned)
        self.registry = SnapshotRegistry()
        self.ttl_clock = TtlClock()
        self._table_type = table_type
        self._states: dict[str, RegisteredState] = {}
        self._timer_queues: dict[str, HeapTimerQueue] = {}
        self._closed = False

    # -- the current key --------------------------------------------------------------------------------------------

    @property
    def current_key(self) -> Any:
        """The current key, or None."""
        return self.context.key

    def set_current_key(self, key: Any) -> None:
        """Make `key` the one that states are about; refuses a wrong type, and a key group that is not owned."""
        self._check_open()
        self.context.set_current_key(key)

    # -- states -------------------------------------------------------------------------------------------------------

    @property
    def registered_kv_states(self) -> Mapping[str, StateTable]:
        """The state tables by state name."""
        return MappingProxyType({name: registered.table for name, registered in self._states.items()})

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor,
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> Any:
        """Return a handle on a state, bound to `namespace`; the state is registered when it is first asked for.

        A handle stays bound: asking for another namespace gives another handle. Namespaces other than strings need
        their type declared.
        """
        registered = self._register(descriptor, namespace_type)
        if namespace is None:
            raise StateTypeError(f"state {descriptor.name!r}: a namespace must not be None; the default is {''!r}")
        registered.namespace_codec.check_deep(namespace)
        return self._user_facing(registered, namespace)

    def get_timer_queue(self, name: str) -> HeapTimerQueue:
        """Return the timer queue of that name, made when it is first asked for."""
        self._check_open()
        queue = self._timer_queues.get(name)
        if queue is None:
            table = self._table_type(check_state_name(name), MapKind(IMMUTABLE), self.context, self.registry)
            queue = HeapTimerQueue(table)
            self._timer_queues = {**self._timer_queues, name: queue}
        return queue

    def get_keys(self, name: str, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Any]:
        """Iterate over the keys that have state `name` in `namespace`; none for a state that is not registered."""
        registered = self._states.get(name)
        return iter(()) if registered is None else registered.table.keys(namespace)

    def get_keys_and_namespaces(self, name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over all (key, namespace) pairs of state `name`."""
        registered = self._states.get(name)
        if registered is not None:
            for _, map in registered.table.used_maps():
                for key, namespace, _ in map:
                    yield key, namespace

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor,
        function: Callable[[Any, Any], None],
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> None:
        """Call `function(key, state)` for every key that has the state, with that key as the current one.

        The keys are collected first, so the function may clear and add. The current key is afterwards what it was.
        """
        state = self.get_partitioned_state(descriptor, namespace, namespace_type=namespace_type)
        before = self.context.key
        try:
            for key in list(self.get_keys(descriptor.name, namespace)):
                self.context.set_current_key(key)
                function(key, state)
        finally:
            if before is None:
                self.context.clear()
            else:
                self.context.set_current_key(before)

    def number_of_entries(self) -> int:
        """How many (key, namespace) entries all states have; a map with ten user keys counts as one."""
        return sum(len(registered.table) for registered in self._states.values())

    # -- points in time -----------------------------------------------------------------------------------------------

    def snapshot(self) -> HeapSnapshot:
        """Take a snapshot of everything: O(1). It may be read by another thread while this backend goes on."""
        self._check_open()
        return HeapSnapshot(self.registry.snapshot(), self._states, self._timer_queues)

    def changes(self, snapshot: HeapSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (state, key group, record) for every entry that differs from `snapshot`, states first made since too.

        The cost is that of what was touched. Mutable values that were handed out are taken back first.
        """
        return [
            (name, group, change)
            for name, registered in self._states.items()
            for group, change in registered.table.changes(snapshot.point)
        ]

    def timer_changes(self, snapshot: HeapSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (queue, key group, record) for every key whose timers differ from `snapshot`."""
        return [
            (name, group, change)
            for name, queue in self._timer_queues.items()
            for group, change in queue.table.changes(snapshot.point)
        ]

    def roll_back(self, snapshot: HeapSnapshot) -> None:
        """Put everything back to what `snapshot` saw; no key is current afterwards."""
        self._check_open()
        self.registry.roll_back(snapshot.point)
        self.context.clear()

    # -- looking after it -----------------------------------------------------------------------------------------------

    def statistics(self) -> HeapBackendStatistics:
        """What the backend holds."""
        return HeapBackendStatistics(
            entries=self.number_of_entries(),
            version=self.registry.version,
            live_snapshots=len(self.registry.live),
            states=tuple(registered.table.statistics() for registered in self._states.values()),
            timers=tuple(queue.statistics() for queue in self._timer_queues.values()),
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken. O(all entries)."""
        for registered in self._states.values():
            registered.table.check_invariants()
        for queue in self._timer_queues.values():
            queue.check_invariants()

    def close(self) -> None:
        """Drop all state; a second call does nothing, and using the backend afterwards is an error."""
        self._closed = True
        self.context.clear()
        self._states = {}
        self._timer_queues = {}

    def _check_open(self) -> None:
        if self._closed:
            raise KeyContextError("the backend is closed: state cannot be used any more")

    def _register(self, descriptor: StateDescriptor, namespace_type: Any) -> RegisteredState:
        self._check_open()
        registered = self._states.get(descriptor.name)
        if registered is not None and registered.descriptor is descriptor and namespace_type is str:
            return registered
        namespace_codec = key_codec_for(namespace_type, where=f"namespace of state {descriptor.name!r}")
        if registered is None:
            table = self._table_type(descriptor.name, kind_for(descriptor), self.context, self.registry)
            registered = RegisteredState(descriptor, namespace_codec, table)
            # A new dict rather than a change: a snapshot keeps the one it was taken with.
            self._states = {**self._states, descriptor.name: registered}
            return registered
        _check_same(registered, descriptor, namespace_codec)
        return registered

    def _user_facing(self, registered: RegisteredState, namespace: Hashable) -> Any:
        descriptor, table = registered.descriptor, registered.table
        expiry = None if descriptor.ttl is None else Expiry(descriptor.ttl, self.ttl_clock)
        internal: Any
        if isinstance(descriptor, ValueStateDescriptor):
            internal = HeapValueState(table, namespace)
            return UserFacingValueState(TtlValueState(internal, expiry) if expiry else internal, descriptor)
        if isinstance(descriptor, ListStateDescriptor):
            internal = HeapListState(table, namespace)
            return UserFacingListState(TtlListState(internal, expiry) if expiry else internal, descriptor)
        if isinstance(descriptor, MapStateDescriptor):
            internal = HeapMapState(table, namespace)
            return UserFacingMapState(TtlMapState(internal, expiry) if expiry else internal, descriptor)
        if isinstance(descriptor, ReducingStateDescriptor):
            reduce = StampedReduce(descriptor.function, expiry) if expiry else descriptor.function
            internal = HeapReducingState(table, namespace, reduce)
            return UserFacingReducingState(TtlReducingState(internal, expiry) if expiry else internal, descriptor)
        if isinstance(descriptor, AggregatingStateDescriptor):
            aggregate = StampedAggregate(descriptor.function, expiry) if expiry else descriptor.function
            internal = HeapAggregatingState(table, namespace, aggregate)
            return UserFacingAggregatingState(TtlAggregatingState(internal, expiry) if expiry else internal, descriptor)
        raise StateDeclarationError(f"{descriptor!r} is not one of the five state descriptors")


def _check_same(registered: RegisteredState, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> None:
    """Refuse a second declaration of a name that says something else."""
    for what, before, now in (
        ("kind", registered.descriptor.kind, descriptor.kind),
        ("codec", registered.descriptor.codec.name, descriptor.codec.name),
        ("type", registered.descriptor.codec.schema, descriptor.codec.schema),
        (
            "user key type",
            getattr(registered.descriptor, "key_codec", namespace_codec).schema,
            getattr(descriptor, "key_codec", namespace_codec).schema,
        ),
        ("namespace type", registered.namespace_codec.schema, namespace_codec.schema),
        ("time to live", registered.descriptor.ttl, descriptor.ttl),
    ):
        if before != now:
            raise StateDeclarationError(
                f"state {descriptor.name!r} is registered already with another {what}: {before!r}, now {now!r}. "
                f"State names are unique: choose another name, or declare it the same everywhere."
            )
