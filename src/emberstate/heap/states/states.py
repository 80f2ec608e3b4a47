"""Value, list, reducing and aggregating state on the heap: thin handles over a `StateTable`.

A handle is bound to a namespace and holds no content, so one state may have any number of handles. The map state is
in `map_state`.

User functions run before anything is changed, on copies of what is mutable: a function that raises changes nothing.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from emberstate.heap.states.lent_defaults import LentDefaults
from emberstate.heap.states.list_value import AppendList, append_list_of
from emberstate.heap.states.state_table import StateTable
from emberstate.state.internal_states import Folding, InternalListState, InternalValueState, StoredFoldingState


class HeapValueState(InternalValueState):
    """A value in a state table."""

    __slots__ = ("defaults", "namespace", "table")

    table: StateTable
    namespace: Hashable
    defaults: LentDefaults | None

    def __init__(self, table: StateTable, namespace: Hashable) -> None:
        self.table = table
        self.namespace = namespace
        self.defaults = None  # until one is lent

    def with_namespace(self, namespace: Hashable) -> HeapValueState:
        """Return the same state, bound to another namespace."""
        return HeapValueState(self.table, namespace)

    def value(self) -> Any:
        """Return the value, or None. The caller owns it and may mutate it."""
        return self.table.get(self.namespace)

    def lend(self, default: Any) -> None:
        """Store `default`, which a caller is about to get, once it is mutated."""
        if self.defaults is None:
            self.defaults = LentDefaults(self.table, self.namespace)
        self.defaults.lend(default)

    def update(self, value: Any) -> None:
        """Set the value."""
        self.table.put(self.namespace, value)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.table.remove(self.namespace)


class HeapListState(InternalListState):
    """A list in a state table; see `list_value`."""

    __slots__ = ("namespace", "table")

    table: StateTable
    namespace: Hashable

    def __init__(self, table: StateTable, namespace: Hashable) -> None:
        self.table = table
        self.namespace = namespace

    def with_namespace(self, namespace: Hashable) -> HeapListState:
        """Return the same state, bound to another namespace."""
        return HeapListState(self.table, namespace)

    def get(self) -> list[Any] | None:
        """Return the elements (copies) as a new list, or None."""
        state = self.table.peek(self.namespace)
        if state is None:
            return None
        elements: list[Any] = self.table.kind.view(state, None)
        return elements

    def peek(self) -> list[Any] | None:
        """Return the elements themselves as a new list, or None."""
        state: AppendList | None = self.table.peek(self.namespace)
        return None if state is None else state.elements()

    def add(self, element: Any) -> None:
        """Append an element."""
        state: AppendList | None = self.table.get(self.namespace)
        if state is None:
            self.table.put(self.namespace, append_list_of((element,)))
        else:
            state.append(element, self.table.registry)

    def add_all(self, elements: list[Any]) -> None:
        """Append elements."""
        state: AppendList | None = self.table.get(self.namespace)
        if state is None:
            self.table.put(self.namespace, append_list_of(elements))
        else:
            for element in elements:
                state.append(element, self.table.registry)

    def update(self, elements: list[Any]) -> None:
        """Replace the list."""
        self.table.put(self.namespace, append_list_of(elements))

    def size(self) -> int:
        """Return the number of elements."""
        state: AppendList | None = self.table.peek(self.namespace)
        return 0 if state is None else state.length

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.table.remove(self.namespace)

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Move what the current key has in `sources` behind what it has in `target`, in order."""
        if not sources:
            return
        merged: list[Any] = []
        for source in dict.fromkeys(sources):
            state = self.table.peek(source)
            if state is not None:
                merged.extend(self.table.kind.view(state, None))
        for source in sources:
            self.table.remove(source)
        if merged:
            self.with_namespace(target).add_all(merged)


class HeapFoldingState(StoredFoldingState):
    """An accumulator in a state table."""

    __slots__ = ("namespace", "table")

    table: StateTable
    namespace: Hashable

    def __init__(self, table: StateTable, namespace: Hashable, folding: Folding) -> None:
        self.table = table
        self.namespace = namespace
        self.folding = folding

    def with_namespace(self, namespace: Hashable) -> HeapFoldingState:
        """Return the same state, bound to another namespace."""
        return HeapFoldingState(self.table, namespace, self.folding)

    def get(self) -> Any:
        """Return the result of the accumulator, or None."""
        accumulator = self.table.get(self.namespace)
        if accumulator is None or self.folding.result is None:
            return accumulator
        return self.folding.result(accumulator)

    def add(self, value: Any) -> None:
        """Fold a value in."""
        self.table.transform(self.namespace, value, self.folding.fold)

    def get_internal(self) -> Any:
        """Return the accumulator, or None."""
        return self.table.get(self.namespace)

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        if accumulator is None:
            self.table.remove(self.namespace)
        else:
            self.table.put(self.namespace, accumulator)

    def operand(self) -> Any:
        """Return a copy of the accumulator, or None."""
        accumulator = self.table.peek(self.namespace)
        return None if accumulator is None else self.table.kind.copy(accumulator)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.table.remove(self.namespace)
