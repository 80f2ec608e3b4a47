"""Descriptors: the name and the types of a state, checked when they are declared.

>>> ValueStateDescriptor("total", float, default=0.0).codec.type
<class 'float'>
>>> MapStateDescriptor("seen", list[int], int)
Traceback (most recent call last):
    ...
emberstate.errors.StateDeclarationError: ...
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from emberstate.codec import Codec, codec_for, key_codec_for
from emberstate.codec.widening import scalar_type, widened
from emberstate.errors import StateDeclarationError
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl.config import TtlConfig
from emberstate.units import Duration, as_duration

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

MAX_NAME_LENGTH = 200
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\\ud800-\udfff]+")


def check_state_name(name: object) -> str:
    """Return `name`, or raise if it cannot name a state. Names are stored with the state."""
    if not isinstance(name, str) or not name:
        raise StateDeclarationError(f"a state needs a name, got {name!r}: a restart finds the state by it")
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name) or name.strip() != name:
        raise StateDeclarationError(
            f"{name[:50]!r} cannot name a state: at most {MAX_NAME_LENGTH} characters, "
            f"no control characters, slashes or surrogates, and no space at either end",
            state=name,
        )
    return name


def _as_codec(type_or_codec: Any, where: str) -> Codec[Any]:
    return type_or_codec if isinstance(type_or_codec, Codec) else codec_for(type_or_codec, where=where)


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class StateDescriptor:
    """Name, codec of what is stored, and time to live of one state."""

    kind: ClassVar[str]

    name: str
    codec: Codec[Any]
    ttl: TtlConfig | None

    def _declare(self, name: str, type_or_codec: Any, ttl: TtlConfig | Duration | None) -> None:
        object.__setattr__(self, "name", check_state_name(name))
        object.__setattr__(self, "codec", _as_codec(type_or_codec, f"{self.kind} state {name!r}"))
        if ttl is not None and not isinstance(ttl, TtlConfig):
            ttl = TtlConfig(as_duration(ttl, "ttl", f"{self.kind} state {name!r}, unless it is a TtlConfig,"))
        object.__setattr__(self, "ttl", ttl)

    def declared(self) -> dict[str, Any]:
        """What two declarations of one state must agree in, by name; without functions."""
        return {
            "kind": self.kind,
            "codec": self.codec.name,
            "type": self.codec.schema,
            "time to live": self.ttl,
        }

    def __eq__(self, other: object) -> bool:
        """Whether both declare the same state, with the same classes and functions."""
        if not isinstance(other, StateDescriptor):
            return NotImplemented
        return (
            self.name == other.name
            and self.declared() == other.declared()
            and self.codec.type == other.codec.type
            and getattr(self, "function", None) == getattr(other, "function", None)
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.name))


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """A `ValueState`: one value of type `type_`.

    A read of an absent value returns a fresh copy of `default`. Mutating the copy sets the value; on RocksDB, as with
    any value, it must be written back. The descriptor keeps its own copy.
    """

    kind: ClassVar[str] = "value"

    default: T | None

    def __init__(
        self,
        name: str,
        type_: type[T] | Codec[T],
        *,
        default: T | None = None,
        ttl: TtlConfig | Duration | None = None,
    ) -> None:
        self._declare(name, type_, ttl)
        if default is not None:
            default = widened(default, scalar_type(self.codec.type))
            self.codec.check(default)
            self.codec.encode(default)
            default = self.codec.copy(default)
        object.__setattr__(self, "default", default)

    def declared(self) -> dict[str, Any]:
        """What two declarations must agree in; the default by its bytes: it may be a list."""
        default = None if self.default is None else self.codec.encode(self.default)
        return {**StateDescriptor.declared(self), "default": default}


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class ListStateDescriptor(StateDescriptor, Generic[T]):
    """A `ListState` with elements of type `type_`."""

    kind: ClassVar[str] = "list"

    def __init__(self, name: str, type_: type[T] | Codec[T], *, ttl: TtlConfig | Duration | None = None) -> None:
        self._declare(name, type_, ttl)


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """A `MapState` from user keys of `key_type` (hashable, immutable) to values of `value_type`."""

    kind: ClassVar[str] = "map"

    key_codec: Codec[Any]

    def __init__(
        self,
        name: str,
        key_type: type[K] | Codec[K],
        value_type: type[V] | Codec[V],
        *,
        ttl: TtlConfig | Duration | None = None,
    ) -> None:
        self._declare(name, value_type, ttl)
        where = f"user key of map state {name!r}"
        key_codec = key_type if isinstance(key_type, Codec) else key_codec_for(key_type, where=where)
        if not key_codec.is_key:
            raise StateDeclarationError(
                f"{where}: {key_codec!r} was not made for keys, so equal keys may have different bytes. "
                f"Give the type itself, or key_codec_for(type).",
                state=name,
            )
        object.__setattr__(self, "key_codec", key_codec)

    def declared(self) -> dict[str, Any]:
        """What two declarations must agree in."""
        return {**StateDescriptor.declared(self), "user key type": self.key_codec.schema}


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """A `ReducingState`: values of `type_` folded by `function(old, new)`."""

    kind: ClassVar[str] = "reducing"

    function: Callable[[T, T], T]

    def __init__(
        self,
        name: str,
        function: Callable[[T, T], T],
        type_: type[T] | Codec[T],
        *,
        ttl: TtlConfig | Duration | None = None,
    ) -> None:
        self._declare(name, type_, ttl)
        if not callable(function):
            raise StateDeclarationError(
                f"reducing state {name!r} needs a function of two values, got {function!r}",
                state=name,
                option="function",
            )
        object.__setattr__(self, "function", function)


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class AggregatingStateDescriptor(StateDescriptor):
    """An `AggregatingState`: values folded by `function` into an accumulator of `accumulator_type`."""

    kind: ClassVar[str] = "aggregating"

    function: AggregateFunction[Any, Any, Any]

    def __init__(
        self,
        name: str,
        function: AggregateFunction[Any, Any, Any],
        accumulator_type: Any,
        *,
        ttl: TtlConfig | Duration | None = None,
    ) -> None:
        self._declare(name, accumulator_type, ttl)
        if not isinstance(function, AggregateFunction):
            raise StateDeclarationError(
                f"aggregating state {name!r} needs an AggregateFunction "
                f"(create_accumulator, add, get_result, merge), got {function!r}",
                state=name,
            )
        object.__setattr__(self, "function", function)
