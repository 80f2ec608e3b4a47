"""`HeapKeyedStateBackend`: all keyed state of one slot, as live Python objects on the heap.

It holds the registered states (a `StateTable` each), the timer queues, the current key, and one
`SnapshotRegistry` for all of them: so a snapshot of everything is O(1), and a roll-back or the list of what
changed costs what was touched.

A state keeps being registered when a roll-back goes behind its first use; it is empty then, as if never
written to.

Thread safety: one owner thread (see `KeyContext`), any other is refused. A `HeapSnapshot` may be read and released
by any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from emberstate.codec import Codec, key_codec_for
from emberstate.errors import LifecycleError, RestoreRefusedError, StateDeclarationError, StateTypeError
from emberstate.heap.map.snapshots import FIRST_VERSION, Snapshot, SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE
from emberstate.heap.snapshot import HeapSnapshot, RegisteredState
from emberstate.heap.states.kinds import kind_for
from emberstate.heap.states.map_state import HeapMapState
from emberstate.heap.states.map_value import MapKind
from emberstate.heap.states.state_table import CopyOnWriteStateTable, StateTable, StateTableStatistics
from emberstate.heap.states.states import HeapFoldingState, HeapListState, HeapValueState
from emberstate.heap.states.timer_queue import HeapTimerQueue
from emberstate.heap.ttl_sweep import HeapTtlSweep
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.state.changes import EntryChange
from emberstate.state.declarations import StateHandles, check_declared, check_room, check_same_declaration, user_facing
from emberstate.state.descriptors import StateDescriptor, check_state_name
from emberstate.state.key_context import KeyContext
from emberstate.state.points import point_of
from emberstate.state.timers import VOID_NAMESPACE, TimerQueueStatistics
from emberstate.state.ttl.clean_up import Sweep, TtlCleanUp, TtlCleanUpStatistics
from emberstate.state.ttl.config import TtlClock
from emberstate.state.ttl.states import Expiry

_HANDLES = StateHandles(HeapValueState, HeapListState, HeapMapState, HeapFoldingState)


@dataclasses.dataclass(frozen=True, slots=True)
class HeapBackendStatistics:
    """What a backend holds."""

    entries: int
    version: int
    live_snapshots: int
    states: tuple[StateTableStatistics, ...]
    timers: tuple[TimerQueueStatistics, ...]
    clean_up: TtlCleanUpStatistics


class HeapKeyedStateBackend:
    """The keyed state of a range of key groups.

    >>> from emberstate.state.descriptors import ValueStateDescriptor
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
        """Make an empty backend that owns `key_group_range` (default.

        All) of `max_parallelism` key groups.
        """
        owned = KeyGroupRange(0, max_parallelism - 1) if key_group_range is None else key_group_range
        self.context = KeyContext(key_schema, max_parallelism, owned)
        self.registry = SnapshotRegistry()
        self.ttl_clock = TtlClock()
        self._ttl_sweep = HeapTtlSweep(self.ttl_clock, self.registry)
        self._clean_up = TtlCleanUp(self._sweeps)
        self._table_type = table_type
        self._states: dict[str, RegisteredState] = {}
        self._timer_queues: dict[str, HeapTimerQueue] = {}
        self._given = False  # whether somebody may hold these two dicts, so that they must not change

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
    def registered_kv_states(self) -> Mapping[str, StateTable]:
        """The state tables by state name, as they are now."""
        return MappingProxyType({name: registered.table for name, registered in self._states.items()})

    @property
    def registered_states(self) -> Mapping[str, RegisteredState]:
        """The states by name, as they are now."""
        self._given = True
        return MappingProxyType(self._states)

    @property
    def timer_queues(self) -> Mapping[str, HeapTimerQueue]:
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

    def get_timer_queue(self, name: str, *, namespace_type: Any = str) -> HeapTimerQueue:
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

        The keys are collected first, so the function may clear and add. Afterwards the current key is what it
        was.
        """
        state = self.get_partitioned_state(descriptor, namespace, namespace_type=namespace_type)
        before = self.context.key  # never None, for None is no key
        try:
            for key in list(self.get_keys(descriptor.name, namespace)):
                self.context.set_current_key(key)
                function(key, state)
        finally:
            self.context.clear()
            if before is not None and not self.context.closed:
                self.context.set_current_key(before)

    def number_of_entries(self) -> int:
        """How many (key, namespace) entries all states have; a map with ten user keys counts as one."""
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
        if self.registry.version != FIRST_VERSION or self.registry.live:
            raise RestoreRefusedError(
                "state can be restored only before the backend's first snapshot: use a new backend"
            )
        if self.number_of_entries() or any(len(queue.table) for queue in self._timer_queues.values()):
            raise RestoreRefusedError("the backend holds state already: restore into a new one")

    def after_load(self) -> None:
        """Take over what was loaded past the states (`bulk_load`)."""
        self.registry.seal()  # what maps without versions took as lent
        for queue in self._timer_queues.values():
            queue.after_load()

    # -- points in time -------------------------------------------------------------------------------------

    def snapshot(self) -> HeapSnapshot:
        """Take a snapshot of everything: O(1).

        It may be read by another thread while this backend goes on.
        """
        self.context.check_open()
        self._given = True
        return HeapSnapshot(self.registry.snapshot(), self._states, self._timer_queues, self.ttl_clock.stopped())

    def changes(self, snapshot: HeapSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (state, key group, record) for every entry that differs from `snapshot`.

        States first made since are in it too.
        The cost is that of what was touched. Mutable values that were handed out are taken back first.
        """
        point = self._point(snapshot)
        return [
            (name, group, change)
            for name, registered in self._states.items()
            for group, change in registered.table.changes(point)
        ]

    def timer_changes(self, snapshot: HeapSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (queue, key group, record) for every key whose timers differ from `snapshot`."""
        point = self._point(snapshot)
        return [
            (name, group, change)
            for name, queue in self._timer_queues.items()
            for group, change in queue.table.changes(point)
        ]

    def roll_back(self, snapshot: HeapSnapshot) -> None:
        """Put everything back to what `snapshot` saw; no key is current afterwards."""
        self.registry.roll_back(self._point(snapshot))
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

    def statistics(self) -> HeapBackendStatistics:
        """What the backend holds."""
        return HeapBackendStatistics(
            entries=self.number_of_entries(),
            version=self.registry.version,
            live_snapshots=self.registry.live_snapshots(),
            states=tuple(registered.table.statistics() for registered in self._states.values()),
            timers=tuple(queue.statistics() for queue in self._timer_queues.values()),
            clean_up=self._clean_up.statistics(),
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken. O(all entries)."""
        for registered in self._states.values():
            registered.table.check_invariants()
        for queue in self._timer_queues.values():
            queue.check_invariants()

    def close(self) -> None:
        """Drop all state; a second call does nothing, and using the backend afterwards is an error.

        Snapshots that are still live can be read to the end. It is the owner's to close: where that thread has
        ended, call `context.own()` first.
        """
        self.context.close()
        self._states = {}
        self._timer_queues = {}

    def __reduce__(self) -> NoReturn:
        raise LifecycleError(
            "a backend cannot be pickled or copied: its state belongs to one process. Was it caught in a "
            "closure that Spark sends elsewhere? Make a backend where it is used."
        )

    def _point(self, snapshot: HeapSnapshot) -> Snapshot:
        self.context.check_open()
        point = point_of(snapshot, Snapshot)
        if point.registry is not self.registry:
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
        table = self._table_type(descriptor.name, kind_for(descriptor), self.context, self.registry)
        registered = RegisteredState(descriptor, namespace_codec, table)
        self._states[descriptor.name] = registered
        return registered

    def _make_queue(self, name: str, namespace_codec: Codec[Any]) -> HeapTimerQueue:
        self._make_room(check_state_name(name))
        table = self._table_type(name, MapKind(IMMUTABLE), self.context, self.registry)
        queue = HeapTimerQueue(table, namespace_codec)
        self._timer_queues[name] = queue
        return queue

    def _make_room(self, name: str) -> None:
        """Before one more state or timer queue: what a snapshot or a caller was given stays as it is."""
        check_room(len(self._states), len(self._timer_queues), name)
        if self._given:
            self._states, self._timer_queues, self._given = {**self._states}, {**self._timer_queues}, False
