"""Value, list, reducing and aggregating state on the heap: thin handles over a `StateTable`.

A handle is bound to a namespace and holds nothing else, so any number of handles may be about one state. The
map state is in `heap_map_state`.

User functions run before anything is changed, and on copies where they could change what they are given: a
function that raises leaves no trace.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from emberstate.heap.map.value_kind import ValueKind
from emberstate.heap.states.lent_defaults import LentDefaults
from emberstate.heap.states.list_value import AppendList, append_list_of
from emberstate.heap.states.state_table import StateTable
from emberstate.state.internal_states import (
    InternalAggregatingState,
    InternalListState,
    InternalReducingState,
    InternalValueState,
)
from emberstate.state.states import AggregateFunction


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
        """The same state, bound to another namespace."""
        return HeapValueState(self.table, namespace)

    def value(self) -> Any:
        """Return the value for the caller to have and to change, or None."""
        return self.table.get(self.namespace)

    def lend(self, default: Any) -> None:
        """Have `default`, which a caller is about to get, count if it is changed."""
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
        """The same state, bound to another namespace."""
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
        """How many elements there are."""
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
        for _, state in states_in(self.table, sources):
            merged.extend(self.table.kind.view(state, None))
        for source in sources:
            self.table.remove(source)
        if merged:
            self.with_namespace(target).add_all(merged)


class HeapReducingState(InternalReducingState):
    """A folded value in a state table."""

    __slots__ = ("function", "namespace", "table")

    table: StateTable
    namespace: Hashable
    function: Callable[[Any, Any], Any]

    def __init__(self, table: StateTable, namespace: Hashable, function: Callable[[Any, Any], Any]) -> None:
        self.table = table
        self.namespace = namespace
        self.function = function

    def with_namespace(self, namespace: Hashable) -> HeapReducingState:
        """The same state, bound to another namespace."""
        return HeapReducingState(self.table, namespace, self.function)

    def get(self) -> Any:
        """Return the folded value, or None."""
        return self.table.get(self.namespace)

    def add(self, value: Any) -> None:
        """Fold a value in; the first is stored as it is."""
        self.table.transform(self.namespace, value, self._fold)

    def _fold(self, old: Any, value: Any) -> Any:
        return value if old is None else self.function(old, value)

    def get_internal(self) -> Any:
        """Return the folded value, or None."""
        return self.table.get(self.namespace)

    def update_internal(self, value: Any) -> None:
        """Set the folded value; None clears."""
        if value is None:
            self.table.remove(self.namespace)
        else:
            self.table.put(self.namespace, value)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.table.remove(self.namespace)

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Fold what the current key has in `sources` into what it has in `target`, in order."""
        merge_entries(self.table, target, sources, self.function)


class HeapAggregatingState(InternalAggregatingState):
    """An accumulator in a state table."""

    __slots__ = ("function", "namespace", "table")

    table: StateTable
    namespace: Hashable
    function: AggregateFunction[Any, Any, Any]

    def __init__(
        self, table: StateTable, namespace: Hashable, function: AggregateFunction[Any, Any, Any]
    ) -> None:
        self.table = table
        self.namespace = namespace
        self.function = function

    def with_namespace(self, namespace: Hashable) -> HeapAggregatingState:
        """The same state, bound to another namespace."""
        return HeapAggregatingState(self.table, namespace, self.function)

    def get(self) -> Any:
        """Return the result of the accumulator, or None."""
        accumulator = self.table.get(self.namespace)
        return None if accumulator is None else self.function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value, to a fresh accumulator if there is none."""
        self.table.transform(self.namespace, value, self._fold)

    def _fold(self, accumulator: Any, value: Any) -> Any:
        if accumulator is None:
            accumulator = self.function.create_accumulator()
        return self.function.add(value, accumulator)

    def get_internal(self) -> Any:
        """Return the accumulator, or None."""
        return self.table.get(self.namespace)

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        if accumulator is None:
            self.table.remove(self.namespace)
        else:
            self.table.put(self.namespace, accumulator)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.table.remove(self.namespace)

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Merge what the current key has in `sources` into what it has in `target`, in order."""
        merge_entries(self.table, target, sources, self.function.merge)


def states_in(table: StateTable, namespaces: Sequence[Hashable]) -> list[tuple[Hashable, Any]]:
    """What the current key has in `namespaces`, to look at only: (namespace, state), each once, in order."""
    found = [(namespace, table.peek(namespace)) for namespace in dict.fromkeys(namespaces)]
    return [(namespace, state) for namespace, state in found if state is not None]


def merge_entries(
    table: StateTable, target: Hashable, sources: Sequence[Hashable] | None, merge: Callable[[Any, Any], Any]
) -> None:
    """Remove the current key's states in `sources`, fold them left to right, fold the result into `target`'s.

    What is absent is skipped; if nothing is there nothing is made. A source that is the target works.
    Everything is computed, on copies, before anything is changed.
    """
    if not sources:
        return
    found = states_in(table, sources)
    if not found:
        return
    kind: ValueKind = table.kind
    merged = kind.copy(found[0][1])
    for _, state in found[1:]:
        merged = merge(merged, kind.copy(state))
    if target not in sources:
        old = table.peek(target)
        if old is not None:
            merged = merge(kind.copy(old), merged)
    for source, _ in found:
        table.remove(source)
    table.put(target, merged)
