"""Rows from and to Arrow: every type both ways, and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.rows.arrow_rows import arrow_schema, batch_of, read, row_type_of, rows_of
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import RowType, struct_rows
from tests.raising import raising
from tests.runtime.rows.test_data_types import TYPES

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": _TEXT,
    "binary": st.binary(max_size=8),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "interval day to second": st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000)),
    "void": st.none(),
}


def values(type_: DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Values as a function gets them."""
    made: st.SearchStrategy[Any]
    if type_.kind == "decimal":
        made = st.integers(-(10**type_.precision) + 1, 10**type_.precision - 1).map(
            lambda unscaled: decimal.Decimal(unscaled).scaleb(-type_.scale, decimal.Context(prec=40))
        )
    elif type_.kind == "array":
        made = st.lists(values(type_.items[0]), max_size=3)
    elif type_.kind == "map":
        made = st.lists(st.tuples(values(type_.items[0], False), values(type_.items[1])), max_size=3).map(_as_dict)
    elif type_.kind == "struct":
        parts = st.tuples(*(values(field.type, field.nullable) for field in type_.fields))
        made = parts.map(lambda items: struct_rows(type_).row_class(*items))
    else:
        made = _LEAVES[type_.kind]
    return st.none() | made if nullable else made


def _as_dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = {}
    for key, value in pairs:
        try:
            made[key] = value
        except TypeError:  # a list as a key: no dict of Python's can hold it
            return {}
    return made


def _hashable_keys(type_: DataType) -> bool:
    """Whether all map keys of a type can be keys of a dict; and none is void, which has no value that is not null."""
    if type_.kind == "map":
        key = type_.items[0]
        if any(part.kind in ("array", "map", "struct", "void") for part in [key]):
            return False
    parts = [*type_.items, *(field.type for field in type_.fields)]
    return all(_hashable_keys(part) for part in parts)


@given(st.data(), TYPES.filter(_hashable_keys))
def test_there_and_back(data: st.DataObject, type_: DataType) -> None:
    """Catches: a value that Arrow gives back changed: another zone, scale, None for empty, a null's neighbour."""
    row_type = RowType([Column("c", type_), Column("other", DataType("bigint"))])
    rows = [(value, i) for i, value in enumerate(data.draw(st.lists(values(type_), max_size=5)))]
    batch = batch_of(rows, row_type)
    offset = data.draw(st.integers(0, len(rows)))

    assert rows_of(batch, row_type) == rows
    assert rows_of(batch.slice(offset), row_type) == rows[offset:]
    assert batch.schema == arrow_schema(row_type)
    batch.validate(full=True)


@given(TYPES)
def test_types_there_and_back(type_: DataType) -> None:
    """Catches: a type that comes back from its Arrow type as another."""
    row_type = RowType([Column("c", type_, nullable=type_.kind == "void")])
    found = row_type_of(arrow_schema(row_type))

    assert found.schema == row_type.schema


def test_times_of_any_unit_and_zone() -> None:
    """Catches: a session's zone that shows in a function, and nanoseconds read as microseconds."""
    instant = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
    here = pa.array([instant, None], pa.timestamp("us", "Asia/Kolkata"))
    nanos = pa.array([instant.replace(tzinfo=None)], pa.timestamp("ns"))

    assert read(here, DataType("timestamp")) == [instant, None]
    assert read(here, DataType("timestamp"))[0].tzinfo is dt.UTC
    assert read(nanos, DataType("timestamp_ntz")) == [instant.replace(tzinfo=None)]
    assert read(pa.array(["a", None, "a"]).dictionary_encode(), DataType("string")) == ["a", None, "a"]


def test_zones_are_converted_on_the_way_out() -> None:
    """Catches: the wall clock of another zone written as if it were UTC."""
    local = dt.datetime(2026, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))
    row_type = RowType.of("at timestamp")

    assert rows_of(batch_of([(local,)], row_type), row_type) == [(dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC),)]


def test_a_time_no_datetime_can_hold() -> None:
    """Catches: a raw OverflowError for a row of the year 300000."""
    far = pa.array([0, 2**62], pa.timestamp("us", "UTC"))
    with raising(RowTypeError, expected="timestamp", found=2**62):
        read(far, DataType("timestamp"))


def test_an_arrow_type_that_is_no_column_of_spark() -> None:
    """Catches: a type read as the nearest other one."""
    with raising(StateDeclarationError, column="t[]"):
        row_type_of(pa.schema({"t": pa.list_(pa.time64("us"))}))


class Level(enum.IntEnum):
    HIGH = 1


@pytest.mark.parametrize(
    ("type_", "value"),
    [("double", 1), ("int", Level.HIGH), ("array<int>", (1, 2)), ("struct<a:int,b:int>", {"b": 2, "a": 1})],
)
def test_taken_for_what_it_is(type_: str, value: Any) -> None:
    """Catches: a harmless value refused, or a dict's fields taken in the order in which they stand."""
    row_type = RowType.of(f"c {type_}")
    [(found,)] = rows_of(batch_of([(value,)], row_type), row_type)

    assert found == (list(value) if type_ == "array<int>" else (1, 2) if "struct" in type_ else value)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("int", True, "column c is int, found bool (True)"),
        ("int", 1.0, "column c is int, found float (1.0)"),
        ("int", "1", "found str ('1')"),
        ("tinyint", 300, "column c is tinyint: "),
        ("bigint", 2**63, "column c is bigint: "),
        ("double", True, "found bool"),
        ("double", "1.5", "found str"),
        ("string", b"a", "found bytes"),
        ("string", 1, "found int"),
        ("string", "\ud800", "column c is string: "),
        ("binary", "a", "found str"),
        ("boolean", 1, "found int"),
        ("date", dt.datetime(2026, 1, 1), "found datetime"),
        ("timestamp", dt.datetime(2026, 1, 1), "it has no zone"),
        ("timestamp_ntz", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "it has a zone"),
        ("timestamp", 0, "found int"),
        ("decimal(5,2)", 1.5, "found float"),
        ("decimal(5,2)", decimal.Decimal("NaN"), "found Decimal"),
        ("decimal(5,2)", decimal.Decimal("1.555"), "column c is decimal(5,2): "),
        ("decimal(5,2)", decimal.Decimal("12345.00"), "column c is decimal(5,2): "),
        ("array<int>", [1, "2"], "column c[1] is int, found str ('2')"),
        ("array<int>", "12", "found str"),
        ("map<string,int>", {"a": "b"}, "column c['a'] is int, found str"),
        ("map<string,int>", {1: 1}, "column c.key is string, found int"),
        ("map<string,int>", [("a", 1)], "found list"),
        ("struct<a:int>", (1, 2), "found a tuple of 2"),
        ("struct<a:int>", {"b": 1}, "found a dict with ['b']"),
        ("struct<a:int not null>", (None,), "column c.a is int not null, found None"),
        ("void", 1, "found int"),
    ],
)
@pytest.mark.reliability(28)
def test_refused(type_: str, value: Any, message: str) -> None:
    """Catches: a value that Arrow would convert in silence, and a refusal that does not say which value it was."""
    with pytest.raises(RowTypeError) as caught:
        batch_of([(None, 0), (value, 1)], RowType.of(f"c {type_}, n int"))

    assert message in str(caught.value)
    assert "in row (" in str(caught.value)
