"""The aggregates that have a state of their own, beside the record: distinct, collect, top, fold.

Each is a `WindowState`: a partial row goes into a namespace, several namespaces are read as one, and are merged or
cleared as the windows are. Its `elements` has one element, the aggregate's result, however little there is.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import date, datetime, timedelta
from functools import cmp_to_key
from typing import Any, Final

from emberstate.runtime.aggregates.accumulators import greater_of
from emberstate.runtime.aggregates.declarations import Aggregate, Collect, Distinct, Fold, Top, type_of
from emberstate.runtime.aggregates.spec import WHOLE, AggregateSpec
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import python_type
from emberstate.runtime.windows.window_state import FoldingWindowState, WindowState
from emberstate.runtime.windows.windowed_rows import accumulator_type_of
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.folding import folding_of
from emberstate.state.internal_states import InternalListState, InternalMapState, InternalValueState

#: The types of columns whose values can be keys of a map as they are; others are kept as text.
_KEYS: Final[dict[str, type[Any]]] = {
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "boolean": bool,
    "string": str,
    "binary": bytes,
    "date": date,
    "timestamp": datetime,
    "timestamp_ntz": datetime,
    "interval day to second": timedelta,
}


def own_descriptor(state_name: str, aggregate: Aggregate, spec: AggregateSpec) -> StateDescriptor:
    """The state that an aggregate needs."""
    match aggregate:
        case Distinct():
            return MapStateDescriptor(state_name, _KEYS.get(type_of(spec.input, aggregate.column).kind, str), bool)
        case Collect():
            return ListStateDescriptor(state_name, _item_type(aggregate.result_type(spec.input)))
        case Top():
            rows: Any = list[_item_type(aggregate.result_type(spec.input))]  # type: ignore[misc]
            return ValueStateDescriptor(state_name, rows)
        case Fold():
            declared = aggregate.accumulator_type
            type_ = accumulator_type_of(aggregate.function) if declared is None else declared
            return AggregatingStateDescriptor(state_name, aggregate.function, type_)
    raise AssertionError(f"{aggregate!r} has no state of its own")


def _item_type(array: DataType) -> Any:
    return python_type(Column("", array.items[0], nullable=False))


def own_state(
    name: str, aggregate: Aggregate, spec: AggregateSpec, descriptor: StateDescriptor, state: Any
) -> WindowState:
    """The aggregate over a backend's state, made with its descriptor."""
    if isinstance(descriptor, AggregatingStateDescriptor):
        return FoldedRows(state, spec.partial.position(WHOLE), descriptor)
    [column] = aggregate.partial(name, spec.input)
    at = spec.partial.position(column.name)
    match aggregate:
        case Distinct():
            kind = type_of(spec.input, aggregate.column).kind
            return DistinctValues(state, at, None if kind in _KEYS else _as_text)
        case Top():
            return TopRows(state, at, aggregate, type_of(spec.input, aggregate.by))
    return CollectedValues(state, at)


def _as_text(value: Any) -> str:
    """A float or a decimal as a key: 0.0 and -0.0 are one, and so are all NaNs."""
    return repr(value or 0.0) if isinstance(value, float) else format(value, "f")


class DistinctValues(WindowState):
    """The different values, as the keys of a map."""

    __slots__ = ("_at", "_key_of", "_state")

    def __init__(self, state: InternalMapState, at: int, key_of: Callable[[Any], Any] | None) -> None:
        self._state = state
        self._at = at
        self._key_of = key_of

    def add(self, namespace: Hashable, row: Any) -> None:
        """Keep the values of a partial row."""
        state = self._state.with_namespace(namespace)
        values = row[self._at] or ()
        for key in values if self._key_of is None else map(self._key_of, values):
            if not state.contains(key):
                state.put(key, True)

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """How many there are."""
        if len(namespaces) == 1:
            return [self._state.with_namespace(namespaces[0]).size()]
        found: set[Any] = set()
        for namespace in namespaces:
            found.update(self._state.with_namespace(namespace).keys() or ())
        return [len(found)]

    def clear(self, namespace: Hashable) -> None:
        """Drop them."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Move the values of `sources` into `target`."""
        into = self._state.with_namespace(target)
        for source in sources:
            state = self._state.with_namespace(source)
            for key in list(state.keys() or ()):
                if not into.contains(key):
                    into.put(key, True)
            state.clear()


class CollectedValues(WindowState):
    """The values, in the order in which they came."""

    __slots__ = ("_at", "_state")

    def __init__(self, state: InternalListState, at: int) -> None:
        self._state = state
        self._at = at

    def add(self, namespace: Hashable, row: Any) -> None:
        """Append the values of a partial row."""
        values = row[self._at]
        if values:
            self._state.with_namespace(namespace).add_all(list(values))

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """All of them."""
        found: list[Any] = []
        for namespace in namespaces:
            found += self._state.with_namespace(namespace).get() or ()
        return [found]

    def clear(self, namespace: Hashable) -> None:
        """Drop them."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Move the values of `sources` behind those of `target`."""
        self._state.merge_namespaces(target, sources)


class TopRows(WindowState):
    """The rows with the greatest values, greatest first; of equal ones, those that came earlier."""

    __slots__ = ("_at", "_n", "_order", "_state")

    def __init__(self, state: InternalValueState, at: int, aggregate: Top, by: DataType) -> None:
        self._state = state
        self._at = at
        self._n = aggregate.n
        greater = greater_of(by)
        place = aggregate.columns.index(aggregate.by)

        def compare(one: Any, other: Any) -> int:
            return greater(other[place], one[place]) - greater(one[place], other[place])

        self._order = cmp_to_key(compare)

    def add(self, namespace: Hashable, row: Any) -> None:
        """Keep those of a partial row's that are among the greatest."""
        new = row[self._at]
        if new:
            state = self._state.with_namespace(namespace)
            state.update(self._greatest([*(state.value() or ()), *new]))

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """The greatest."""
        found: list[Any] = []
        for namespace in namespaces:
            found += self._state.with_namespace(namespace).value() or ()
        return [self._greatest(found)]

    def clear(self, namespace: Hashable) -> None:
        """Drop them."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Merge those of `sources` into `target`."""
        [found] = self.elements((target, *sources))
        if found:
            self._state.with_namespace(target).update(found)
        for source in sources:
            self.clear(source)

    def _greatest(self, rows: list[Any]) -> list[Any]:
        return sorted(rows, key=self._order)[: self._n]  # stable


class FoldedRows(FoldingWindowState):
    """Input rows, folded by a user's function."""

    __slots__ = ("_at",)

    def __init__(self, state: Any, at: int, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(state, folding_of(descriptor), descriptor.codec, None)
        self._at = at

    def add(self, namespace: Hashable, row: Any) -> None:
        """Fold the input row in."""
        super().add(namespace, row[self._at])

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """The one result; None if the aggregate is newer than the rows."""
        return super().elements(namespaces) or [None]
