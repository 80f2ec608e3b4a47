"""What becomes of stored values when their type changes: the table of verdicts, each carried out as well."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import Mapping
from types import GenericAlias
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.codec import TypeSchema, codec_for, compare, decoder_for, key_codec_for
from emberstate.errors import CodecError, StateDeclarationError
from tests.codec.typed_values import Shade, canon, cases
from tests.effort import examples
from tests.raising import raising


def _fresh() -> list[int]:
    return []


class V1:
    """The types as they were."""

    @dataclasses.dataclass
    class Order:
        id: int
        amount: float
        note: str = ""

    @dataclasses.dataclass
    class Customer:
        mail: str
        orders: list[V1.Order]
        by_day: dict[str, V1.Order | None] = dataclasses.field(default_factory=dict)

    @dataclasses.dataclass(frozen=True)
    class Key:
        a: int
        b: int = 0

    class Row(NamedTuple):
        low: int
        high: int

    class Bag(TypedDict):
        a: int
        b: NotRequired[str]

    class Box(msgspec.Struct):
        a: int
        b: str = "x"

    class Cat(msgspec.Struct, tag="cat"):
        a: int

    class Dog(msgspec.Struct, tag="dog"):
        a: int

    class Shade(enum.Enum):
        LIGHT = 1
        DARK = 2


class V2:
    """The same types, later."""

    @dataclasses.dataclass
    class Purchase:  # renamed and moved, its fields in another order
        note: str
        amount: float
        id: int

    @dataclasses.dataclass
    class Added:
        id: int
        amount: float
        note: str = ""
        extra: int = 7
        more: list[int] = dataclasses.field(default_factory=_fresh)

    @dataclasses.dataclass
    class AddedBare:
        id: int
        amount: float
        note: str
        extra: int

    @dataclasses.dataclass
    class AddedWrong:
        id: int
        amount: float
        note: str = ""
        extra: int = None  # type: ignore[assignment]

    @dataclasses.dataclass
    class Removed:
        id: int

    @dataclasses.dataclass
    class Renamed:
        id: int
        total: float
        note: str = ""

    @dataclasses.dataclass
    class RenamedDefault:
        id: int
        total: float = 0.0
        note: str = ""

    @dataclasses.dataclass
    class Retyped:
        id: int
        amount: int
        note: str = ""

    @dataclasses.dataclass
    class Widened:
        id: int | None
        amount: float | None
        note: str = ""

    @dataclasses.dataclass
    class Hooked:
        id: int
        amount: float
        note: str = ""
        seen: int = 3

        def __post_init__(self) -> None:
            raise AssertionError("a migrated object must not be initialised")

    @dataclasses.dataclass
    class Client:
        email: str
        orders: list[V2.Renamed]
        by_day: dict[str, V2.Renamed | None]

    @dataclasses.dataclass(frozen=True)
    class Key:
        a: int

    @dataclasses.dataclass(frozen=True)
    class BiggerKey:
        a: int
        b: int = 0
        c: str = "c"

    class Row(NamedTuple):
        high: int
        low: int

    class WiderRow(NamedTuple):
        middle: int | None
        high: int
        low: int = 0

    class AddedRow(NamedTuple):
        high: int
        low: int
        step: int = 1

    class Bag(TypedDict):
        a: int
        b: NotRequired[str]
        c: NotRequired[int]

    class RequiredBag(TypedDict):
        a: int
        b: NotRequired[str]
        c: int

    class StrictBag(TypedDict):
        a: int
        b: str

    class LooseBag(TypedDict):
        a: NotRequired[int]

    class Box(msgspec.Struct, frozen=True, rename="upper"):
        b: str = "y"
        c: Shade = Shade.DARK

    class TaggedBox(msgspec.Struct, tag=True):
        a: int
        b: str = "x"

    class Cat(msgspec.Struct, tag="cat"):
        a: int
        b: int = 2

    class Dog(msgspec.Struct, tag="dog"):
        b: int = 3

    class Shade(enum.Enum):
        PALE = 0
        DARK = 1
        LIGHT = 2
        BRIGHT = LIGHT

    class FewerShades(enum.Enum):
        LIGHT = 1

    class AliasShade(enum.Enum):
        BRIGHT = 1
        LIGHT = BRIGHT
        DARK = 2

    class OneShade(enum.Enum):
        LIGHT = 1
        DARK = 1  # noqa: PIE796 - an alias, on purpose


ORDER = V1.Order(1, 2.5, "n")
CUSTOMER = V1.Customer("m@x", [ORDER], {"mon": ORDER, "tue": None})
REFUSED: Any = object()
Row = tuple[Any, Any, Mapping[str, str], str, str, Any, Any]

# old type, new type, renames, verdict, a part of its words, a value, what it becomes
TABLE: list[Row] = [
    (V1.Order, V1.Order, {}, "compatible", "", ORDER, ORDER),
    (V1.Order, V2.Purchase, {}, "compatible", "", ORDER, V2.Purchase("n", 2.5, 1)),
    (V1.Order, V2.Added, {}, "migrates", "added `extra` (default 7)", ORDER, V2.Added(1, 2.5, "n", 7, [])),
    (
        V1.Order,
        V2.Added,
        {},
        "migrates",
        "added `more` (default from _fresh())",
        ORDER,
        V2.Added(1, 2.5, "n"),
    ),
    (V1.Order, V2.AddedBare, {}, "refused", "`extra` was added without a default", ORDER, REFUSED),
    (V1.Order, V2.AddedWrong, {}, "refused", "the default of `extra` does not fit", ORDER, REFUSED),
    (V1.Order, V2.Removed, {}, "migrates", "removed `amount`, removed `note`", ORDER, V2.Removed(1)),
    (
        V1.Order,
        V2.Renamed,
        {"amount": "total"},
        "migrates",
        "renamed `amount` → `total`",
        ORDER,
        V2.Renamed(1, 2.5, "n"),
    ),
    (V1.Order, V2.Renamed, {}, "refused", "`total` was added without a default", ORDER, REFUSED),
    (
        V1.Order,
        V2.RenamedDefault,
        {},
        "migrates",
        "if `amount` became `total`",
        ORDER,
        V2.RenamedDefault(1, 0.0, "n"),
    ),
    (V1.Order, V2.Renamed, {"amuont": "total"}, "refused", "`total` was added without", ORDER, REFUSED),
    (
        V1.Order,
        V1.Order,
        {"amuont": "total"},
        "refused",
        "rename of `amuont` names no stored field",
        ORDER,
        REFUSED,
    ),
    (V1.Order, V1.Order, {"old": "amount"}, "compatible", "", ORDER, ORDER),  # renamed long ago
    (V1.Order, V1.Order, {"amount": "note"}, "refused", "both are stored", ORDER, REFUSED),
    (V1.Order, V1.Order, {"amount": "zip"}, "refused", "which the type does not have", ORDER, REFUSED),
    (V1.Order, V2.Retyped, {}, "refused", "`amount` was float and is now int", ORDER, REFUSED),
    (V1.Order, V2.Widened, {}, "compatible", "`id` may now also be None", ORDER, V2.Widened(1, 2.5, "n")),
    (
        V2.Widened,
        V1.Order,
        {},
        "refused",
        "`id` was int | None and is now int (None is no longer",
        None,
        REFUSED,
    ),
    (V1.Order, V1.Box, {}, "refused", "was V1.Order and is now V1.Box", ORDER, REFUSED),
    (V1.Order, dict[str, int], {}, "refused", "was V1.Order and is now dict[str, int]", ORDER, REFUSED),
    (
        V1.Customer,
        V2.Client,
        {"mail": "email", "orders.amount": "total", "by_day.amount": "by_day.total"},
        "migrates",
        "renamed `orders.amount` → `orders.total`",
        CUSTOMER,
        V2.Client("m@x", [V2.Renamed(1, 2.5, "n")], {"mon": V2.Renamed(1, 2.5, "n"), "tue": None}),
    ),
    (
        V1.Customer,
        V2.Client,
        {"mail": "email"},
        "refused",
        "`orders.total` was added without",
        CUSTOMER,
        REFUSED,
    ),
    (V1.Row, V2.Row, {}, "migrates", "another order", V1.Row(1, 2), V2.Row(2, 1)),
    (V1.Row, V2.AddedRow, {}, "migrates", "added `step` (default 1)", V1.Row(1, 2), V2.AddedRow(2, 1, 1)),
    (V1.Row, V2.WiderRow, {}, "refused", "`middle` was added without", V1.Row(1, 2), REFUSED),
    (V1.Row, tuple[int, int], {}, "refused", "was V1.Row and is now tuple[int, int]", V1.Row(1, 2), REFUSED),
    (V1.Bag, V2.Bag, {}, "migrates", "added `c` (NotRequired)", {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
    (V1.Bag, V2.Bag, {}, "migrates", "added `c`", {"a": 1}, {"a": 1}),
    (
        V1.Bag,
        V2.RequiredBag,
        {},
        "refused",
        "`c` was added to V2.RequiredBag as a required key",
        {"a": 1},
        REFUSED,
    ),
    (V1.Bag, V2.StrictBag, {}, "refused", "`b` was NotRequired and is required now", {"a": 1}, REFUSED),
    (V1.Bag, V2.LooseBag, {}, "migrates", "removed `b`", {"a": 1, "b": "x"}, {"a": 1}),
    (
        V1.Box,
        V2.Box,
        {},
        "migrates",
        "removed `a`, added `c` (default <Shade.DARK",
        V1.Box(1),
        V2.Box("x", Shade.DARK),
    ),
    (V1.Box, V2.TaggedBox, {}, "migrates", "the tag of", V1.Box(1), V2.TaggedBox(1)),
    (V1.Cat | V1.Dog, V2.Dog | V2.Cat, {}, "migrates", "added `b`", V1.Cat(1), V2.Cat(1, 2)),
    (V1.Cat | V1.Dog, V2.Dog | V2.Cat, {}, "migrates", "removed `a`", V1.Dog(1), V2.Dog(3)),
    (
        V1.Cat | V1.Dog,
        V2.Dog | None,
        {},
        "refused",
        "(its tag was 'cat')",
        V1.Cat(1),
        REFUSED,
    ),
    (V1.Cat, V1.Cat | V1.Dog, {}, "compatible", "may now also be", V1.Cat(1), V1.Cat(1)),
    (V1.Order, V2.Hooked, {}, "migrates", "added `seen` (default 3)", ORDER, None),
    (V1.Shade, V2.Shade, {}, "compatible", "gained PALE", V1.Shade.DARK, V2.Shade.DARK),
    (V1.Shade, V2.FewerShades, {}, "refused", "no longer has DARK", V1.Shade.LIGHT, REFUSED),
    (V1.Shade, V2.AliasShade, {}, "compatible", "gained BRIGHT", V1.Shade.LIGHT, V2.AliasShade.BRIGHT),
    (list[V1.Shade], list[V2.OneShade], {}, "compatible", "", [V1.Shade.DARK], [V2.OneShade.LIGHT]),
    (set[V1.Shade], set[V2.OneShade], {}, "refused", "aliases of one another", {V1.Shade.DARK}, REFUSED),
    (V1.Shade, str, {}, "refused", "was V1.Shade and is now str", V1.Shade.LIGHT, REFUSED),
    (Literal["a"], Literal["b", "a"], {}, "compatible", "gained 'b'", "a", "a"),
    (Literal["a", "b"], Literal["a"], {}, "refused", "no longer has 'b'", "a", REFUSED),
    (int, float, {}, "refused", "was int and is now float", 1, REFUSED),
    (int, bool, {}, "refused", "was int and is now bool", 1, REFUSED),
    (int, str, {}, "refused", "was int and is now str", 1, REFUSED),
    (int, int | None, {}, "compatible", "may now also be None", 1, 1),
    (int | None, int, {}, "refused", "None is no longer allowed", 1, REFUSED),
    (int, int | str | None, {}, "compatible", "may now also be str or None", 1, 1),
    (int, int | float, {}, "compatible", "may now also be float", 1, 1),
    (list[int], list[int | None], {}, "compatible", "may now also be None", [1], [1]),
    (list[int], tuple[int, ...], {}, "refused", "was list[int] and is now tuple[int, ...]", [1], REFUSED),
    (list[int], set[int], {}, "refused", "was list[int] and is now set[int]", [1], REFUSED),
    (tuple[int, int], tuple[int, int, int], {}, "refused", "is now tuple[int, int, int]", (1, 2), REFUSED),
    (dict[str, int], dict[int, int], {}, "refused", "was str and is now int", {"a": 1}, REFUSED),
    (
        dict[int, V1.Row],
        dict[int | None, V2.Row],
        {},
        "migrates",
        "another order",
        {1: V1.Row(1, 2)},
        {1: V2.Row(2, 1)},
    ),
    (
        dict[int, int],
        dict[int | None, int],
        {},
        "migrates",
        "may now also be None",
        {2: 1, 1: 5},
        {1: 5, 2: 1},
    ),
    (set[V1.Key], set[V2.Key], {}, "refused", "`b` was removed from a key", {V1.Key(1)}, REFUSED),
    (set[V1.Key], set[V2.BiggerKey], {}, "migrates", "added `c`", {V1.Key(1)}, {V2.BiggerKey(1)}),
    (
        dict[V1.Key, V1.Key],
        dict[V1.Key, V2.Key],
        {},
        "migrates",
        "removed `b`",
        {V1.Key(1): V1.Key(2)},
        {V1.Key(1): V2.Key(2)},
    ),
    (
        frozenset[V1.Row],
        frozenset[V2.Row],
        {},
        "migrates",
        "order",
        frozenset({V1.Row(1, 2)}),
        frozenset({V2.Row(2, 1)}),
    ),
    (tuple[V1.Row, ...], tuple[V2.Row, ...], {}, "migrates", "order", (V1.Row(1, 2),), (V2.Row(2, 1),)),
    (tuple[V1.Row, int], tuple[V2.Row, int], {}, "migrates", "order", (V1.Row(1, 2), 5), (V2.Row(2, 1), 5)),
    (
        list[V1.Row | int],
        list[int | V2.Row | None],
        {},
        "migrates",
        "order",
        [5, V1.Row(1, 2)],
        [5, V2.Row(2, 1)],
    ),
    (datetime.datetime, datetime.date, {}, "refused", "was datetime and is now date", None, REFUSED),
    (decimal.Decimal, float, {}, "refused", "was Decimal and is now float", None, REFUSED),
]


@pytest.mark.parametrize("row", TABLE, ids=range(len(TABLE)))
def test_the_dry_verdict_is_what_a_restore_does(row: Row) -> None:
    """Would catch a verdict that promises what a restore does not keep, or a restore that guesses."""
    old_type, new_type, renames, kind, words, value, expected = row
    old, new = codec_for(old_type), codec_for(new_type)
    stored = TypeSchema.from_json(old.schema.to_json())
    verdict = compare(stored, new, renames)
    assert verdict.kind == kind, verdict
    assert words in str(verdict)
    if expected is REFUSED:
        assert verdict.reason and verdict.what_to_do and not verdict.fields
        with pytest.raises(StateDeclarationError) as caught:
            decoder_for(stored, new, renames)
        assert verdict.reason in str(caught.value) and verdict.what_to_do in str(caught.value)
        return
    restored = decoder_for(stored, new, renames)(old.encode(value))
    new.check_deep(restored)
    if expected is not None:
        assert canon(restored) == canon(expected)
        assert new.same(restored, expected)


def test_defaults_are_not_shared() -> None:
    """A default list in two restored objects must be two lists."""
    decode = decoder_for(codec_for(V1.Order).schema, codec_for(V2.Added))
    data = codec_for(V1.Order).encode(ORDER)
    assert decode(data).more is not decode(data).more


def test_a_key_may_not_lose_a_field() -> None:
    """Two keys of a map would silently become one."""
    assert compare(key_codec_for(V1.Key).schema, key_codec_for(V2.Key)).kind == "refused"
    assert compare(key_codec_for(V1.Key).schema, codec_for(V2.Key)).kind == "migrates"


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x80", b"\x93\x01\x02\x03", b"\x92\x01\xa1a", b"\x91" * 10**6]
)
def test_a_migrating_decoder_refuses_bad_bytes(data: bytes) -> None:
    """The way through an old schema must be as strict as the ordinary one."""
    with pytest.raises(CodecError):
        decoder_for(codec_for(V1.Row).schema, codec_for(V2.Row))(data)


class OldSpan(NamedTuple):
    start: datetime.datetime
    size: int


class NewSpan(NamedTuple):
    size: int
    start: datetime.datetime


@pytest.mark.parametrize(
    ("row", "field"), [(["2020-01-01T00:00:00+05:00", 1], "$.start"), (["2020-01-01T00:00:00Z", 2**63], "$.size")]
)
def test_a_migrating_decoder_takes_only_values_of_the_type(row: list[Any], field: str) -> None:
    """A zone or a 65-bit int that msgspec would take must not come in through an old schema."""
    decode = decoder_for(codec_for(OldSpan).schema, codec_for(NewSpan))
    with raising(CodecError, field=field):
        decode(msgspec.msgpack.encode(row))


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_any_change_of_type_is_refused_or_exact(data: st.DataObject) -> None:
    """Two random types: if values of one are read as the other at all, they are values of the other."""
    case, other = data.draw(cases), data.draw(cases)
    old, new = codec_for(case.type), codec_for(other.type)
    encoded = old.encode(data.draw(case.values))
    if compare(old.schema, new).kind == "refused":
        with pytest.raises(StateDeclarationError):
            decoder_for(old.schema, new)
        return
    new.check_deep(decoder_for(old.schema, new)(encoded))


_POOL = {"a": int, "b": str, "c": float | None, "d": Shade, "e": list[int]}
_VALUES: dict[str, Any] = {"a": 1, "b": "x", "c": 0.5, "d": Shade.LIGHT, "e": [1]}
_DEFAULTS: dict[str, Any] = {"a": 9, "b": "z", "c": None, "d": Shade.DARK, "e": ()}


def _make(kind: str, names: list[str], defaults: bool) -> Any:
    if kind == "namedtuple":
        made: Any = NamedTuple("Row", [(name, _POOL[name]) for name in names])  # type: ignore[misc]
        return made
    make: Any = dataclasses.make_dataclass if kind == "dataclass" else msgspec.defstruct
    fields: list[Any] = [(name, _POOL[name]) for name in names]
    if defaults:
        field: Any = dataclasses.field if kind == "dataclass" else msgspec.field
        given = {name: field(default=value) for name, value in _DEFAULTS.items()}
        given["e"] = field(default_factory=list)
        fields = [(name, type_, given[name]) for name, type_ in fields]
    return make("Item", fields)


@settings(max_examples=examples(120), deadline=None)
@given(
    kind=st.sampled_from(["dataclass", "struct", "namedtuple"]),
    old=st.lists(st.sampled_from(sorted(_POOL)), min_size=1, unique=True),
    new=st.lists(st.sampled_from(sorted(_POOL)), min_size=1, unique=True),
    nested=st.booleans(),
)
def test_random_changes_of_fields(kind: str, old: list[str], new: list[str], nested: bool) -> None:
    """Kept fields keep their values, whatever was added, removed or moved around them; at any depth."""
    before, after = _make(kind, old, False), _make(kind, new, True)
    old_codec = codec_for(GenericAlias(list, before) if nested else before)
    new_codec = codec_for(GenericAlias(list, after) if nested else after)
    value = before(**{name: _VALUES[name] for name in old})
    verdict = compare(old_codec.schema, new_codec)
    if kind == "namedtuple" and set(new) - set(old):
        assert verdict.kind == "refused"
        return
    in_order = [name for name in old if name in new] == new
    same = set(old) == set(new) and (kind != "namedtuple" or in_order)
    assert verdict.kind == ("compatible" if same else "migrates")
    restored = decoder_for(old_codec.schema, new_codec)(old_codec.encode([value] if nested else value))
    restored = restored[0] if nested else restored
    assert type(restored) is after
    for name in new:
        expected = _VALUES[name] if name in old else _DEFAULTS[name] if name != "e" else []
        assert getattr(restored, name) == expected
