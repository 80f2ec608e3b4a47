"""Random types, and values of them: what the property tests of the codecs draw from."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import struct
import typing
import uuid
from collections.abc import Callable
from types import GenericAlias
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
from hypothesis import strategies as st

from emberstate.codec import codec_for
from emberstate.errors import StateDeclarationError


class Shade(enum.Enum):
    LIGHT = enum.auto()
    DARK = enum.auto()
    ODD = (1, "two")


class Mood(enum.StrEnum):
    CALM = "calm"
    WILD = "wild"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Case(NamedTuple):
    """A type, the values it has, and whether they can be hashed."""

    type: Any
    values: st.SearchStrategy[Any]
    hashable: bool


_MICROSECOND = datetime.timedelta(microseconds=1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ints = st.one_of(
    st.integers(-300, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63 - 1, -(2**63)])
)
decimals = st.builds(
    lambda sign, digits, exponent: decimal.Decimal((sign, digits, exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=30).map(tuple),
    st.integers(-40, 40),
)
datetimes = st.one_of(st.datetimes(), st.datetimes(timezones=st.just(datetime.UTC))).map(
    lambda d: d.replace(fold=0)
)
deltas = st.integers(datetime.timedelta.min // _MICROSECOND, datetime.timedelta.max // _MICROSECOND).map(
    lambda n: n * _MICROSECOND
)

_LEAVES: list[Case] = [
    Case(bool, st.booleans(), True),
    Case(int, ints, True),
    Case(str, text, True),
    Case(bytes, st.binary(max_size=8), True),
    Case(datetime.datetime, datetimes, True),
    Case(datetime.date, st.dates(), True),
    Case(datetime.time, st.times().map(lambda t: t.replace(fold=0)), True),
    Case(datetime.timedelta, deltas, True),
    Case(decimal.Decimal, decimals, True),
    Case(uuid.UUID, st.uuids(), True),
    Case(Shade, st.sampled_from(Shade), True),
    Case(Mood, st.sampled_from(Mood), True),
    Case(Level, st.sampled_from(Level), True),
    Case(Literal["a", "b", 7], st.sampled_from(["a", "b", 7]), True),
    Case(typing.NewType("Age", int), ints, True),
    Case(typing.Annotated[int, msgspec.Meta(ge=0)], ints, True),
]
_KEY_FLOATS = Case(float, st.floats(allow_nan=False).map(lambda x: x + 0.0), True)
_FLOATS = Case(float, st.floats(), False)  # NaN and -0.0 included: values, but not keys
leaves: st.SearchStrategy[Case] = st.sampled_from([*_LEAVES, _KEY_FLOATS, _FLOATS])
_names = st.lists(
    st.sampled_from(["a", "b", "_c", "total", "Größe", "x1", "keys", "v", "o"]),
    min_size=1,
    max_size=4,
    unique=True,
)


def _sequence(case: Case) -> list[Case]:
    items = st.lists(case.values, max_size=4)
    found = [
        Case(GenericAlias(list, case.type), items, False),
        Case(GenericAlias(tuple, (case.type, ...)), items.map(tuple), case.hashable),
        Case(case.type | None, st.none() | case.values, case.hashable),
        Case(GenericAlias(dict, (str, case.type)), st.dictionaries(text, case.values, max_size=4), False),
    ]
    if case.hashable:
        found += [
            Case(GenericAlias(set, case.type), items.map(set), False),
            Case(GenericAlias(frozenset, case.type), items.map(frozenset), True),
        ]
    return found


def _pair(one: Case, other: Case) -> list[Case]:
    values = st.tuples(one.values, other.values)
    found = [Case(GenericAlias(tuple, (one.type, other.type)), values, one.hashable and other.hashable)]
    if one.hashable:
        pairs = st.lists(values, max_size=4).map(dict)
        found.append(Case(GenericAlias(dict, (one.type, other.type)), pairs, False))
    union = one.type | other.type
    try:
        codec_for(union)
    except StateDeclarationError:
        return found
    return [*found, Case(union, one.values | other.values, one.hashable and other.hashable)]


def _record(names: list[str], parts: list[Case], flag: bool, kind: str) -> Case:
    """A class with named fields; `flag` chooses the frozen, slotted or otherwise special variant."""
    parts = (parts * len(names))[: len(names)]
    hashable = all(part.hashable for part in parts)
    fields = list(zip(names, [part.type for part in parts], strict=True))
    made: Any
    namedtuple: Any = NamedTuple
    typeddict: Any = TypedDict
    if kind == "namedtuple":
        names = [f"f{name}" for name in names]  # a NamedTuple takes no leading underscore
        made = namedtuple("Row", list(zip(names, [part.type for part in parts], strict=True)))
    elif kind == "typeddict":
        hints = {name: NotRequired[hint] if flag else hint for name, hint in fields}
        made = typeddict("Bag", hints)
        chosen = {name: part.values for name, part in zip(names, parts, strict=True)}
        values = st.fixed_dictionaries({}, optional=chosen) if flag else st.fixed_dictionaries(chosen)
        return Case(made, values.map(lambda d: dict(reversed(d.items()))), False)
    elif kind == "struct":
        made = msgspec.defstruct("Box", fields, frozen=flag, tag="box" if flag else None)
    elif kind == "odd struct":
        made = msgspec.defstruct(
            "Box", fields, frozen=flag, rename="upper", omit_defaults=True, array_like=flag
        )
    elif kind == "post":
        made = dataclasses.make_dataclass(
            "Post", fields, slots=flag, namespace={"__post_init__": _explode_later}
        )
    else:
        made = dataclasses.make_dataclass("Item", fields, frozen=flag, slots=len(names) > 2)
    hashable = hashable and (flag or kind == "namedtuple") and kind != "post"
    make = _without_post_init(made) if kind == "post" else made
    return Case(made, st.tuples(*(part.values for part in parts)).map(lambda row: make(*row)), hashable)


def _explode_later(self: Any) -> None:
    raise AssertionError("a restored object must not be initialised again")


def _without_post_init(cls: Any) -> Callable[..., Any]:
    def make(*row: Any) -> Any:
        made = object.__new__(cls)
        for field, value in zip(dataclasses.fields(cls), row, strict=True):
            setattr(made, field.name, value)
        return made

    return make


def _grow(children: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    kinds = st.sampled_from(["dataclass", "namedtuple", "typeddict", "struct", "odd struct", "post"])
    records = st.builds(_record, _names, st.lists(children, min_size=1, max_size=3), st.booleans(), kinds)
    return st.one_of(
        children.flatmap(lambda case: st.sampled_from(_sequence(case))),
        st.tuples(children, children).flatmap(lambda pair: st.sampled_from(_pair(*pair))),
        records,
    )


cases: st.SearchStrategy[Case] = st.recursive(leaves, _grow, max_leaves=5)


def canon(value: Any) -> Any:
    """A value with its exact classes at every depth: sets and dicts in one order, floats by their bits."""
    name = type(value).__name__
    if isinstance(value, enum.Enum):
        return (name, value.name)
    if isinstance(value, float):
        return (name, struct.pack(">d", value).hex())
    if isinstance(value, decimal.Decimal):
        return (name, str(value))
    if isinstance(value, (datetime.datetime, datetime.time)):
        return (name, repr(value), value.fold)
    if isinstance(value, dict):
        return (name, sorted(((canon(k), canon(v)) for k, v in value.items()), key=repr))
    if isinstance(value, (set, frozenset)):
        return (name, sorted(map(canon, value), key=repr))
    if isinstance(value, (list, tuple)):
        return (name, [canon(item) for item in value])
    if isinstance(value, msgspec.Struct):
        return (name, [(field, canon(getattr(value, field))) for field in value.__struct_fields__])
    if dataclasses.is_dataclass(value):
        return (
            name,
            [(field.name, canon(getattr(value, field.name))) for field in dataclasses.fields(value)],
        )
    return (name, repr(value))
