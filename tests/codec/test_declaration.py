"""Types that are refused at declaration, each with the way out; and what is known of those that are not."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import typing
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest

from emberstate.codec import codec_for, key_codec_for
from emberstate.errors import StateDeclarationError
from tests.raising import raising

T = TypeVar("T")


class Plain:
    pass


class Text(str):
    pass


class Empty(enum.Enum):
    pass


class Bits(enum.Flag):
    A = 1


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Child(Point):
    pass


@dataclasses.dataclass
class Tree:
    children: list[Tree]


@dataclasses.dataclass
class Generical(Generic[T]):
    x: T


@dataclasses.dataclass
class Untyped:
    x: Any


@dataclasses.dataclass
class Missing:
    x: NoSuchType  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class AlsoDict(dict[str, int]):
    x: int


class Slotted:
    __slots__ = ("hidden",)


@dataclasses.dataclass
class WithSlot(Slotted):
    x: int


class Row(NamedTuple):
    a: int


class MoreRow(Row):
    pass


Bare = collections.namedtuple("Bare", "a b")


class Hooked(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        self.x += 1


class Unset(msgspec.Struct):
    x: int | msgspec.UnsetType = msgspec.UNSET


class Cat(msgspec.Struct, tag=True):
    x: int


class Dog(msgspec.Struct, tag=True):
    x: int


class Fish(msgspec.Struct):
    x: int


REFUSED: list[tuple[Any, str, str]] = [
    (Any, "Any cannot be held", "declare the type that is stored"),
    (object, "object cannot be held", "declare the type that is stored"),
    (None, "None alone", "Optional"),
    (list, "list cannot be held", "list[int]"),
    (dict, "dict cannot be held", "dict[str, int]"),
    (set, "set cannot be held", "set[int]"),
    (frozenset, "frozenset cannot be held", "frozenset[int]"),
    (tuple, "tuple cannot be held", "tuple[int, ...]"),
    (typing.List, "list cannot be held", "list[int]"),  # noqa: UP006
    (list[Any], "value[]: Any", "declare the type"),
    (list[None], "value[]: None alone", "Optional"),
    (dict[str, object], "object", "declare the type"),
    (complex, "complex", "tuple[float, float]"),
    (bytearray, "bytearray", "use bytes"),
    (memoryview, "memoryview", "use bytes"),
    (range, "range", "tuple[int, int]"),
    (collections.defaultdict[str, int], "defaultdict", "setdefault"),
    (collections.OrderedDict[str, int], "OrderedDict", "dict[K, V]"),
    (collections.Counter[str], "Counter", "dict[K, int]"),
    (collections.deque[int], "deque", "list[T]"),
    (collections.deque, "deque", "list[T]"),
    (fractions.Fraction, "Fraction", "Decimal"),
    (pathlib.Path, "Path", "str(path)"),
    (re.Pattern, "Pattern", "as a str"),
    (datetime.tzinfo, "tzinfo", "zone's name"),
    (Callable[[int], int], "Callable", "keep functions in the code"),
    (Generator[int, None, None], "Generator", "list[T]"),
    (Iterable[int], "Iterable", "list[T]"),
    (Sequence[int], "Sequence", "list[T]"),
    (Mapping[str, int], "Mapping", "dict[K, V]"),
    (ValueError, "ValueError", "str(error)"),
    (tuple[int, *tuple[str, ...]], "unpacks another tuple", "tuple[T, ...]"),
    (Plain, "Plain", "make it a dataclass"),
    (Text, "Text", "use str itself"),
    ("int", "int", "not its name"),
    (T, "~T is not a concrete type", "put the type itself"),
    (Empty, "no members", "with members"),
    (Bits, "Flag", "frozenset[Enum]"),
    (Child, "undecorated subclass", "@dataclass"),
    (Tree, "contains itself", "flat dict"),
    (Generical[int], "generic class", "without type parameters"),
    (Generical, "type parameters", "without them"),
    (Untyped, "(Untyped).x: Any", "declare the type"),
    (Missing, "NoSuchType", "module level"),
    (AlsoDict, "also a dict", "plain fields"),
    (WithSlot, "slot 'hidden'", "make it a field"),
    (MoreRow, "subclass of a NamedTuple", "use the NamedTuple"),
    (Bare, "no types", "typing.NamedTuple"),
    (Hooked, "__post_init__", "dataclass"),
    (Unset, "UnsetType", "make it a dataclass"),
    (msgspec.Raw, "Raw", ""),
    (int | datetime.datetime | str, "datetime | str look the same", "one Optional field for each"),
    (str | bytes, "str | bytes look the same", "use one of the two"),
    (decimal.Decimal | uuid.UUID, "look the same", "use one of the two"),
    (list[int] | set[int], "look the same", "one Optional field for each"),
    (Point | Fish, "look the same", "tag=True"),
    (Cat | Fish, "look the same", "tag=True"),
    (Point | dict[str, int], "look the same", "one Optional field for each"),
    (dict[str, int] | dict[Literal["a", 7], bytes], "same Python class", "one Optional field for each"),
    (typing.Union[Any, None], "Any", "declare the type"),  # noqa: UP007
    (Literal[True], "Literal[True]", "use bool"),
    (Literal[b"x"], "Literal[b'x']", "bytes"),
    (Literal[2**70], "64 bits", "str"),
    (Literal[None], "holds nothing", "Optional"),
    (dict[list[int], int], "value.key: list[int] can change", "tuple[T, ...]"),
    (set[Point], "Point can change", "frozen=True"),
    (set[tuple[set[int], int]], "set[int] can change", "frozenset"),
    (Annotated[list, "x"], "list", "list[int]"),
]


@pytest.mark.parametrize(("type_", "what", "way_out"), REFUSED, ids=lambda case: str(case)[:40])
def test_refused_with_the_way_out(type_: Any, what: str, way_out: str) -> None:
    """Would catch a type that is accepted and only found out at restore, or refused without help."""
    with pytest.raises(StateDeclarationError) as caught:
        codec_for(type_)
    message = str(caught.value)
    assert str(caught.value.field).startswith("value")
    assert what in message and way_out in message.partition(";")[2], message


def test_where_is_named() -> None:
    """A declaration has many types: the message must say which one."""
    with raising(StateDeclarationError, field="state 'seen' (Untyped).x"):
        codec_for(Untyped, where="state 'seen'")


@dataclasses.dataclass(frozen=True)
class FrozenPoint:
    x: int


@dataclasses.dataclass(frozen=True)
class FrozenList:
    x: list[int]


@dataclasses.dataclass(frozen=True, eq=False)
class ByIdentity:
    x: int


@dataclasses.dataclass(frozen=True)
class Half:
    x: int
    y: int = dataclasses.field(compare=False)


class FrozenStruct(msgspec.Struct, frozen=True):
    x: int


class IdentityStruct(msgspec.Struct, frozen=True, eq=False):
    x: int


class Rows(NamedTuple):
    a: list[int]


class Bag(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("type_", "immutable"),
    [
        (int, True),
        (datetime.datetime, True),
        (Number, True),
        (tuple[int, ...], True),
        (tuple[()], True),
        (tuple[list[int]], False),
        (tuple[list[int], ...], False),
        (frozenset[int], True),
        (set[int], False),
        (Row, True),
        (Rows, False),
        (Bag, False),
        (Point, False),
        (FrozenPoint, True),
        (FrozenList, False),
        (FrozenStruct, True),
        (Fish, False),
        (int | None, True),
        (list[int] | None, False),
        (Literal["a", None], True),
    ],
)
def test_immutable_is_exact(type_: Any, immutable: bool) -> None:
    """Too wide and a snapshot changes under its reader; too narrow and every read copies."""
    assert codec_for(type_).immutable is immutable


@pytest.mark.parametrize(
    ("type_", "what", "way_out"),
    [
        (list[int], "list[int] can change", "tuple[T, ...]"),
        (dict[str, int], "dict[str, int] can change", "frozen dataclass"),
        (set[int], "set[int] can change", "frozenset"),
        (Point, "Point can change", "frozen=True"),
        (FrozenList, "list[int] can change", "tuple[T, ...]"),
        (Fish, "Fish can change", "frozen=True"),
        (Bag, "Bag can change", "frozen dataclass"),
        (ByIdentity, "eq=False", "eq=True"),
        (IdentityStruct, "eq=False", "eq=True"),
        (Half, "Half.y is not compared", "defaults"),
        (decimal.Decimal, "Decimal cannot be a key", "cents"),
        (tuple[str, decimal.Decimal], "Decimal cannot be a key", "cents"),
        (int | float, "int | float cannot be a key", "one of them"),
        (bool | int | None, "bool | int cannot be a key", "one of them"),
        (Number | int, "Number | int cannot be a key", "one of them"),
    ],
)
def test_keys_that_could_be_lost_are_refused(type_: Any, what: str, way_out: str) -> None:
    """Would catch a key that Python and its bytes see differently: found in one backend, lost in another."""
    with pytest.raises(StateDeclarationError) as caught:
        key_codec_for(type_)
    assert what in str(caught.value) and way_out in str(caught.value)


@pytest.mark.parametrize(
    "type_", [int, str, float, Row, FrozenPoint, FrozenStruct, Number, frozenset[str], int | str]
)
def test_keys_that_serve(type_: Any) -> None:
    """Would catch a rule for keys that refuses too much."""
    codec = key_codec_for(type_)
    assert codec.immutable and codec.is_key
