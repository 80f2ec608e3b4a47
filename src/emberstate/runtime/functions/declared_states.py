"""State declared where it is used: `total = es.value_state(float, default=0.0)` in a function's class.

A restart finds a declared state by its name: that of its attribute, or the one given by `name=`. The names of the
class and its module are not stored.

On the class the attribute is the declaration. On an instance it is the live state, between open and close:
opening puts the handle into the instance's dict, where Python finds it without asking the declaration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Generic, TypeVar, overload

from emberstate.codec import Codec
from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.states import (
    AggregateFunction,
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from emberstate.state.ttl.config import TtlConfig
from emberstate.units import Duration

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
I = TypeVar("I")  # noqa: E741
A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
S = TypeVar("S")


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """A state that a function declares, known without running it."""

    descriptor: StateDescriptor
    namespace_type: Any = str
    broadcast: bool = False


class DeclaredState(Generic[S]):
    """An attribute of a function's class that stands for a state."""

    def __init__(
        self, make: Callable[[str], StateDescriptor], name: str | None = None, *, broadcast: bool = False
    ) -> None:
        self._make = make
        self._name = name
        self._broadcast = broadcast
        self._declaration: Declaration | None = None
        self.attribute: str | None = None

    def __set_name__(self, owner: type, attribute: str) -> None:
        # Errors are raised later: Python 3.11 hides what is raised here behind a RuntimeError.
        self.attribute = self.attribute or attribute

    @property
    def declaration(self) -> Declaration:
        """What is declared."""
        if self._declaration is None:
            name = self._name or self.attribute
            if name is None:
                raise StateDeclarationError("a state is declared as an attribute in a class's body, or given a name=")
            self._declaration = Declaration(self._make(name), broadcast=self._broadcast)
        return self._declaration

    @overload
    def __get__(self, instance: None, owner: type) -> DeclaredState[S]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> S: ...

    def __get__(self, instance: object | None, owner: type) -> DeclaredState[S] | S:
        # Not asked while the function is open: then the handle is in the instance's dict.
        if instance is None:
            return self
        raise LifecycleError(
            f"state {self.declaration.descriptor.name!r} of {owner.__qualname__} is not open: it can be used from "
            f"open() to close(), in a function that an operator runs; not in __init__, nor on another instance",
            state=self.declaration.descriptor.name,
        )

    def __repr__(self) -> str:
        return f"<declared {self.declaration.descriptor.kind} state {self.declaration.descriptor.name!r}>"


class ValueStateWithDefault(ValueState[T]):
    """The type of a value state with a default, for type checkers: its reads are never None."""

    def value(self) -> T:
        """Return the value, or the default."""
        raise NotImplementedError


def _ttl(ttl: TtlConfig | Duration | None) -> TtlConfig | None:
    return ttl if ttl is None or isinstance(ttl, TtlConfig) else TtlConfig(ttl)


# Type checkers see `int | None` in an argument as a value of `UnionType` (mypy: or as the type of its first member),
# and cannot infer what such a state holds: annotate what is read where it matters.


@overload
def value_state(
    type_: type[T] | Codec[T], *, default: T, name: str | None = ..., ttl: TtlConfig | Duration | None = ...
) -> DeclaredState[ValueStateWithDefault[T]]: ...


@overload
def value_state(
    type_: type[T] | Codec[T], *, default: None = ..., name: str | None = ..., ttl: TtlConfig | Duration | None = ...
) -> DeclaredState[ValueState[T]]: ...


@overload
def value_state(
    type_: UnionType | type[Any], *, default: Any = ..., name: str | None = ..., ttl: TtlConfig | Duration | None = ...
) -> DeclaredState[ValueState[Any]]: ...


def value_state(
    type_: Any,
    *,
    default: Any = None,
    name: str | None = None,
    ttl: TtlConfig | Duration | None = None,
) -> Any:
    """Declare one value per key; a read without a value returns `default`."""
    return DeclaredState(partial(ValueStateDescriptor, type_=type_, default=default, ttl=_ttl(ttl)), name)


