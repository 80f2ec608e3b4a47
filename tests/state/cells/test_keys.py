"""`encode_keys` gives the bytes of `KeyBytes.encode`, for every type of key column and every Arrow form of it."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.errors import StateTypeError
from emberstate.keygroups import KeySchema
from emberstate.runtime.aggregates.key_columns import decode_keys
from emberstate.state.cells.keys import binary_cells, encode_keys
from emberstate.state.key_bytes import KeyBytes
from tests.raising import raising

INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300) | st.sampled_from([2**n for n in range(63)])
TIMES = st.datetimes() | st.datetimes().map(lambda time: time.replace(microsecond=0))
LONG = st.integers(250, 70_000).map(lambda size: "é" * (size // 2) + "x" * (size % 2))

#: Spark type, Arrow types that Spark and users give it, values.
COLUMNS: list[tuple[str, list[pa.DataType], st.SearchStrategy[Any]]] = [
    ("bigint", [pa.int64()], INTS),
    ("bigint", [pa.int8(), pa.int16(), pa.int32()], st.integers(-128, 127)),
    ("string", [pa.string(), pa.large_string(), pa.string_view()], st.text() | st.text(min_size=28) | LONG),
    ("binary", [pa.binary(), pa.large_binary()], st.binary() | LONG.map(str.encode)),
    ("boolean", [pa.bool_()], st.booleans()),
    ("double", [pa.float64()], st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0])),
    ("double", [pa.float32()], st.floats(allow_nan=False, width=32)),
    ("date", [pa.date32(), pa.date64()], st.dates()),
    ("timestamp", [pa.timestamp("us", "UTC")], TIMES.map(lambda time: time.replace(tzinfo=datetime.UTC))),
    ("timestamp_ntz", [pa.timestamp("us")], TIMES),
    ("decimal(10,2)", [pa.decimal128(10, 2)], st.decimals(-(10**7), 10**7, places=2)),
    ("decimal(38,20)", [pa.decimal128(38, 20)], st.decimals(-(10**7), 10**7, places=20)),
]


@st.composite
def keys(draw: st.DrawFn) -> tuple[KeySchema, list[pa.Array], list[Any]]:
    """A schema, its columns, and the keys of their rows; the columns may be slices of longer ones."""
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=18))
    count = draw(st.integers(0, 6))
    before = draw(st.integers(0, 9))
    arrays, columns = [], []
    for _, types, values in chosen:
        column = draw(st.lists(values, min_size=before + count, max_size=before + count))
        arrays.append(pa.array(column, draw(st.sampled_from(types))).slice(before))
        columns.append(column[before:])
    rows = list(zip(*columns, strict=True))
    return KeySchema([name for name, _, _ in chosen]), arrays, rows if len(columns) > 1 else [row[0] for row in rows]


@given(keys())
def test_bytes_of_keys(case: tuple[KeySchema, list[pa.Array], list[Any]]) -> None:
    """Catches: a key that the column path stores under other bytes than the row path: state split in two."""
    schema, arrays, rows = case
    encode = KeyBytes(schema).encode
    data, offsets = encode_keys(arrays, schema)
    assert binary_cells(data, offsets).to_pylist() == [encode(schema.normalise(row)) for row in rows]
    assert offsets[len(rows)] == len(data)


@given(keys())
def test_columns_of_keys(case: tuple[KeySchema, list[pa.Array], list[Any]]) -> None:
    """Catches: a result with another key than its state has: a text cut short, a time moved, a part of another row."""
    schema, arrays, rows = case
    data, offsets = encode_keys(arrays, schema)
    decoded = decode_keys(np.frombuffer(data, np.uint8), np.asarray(offsets), schema)
    if decoded is None:
        assert any(name.startswith("decimal") or name == "binary" for name in schema.type_names)
        return
    assert all(len(array) == len(rows) for array in decoded)
    again, ends = encode_keys(decoded, schema)
    assert (again, ends.tolist()) == (data, offsets.tolist())


def test_times_at_the_ends() -> None:
    """Catches: a calendar that is wrong in a leap year, before 1970, or at the first and the last instant."""
    days = [datetime.date(year, month, day) for year in (1, 4, 100, 400, 1600, 1900, 1969, 1970, 2000, 2024, 9999)
            for month, day in ((1, 1), (2, 28), (3, 1), (12, 31))]  # fmt: skip
    days += [datetime.date(year, 2, 29) for year in (4, 400, 1600, 2000, 2024)]
    times = [
        datetime.datetime(day.year, day.month, day.day, 23, 59, 59, micro) for day in days for micro in (0, 999999)
    ]
    for name, values in (("date", days), ("timestamp_ntz", times)):
        schema = KeySchema([name])
        cells = binary_cells(*encode_keys([pa.array(values)], schema)).to_pylist()
        assert cells == [KeyBytes(schema).encode(value) for value in values]


@pytest.mark.parametrize(
    ("name", "array", "row"),
    [
        ("bigint", pa.array([1, None]), 1),
        ("string", pa.array(["x", "y", None]).slice(1), 1),
        ("double", pa.array([0.5, float("nan")]), 1),
        ("decimal(4,2)", pa.array([decimal.Decimal("123.456")]), 0),
    ],
)
def test_no_key(name: str, array: pa.Array, row: int) -> None:
    """Catches: a row without a key that gets the bytes of another key, or an error that says less than the row path."""
    schema = KeySchema([name])
    with pytest.raises(StateTypeError) as expected:
        schema.check(array[row].as_py())
    with pytest.raises(StateTypeError) as found:
        encode_keys([array], schema)
    assert repr(found.value.place) == repr(expected.value.place)  # NaN is not equal to itself


@pytest.mark.parametrize("name", ["date", "timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("years", [-2000, 8100])
def test_times_outside_the_calendar(name: str, years: int) -> None:
    """Catches: a year of five digits, or none, which no decoder takes back."""
    days = years * 366
    array = pa.array([days], pa.int32()).cast(pa.date32())
    if name != "date":
        array = pa.array([days * 86_400_000_000]).cast(pa.timestamp("us", "UTC" if name == "timestamp" else None))
    with raising(StateTypeError, field="$", expected="a time in the years 1 to 9999"):
        encode_keys([array], KeySchema([name]))
