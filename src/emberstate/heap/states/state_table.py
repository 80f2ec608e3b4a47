# cython: boundscheck=False, wraparound=False
"""One registered state of a backend: a state map per owned key group, made when it is first written to.

The keyed operations work on the current key and its key group, which the backend's `KeyContext` holds.

Invariants: `maps[i]` is the map of key group `range.start + i`, or None while nothing was written there;
every key is in the map of its own key group.

Thread safety: one owner thread; `maps` only gains maps, so a snapshot's reader may read it at any time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.changes import EntryChange
from emberstate.state.key_context import KeyContext

if not cython.compiled:  # compiled, it is a C function
    from emberstate.state.thread_number import thread_number


@dataclasses.dataclass(frozen=True, slots=True)
class StateTableStatistics:
    """Contents and counters of one state, over all its key groups."""

    name: str
    entries: int
    key_groups_in_use: int
    rehashing: int
    entry_copies: int
    state_copies: int


class StateTable:
    """The state maps of one state, by key group; see `CopyOnWriteStateTable` and `NestedMapsStateTable`."""

    __slots__ = ("context", "kind", "maps", "name", "registry")

    name: str
    context: KeyContext
    registry: SnapshotRegistry
    kind: ValueKind
    maps: list[StateMap | None]

    def __init__(self, name: str, kind: ValueKind, context: KeyContext, registry: SnapshotRegistry) -> None:
        self.name = name
        self.context = context
        self.registry = registry
        self.kind = kind
        self.maps = [None] * len(context.key_group_range)

    def make_map(self) -> StateMap:
        """Make the state map of a key group."""
        raise NotImplementedError

    # -- the current key ------------------------------------------------------------------------------------

    def current(self) -> StateMap | None:
        """The map of the current key's group, or None if nothing was written there yet."""
        context: KeyContext = self.context
        if context.position < 0 or thread_number() != context.owner:
            context.refuse(self.name)
        return self.maps[context.position]

    def current_or_new(self) -> StateMap:
        """The map of the current key's group."""
        map: StateMap | None = self.current()
        if map is None:
            map = self.make_map()
            self.maps[self.context.position] = map
        return map

    def get(self, namespace: Hashable) -> Any:
        """Return the state, or None. The caller may mutate it: that changes the state."""
        map: StateMap | None = self.current()
        return None if map is None else map.get(self.context.key, namespace)

    def peek(self, namespace: Hashable) -> Any:
        """Return the state, or None. The caller must not mutate it."""
        map: StateMap | None = self.current()
        return None if map is None else map.peek(self.context.key, namespace)

    def contains_key(self, namespace: Hashable) -> bool:
        """Whether the current key has an entry in `namespace`."""
        map: StateMap | None = self.current()
        return map is not None and map.contains_key(self.context.key, namespace)

    def put(self, namespace: Hashable, state: Any) -> Any:
        """Set the state; returns None."""
        map: StateMap = self.current_or_new()
        map.put(self.context.key, namespace, state)

    def put_and_get_old(self, namespace: Hashable, state: Any) -> Any:
        """Set the state and return the one before, or None."""
        map: StateMap = self.current_or_new()
        return map.put_and_get_old(self.context.key, namespace, state)

    def remove(self, namespace: Hashable) -> bool:
        """Remove the entry; return whether there was one."""
        map: StateMap | None = self.current()
        return map is not None and map.remove(self.context.key, namespace)

    def remove_and_get_old(self, namespace: Hashable) -> Any:
        """Remove the entry and return its state, or None."""
        map: StateMap | None = self.current()
        return None if map is None else map.remove_and_get_old(self.context.key, namespace)

    def transform(self, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Set the state to `function(state or None, argument)`; if that raises, nothing changes."""
        map: StateMap = self.current_or_new()
        return map.transform(self.context.key, namespace, argument, function)

    # -- all keys -------------------------------------------------------------------------------------------

    def map_of(self, key_group: int) -> StateMap | None:
        """The map of an owned key group, or None while it is empty."""
        self.context.key_group_range.check(key_group)
        return self.maps[key_group - self.context.key_group_range.start]

    def used_maps(self) -> list[tuple[int, StateMap]]:
        """(key group, map) for every group that was written to, ascending."""
        start = self.context.key_group_range.start
        return [(start + i, map) for i, map in enumerate(self.maps) if map is not None]

    def size_of_namespace(self, namespace: Hashable) -> int:
        """Return the number of keys with an entry in `namespace`; O(all entries)."""
        return sum(1 for _ in self.keys(namespace))

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`, key groups ascending; O(all entries)."""
        for _, map in self.used_maps():
            for key in map.keys(namespace):
                yield key
                self.context.check_open()  # the caller may iterate on another thread

    def keys_and_namespaces(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the (key, namespace) pairs of all entries, key groups ascending; O(all entries)."""
        for key, namespace, _ in self:
            yield key, namespace
            self.context.check_open()

    def __len__(self) -> int:
        return sum(len(map) for _, map in self.used_maps())

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, state), key groups ascending; states are views."""
        for _, map in self.used_maps():
            yield from map

    def entries(self, key_group: int, point: SnapshotPoint) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, state) of one owned key group at `point`, from any thread; states are views."""
        map = self.map_of(key_group)
        return iter(()) if map is None else iter(map.open(point))

    def changes(self, snapshot: SnapshotPoint) -> list[tuple[int, EntryChange]]:
        """(key group, record) for every entry that differs from `snapshot`, key groups ascending."""
        return [(group, change) for group, map in self.used_maps() for change in map.changes(snapshot)]

    def entry_columns(self, key_group: int, point: SnapshotPoint) -> Iterable[EntryColumns] | None:
        """What `entries` has, as columns, from any thread; None: the states are in no columns."""
        return None

    def changed_columns(self, snapshot: SnapshotPoint) -> EntryColumns | None:
        """What `changes` has, as columns; None: the states are in no columns."""
        return None

    def statistics(self) -> StateTableStatistics:
        """Return contents and counters of the table."""
        all_of = [map.statistics() for _, map in self.used_maps()]
        return StateTableStatistics(
            name=self.name,
            entries=sum(one.entries for one in all_of),
            key_groups_in_use=sum(1 for one in all_of if one.entries),
            rehashing=sum(one.is_rehashing for one in all_of),
            entry_copies=sum(one.entry_copies for one in all_of),
            state_copies=sum(one.state_copies for one in all_of),
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a map is broken or a key is in a foreign group. O(all entries)."""
        for group, map in self.used_maps():
            map.check_invariants()
            for key, _, _ in map:
                self.context.check_group(key, group)


class CopyOnWriteStateTable(StateTable):
    """The state maps are `CopyOnWriteStateMap`s: a snapshot is O(1), and is written while rows are processed."""

    __slots__ = ()

    def make_map(self) -> StateMap:
        """Make the state map of a key group."""
        return CopyOnWriteStateMap(self.kind, self.registry)


class NestedMapsStateTable(StateTable):
    """The state maps are `NestedStateMap`s: a snapshot copies everything at once."""

    __slots__ = ()

    def make_map(self) -> StateMap:
        """Make the state map of a key group."""
        from emberstate.heap.map.nested_state_map import NestedStateMap

        return NestedStateMap(self.kind, self.registry)
