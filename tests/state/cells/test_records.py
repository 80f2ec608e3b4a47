"""`RecordCells`: columns to the codec's bytes and back; bytes that no encoder writes are the codec's to judge."""

from __future__ import annotations

import dataclasses
import datetime
import struct
from array import array
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.codec import codec_for
from emberstate.errors import CodecError, StateDeclarationError, StateTypeError
from emberstate.state.cells.keys import binary_cells
from emberstate.state.cells.records import FieldValues, RecordCells
from emberstate.state.cells.unpacking import FieldTarget
from emberstate.state.row_columns import Cells, Decoder
from tests.raising import raising

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)


@dataclasses.dataclass
class Wide:
    """A field of every kind; more than fifteen, as the header of a longer map differs."""

    n: int
    m: int | None
    x: float
    y: float | None
    flag: bool
    any: bool | None
    day: datetime.date | None
    at: datetime.datetime | None
    local: datetime.datetime | None
    shop: str | None
    total: Decimal | None
    tags: list[str] | None
    a: int | None = None
    b: int | None = None
    c: int | None = None
    d: int | None = None
    a_field_with_a_name_that_is_longer_than_31: int | None = None


CODEC = codec_for(Wide)
CELLS = RecordCells(CODEC, {"local": "timestamp_ntz"})
AS_DECLARED = Decoder(CODEC.decode, None, True)
KINDS = {field.name: field.kind for field in CELLS.fields}

INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300) | st.sampled_from([2**n for n in range(63)])
TIMES = st.datetimes().map(lambda time: time.replace(fold=0))
TIMES |= TIMES.map(lambda time: time.replace(microsecond=0))
RECORDS = st.builds(
    Wide,
    n=INTS,
    m=st.none() | INTS,
    x=st.floats(),
    y=st.none() | st.floats(),
    flag=st.booleans(),
    any=st.none() | st.booleans(),
    day=st.none() | st.dates(),
    at=st.none() | TIMES.map(lambda time: time.replace(tzinfo=datetime.UTC)),
    local=st.none() | TIMES,
    shop=st.none() | st.text() | st.text(min_size=30) | st.integers(200, 70_000).map(lambda size: "x" * size),
    total=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    tags=st.none() | st.lists(st.text(max_size=3), max_size=2),
    a=INTS,
    a_field_with_a_name_that_is_longer_than_31=st.none() | INTS,
)


def number_of(kind: str, value: Any) -> Any:
    """A value as its column has it."""
    if kind == "date":
        return (value - EPOCH.date()).days
    return (value.replace(tzinfo=None) - EPOCH) // MICROSECOND if kind.startswith("timestamp") else value


def columns_of(records: list[Wide]) -> list[FieldValues]:
    """Records as columns."""
    columns = []
    for name, kind in KINDS.items():
        values = [getattr(record, name) for record in records]
        if kind in ("str", "object"):
            columns.append(FieldValues(values))
            continue
        layout = {"float": "d", "bool": "B"}.get(kind, "q")
        numbers = array(layout, [0 if value is None else number_of(kind, value) for value in values])
        columns.append(FieldValues(numbers, bytes(value is None for value in values)))
    return columns


def values_of(columns: list[FieldTarget], row: int) -> dict[str, Any]:
    """The fields of one record in columns, as they are in columns."""
    found: dict[str, Any] = {}
    for column in columns:
        kind = KINDS[column.name]
        if kind in ("str", "object"):
            found[column.name] = column.objects[row]
        elif column.nulls[row]:
            found[column.name] = None
        else:
            layout = {"float": "d", "bool": "?"}.get(kind, "q")
            found[column.name] = struct.unpack_from(layout, column.data, row * struct.calcsize(layout))[0]
    return found


def expected_of(record: Wide) -> dict[str, Any]:
    """The same, of a record."""
    values = ((name, kind, getattr(record, name)) for name, kind in KINDS.items())
    return {name: None if value is None else number_of(kind, value) for name, kind, value in values}


def cells_of(cells: list[bytes | None]) -> Cells:
    """A column of these cells."""
    column = pa.array(cells, pa.binary())
    valid, offsets, data = column.buffers()
    return Cells(
        None if data is None else memoryview(data).cast("B"),
        memoryview(offsets).cast("B").cast("i")[: len(cells) + 1],
        memoryview(valid).cast("B") if column.null_count else None,
    )