@overload
def list_state(
    type_: type[T] | Codec[T], *, name: str | None = ..., ttl: TtlConfig | Duration | None = ...
) -> DeclaredState[ListState[T]]: ...


@overload
def list_state(
    type_: UnionType | type[Any], *, name: str | None = ..., ttl: TtlConfig | Duration | None = ...
) -> DeclaredState[ListState[Any]]: ...


def list_state(type_: Any, *, name: str | None = None, ttl: TtlConfig | Duration | None = None) -> Any:
    """Declare a list per key."""
    return DeclaredState(partial(ListStateDescriptor, type_=type_, ttl=_ttl(ttl)), name)


@overload
def map_state(
    key_type: type[K] | Codec[K],
    value_type: type[V] | Codec[V],
    *,
    name: str | None = ...,
    ttl: TtlConfig | Duration | None = ...,
) -> DeclaredState[MapState[K, V]]: ...


@overload
def map_state(
    key_type: type[K] | Codec[K],
    value_type: UnionType | type[Any],
    *,
    name: str | None = ...,
    ttl: TtlConfig | Duration | None = ...,
) -> DeclaredState[MapState[K, Any]]: ...


def map_state(
    key_type: Any, value_type: Any, *, name: str | None = None, ttl: TtlConfig | Duration | None = None
) -> Any:
    """Declare a map per key."""
    make = partial(MapStateDescriptor, key_type=key_type, value_type=value_type, ttl=_ttl(ttl))
    return DeclaredState(make, name)


def reducing_state(
    function: Callable[[T, T], T],
    type_: type[T] | Codec[T],
    *,
    name: str | None = None,
    ttl: TtlConfig | Duration | None = None,
) -> DeclaredState[ReducingState[T]]:
    """Declare values folded by `function(old, new)`."""
    return DeclaredState(partial(ReducingStateDescriptor, function=function, type_=type_, ttl=_ttl(ttl)), name)


def aggregating_state(
    function: AggregateFunction[I, A, O],
    accumulator_type: Any,
    *,
    name: str | None = None,
    ttl: TtlConfig | Duration | None = None,
) -> DeclaredState[AggregatingState[I, O]]:
    """Declare values folded by an `AggregateFunction` into an accumulator of `accumulator_type`."""
    make = partial(AggregatingStateDescriptor, function=function, accumulator_type=accumulator_type, ttl=_ttl(ttl))
    return DeclaredState(make, name)


def broadcast_state(
    key_type: type[K] | Codec[K], value_type: type[V] | Codec[V], *, name: str | None = None
) -> DeclaredState[MapState[K, V]]:
    """Declare a map that belongs to no key: the same in every slot, stored once.

    Written while `process_broadcast_element` runs, read-only elsewhere.
    """
    make = partial(MapStateDescriptor, key_type=key_type, value_type=value_type)
    return DeclaredState(make, name, broadcast=True)


def declared_states_of(cls: type) -> dict[str, DeclaredState[Any]]:
    """Return the declared states of a class by attribute, its bases' first; rejects two of one name."""
    found: dict[str, DeclaredState[Any]] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, DeclaredState):
                found[attribute] = value
            else:
                found.pop(attribute, None)
    names: dict[tuple[bool, str], str] = {}
    for attribute, state in found.items():
        if state.attribute != attribute:
            raise StateDeclarationError(
                f"{cls.__qualname__}.{attribute} and .{state.attribute} are one declaration: declare each state anew",
                state=state.declaration.descriptor.name,
            )
        declared = state.declaration
        other = names.setdefault((declared.broadcast, declared.descriptor.name), attribute)
        if other != attribute:
            raise StateDeclarationError(
                f"{cls.__qualname__}.{other} and .{attribute} both declare state {declared.descriptor.name!r}: "
                f"names are unique, give one of them another",
                state=declared.descriptor.name,
            )
    return found
