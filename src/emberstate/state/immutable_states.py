"""Read-only states: `ImmutableValueState` and its siblings, over content that was read from a checkpoint.

Reads work; every mutator raises `StateTypeError`. Content is copied in, and reads return copies of what is mutable, so
no reader can change what another one sees.

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

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Generic, NoReturn, TypeVar

from emberstate._html import table_html
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

#: How many elements a text shows.
_SHOWN: Final = 5


def _refused(method: str, kind: str) -> Callable[..., NoReturn]:
    """A mutator that raises."""

    def refuse(*arguments: Any, **more: Any) -> NoReturn:
        raise StateTypeError(
            f"{method}() on read-only {kind} state: what a checkpoint holds cannot be changed. "
            f"Change state in a keyed function.",
            option=method,
            found=f"read-only {kind} state",
        )

    refuse.__doc__ = "Raises StateTypeError."
    return refuse


class _Preview:
    """Shows what a read-only state holds: in a notebook as a table, its first rows only."""

    __slots__ = ()

    def _rows(self) -> tuple[str, Iterable[tuple[Any, ...]], int]:
        """The names of the columns, the rows, and how many there are."""
        raise NotImplementedError

    def __repr__(self) -> str:
        columns, rows, count = self._rows()
        shown = [row if len(row) > 1 else row[0] for row in islice(rows, _SHOWN)]
        more = f", {count - _SHOWN} more" if count > _SHOWN else ""
        return f"<{type(self).__name__} of {columns}: {shown!r}{more}>"

    def _repr_html_(self) -> str:
        columns, rows, count = self._rows()
        texts = ([repr(cell) for cell in row] for row in rows)
        return table_html(type(self).__name__, columns.split(", "), texts, count)


class _Content(_Preview, Generic[T]):
    """One value or accumulator, copied in and out."""

    __slots__ = ("_codec", "_content")

    def __init__(self, content: T | None, codec: Codec[T]) -> None:
        self._codec = codec
        self._content = None if content is None else codec.copy(content)

    def _copy(self) -> T | None:
        return None if self._content is None else self._codec.copy(self._content)

    def _rows(self) -> tuple[str, Iterable[tuple[Any, ...]], int]:
        return "value", () if self._content is None else ((self._content,),), int(self._content is not None)


class ImmutableValueState(_Content[T], ValueState[T]):
    """A read-only value."""

    __slots__ = ()

    def value(self) -> T | None:
        """Return the value, or None."""
        return self._copy()

    update = _refused("update", "value")
    clear = _refused("clear", "value")


class ImmutableListState(_Preview, ListState[T]):
    """A read-only list."""

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

    def _rows(self) -> tuple[str, Iterable[tuple[Any, ...]], int]:
        return "value", ((element,) for element in self._elements), len(self._elements)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    add = _refused("add", "list")
    add_all = _refused("add_all", "list")
    update = _refused("update", "list")
    clear = _refused("clear", "list")


class ImmutableMapState(_Preview, MapState[K, V]):
    """A read-only map."""

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

    def _rows(self) -> tuple[str, Iterable[tuple[Any, ...]], int]:
        return "user key, value", self._pairs.items(), len(self._pairs)

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

    put = _refused("put", "map")
    put_all = _refused("put_all", "map")
    remove = _refused("remove", "map")
    clear = _refused("clear", "map")
    __setitem__ = _refused("__setitem__", "map")
    __delitem__ = _refused("__delitem__", "map")
    pop = _refused("pop", "map")
    popitem = _refused("popitem", "map")
    setdefault = _refused("setdefault", "map")
    update = _refused("update", "map")


class ImmutableReducingState(_Content[T], ReducingState[T]):
    """A read-only reduced value."""

    __slots__ = ()

    def get(self) -> T | None:
        """Return the reduced value, or None."""
        return self._copy()

    add = _refused("add", "reducing")
    clear = _refused("clear", "reducing")


class ImmutableAggregatingState(_Content[Any], AggregatingState[Any, Any]):
    """The result of a read-only accumulator."""

    __slots__ = ("_function",)

    def __init__(self, accumulator: Any, codec: Codec[Any], function: AggregateFunction[Any, Any, Any]) -> None:
        super().__init__(accumulator, codec)
        self._function = function

    def get(self) -> Any:
        """Return the result, or None."""
        accumulator = self._copy()
        return None if accumulator is None else self._function.get_result(accumulator)

    add = _refused("add", "aggregating")
    clear = _refused("clear", "aggregating")
