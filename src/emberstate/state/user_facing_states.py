"""What a user holds of a value, list, reducing or aggregating state: what no backend needs to repeat.

Types are checked here, before anything is changed: one test of the class of what comes in (the contents of a
composite are checked when it is encoded). A number that says exactly the same in the declared type becomes that.
Absent lists look empty, absent values look like their default.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from emberstate.codec.widening import scalar_type, widened
from emberstate.errors import LifecycleError, StateTypeError
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.internal_states import (
    InternalAggregatingState,
    InternalListState,
    InternalReducingState,
    InternalValueState,
)
from emberstate.state.states import AggregatingState, ListState, ReducingState, ValueState


def in_state(error: StateTypeError, kind: str, name: str) -> StateTypeError:
    """The error with the state it happened in."""
    return StateTypeError(f"{kind} state {name!r}: {error}")


def refuse_pickling(kind: str, name: str) -> NoReturn:
    """Say why a handle cannot leave its process."""
    raise LifecycleError(
        f"{kind} state {name!r} cannot be pickled or copied: a handle belongs to the backend of one process. "
        f"Was it caught in a closure that Spark sends elsewhere? Ask for the state where it is used."
    )


class Handle:
    """A state that somebody took for what it holds: a test, comparison or `+=` of it would be silently wrong.

    Not for maps, which are compared and tested as any `Mapping` is; a list is tested by its length.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        raise self.mistaken("its truth was asked for")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise self.mistaken(f"it was compared with {other!r:.50}")

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __iadd__(self, other: Any) -> Any:
        raise self.mistaken(f"{other!r:.50} was added to it")

    def __isub__(self, other: Any) -> Any:
        raise self.mistaken(f"{other!r:.50} was taken from it")

    def mistaken(self, what: str) -> StateTypeError:
        """The error, with what to write instead."""
        return StateTypeError(f"{self!r} is a state, not what it holds, and {what}: use {self.advice()}")

    def advice(self) -> str:
        """How to get at what the state holds."""
        raise NotImplementedError


class UserFacingValueState(Handle):
    """A `ValueState` over any backend."""

    __slots__ = ("check", "copy_default", "default", "descriptor", "lends_default", "original", "scalar")

    original: InternalValueState
    descriptor: ValueStateDescriptor[Any]
    scalar: Any
    check: Callable[[Any], None]
    default: Any
    copy_default: Callable[[Any], Any]
    lends_default: bool

    def __init__(self, original: InternalValueState, descriptor: ValueStateDescriptor[Any]) -> None:
        self.original = original
        self.descriptor = descriptor
        self.scalar = scalar_type(descriptor.codec.type)
        self.check = descriptor.codec.check
        self.default = descriptor.default
        self.copy_default = descriptor.codec.copy
        self.lends_default = not descriptor.codec.immutable

    def value(self) -> Any:
        """Return the value, or the default (a fresh copy of it), or None."""
        value = self.original.value()
        if value is None and self.default is not None:
            value = self.copy_default(self.default)
            if self.lends_default:
                self.original.lend(value)
        return value

    def update(self, value: Any) -> None:
        """Set the value; None clears."""
        if value is None:
            self.original.clear()
            return
        if type(value) is not self.scalar:
            value = widened(value, self.scalar)
            try:
                self.check(value)
            except StateTypeError as error:
                raise in_state(error, "value", self.descriptor.name) from None
        self.original.update(value)

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.original.clear()

    def __reduce__(self) -> NoReturn:
        refuse_pickling("value", self.descriptor.name)

    def advice(self) -> str:
        """How to get at what the state holds."""
        return ".value() and .update(…)"

    def __repr__(self) -> str:
        return f"<value state {self.descriptor.name!r}>"


