"""The interfaces of the states that a user holds.

A state belongs to the current key and to the namespace of its handle. Rules for None: a read of an absent state
returns None, the default or something empty; `update(None)` and `add(None)` clear a value, reducing or aggregating
state; a list rejects None; a map allows it as a user value.
"""

from __future__ import annotations

import abc
from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping
from typing import Generic, NoReturn, TypeVar

from emberstate.errors import StateTypeError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
I = TypeVar("I", contravariant=True)  # noqa: E741
O = TypeVar("O", covariant=True)  # noqa: E741
A = TypeVar("A")


class State(abc.ABC):
    """Operations of every state."""

    __slots__ = ()

    @abc.abstractmethod
    def clear(self) -> None:
        """Remove the content of the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abc.abstractmethod
    def value(self) -> T | None:
        """Return the value, or the default (a fresh copy of it), or None."""

    @abc.abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None clears."""

    def __bool__(self) -> NoReturn:
        raise StateTypeError(f"{self!r} is a state, not what it holds: test .value()", option="value")


class ListState(State, Generic[T]):
    """A list per key: appended to, read in order, replaced as a whole."""

    __slots__ = ()

    @abc.abstractmethod
    def get(self) -> list[T]:
        """Return the elements as a new list of copies: mutating it does not change the state."""

    @abc.abstractmethod
    def add(self, element: T) -> None:
        """Append an element, which must not be None."""

    @abc.abstractmethod
    def add_all(self, elements: Iterable[T]) -> None:
        """Append all elements or, if one of them is rejected, none."""

    @abc.abstractmethod
    def update(self, elements: Iterable[T]) -> None:
        """Replace the list; an empty one clears."""

    @abc.abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no element."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    def append(self, element: T) -> None:
        """Append an element, as `list.append`."""
        self.add(element)


class MapState(State, MutableMapping[K, V]):
    """A map per key: a `MutableMapping` that also has Flink's names. An absent map is an empty one."""

    __slots__ = ()

    @abc.abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a user key."""

    @abc.abstractmethod
    def put_all(self, pairs: Mapping[K, V]) -> None:
        """Set the values of all user keys in `pairs` or, if one is rejected, of none."""

    @abc.abstractmethod
    def contains(self, key: K) -> bool:
        """Whether the user key is there, even with the value None."""

    @abc.abstractmethod
    def remove(self, key: K) -> None:
        """Remove a user key, if it is there, and the map with the last one."""

    @abc.abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no user key."""

    @abc.abstractmethod
    def entries(self) -> ItemsView[K, V]:
        """The pairs; as `items()`."""

    @abc.abstractmethod
    def iterator(self) -> Iterator[tuple[K, V]]:
        """Iterate over the pairs."""


class AppendingState(State, Generic[I, O]):
    """Added values are folded into one result per key."""

    __slots__ = ()

    @abc.abstractmethod
    def get(self) -> O | None:
        """Return the result, or None if nothing was added."""

    @abc.abstractmethod
    def add(self, value: I | None) -> None:
        """Fold a value in; None clears."""

    def __bool__(self) -> NoReturn:
        raise StateTypeError(f"{self!r} is a state, not what it holds: test .get()", option="get")


class ReducingState(AppendingState[T, T]):
    """Folds by a function of two values of one type; stores the first value as it is."""

    __slots__ = ()


class AggregatingState(AppendingState[I, O]):
    """Folds into an accumulator by an `AggregateFunction`."""

    __slots__ = ()


class AggregateFunction(abc.ABC, Generic[I, A, O]):
    """How an aggregating state folds: makes an accumulator, adds to it, merges two, reads the result.

    A method that raises changes nothing: `add` and `merge` get a copy of a mutable accumulator. An immutable one (a
    tuple, a frozen dataclass) saves the copy.
    """

    @abc.abstractmethod
    def create_accumulator(self) -> A:
        """Return a fresh accumulator."""

    @abc.abstractmethod
    def add(self, value: I, accumulator: A) -> A:
        """Return the accumulator with `value` added; may mutate and return the one given."""

    @abc.abstractmethod
    def get_result(self, accumulator: A) -> O:
        """Return the result of an accumulator; must not mutate it."""

    @abc.abstractmethod
    def merge(self, one: A, other: A) -> A:
        """Return two accumulators merged; may mutate and return `one`."""
