"""Plain values to typed ones: what `arrow_values` takes apart is put together again, and nothing else is."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.offline.typed_values import typed_maker
from emberstate.checkpoint.read.arrow_values import ColumnProfile, plain_decoder
from emberstate.codec import codec_for, pickle_codec
from emberstate.codec.nodes import Node
from emberstate.errors import StateDeclarationError, StateTypeError
from tests.codec.typed_values import canon, cases
from tests.effort import examples
from tests.raising import raising


def may_lose_none(node: Node) -> bool:
    """Whether a TypedDict's field can be None and can be missing, which a column does not tell apart."""
    return any(
        part.kind == "typeddict" and not field.required and any(item.kind == "none" for item in field.node.items)
        for part in node.walk()
        for field in part.fields
    )


@settings(max_examples=examples(200))
@given(data=st.data())
def test_every_value_comes_back_from_its_plain_form(data: st.DataObject) -> None:
    """Catches: a type whose state can be exported and not be written again, or comes back changed."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    assert codec.node is not None
    assume(not may_lose_none(codec.node))
    make = typed_maker(codec, "it")
    profile = ColumnProfile()
    decode = plain_decoder(codec.schema, {}, profile)
    for value in data.draw(st.lists(case.values, min_size=1, max_size=4)):
        encoded = codec.encode(value)
        plain = decode(encoded)
        if plain is None:
            assert value is None
        made = make(plain)
        assert canon(made) == canon(value)
        assert codec.encode(made) == encoded


class Place(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Card:
    name: str
    place: Place
    limit: decimal.Decimal | None = None


class Bag(TypedDict):
    n: int
    note: NotRequired[str]


@pytest.mark.parametrize(
    ("type_", "plain", "value"),
    [
        (float, 3, 3.0),
        (Card, {"name": "a", "place": (1, 2), "limit": "1.50"}, None),
        (Card, {"name": "a", "place": {"x": 1}, "limit": None}, None),
        (Bag, {"n": 1, "note": None}, {"n": 1}),
        (tuple[int, str], {"_0": 1, "_1": "a"}, (1, "a")),
        (set[int], (1, 2, 1), {1, 2}),
        (datetime.datetime, "2026-01-31T12:00:00", datetime.datetime(2026, 1, 31, 12)),
        (Literal["a", 7], msgspec.msgpack.encode(7), 7),
        (int | str | None, msgspec.msgpack.encode("a"), "a"),
        (int | str | None, None, None),
    ],
)
def test_other_plain_forms(type_: Any, plain: Any, value: Any) -> None:
    """Catches: a form that tables have, such as an int in a column for floats, refused or taken wrongly."""
    make = typed_maker(codec_for(type_), "it")
    if type_ is Card:
        with raising(StateTypeError, r"\['x', 'y'\]", expected="Card"):
            make(plain)
        full = {**plain, "place": Place(1, 2)}
        assert make(full).place == Place(1, 2)
    else:
        assert make(plain) == value
        assert type(make(plain)) is type(value)


@pytest.mark.parametrize(
    ("type_", "plain", "said"),
    [
        (int, "7", "`str`"),
        (int, None, "None"),
        (int, 2**64, "18446744073709551616"),
        (str, 7, "7"),
        (list[int], "abc", "a list"),
        (list[int], [1, None], r"\$\[1\]"),
        (dict[str, int], [1], "dict"),
        (tuple[int, str], (1,), "2 parts"),
        (Bag, {"note": "a", "m": 2}, r"\['n'\], unknown \['m'\]"),
        (Place, "ab", r"\['x', 'y'\]"),
        (int | str, 5, "encoded int"),
        (Literal["a"], "b", "'b'"),
        (decimal.Decimal, "NaN-", "Decimal"),
    ],
)
def test_what_is_no_such_value_is_refused(type_: Any, plain: Any, said: str) -> None:
    """Catches: a wrong value that is converted, or an error that does not say what was expected and found."""
    codec = codec_for(type_)
    with raising(StateTypeError, said, expected=codec.schema.label, found=repr(plain)):
        typed_maker(codec, "it")(plain)


def test_nothing_is_unpickled() -> None:
    """Catches: bytes of a table that run code because a state is pickled."""
    with raising(StateDeclarationError, found="pickled"):
        typed_maker(pickle_codec(Card), "state 'x'")