@given(st.lists(RECORDS, max_size=4))
def test_there_and_back(records: list[Wide]) -> None:
    """Catches: a record whose bytes differ from the codec's, so that equal state has other files; or one that comes
    back changed."""
    cells = [CODEC.encode(record) for record in records]
    assert binary_cells(*CELLS.encode(columns_of(records), len(records))).to_pylist() == cells
    for values in (AS_DECLARED, Decoder(CODEC.decode, None, False)):
        columns = CELLS.decode(cells_of([b"before", *cells, None]), 1, len(cells) + 2, values)
        found = [values_of(columns, row) for row in range(len(cells) + 1)]
        assert repr(found) == repr([*map(expected_of, records), dict.fromkeys(KINDS)])  # NaN is not equal to itself


@given(RECORDS, st.data())
def test_other_bytes_are_judged_by_the_codec(record: Wide, data: st.DataObject) -> None:
    """Catches: damaged bytes that the quick reader takes for a record, or reads beyond; fields in another order, left
    out or added that it refuses."""
    cell = bytearray(CODEC.encode(record))
    for _ in range(data.draw(st.integers(0, 3))):
        match data.draw(st.sampled_from(["change", "cut", "add"])):
            case "change" if cell:
                place = data.draw(st.integers(0, min(len(cell), 400) - 1))
                cell[place] = data.draw(st.sampled_from([0, 0xC0, 0xCB, 0xCF, 0xD3, 0xDB, 0xFF]) | st.integers(0, 255))
            case "cut" if cell:
                del cell[data.draw(st.integers(0, len(cell) - 1)) :]
            case _:
                cell += data.draw(st.binary(max_size=3))
    try:
        expected = repr(expected_of(CODEC.decode(bytes(cell))))
    except CodecError:
        with pytest.raises((CodecError, UnicodeDecodeError)):
            CELLS.decode(cells_of([bytes(cell)]), 0, 1, AS_DECLARED)
    else:
        try:
            found = repr(values_of(CELLS.decode(cells_of([bytes(cell)]), 0, 1, AS_DECLARED), 0))
        except CodecError as error:  # the codec takes a time with and without a zone for a datetime
            assert error.field in ("at", "local")
        else:
            assert found == expected


def test_fields_in_another_order_or_left_out() -> None:
    """Catches: a quick reader that goes by the position of fields, not by their names."""

    @dataclasses.dataclass
    class Stored:
        b: int
        a: int
        more: int

    @dataclasses.dataclass
    class Declared:
        a: int
        b: int
        c: int | None = None

    codec = codec_for(Declared)
    cell = codec_for(Stored).encode(Stored(b=2, a=1, more=3))
    a, b, c = RecordCells(codec).decode(cells_of([cell]), 0, 1, Decoder(codec.decode, None, True))
    assert [struct.unpack("q", column.data)[0] for column in (a, b)] == [1, 2] and c.nulls == b"\1"


def test_a_zone_that_is_not_declared() -> None:
    """Catches: a local time that silently becomes UTC, or the other way round."""
    zoned, local = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2026, 1, 1)
    for at, where, field in ((local, local, "at"), (zoned, zoned, "local")):
        record = Wide(1, None, 0.5, None, True, None, None, at, where, None, None, None)
        with raising(CodecError, field=field):
            CELLS.decode(cells_of([CODEC.encode(record)]), 0, 1, AS_DECLARED)


def test_an_object_of_another_type() -> None:
    """Catches: an object column that stores what the field's type does not allow."""

    @dataclasses.dataclass
    class Named:
        name: str

    cells = RecordCells(codec_for(Named))
    for value in (7, "\ud800"):
        with pytest.raises(StateTypeError):
            cells.encode([FieldValues([value])], 1)


def test_only_dataclasses() -> None:
    """Catches: a type that is stored in another form, packed as a map of fields."""
    with raising(StateDeclarationError, expected="a dataclass"):
        RecordCells(codec_for(dict[str, int]))


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (int, [0, 7, 300, -1, 2**63 - 1, -(2**63)]),
        (float, [0.0, -0.0, 1.5, float("inf")]),
        (bool, [True, False]),
        (str, ["", "a", "ä" * 40]),
    ],
)
def test_plain_values(type_: type[Any], values: list[Any]) -> None:
    """Catches: a value that is packed as a record of one field, or read as one."""
    codec = codec_for(type_)
    cells = RecordCells(codec)
    data, offsets = cells.encode([FieldValues(values)], len(values))
    encoded = [bytes(data[start:stop]) for start, stop in zip(offsets, offsets[1:])]  # noqa: B905, RUF007
    assert encoded == [codec.encode(value) for value in values]
    for as_declared in (True, False):
        decoder = Decoder(codec.decode, None, as_declared)
        [target] = cells.decode(cells_of([*encoded]), 0, len(values), decoder)
        layouts: dict[type[Any], Any] = {int: "q", float: "d", bool: "?", str: "B"}
        found = target.objects or list(memoryview(target.data).cast(layouts[type_]))
        assert [repr(value) for value in found] == [repr(value) for value in values]
