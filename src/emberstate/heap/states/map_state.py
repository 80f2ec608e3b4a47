# cython: boundscheck=False, wraparound=False
"""`HeapMapState`: the map state on the heap, over a `StateTable` of small and large maps (`map_value`).

Reads do not mark anything as changed. To change a large map, or to return a mutable value, the state gets the entry
from the table for writing first: the table notes it as changed, once per transaction.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import LifecycleError
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.states.map_value import PLAIN, MapKind
from emberstate.heap.states.state_table import StateTable
from emberstate.state.internal_states import InternalMapState

if not cython.compiled:  # compiled, they are C functions
    from emberstate.heap.states.map_value import position_in, small_put, small_remove


class HeapMapState(InternalMapState):
    """A map in a state table."""

    __slots__ = ("kind", "namespace", "table")

    table: StateTable
    namespace: Hashable
    kind: MapKind

    def __init__(self, table: StateTable, namespace: Hashable) -> None:
        self.table = table
        self.namespace = namespace
        self.kind = table.kind  # type: ignore[assignment]

    def with_namespace(self, namespace: Hashable) -> HeapMapState:
        """Return the same state, bound to another namespace."""
        return HeapMapState(self.table, namespace)

    def get(self, user_key: Any) -> Any:
        """Return the user value, or None. The caller owns it and may mutate it."""
        state = self.table.peek(self.namespace)
        if state is None:
            return None
        if isinstance(state, tuple):
            small: tuple[Any, ...] = state
            position: cython.Py_ssize_t = self.position_of(small, user_key)
            return None if position < 0 else small[position + 1]
        large: CopyOnWriteStateMap = state
        if self.kind.value_kind.immutable:
            return large.peek(user_key, PLAIN)
        large = self.large_for_change()
        return large.get(user_key, PLAIN)

    def put(self, user_key: Any, user_value: Any) -> None:
        """Set the value of a user key."""
        table: StateTable = self.table
        state = table.peek(self.namespace)
        large: CopyOnWriteStateMap
        if state is None or isinstance(state, tuple):
            small: tuple[Any, ...] = () if state is None else state
            position: cython.Py_ssize_t = self.position_of(small, user_key)
            if position >= 0 or len(small) < 2 * self.kind.small_limit:
                table.put(self.namespace, small_put(small, position, user_key, user_value))
                return
            large = self.kind.large_from(small, table.registry)
            large.put(user_key, PLAIN, user_value)
            table.put(self.namespace, large)
        else:
            large = self.large_for_change()
            large.put(user_key, PLAIN, user_value)

    def remove(self, user_key: Any) -> bool:
        """Remove a user key, and the entry with the last one; return whether the key was there."""
        table: StateTable = self.table
        state = table.peek(self.namespace)
        if state is None:
            return False
        if isinstance(state, tuple):
            small: tuple[Any, ...] = state
            position: cython.Py_ssize_t = self.position_of(small, user_key)
            if position < 0:
                return False
            if len(small) == 2:
                table.remove(self.namespace)
            else:
                table.put(self.namespace, small_remove(small, position))
            return True
        large: CopyOnWriteStateMap = state
        if not large.contains_key(user_key, PLAIN):
            return False
        large = self.large_for_change()
        large.remove(user_key, PLAIN)
        if large.size == 0:
            table.remove(self.namespace)
        return True

    def contains(self, user_key: Any) -> bool:
        """Whether the user key is there."""
        state = self.table.peek(self.namespace)
        if state is None:
            return False
        if isinstance(state, tuple):
            return self.position_of(state, user_key) >= 0
        large: CopyOnWriteStateMap = state
        return large.contains_key(user_key, PLAIN)

    def size(self) -> int:
        """Return the number of user keys."""
        state = self.table.peek(self.namespace)
        if state is None:
            return 0
        return len(state) // 2 if isinstance(state, tuple) else len(state)

    def items(self) -> Iterator[tuple[Any, Any]] | None:
        """Iterate over (user key, copy of the user value), or None if there is no map."""
        state = self.table.peek(self.namespace)
        if state is None:
            return None
        key = self.table.context.key
        if isinstance(state, tuple):
            return self._small_items(key, state)
        return self._large_items(key, state, self.kind.items(state, None), len(state))

    def keys(self) -> Iterator[Any] | None:
        """Iterate over the user keys, or None if there is no map."""
        state = self.table.peek(self.namespace)
        if state is None:
            return None
        key = self.table.context.key
        if isinstance(state, tuple):
            return (user_key for user_key, _ in self._small_items(key, state))
        return self._large_items(key, state, state.keys(PLAIN), len(state))

    def _small_items(self, key: Any, started: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        """Yield the pairs as they are at their turn: a put makes another tuple, with the user keys where they were."""
        position: cython.Py_ssize_t = 0
        while True:
            self.table.context.check_still(key)
            state = self.table.peek(self.namespace)
            if state is not started and not (isinstance(state, tuple) and state[::2] == started[::2]):
                self.refuse_iteration()
            if position >= len(started):
                return
            yield state[position], state[position + 1]
            position += 2

    def _large_items(
        self, key: Any, large: CopyOnWriteStateMap, items: Iterator[Any], size: int
    ) -> Iterator[Any]:
        """Yield the pairs; check before each step that `large` is still the map and has its size."""
        exhausted = object()
        while True:
            self.table.context.check_still(key)
            if self.table.peek(self.namespace) is not large or len(large) != size:
                self.refuse_iteration()
            item = next(items, exhausted)
            if item is exhausted:
                return
            yield item

    def position_of(self, small: tuple[Any, ...], user_key: Any) -> int:
        """Return the position of a user key in a small map, or -1; its `==` must not change state meanwhile."""
        registry: SnapshotRegistry = self.table.registry
        registry.busy += 1
        try:
            return position_in(small, user_key)
        finally:
            registry.busy -= 1

    def large_for_change(self) -> CopyOnWriteStateMap:
        """Return the large map, which was just found, noted as changed."""
        large: CopyOnWriteStateMap | None = self.table.get(self.namespace)
        if large is None:
            raise LifecycleError(
                f"map state {self.table.name!r} of key {self.table.context.key!r} was found once and then not: "
                f"`==` of its key or namespace is inconsistent",
                state=self.table.name,
                key=self.table.context.key,
            )
        return large

    def refuse_iteration(self) -> None:
        """Raise for an iteration over a map that has gained or lost a user key."""
        raise RuntimeError(
            f"map state {self.table.name!r} gained or lost user keys during iteration: "
            f"collect them with list() first"
        )

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.table.remove(self.namespace)