class UserFacingListState(Handle):
    """A `ListState` over any backend."""

    __slots__ = ("check", "descriptor", "original", "scalar")

    original: InternalListState
    descriptor: ListStateDescriptor[Any]
    scalar: Any
    check: Callable[[Any], None]

    def __init__(self, original: InternalListState, descriptor: ListStateDescriptor[Any]) -> None:
        self.original = original
        self.descriptor = descriptor
        self.scalar = scalar_type(descriptor.codec.type)
        self.check = descriptor.codec.check

    def accept(self, element: Any) -> Any:
        """Return the element if it may stand in the list."""
        if type(element) is not self.scalar:
            if element is None:
                raise StateTypeError(
                    f"list state {self.descriptor.name!r} holds no None: leave the element out, or declare a "
                    f"type with a value that stands for it"
                )
            element = widened(element, self.scalar)
            try:
                self.check(element)
            except StateTypeError as error:
                raise in_state(error, "list", self.descriptor.name) from None
        return element

    def get(self) -> list[Any]:
        """Return the elements as a new list; changing it, or an element of it, changes nothing here."""
        elements = self.original.get()
        return [] if elements is None else elements

    def add(self, element: Any) -> None:
        """Append an element, which must not be None."""
        self.original.add(self.accept(element))

    def append(self, element: Any) -> None:
        """Append an element, as `list.append`."""
        self.original.add(self.accept(element))

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append all or, if one of them is refused, none; nothing to append makes nothing."""
        accepted = self._accept_all(elements)
        if accepted:
            self.original.add_all(accepted)

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list; an empty one clears."""
        accepted = self._accept_all(elements)
        if accepted:
            self.original.update(accepted)
        else:
            self.original.clear()

    def _accept_all(self, elements: Iterable[Any]) -> list[Any]:
        if isinstance(elements, (str, bytes)) or not isinstance(elements, Iterable):
            raise StateTypeError(
                f"list state {self.descriptor.name!r} takes an iterable of elements here, found {elements!r}"
            )
        return [self.accept(element) for element in elements]

    def is_empty(self) -> bool:
        """Whether there is no element."""
        return self.original.size() == 0

    def clear(self) -> None:
        """Remove the list of the current key."""
        self.original.clear()

    def __len__(self) -> int:
        return self.original.size()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __reduce__(self) -> NoReturn:
        refuse_pickling("list", self.descriptor.name)

    def advice(self) -> str:
        """How to get at what the state holds."""
        return ".get(), .add(…) and .add_all(…)"

    def __bool__(self) -> bool:
        return self.original.size() > 0

    def __repr__(self) -> str:
        return f"<list state {self.descriptor.name!r}>"


class UserFacingReducingState(Handle):
    """A `ReducingState` over any backend."""

    __slots__ = ("check", "descriptor", "original", "scalar")

    original: InternalReducingState
    descriptor: ReducingStateDescriptor[Any]
    scalar: Any
    check: Callable[[Any], None]

    def __init__(self, original: InternalReducingState, descriptor: ReducingStateDescriptor[Any]) -> None:
        self.original = original
        self.descriptor = descriptor
        self.scalar = scalar_type(descriptor.codec.type)
        self.check = descriptor.codec.check

    def get(self) -> Any:
        """Return the folded value, or None."""
        return self.original.get()

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        if value is None:
            self.original.clear()
            return
        if type(value) is not self.scalar:
            value = widened(value, self.scalar)
            try:
                self.check(value)
            except StateTypeError as error:
                raise in_state(error, "reducing", self.descriptor.name) from None
        self.original.add(value)

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.original.clear()

    def __reduce__(self) -> NoReturn:
        refuse_pickling("reducing", self.descriptor.name)

    def advice(self) -> str:
        """How to get at what the state holds."""
        return ".get() and .add(…)"

    def __repr__(self) -> str:
        return f"<reducing state {self.descriptor.name!r}>"


class UserFacingAggregatingState(Handle):
    """An `AggregatingState` over any backend; what is added has the type that the function takes."""

    __slots__ = ("descriptor", "original")

    original: InternalAggregatingState
    descriptor: AggregatingStateDescriptor

    def __init__(self, original: InternalAggregatingState, descriptor: AggregatingStateDescriptor) -> None:
        self.original = original
        self.descriptor = descriptor

    def get(self) -> Any:
        """Return the result, or None."""
        return self.original.get()

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        if value is None:
            self.original.clear()
        else:
            self.original.add(value)

    def clear(self) -> None:
        """Remove the accumulator of the current key."""
        self.original.clear()

    def __reduce__(self) -> NoReturn:
        refuse_pickling("aggregating", self.descriptor.name)

    def advice(self) -> str:
        """How to get at what the state holds."""
        return ".get() and .add(…)"

    def __repr__(self) -> str:
        return f"<aggregating state {self.descriptor.name!r}>"


ValueState.register(UserFacingValueState)
ListState.register(UserFacingListState)
ReducingState.register(UserFacingReducingState)
AggregatingState.register(UserFacingAggregatingState)
