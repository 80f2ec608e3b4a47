"""Read-only states: `ImmutableValueState` and its siblings, over content that was read from a checkpoint.

Reads work; every mutator raises `StateTypeError`. Content is copied in, and what a read hands out is a
copy too where it can change, so nobody can change what another reader sees.

>>> from emberstate.codec import codec_for
>>> state = ImmutableMapState({"a": 1}, codec_for(int))
>>> state["a"], state.contains("b"), dict(state)
(1, False, {'a': 1})
>>> state.put("b", 2)
Traceback (most recent call last):
    ...
emberstate.errors.StateTypeError: put() on read-only map state: ...
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from emberstate.codec import Codec
from emberstate.errors import StateTypeError
from emberstate.state.states import (
    AggregateFunction,
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def _refuse(method: str, kind: str) -> NoReturn:
    raise StateTypeError(
        f"{method}() on read-only {kind} state: what a checkpoint holds cannot be changed. "
        f"Change state in a keyed function."
    )


class ImmutableValueState(ValueState[T]):
    """A value that can be read."""

    __slots__ = ("_codec", "_value")

    def __init__(self, value: T | None, codec: Codec[T]) -> None:
        self._codec = codec
        self._value = None if value is None else codec.copy(value)

    def value(self) -> T | None:
        """Return the value, or None."""
        return None if self._value is None else self._codec.copy(self._value)

    def update(self, value: T | None) -> None:
        """Refused."""
        _refuse("update", "value")

    def clear(self) -> None:
        """Refused."""
        _refuse("clear", "value")


class ImmutableListState(ListState[T]):
    """A list that can be read."""

    __slots__ = ("_codec", "_elements")

    def __init__(self, elements: Iterable[T], codec: Codec[T]) -> None:
        self._codec = codec
        self._elements = [codec.copy(element) for element in elements]

    def get(self) -> list[T]:
        """Return the elements as a new list."""
        return [self._codec.copy(element) for element in self._elements]

    def is_empty(self) -> bool:
        """Whether there is no element."""
        return not self._elements

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, element: T) -> None:
        """Refused."""
        _refuse("add", "list")

    def add_all(self, elements: Iterable[T]) -> None:
        """Refused."""
        _refuse("add_all", "list")

    def update(self, elements: Iterable[T]) -> None:
        """Refused."""
        _refuse("update", "list")

    def clear(self) -> None:
        """Refused."""
        _refuse("clear", "list")


class ImmutableMapState(MapState[K, V]):
    """A map that can be read."""

    __slots__ = ("_codec", "_pairs")

    def __init__(self, pairs: Mapping[K, V], codec: Codec[V]) -> None:
        self._codec = codec
        self._pairs = {key: None if value is None else codec.copy(value) for key, value in pairs.items()}

    def __getitem__(self, key: K) -> V:
        value = self._pairs[key]
        return value if value is None else self._codec.copy(value)  # type: ignore[return-value]

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._pairs))

    def __len__(self) -> int:
        return len(self._pairs)

    def contains(self, key: K) -> bool:
        """Whether the user key is there."""
        return key in self._pairs

    def is_empty(self) -> bool:
        """Whether there is no user key."""
        return not self._pairs

    def entries(self) -> ItemsView[K, V]:
        """The pairs."""
        return self.items()

    def iterator(self) -> Iterator[tuple[K, V]]:
        """Iterate over the pairs."""
        return iter(self.items())

    def put(self, key: K, value: V) -> None:
        """Refused."""
        _refuse("put", "map")

    def put_all(self, pairs: Mapping[K, V]) -> None:
        """Refused."""
        _refuse("put_all", "map")

    def remove(self, key: K) -> None:
        """Refused."""
        _refuse("remove", "map")

    def clear(self) -> None:
        """Refused."""
        _refuse("clear", "map")

    def __setitem__(self, key: K, value: V) -> None:
        _refuse("__setitem__", "map")

    def __delitem__(self, key: K) -> None:
        _refuse("__delitem__", "map")

    def pop(self, *arguments: Any) -> NoReturn:
        """Refused."""
        _refuse("pop", "map")

    def popitem(self) -> NoReturn:
        """Refused."""
        _refuse("popitem", "map")

    def setdefault(self, *arguments: Any) -> NoReturn:
        """Refused."""
        _refuse("setdefault", "map")

    def update(self, *arguments: Any, **more: Any) -> NoReturn:
        """Refused."""
        _refuse("update", "map")


class ImmutableReducingState(ReducingState[T]):
    """A folded value that can be read."""

    __slots__ = ("_codec", "_value")

    def __init__(self, value: T | None, codec: Codec[T]) -> None:
        self._codec = codec
        self._value = None if value is None else codec.copy(value)

    def get(self) -> T | None:
        """Return the folded value, or None."""
        return None if self._value is None else self._codec.copy(self._value)

    def add(self, value: T | None) -> None:
        """Refused."""
        _refuse("add", "reducing")

    def clear(self) -> None:
        """Refused."""
        _refuse("clear", "reducing")


class ImmutableAggregatingState(AggregatingState[Any, Any]):
    """The result of an accumulator that can be read."""

    __slots__ = ("_accumulator", "_codec", "_function")

    def __init__(
        self, accumulator: Any, codec: Codec[Any], function: AggregateFunction[Any, Any, Any]
    ) -> None:
        self._codec = codec
        self._function = function
        self._accumulator = None if accumulator is None else codec.copy(accumulator)

    def get(self) -> Any:
        """Return the result, or None."""
        if self._accumulator is None:
            return None
        return self._function.get_result(self._codec.copy(self._accumulator))

    def add(self, value: Any) -> None:
        """Refused."""
        _refuse("add", "aggregating")

    def clear(self) -> None:
        """Refused."""
        _refuse("clear", "aggregating")
