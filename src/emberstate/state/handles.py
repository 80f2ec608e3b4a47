"""The handles that a user holds on value, list, reducing and aggregating states: what no backend repeats.

A handle checks the class of what comes in before anything is changed; the contents of a composite are checked when it
is encoded. A number that means exactly the same in the declared type is converted to it. An absent list reads as
empty, an absent value as its default.

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
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.internal_states import InternalFoldingState, InternalListState, InternalValueState
from emberstate.state.states import AggregatingState, ListState, ReducingState, ValueState


class Handle:
    """A user's handle on one state: what all five kinds share."""

    __slots__ = ("check", "descriptor", "scalar")

    descriptor: StateDescriptor
    scalar: Any
    check: Callable[[Any], None]

    def __init__(self, descriptor: StateDescriptor) -> None:
        self.descriptor = descriptor
        self.scalar = scalar_type(descriptor.codec.type)
        self.check = descriptor.codec.check

    def accept(self, value: Any) -> Any:
        """Return the value as it is stored; raise if it is not of the declared type.

        Callers test `type(value) is self.scalar` first: then nothing is left to check.
        """
        value = widened(value, self.scalar)
        try:
            self.check(value)
        except StateTypeError as error:
            raise self.refusal(error, f"{self.descriptor.kind} state") from None
        return value

    def refusal(self, error: StateTypeError, what: str) -> StateTypeError:
        """Return the error with the name of the state."""
        name = self.descriptor.name
        return error.reworded(f"{what} {name!r}: {error}").located(state=name)

    def __reduce__(self) -> NoReturn:
        name = self.descriptor.name
        raise LifecycleError(
            f"{self.descriptor.kind} state {name!r} cannot be pickled or copied: a handle belongs to the backend of "
            f"one process. Was it caught in a closure that Spark sends elsewhere? Ask for the state where it is used.",
            state=name,
            option="__reduce__",
        )

    def __repr__(self) -> str:
        return f"<{self.descriptor.kind} state {self.descriptor.name!r}>"


class ContentHandle(Handle):
    """A handle that code may mistake for the content: a test, comparison or `+=` of it raises.

    Not for maps, which are compared and tested as any `Mapping`; a list is tested by its length.
    """

    __slots__ = ()

    advice = ".get() and .add(…)"  #: how to read and write the content

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
        """Return the error, with what to write instead."""
        return StateTypeError(
            f"{self!r} is a state, not what it holds, and {what}: use {self.advice}", state=self.descriptor.name
        )


class UserFacingValueState(ContentHandle):
    """A `ValueState` over any backend."""

    __slots__ = ("copy_default", "default", "lends_default", "original")

    advice = ".value() and .update(…)"

    original: InternalValueState
    default: Any
    copy_default: Callable[[Any], Any]
    lends_default: bool

    def __init__(self, original: InternalValueState, descriptor: ValueStateDescriptor[Any]) -> None:
        Handle.__init__(self, descriptor)
        self.original = original
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
            value = self.accept(value)
        self.original.update(value)

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.original.clear()


class UserFacingListState(ContentHandle):
    """A `ListState` over any backend."""

    __slots__ = ("original",)

    advice = ".get(), .add(…) and .add_all(…)"

    original: InternalListState

    def __init__(self, original: InternalListState, descriptor: ListStateDescriptor[Any]) -> None:
        Handle.__init__(self, descriptor)
        self.original = original

    def accept_element(self, element: Any) -> Any:
        """Return the element as it is stored; raise if it is None or not of the declared type."""
        if type(element) is not self.scalar:
            if element is None:
                name = self.descriptor.name
                raise StateTypeError(
                    f"list state {name!r} holds no None: leave the element out, or declare a type with a value that "
                    f"stands for it",
                    state=name,
                )
            element = self.accept(element)
        return element

    def get(self) -> list[Any]:
        """Return the elements as a new list of copies: mutating it does not change the state."""
        elements = self.original.get()
        return [] if elements is None else elements

    def add(self, element: Any) -> None:
        """Append an element, which must not be None."""
        self.original.add(self.accept_element(element))

    def append(self, element: Any) -> None:
        """Append an element, as `list.append`."""
        self.original.add(self.accept_element(element))

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append all elements or, if one of them is rejected, none."""
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
            name = self.descriptor.name
            raise StateTypeError(f"list state {name!r} takes an iterable of elements, got {elements!r}", state=name)
        return [self.accept_element(element) for element in elements]

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

    def __bool__(self) -> bool:
        return self.original.size() > 0


class UserFacingFoldingState(ContentHandle):
    """Reads of a `ReducingState` or `AggregatingState` over any backend; the two differ in what `add` checks."""

    __slots__ = ("original",)

    original: InternalFoldingState

    def __init__(
        self,
        original: InternalFoldingState,
        descriptor: ReducingStateDescriptor[Any] | AggregatingStateDescriptor,
    ) -> None:
        Handle.__init__(self, descriptor)
        self.original = original

    def get(self) -> Any:
        """Return the result, or None if nothing was added."""
        return self.original.get()

    def clear(self) -> None:
        """Remove the accumulator of the current key."""
        self.original.clear()


class UserFacingReducingState(UserFacingFoldingState):
    """A `ReducingState`: what is added has the declared type."""

    __slots__ = ()

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        if value is None:
            self.original.clear()
            return
        if type(value) is not self.scalar:
            value = self.accept(value)
        self.original.add(value)


class UserFacingAggregatingState(UserFacingFoldingState):
    """An `AggregatingState`: what is added has the type that its function takes, which nothing declares."""

    __slots__ = ()

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        if value is None:
            self.original.clear()
        else:
            self.original.add(value)


ValueState.register(UserFacingValueState)
ListState.register(UserFacingListState)
ReducingState.register(UserFacingReducingState)
AggregatingState.register(UserFacingAggregatingState)
