"""`AbstractKeyedStateBackend`: all keyed state of one slot, wherever it is kept.

The base registers states and timer queues, checks declarations and ownership, takes and checks snapshots, and drives
the clean-up of expired content. A backend supplies tables, timer queues, points in time and row loaders. The heap's and
RocksDB's backends pass one conformance suite (`tests/state/conformance_*.py`).

A state stays registered when a roll-back goes behind its registration; it is empty then.

Thread safety: one owner thread (see `KeyContext`); calls from any other are rejected. A `KeyedStateSnapshot` may be
read and released by any thread.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NoReturn, TypeAlias, TypeVar

from emberstate.codec import Codec, key_codec_for
from emberstate.errors import LifecycleError, RestoreRefusedError, StateDeclarationError, StateTypeError
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.changes import EntryChange
from emberstate.state.declarations import StateHandles, check_declared, check_room, check_same_declaration, user_facing
from emberstate.state.descriptors import StateDescriptor, check_state_name
from emberstate.state.key_context import KeyContext
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.points import PointInTime, point_of
from emberstate.state.registered_state import EntryTable, RegisteredState, T_co
from emberstate.state.row_loading import FileRules, RowDecoders, RowLoader
from emberstate.state.timers import VOID_NAMESPACE, TimerQueue, TimerQueueStatistics
from emberstate.state.ttl.clean_up import Sweep, TtlCleanUp, TtlCleanUpStatistics, TtlSweep
from emberstate.state.ttl.config import TtlClock
from emberstate.state.ttl.states import Expiry

Q_co = TypeVar("Q_co", bound=TimerQueue, covariant=True)
P = TypeVar("P", bound=PointInTime)


@dataclasses.dataclass(frozen=True, slots=True)
class BackendStatistics:
    """What every backend reports; each adds its own."""

    entries: int  # (key, namespace) pairs of all states
    live_snapshots: int
    timers: tuple[TimerQueueStatistics, ...]
    clean_up: TtlCleanUpStatistics


class AbstractKeyedStateBackend(abc.ABC, Generic[T_co, Q_co, P]):
    """The keyed state of a range of key groups.

    `T_co` is the backend's table, `Q_co` its timer queue, `P` its point in time.
    """

    #: The internal states over the backend's tables.
    _handles: ClassVar[StateHandles]
    #: The class of `P`.
    _point_class: type[P]
    _ttl_sweep: TtlSweep

    def __init__(self, key_schema: KeySchema, max_parallelism: int, key_group_range: KeyGroupRange | None) -> None:
        """Make an empty backend that owns `key_group_range` (None: all) of `max_parallelism` key groups."""
        owned = KeyGroupRange(0, max_parallelism - 1) if key_group_range is None else key_group_range
        self.context = KeyContext(key_schema, max_parallelism, owned)
        self.ttl_clock = TtlClock()
        self._clean_up = TtlCleanUp(self._sweeps)
        self._states: dict[str, RegisteredState[T_co]] = {}
        self._timer_queues: dict[str, Q_co] = {}
        self._shared = False  # whether a caller or a snapshot holds these two dicts, which then must not change

    # -- what a backend supplies ----------------------------------------------------------------------------

    @abc.abstractmethod
    def _new_table(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> T_co:
        """Make the table of a state."""

    @abc.abstractmethod
    def _new_timer_queue(self, name: str, namespace_codec: Codec[Any]) -> Q_co:
        """Make a timer queue."""

    @abc.abstractmethod
    def _take_point(self) -> P:
        """Take a point in time of everything: O(1)."""

    @abc.abstractmethod
    def _is_own(self, point: P) -> bool:
        """Whether this backend took `point`."""

    @abc.abstractmethod
    def _roll_back_to(self, point: P) -> None:
        """Put everything back to what `point` saw."""

    @abc.abstractmethod
    def _was_snapshotted(self) -> bool:
        """Whether a snapshot was ever taken."""

    @abc.abstractmethod
    def _is_empty(self) -> bool:
        """Whether there are no entries and no timers."""

    @abc.abstractmethod
    def changes(self, snapshot: KeyedStateSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (state, key group, record) for every entry that differs from `snapshot`.

        The list includes states registered since. The cost is that of what was touched. Mutable values that were
        handed out are taken back first.
        """

    def split_changes(
        self, snapshot: KeyedStateSnapshot
    ) -> tuple[list[tuple[str, int, EntryChange]], dict[str, EntryColumns]]:
        """`changes` of the states that are in no columns; and of every other state, by name, as columns."""
        return self.changes(snapshot), {}

    @abc.abstractmethod
    def timer_changes(self, snapshot: KeyedStateSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (queue, key group, record) for every key whose timers differ from `snapshot`."""

    @abc.abstractmethod
    def loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RowLoader:
        """Return a loader that fills state `name` from the rows of one file."""

    @abc.abstractmethod
    def timer_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RowLoader:
        """Return a loader that fills timer queue `name` from the rows of one file."""

    @abc.abstractmethod
    def after_load(self) -> None:
        """Adopt what the loaders loaded; called once, after the last of them."""

    @abc.abstractmethod
    def statistics(self) -> BackendStatistics:
        """What the backend holds."""

    def refusal(self, error: StateTypeError) -> StateTypeError:
        """Return the error that `changes` raised, with the state and the key of the rejected value if they are known.

        O(values handed out). A backend that hands nothing out for change has nothing to add.
        """
        return error

    def _keys_to_visit(self, name: str, namespace: Hashable) -> Iterable[Any]:
        """The keys that have state `name` now, whatever changes while the caller iterates."""
        return list(self.get_keys(name, namespace))

    # -- the current key ------------------------------------------------------------------------------------

    @property
    def current_key(self) -> Any:
        """The current key, or None."""
        return self.context.key

    def set_current_key(self, key: Any) -> None:
        """Make `key` the one that states are about.

        Rejects a wrong type, and a key group that is not owned.
        """
        self.context.set_current_key(key)

    # -- states and timers ----------------------------------------------------------------------------------

    @property
    def registered_kv_states(self) -> Mapping[str, T_co]:
        """The state tables by state name, as they are now."""
        return MappingProxyType({name: registered.table for name, registered in self._states.items()})

    @property
    def registered_states(self) -> Mapping[str, RegisteredState[T_co]]:
        """The states by name, as they are now."""
        self._shared = True
        return MappingProxyType(self._states)

    @property
    def timer_queues(self) -> Mapping[str, Q_co]:
        """The timer queues by name, as they are now."""
        self._shared = True
        return MappingProxyType(self._timer_queues)

    def get_partitioned_state(
        self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE, *, namespace_type: Any = str
    ) -> Any:
        """Return a handle on a state, bound to `namespace`; the first call registers the state.

        Another namespace needs another handle. Namespaces other than strings need their type declared.
        """
        internal = self.get_internal_state(descriptor, namespace, namespace_type=namespace_type)
        return user_facing(internal, self._states[descriptor.name].descriptor)

    def get_internal_state(
        self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE, *, namespace_type: Any = str
    ) -> Any:
        """As `get_partitioned_state`, without the handle for users and its type checks.

        For windows, which merge namespaces and read accumulators.
        """
        registered = self._register(descriptor, namespace_type)
        try:
            registered.namespace_codec.check_deep(namespace)
        except StateTypeError as error:
            name = descriptor.name
            raise error.reworded(f"namespace of state {name!r}: {error}").located(state=name) from None
        ttl = registered.descriptor.ttl
        expiry = None if ttl is None else Expiry(ttl, self.ttl_clock, self.context)
        return self._handles.internal(registered.descriptor, registered.table, namespace, expiry)

    def get_timer_queue(self, name: str, *, namespace_type: Any = str) -> Q_co:
        """Return the timer queue of that name; the first call makes it.

        Timers with namespaces other than strings need their type declared.
        """
        self.context.check_open()
        queue = self._timer_queues.get(name)
        if queue is not None:
            check_declared("timer queue", name, queue.namespace_codec)
            if queue.namespace_codec.type is namespace_type:
                return queue
        namespace_codec = key_codec_for(namespace_type, where=f"namespace of timer queue {name!r}")
        if queue is None:
            return self._add_queue(name, namespace_codec)
        if queue.namespace_codec.schema != namespace_codec.schema:
            raise StateDeclarationError(
                f"timer queue {name!r} is registered already with namespaces of type "
                f"{queue.namespace_codec.schema.label}, got {namespace_codec.schema.label}: "
                f"choose another name, or declare it the same everywhere.",
                state=name,
            )
        return queue

    def get_column_state(self, descriptor: StateDescriptor, *, namespace_type: Any = str) -> Any:
        """Return a table that holds the records of a state in columns, for batches; None if the backend has none."""
        return None

    def get_keys(self, name: str, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Any]:
        """Iterate over the keys that have state `name` in `namespace`; nothing if no such state is registered."""
        registered = self._readable(name)
        return iter(()) if registered is None else registered.table.keys(namespace)

    def get_keys_and_namespaces(self, name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over all (key, namespace) pairs of state `name`; nothing if no such state is registered."""
        registered = self._readable(name)
        return iter(()) if registered is None else registered.table.keys_and_namespaces()

    def _readable(self, name: str) -> RegisteredState[T_co] | None:
        self.context.check_open()
        registered = self._states.get(name)
        if registered is not None:
            check_declared("state", name, registered.namespace_codec)
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

        The function may clear and add: it is called for the keys that had the state at the beginning. Afterwards the
        current key is what it was.
        """
        state = self.get_partitioned_state(descriptor, namespace, namespace_type=namespace_type)
        before = self.context.key  # None is no key
        try:
            for key in self._keys_to_visit(descriptor.name, namespace):
                self.context.set_current_key(key)
                function(key, state)
        finally:
            self.context.clear()
            if before is not None and not self.context.closed:
                self.context.set_current_key(before)

    def number_of_entries(self) -> int:
        """The number of (key, namespace) entries of all states; a map with ten user keys counts as one."""
        self.context.check_open()
        return sum(len(registered.table) for registered in self._states.values())

    # -- restoring ------------------------------------------------------------------------------------------

    def keep_state(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> None:
        """Hold a state that the program does not declare, as encoded bytes (`codec.opaque`).

        Snapshots and changes include it; there is no handle on it.
        """
        self.context.check_open()
        if descriptor.name in self._states:
            raise StateDeclarationError(
                f"state {descriptor.name!r} is registered already and cannot be kept as bytes", state=descriptor.name
            )
        self._add_state(descriptor, namespace_codec)

    def keep_timer_queue(self, name: str, namespace_codec: Codec[Any]) -> None:
        """Hold a timer queue that the program does not declare; its namespaces are encoded bytes."""
        self.context.check_open()
        if name in self._timer_queues:
            raise StateDeclarationError(
                f"timer queue {name!r} is registered already and cannot be kept as bytes", state=name
            )
        self._add_queue(name, namespace_codec)

    def check_unused(self) -> None:
        """Raise `RestoreRefusedError` unless the backend is empty and was never snapshotted."""
        self.context.check_open()
        if self._was_snapshotted():
            raise RestoreRefusedError(
                "state can be restored only before the backend's first snapshot: restore into a new backend",
                found="a snapshot",
            )
        if not self._is_empty():
            raise RestoreRefusedError("the backend holds state already: restore into a new backend", found="state")

    # -- points in time -------------------------------------------------------------------------------------

    def snapshot(self) -> KeyedStateSnapshot:
        """Take a snapshot of everything: O(1). Other threads may read it while this backend goes on."""
        self.context.check_open()
        self._shared = True
        return KeyedStateSnapshot(self._take_point(), self._states, self._timer_queues, self.ttl_clock.stopped())

    def roll_back(self, snapshot: KeyedStateSnapshot) -> None:
        """Put everything back to what `snapshot` saw; no key is current afterwards."""
        self._roll_back_to(self._point(snapshot))
        self.context.clear()

    def _point(self, snapshot: KeyedStateSnapshot) -> P:
        """The point of a live snapshot of this backend."""
        self.context.check_open()
        point = point_of(snapshot, self._point_class)
        if not self._is_own(point):
            what = "the snapshot was taken of another backend: use it there"
            raise StateDeclarationError(what, option="snapshot")
        point.check_live()
        return point

    # -- maintenance ----------------------------------------------------------------------------------------

    def clean_up(self, budget: int) -> int:
        """Look at about `budget` values, remove those that have expired, and return how many were removed.

        For the end of a transaction: see `emberstate.state.ttl.clean_up`. The next call goes on from there.
        """
        self.context.check_open()
        return self._clean_up.run(budget)

    def _sweeps(self) -> Iterator[Sweep]:
        for registered in [*self._states.values()]:  # states may be registered between two steps of a sweep
            if registered.descriptor.ttl is not None:
                yield self._ttl_sweep.sweep(registered.table, registered.descriptor.ttl)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken. O(all entries)."""
        for registered in self._states.values():
            registered.table.check_invariants()
        for queue in self._timer_queues.values():
            queue.check_invariants()

    def close(self) -> None:
        """Drop all state; a second call does nothing, and any other use of the backend afterwards raises.

        Live snapshots can be read to the end. The owner thread closes; if it has ended, call `context.own()` first.
        """
        self.context.close()
        self._states = {}
        self._timer_queues = {}

    def __reduce__(self) -> NoReturn:
        raise LifecycleError(
            "a backend cannot be pickled or copied: its state belongs to one process. Was it caught in a "
            "closure that Spark sends elsewhere? Make a backend where it is used.",
            option="__reduce__",
        )

    # -- registering ----------------------------------------------------------------------------------------

    def _register(self, descriptor: StateDescriptor, namespace_type: Any) -> RegisteredState[T_co]:
        self.context.check_open()
        if not isinstance(descriptor, StateDescriptor):
            raise StateDeclarationError(f"expected the descriptor of a state, got {descriptor!r}", option="descriptor")
        registered = self._states.get(descriptor.name)
        if registered is not None:
            check_declared("state", descriptor.name, registered.namespace_codec)
            if registered.descriptor is descriptor and registered.namespace_codec.type is namespace_type:
                return registered
        namespace_codec = key_codec_for(namespace_type, where=f"namespace of state {descriptor.name!r}")
        if registered is None:
            return self._add_state(descriptor, namespace_codec)
        check_same_declaration(registered.descriptor, registered.namespace_codec, descriptor, namespace_codec)
        return registered

    def _add_state(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> RegisteredState[T_co]:
        self._make_room(descriptor.name)
        table = self._new_table(descriptor, namespace_codec)
        registered = RegisteredState(descriptor, namespace_codec, table)
        self._states[descriptor.name] = registered
        return registered

    def _add_queue(self, name: str, namespace_codec: Codec[Any]) -> Q_co:
        self._make_room(check_state_name(name))
        queue = self._timer_queues[name] = self._new_timer_queue(name, namespace_codec)
        return queue

    def _make_room(self, name: str) -> None:
        """Check the limit on states, and copy the two dicts if a snapshot or a caller holds them."""
        check_room(len(self._states), len(self._timer_queues), name)
        if self._shared:
            self._states, self._timer_queues, self._shared = {**self._states}, {**self._timer_queues}, False


#: Any backend.
KeyedStateBackend: TypeAlias = AbstractKeyedStateBackend[EntryTable, TimerQueue, Any]
