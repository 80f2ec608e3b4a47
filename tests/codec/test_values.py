"""Values that are refused before commit, with the place; and the corners of those that are not."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import math
import zoneinfo
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest

from emberstate.codec import codec_for, key_codec_for
from emberstate.errors import StateTypeError
from tests.codec.typed_values import Level, Mood, Shade, canon
from tests.raising import raising

UTC = datetime.UTC


class Text(str):
    pass


@dataclasses.dataclass
class Item:
    price: int
    name: str = ""


@dataclasses.dataclass
class SpecialItem(Item):
    pass


@dataclasses.dataclass
class Order:
    items: list[Item]
    notes: dict[str, float | None] = dataclasses.field(default_factory=dict)


class Row(NamedTuple):
    a: int
    b: str


class Bag(TypedDict):
    a: int
    b: NotRequired[str]


class Box(msgspec.Struct, dict=True):
    a: int


def _extra() -> Item:
    item = Item(1)
    item.note = "x"  # type: ignore[attr-defined]
    return item


def _deleted() -> Item:
    item = Item(1, "a")
    del item.name
    return item


def _swapped() -> Item:
    item = _deleted()
    item.note = "x"  # type: ignore[attr-defined]
    return item


def _extra_struct() -> Box:
    box = Box(1)
    box.b = 2  # type: ignore[attr-defined]
    return box


def _order(price: Any) -> Order:
    return Order([Item(1), Item(2), Item(3), Item(price)])


BERLIN = datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
REFUSED: list[tuple[Any, Any, str]] = [
    (Order, _order("5"), "$.items[3].price: expected int, got str ('5')"),
    (Order, _order(True), "$.items[3].price: expected int, got bool (True)"),
    (Order, Order([], {"x": 1}), "$.notes['x']: expected float | None, got int (1)"),
    (
        Order,
        Order([SpecialItem(1)]),
        "$.items[0]: expected Item, got SpecialItem: a subclass would come back as Item",
    ),
    (Order, Order((Item(1),)), "$.items: expected list[Item], got tuple"),  # type: ignore[arg-type]
    (int, True, "$: expected int, got bool"),
    (int, 1.0, "$: expected int, got float"),
    (int, Level.LOW, "$: expected int, got Level"),
    (int, 2**63, "does not fit in 64 bits; declare it as str or Decimal"),
    (int, -(2**63) - 1, "does not fit in 64 bits"),
    (int, 10**5000, "does not fit in 64 bits"),
    (list[int], [1, 2**63], "$[1]: int does not fit"),
    (list[int], [1, 2**64], "$[1]: int does not fit"),
    (dict[str, int], {"a": 2**63}, "$['a']: int does not fit"),
    (dict[int, int], {2**63: 1}, "int does not fit"),
    (list[int], [1, True], "$[1]: expected int, got bool (True)"),
    (list[int], [None], "$[0]: expected int, got None"),
    (float, 1, "$: expected float, got int (1): write 1.0"),
    (str, Text("x"), "a subclass would come back as str"),
    (str, Mood.CALM, "$: expected str, got Mood"),
    (str, "a\ud800", "lone surrogate"),
    (list[str], ["ok", "\udfff"], "$[1]: str has a lone surrogate"),
    (dict[str, int], {"\ud800": 1}, "lone surrogate"),
    (bytes, bytearray(b"x"), "$: expected bytes, got bytearray"),
    (bool, 1, "$: expected bool, got int"),
    (int | None, "x", "$: expected int | None, got str"),
    (datetime.datetime, BERLIN, ".astimezone(timezone.utc)"),
    (
        datetime.datetime,
        datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
        ".astimezone(timezone.utc)",
    ),
    (datetime.datetime, datetime.datetime(2024, 1, 1, fold=1), "fold=1"),
    (datetime.datetime, datetime.date(2024, 1, 1), "expected datetime, got date"),
    (datetime.date, datetime.datetime(2024, 1, 1), "a subclass would come back as date"),
    (datetime.time, datetime.time(1, tzinfo=UTC), "time must be naive"),
    (datetime.time, datetime.time(1, fold=1), "fold=1"),
    (decimal.Decimal, decimal.Decimal("NaN"), "must be finite"),
    (decimal.Decimal, decimal.Decimal("sNaN"), "must be finite"),
    (decimal.Decimal, decimal.Decimal("-Infinity"), "must be finite"),
    (Shade, "LIGHT", "$: expected Shade, got str"),
    (Literal["a", 1], True, "got bool"),
    (Literal["a", 1], "b", "expected Literal['a', 1], got str ('b')"),
    (tuple[int, str], (1, "a", 2), "got a tuple of 3"),
    (tuple[int, ...], [1], "got list"),
    (tuple[int, str], Row(1, "a"), "got Row"),
    (Row, (1, "a"), "$: expected Row, got tuple"),
    (Row, Row(1, 2), "$.b: expected str, got int (2)"),  # type: ignore[arg-type]
    (Bag, {"b": "x"}, "$.a: missing"),
    (Bag, {"a": 1, "c": 2}, "has no key 'c'"),
    (Bag, {"a": 1, "b": 2}, "$.b: expected str"),
    (Bag, {Text("a"): 1}, "has no key 'a'"),
    (Item, _extra(), "$.note: is no field of Item and would be lost"),
    (Item, _deleted(), "$.name: the field was deleted"),
    (Item, _swapped(), "$.note: is no field of Item"),
    (Box, _extra_struct(), "$.b: is no field of Box"),
    (set[float], {math.nan}, "a key cannot be NaN"),
    (dict[float, int], {-0.0: 1}, "a key cannot be -0.0 (add 0.0 to it)"),
    (set[int], {1, True + 1, "a"}, "expected int, got str"),
    (frozenset[int], {1}, "expected frozenset[int], got set"),
    (dict[str, int], functools.reduce(lambda d, k: d, [0], type("D", (dict,), {})()), "got D"),
]


@pytest.mark.parametrize(("type_", "value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_the_place(type_: Any, value: Any, message: str) -> None:
    """Would catch a value that is written and comes back as something else."""
    codec = codec_for(type_)
    with pytest.raises(StateTypeError) as caught:
        codec.encode(value)
    assert message in str(caught.value)
    with pytest.raises(StateTypeError) as caught:
        codec.check_deep(value)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, -0.0])
def test_float_keys(value: float) -> None:
    """NaN is never found again, and -0.0 is equal to 0.0 with other bytes: neither can be a key."""
    codec = key_codec_for(tuple[str, float])
    for method in (codec.check_deep, codec.encode):
        with raising(StateTypeError, field="$[1]"):
            method(("a", value))


def test_check_looks_at_the_outer_type_only() -> None:
    """`check` runs at every put: a deep look would make each one cost what the value holds."""
    codec_for(list[int]).check(["wrong inside"])
    codec_for(Order).check(_order("wrong inside"))
    for type_, value in [
        (list[int], (1,)),
        (int, True),
        (float, 1),
        (Item, SpecialItem(1)),
        (int | None, "x"),
    ]:
        with raising(StateTypeError, field="$"):
            codec_for(type_).check(value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (float, math.nan),
        (float, -0.0),
        (float, math.inf),
        (int, 2**63 - 1),
        (int, -(2**63)),
        (list[int], [2**63 - 1, -(2**63), 2**32, 0xCF]),
        (str, "\x00\U0010ffff"),
        (datetime.datetime, datetime.datetime.max),
        (datetime.datetime, datetime.datetime.min.replace(tzinfo=UTC)),
        (datetime.datetime, datetime.datetime.max.replace(tzinfo=UTC)),
        (datetime.timedelta, datetime.timedelta.min),
        (datetime.timedelta, datetime.timedelta.max),
        (datetime.timedelta, -datetime.timedelta(microseconds=1)),
        (decimal.Decimal, decimal.Decimal("1.10")),
        (decimal.Decimal, decimal.Decimal("-0")),
        (decimal.Decimal, decimal.Decimal("1E+999999")),
        (decimal.Decimal, decimal.Decimal("0E-30")),
        (int | float | bool | None, True),
        (int | float | bool | None, 1.0),
        (int | decimal.Decimal, decimal.Decimal(1)),
        (Literal["a"] | list[int], [1]),
        (Level | int, Level.LOW),
        (dict[Shade, set[Level]], {Shade.DARK: {Level.LOW}, Shade.LIGHT: set()}),
        (dict[tuple[int, Mood], list[Row]], {(1, Mood.CALM): [Row(1, "x")]}),
        (Annotated[int, msgspec.Meta(ge=0)], -1),
        (Bag | None, {"a": 1}),
        (tuple[()], ()),
    ],
)
def test_corners(type_: Any, value: Any) -> None:
    """Would catch the corners that random values rarely reach."""
    codec = codec_for(type_)
    assert canon(codec.decode(codec.encode(value))) == canon(value)


class Colour(enum.Enum):
    RED = enum.auto()
    SCARLET = RED


def test_enum_is_written_by_name() -> None:
    """Values of auto() shift when a member is put between others: by value, old state would change colour."""
    assert codec_for(Colour).encode(Colour.SCARLET) == b"\xa3RED"
    assert codec_for(Colour).decode(b"\xa7SCARLET") is Colour.RED, "an alias keeps an old name readable"


@dataclasses.dataclass
class Hooked:
    x: int
    seen: int = dataclasses.field(init=False, default=0)
    start: dataclasses.InitVar[int] = 0

    def __post_init__(self, start: int) -> None:
        self.seen += 1 + start


def test_restoring_runs_no_post_init() -> None:
    """A hook that runs again on restore would change what was stored."""
    value = Hooked(1, 5)
    value.x = 7
    restored = codec_for(list[Hooked]).decode(codec_for(list[Hooked]).encode([value]))[0]
    assert (restored.x, restored.seen) == (7, 6)
    copy = codec_for(Hooked).copy(value)
    assert (copy.x, copy.seen) == (7, 6)


@dataclasses.dataclass(frozen=True)
class Cached:
    x: int

    @functools.cached_property
    def double(self) -> list[int]:
        return [self.x * 2]


def test_cached_properties_are_not_state() -> None:
    """A cache is no undeclared attribute: refusing it would refuse a value because it was looked at."""
    value = Cached(2)
    assert value.double == [4]
    restored = codec_for(Cached).decode(codec_for(Cached).encode(value))
    assert restored == value and "double" not in vars(restored)


class Camel(msgspec.Struct, rename="camel", omit_defaults=True, array_like=True, forbid_unknown_fields=True):
    first_name: str = ""
    age: int = 3


def test_struct_options_do_not_reach_the_bytes() -> None:
    """Omitted defaults would change with the code, positions and renames defeat matching by field name."""
    assert codec_for(Camel).encode(Camel()) == b"\x82\xaafirst_name\xa0\xa3age\x03"


class Base(msgspec.Struct, tag=True):
    x: int


class Other(msgspec.Struct, tag="o"):
    shade: Shade


@pytest.mark.parametrize("value", [Base(1), Other(Shade.DARK), None])
def test_tagged_unions(value: Any) -> None:
    """Two Structs with tags stand in one union, also if one of them has to be rebuilt."""
    codec = codec_for(list[Base | Other | None])
    assert canon(codec.decode(codec.encode([value]))) == canon([value])
