"""Rows as a user's class: made of columns as the class makes them, and refused where they do not fit."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import pickle
from typing import Annotated, Any, NamedTuple, NewType

import msgspec
import pyarrow as pa
import pytest

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.rows.row import Row, RowType
from emberstate.runtime.rows.row_batches import make_rows
from emberstate.runtime.rows.row_shape import RowShape
from tests.raising import raising
from tests.runtime.rows import typed_rows

INPUT = RowType.of("shop string, amount double, card string")
CardId = NewType("CardId", str)


@pytest.mark.parametrize("row_class", typed_rows.ALL)
def test_rows_are_what_the_class_makes(row_class: Any) -> None:
    """Catches: a row whose `__post_init__`, `__init__` or `__new__` was passed over, fields in the order of the input,
    a leaked or freed value, or a shape that a pickle does not bring back."""
    shape = RowShape.of_class(row_class, INPUT, "here")
    cards = [f"card {n}" for n in range(200)]
    columns: list[list[Any]] = [cards, [None if n % 3 else n / 2 for n in range(200)]]

    for one in (shape, pickle.loads(pickle.dumps(shape))):
        assert one.columns == ("card", "amount")
        rows = make_rows(one.maker, columns, 200)
        assert rows == [row_class(card=card, amount=amount) for card, amount in zip(*columns, strict=True)]
        assert {type(row) for row in rows} == {row_class}
        assert one.of_rows([("x", 2.0, "ann")], INPUT) == [row_class(card="ann", amount=2.0)]


class Everything(NamedTuple):
    """A field of each type."""

    i: int
    f: float
    s: CardId
    b: bytes
    yes: bool
    day: datetime.date
    at: datetime.datetime
    wall: datetime.datetime | None
    gap: datetime.timedelta
    cost: decimal.Decimal
    tags: list[str]
    by_name: dict[str, int | None]
    place: Row
    what: Any
    note: Annotated[str | None, "free text"]


def test_every_type_fits_its_columns() -> None:
    """Catches: an annotation that is right and refused."""
    schema = (
        "i smallint, f float, s string, b binary, yes boolean, day date, at timestamp, wall timestamp_ntz, "
        "gap interval day to second, cost decimal(5,2), tags array<string>, by_name map<string,int>, "
        "place struct<x:int>, what array<int>, note string"
    )

    assert RowShape.of_class(Everything, RowType.of(schema), "here").columns == Everything._fields


@dataclasses.dataclass
class Wrong:
    """For annotations that are put in its place."""

    x: Any


@pytest.mark.parametrize(
    ("hint", "column"),
    [
        (int, "double"),
        (float, "bigint"),
        (str, "binary"),
        (int, "boolean"),
        (datetime.datetime, "date"),
        (datetime.date, "timestamp"),
        (list[int], "array<string>"),
        (dict[str, str], "array<string>"),
        (typed_rows.Tuple, "struct<card:string,amount:double>"),
        (int | str, "bigint"),
        (None, "bigint"),
        (float, "decimal(5,2)"),
    ],
)
def test_a_field_of_another_type_is_refused(hint: Any, column: str) -> None:
    """Catches: a class whose fields are not what rows have in them."""
    changed = dataclasses.make_dataclass("Changed", [("x", hint)])

    with raising(StateDeclarationError, column="x", expected=column):
        RowShape.of_class(changed, RowType.of(f"x {column}"), "here")


def test_missing_columns() -> None:
    """Catches: a misspelt field that is silently None, or a default that is not taken."""

    class Rated(msgspec.Struct, kw_only=True):
        card: str
        rate: float = 0.5
        amount: float | None

    with raising(StateDeclarationError, column="card", found=("amount",)):
        RowShape.of_class(Rated, RowType.of("amount double"), "here")
    shape = RowShape.of_class(Rated, INPUT, "here")
    assert shape.columns == ("card", "amount")
    assert shape.of_rows([("x", 2.0, "ann")], INPUT) == [Rated(card="ann", amount=2.0, rate=0.5)]


class Items(NamedTuple):
    """Nulls are taken at some depths."""

    tags: list[str]
    sizes: list[int | None] | None
    counts: dict[str, int]


ITEMS = RowType.of("tags array<string>, sizes array<bigint>, counts map<string,bigint>")


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ((["a"], None, [("a", 1)]), None),
        (([], [None], []), None),
        ((None, [1], []), "tags"),
        ((["a", None], [1], []), "tags"),
        ((["a"], [1], [("a", None)]), "counts"),
        ((["a"], [1], None), "counts"),
    ],
)
def test_nulls_at_every_depth(row: Any, column: str | None) -> None:
    """Catches: a None in a field that says it has none; a null of another part of the batch taken for one of this."""
    shape = RowShape.of_class(Items, ITEMS, "here")
    schema = pa.schema(
        {"tags": pa.list_(pa.string()), "sizes": pa.list_(pa.int64()), "counts": pa.map_(pa.string(), pa.int64())}
    )
    rows = [([None], None, [("z", None)]), row, ([None], None, None)]
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, one, strict=True)) for one in rows], schema).slice(1, 1)

    if column is None:
        shape.check_nulls(batch, str)
    else:
        with raising(RowTypeError, column=column):
            shape.check_nulls(batch, str)


class Part(NamedTuple):
    """A struct."""

    x: int
    y: list[str] | None


@dataclasses.dataclass
class Alert:
    """An output."""

    card: str
    at: datetime.datetime
    total: Annotated[decimal.Decimal, "decimal(10,2)"] | None
    small: Annotated[int, "smallint"]
    part: Part
    shares: dict[str, float]


def test_the_columns_of_a_class() -> None:
    """Catches: an output's schema that differs from what the pages say of its class."""
    assert RowType.of(Alert).schema == (
        "card string not null, at timestamp not null, total decimal(10,2), small smallint not null, "
        "part struct<x:bigint not null,y:array<string>> not null, shares map<string,double> not null"
    )


@pytest.mark.parametrize("hint", [decimal.Decimal, Any, int | str, set[int], typed_rows.Slots, object, list])
def test_a_type_that_is_no_column_is_refused(hint: Any) -> None:
    """Catches: a schema that guesses."""
    made = dataclasses.make_dataclass("Made", [("x", hint)])

    with raising(StateDeclarationError, column="x"):
        RowType.of(made)
