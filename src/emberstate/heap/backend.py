"""`HeapKeyedStateBackend`: all keyed state of one slot, as live Python objects on the heap.

It holds a `StateTable` per state, the timer queues, the current key, and one `SnapshotRegistry` for all of them: so a
snapshot of everything is O(1), and a roll-back or the list of changes costs what was touched.

Thread safety: see `AbstractKeyedStateBackend`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from emberstate.codec import Codec
from emberstate.errors import CodecError, StateDeclarationError, StateTypeError
from emberstate.heap.loading.composites import ListLoader, MapLoader
from emberstate.heap.loading.values import BulkLoader, ValueLoader
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.snapshots import FIRST_VERSION, SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE
from emberstate.heap.states.kinds import RecordKind, kind_for
from emberstate.heap.states.list_value import AppendList, ListKind
from emberstate.heap.states.map_state import HeapMapState
from emberstate.heap.states.map_value import MapKind
from emberstate.heap.states.state_table import CopyOnWriteStateTable, StateTable, StateTableStatistics
from emberstate.heap.states.states import HeapFoldingState, HeapListState, HeapValueState
from emberstate.heap.states.timer_queue import HeapTimerQueue
from emberstate.heap.ttl_sweep import HeapTtlSweep
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.changes import EntryChange
from emberstate.state.declarations import StateHandles
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.keyed_state_backend import AbstractKeyedStateBackend, BackendStatistics
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.row_loading import FileRules, RowDecoders, RowLoader
from emberstate.state.ttl.stamped import Stamped

if TYPE_CHECKING:
    from emberstate.heap.columns.column_table import ColumnTable


@dataclasses.dataclass(frozen=True, slots=True)
class HeapBackendStatistics(BackendStatistics):
    """What a backend holds."""

    version: int
    states: tuple[StateTableStatistics, ...]


class HeapKeyedStateBackend(AbstractKeyedStateBackend[StateTable, HeapTimerQueue, SnapshotPoint]):
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

    _handles = StateHandles(HeapValueState, HeapListState, HeapMapState, HeapFoldingState)
    _point_class = SnapshotPoint

    def __init__(
        self,
        key_schema: KeySchema,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_group_range: KeyGroupRange | None = None,
        table_type: type[StateTable] = CopyOnWriteStateTable,
    ) -> None:
        """Make an empty backend that owns `key_group_range` (default: all) of `max_parallelism` key groups."""
        super().__init__(key_schema, max_parallelism, key_group_range)
        self.registry = SnapshotRegistry()
        self._ttl_sweep = HeapTtlSweep(self.ttl_clock, self.registry)
        self._table_type = table_type
        self._in_columns: set[str] = set()  # names of the states that `get_column_state` registers

    # -- tables, timer queues and points --------------------------------------------------------------------

    def get_column_state(self, descriptor: StateDescriptor, *, namespace_type: Any = str) -> ColumnTable:
        """Return the column table of a value or aggregating state; the first call registers the state.

        In snapshots, changes, files and handles it is a state like any other.

        Raises:
            StateDeclarationError: the state is registered already, and not in columns.
        """
        from emberstate.heap.columns.column_table import ColumnTable

        if descriptor.name not in self._states:
            self._in_columns.add(descriptor.name)
        table = self._register(descriptor, namespace_type).table
        if not isinstance(table, ColumnTable):
            raise StateDeclarationError(
                f"state {descriptor.name!r} is registered already, and not in columns: get it in columns first",
                state=descriptor.name,
            )
        return table

    def _new_table(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> StateTable:
        if descriptor.name in self._in_columns:
            from emberstate.heap.columns.column_table import ColumnTable
            from emberstate.heap.columns.layout import ColumnLayout

            layout, stamped = ColumnLayout(descriptor.codec.type), descriptor.ttl is not None
            return ColumnTable(descriptor.name, layout, self.context, self.registry, stamped=stamped)
        return self._table_type(descriptor.name, kind_for(descriptor), self.context, self.registry)

    def _new_timer_queue(self, name: str, namespace_codec: Codec[Any]) -> HeapTimerQueue:
        table = self._table_type(name, MapKind(IMMUTABLE), self.context, self.registry)
        return HeapTimerQueue(table, namespace_codec)

    def _take_point(self) -> SnapshotPoint:
        return self.registry.snapshot()

    def _is_own(self, point: SnapshotPoint) -> bool:
        return point.registry is self.registry

    def _roll_back_to(self, point: SnapshotPoint) -> None:
        self.registry.roll_back(point)

    def changes(self, snapshot: KeyedStateSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (state, key group, record) for every entry that differs from `snapshot`."""
        point = self._point(snapshot)
        return [
            (name, group, change)
            for name, registered in self._states.items()
            for group, change in registered.table.changes(point)
        ]

    def split_changes(
        self, snapshot: KeyedStateSnapshot
    ) -> tuple[list[tuple[str, int, EntryChange]], dict[str, EntryColumns]]:
        """`changes` of the states that are in no columns; and of every other state, by name, as columns."""
        point = self._point(snapshot)
        listed: list[tuple[str, int, EntryChange]] = []
        columns: dict[str, EntryColumns] = {}
        for name, registered in self._states.items():
            found = registered.table.changed_columns(point)
            if found is None:
                listed += [(name, group, change) for group, change in registered.table.changes(point)]
            else:
                columns[name] = found
        return listed, columns

    def timer_changes(self, snapshot: KeyedStateSnapshot) -> list[tuple[str, int, EntryChange]]:
        """List (queue, key group, record) for every key whose timers differ from `snapshot`."""
        point = self._point(snapshot)
        return [
            (name, group, change)
            for name, queue in self._timer_queues.items()
            for group, change in queue.table.changes(point)
        ]

    # -- restoring ------------------------------------------------------------------------------------------

    def _was_snapshotted(self) -> bool:
        return self.registry.version != FIRST_VERSION or bool(self.registry.live)

    def _is_empty(self) -> bool:
        return not self.number_of_entries() and not any(len(queue.table) for queue in self._timer_queues.values())

    def loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RowLoader:
        """Return a loader that fills state `name` from the rows of one file."""
        table = self._states[name].table
        if isinstance(table.kind, RecordKind):
            from emberstate.heap.loading.records import RecordLoader

            return RecordLoader(cast("ColumnTable", table), decoders, rules)
        if isinstance(table.kind, MapKind):
            return MapLoader(table, decoders, rules, timers=False)
        return (ListLoader if isinstance(table.kind, ListKind) else ValueLoader)(table, decoders, rules)

    def timer_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> BulkLoader:
        """Return a loader that fills timer queue `name` from the rows of one file."""
        return MapLoader(self._timer_queues[name].table, decoders, rules, timers=True)

    def after_load(self) -> None:
        """Adopt what the loaders loaded."""
        self.registry.seal()  # maps without versions took it as lent
        for queue in self._timer_queues.values():
            queue.after_load()

    # -- maintenance ----------------------------------------------------------------------------------------

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

    def refusal(self, error: StateTypeError) -> StateTypeError:
        """Return the error that `changes` raised, with the state and the key of the rejected value.

        `changes` takes back values that were handed out for change and rejects a wrong one without knowing whose it
        is. O(values handed out).
        """
        for name, registered in self._states.items():
            codec = registered.descriptor.codec
            if codec.immutable:
                continue
            for _, map in registered.table.used_maps():
                for key, namespace, value in _lent(map):
                    problem = _problem(codec, value)
                    if problem is not None:
                        label = f"{registered.descriptor.kind} state {name!r}"
                        text = f"{label}, key {key!r}, namespace {namespace!r}: {problem}"
                        return StateTypeError(text, state=name, key=key, field=problem.field)
        return error


def _lent(map: StateMap) -> Iterator[tuple[Any, Any, Any]]:
    """(key, namespace, value) of the values handed out; user values of a nested map come with its key."""
    if not isinstance(map, CopyOnWriteStateMap):
        loans: dict[tuple[Any, Any], Any] = getattr(map, "loans", {})
        yield from ((key, namespace, map.peek(key, namespace)) for key, namespace in loans)
        return
    yield from ((entry.key, entry.namespace, entry.state) for entry in map.loans[::2])
    if map.kind.nested:
        capacity = map.primary.capacity
        for number in range(capacity):
            for entry in map.cell(number, capacity):
                if isinstance(entry.state, CopyOnWriteStateMap):
                    yield from ((entry.key, entry.namespace, lent.state) for lent in entry.state.loans[::2])


def _problem(codec: Codec[Any], value: Any) -> StateTypeError | CodecError | None:
    """What is wrong with the type of a value, an element list or a stamped value; None if nothing is."""
    if isinstance(value, AppendList):
        return next((found for part in value.elements() if (found := _problem(codec, part)) is not None), None)
    if isinstance(value, Stamped):
        value = value.value
    try:
        if value is not None:
            codec.check_deep(value)
    except (StateTypeError, CodecError) as error:
        return error
    return None
