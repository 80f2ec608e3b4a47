"""Rows from and to Arrow record batches, column by column, nested types included.

Reading: TIMESTAMP gives aware UTC datetimes, TIMESTAMP_NTZ naive ones; a struct a `Row`, a map a dict.
Writing: a value must be of its column's type, as `row_checks` has it; an int may stand in a column of floats.

Thread safety: pure functions.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import Row, RowType, struct_rows
from emberstate.runtime.rows.row_batches import all_tuples, dates, instants, make_columns, make_rows, wall_times
from emberstate.runtime.rows.row_checks import CLASSES, check_value

_ARROW: Final = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
    "void": pa.null(),
}
_KINDS: Final = {
    **{type_: kind for kind, type_ in _ARROW.items()},
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}
#: Arrow's errors for a value that does not fit; ValueError is for text with a lone surrogate.
_REFUSED: Final = (pa.ArrowException, OverflowError, ValueError)


# -- types -------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def arrow_type(type_: DataType) -> pa.DataType:
    """The Arrow type that Spark uses for a type."""
    if type_.kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    if type_.kind == "array":
        return pa.list_(arrow_type(type_.items[0]))
    if type_.kind == "map":
        return pa.map_(arrow_type(type_.items[0]), arrow_type(type_.items[1]))
    if type_.kind == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.type), field.nullable) for field in type_.fields])
    return _ARROW[type_.kind]


def arrow_schema(row_type: RowType) -> pa.Schema:
    """The Arrow schema of a row type."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in row_type.columns])


def data_type(type_: pa.DataType, where: str) -> DataType:
    """The type of an Arrow type; `where` names it in messages."""
    if pa.types.is_dictionary(type_):
        return data_type(type_.value_type, where)
    if pa.types.is_timestamp(type_):
        return DataType("timestamp_ntz" if type_.tz is None else "timestamp")
    if pa.types.is_decimal(type_):
        return DataType("decimal", precision=type_.precision, scale=type_.scale)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return DataType("array", (data_type(type_.value_type, f"{where}[]"),))
    if pa.types.is_map(type_):
        return DataType("map", (data_type(type_.key_type, f"{where}.key"), data_type(type_.item_type, f"{where}[]")))
    if pa.types.is_struct(type_):
        fields = [type_.field(position) for position in range(type_.num_fields)]
        return DataType("struct", (), tuple(_column(field, f"{where}.{field.name}") for field in fields))
    kind = _KINDS.get(type_)
    if kind is None:
        what = f"column {where} has the Arrow type {type_}, which no column of Spark has: cast it"
        raise StateDeclarationError(what, column=where)
    return DataType(kind)


def _column(field: pa.Field, where: str) -> Column:
    return Column(field.name, data_type(field.type, where), field.nullable)


def row_type_of(schema: pa.Schema) -> RowType:
    """The row type of an Arrow schema.

    >>> row_type_of(pa.schema({"card": pa.string(), "ts": pa.timestamp("us", "UTC")}))
    RowType.of('card string, ts timestamp')
    """
    return RowType(_column(field, field.name) for field in schema)


# -- Arrow to rows -----------------------------------------------------------------------------------------------


def columns_of(batch: pa.RecordBatch, row_type: RowType) -> list[list[Any]]:
    """The values of a batch, column by column; the batch may have other columns besides."""
    return [read(batch.column(column.name), column.type) for column in row_type.columns]


def rows_of(batch: pa.RecordBatch, row_type: RowType) -> list[Row]:
    """The rows of a batch.

    >>> rows_of(pa.record_batch({"a": [1, None], "b": [["x"], []]}), RowType.of("a bigint, b array<string>"))
    [Row(a=1, b=['x']), Row(a=None, b=[])]
    """
    return make_rows(row_type.row_class, columns_of(batch, row_type), batch.num_rows)


def read(array: pa.Array, type_: DataType) -> list[Any]:
    """The values of an array as a function sees them."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = type_.kind
    if kind in ("timestamp", "timestamp_ntz", "date"):
        values = _read_times(array, kind)
    elif kind == "array":
        values = _read_lists(array, type_)
    elif kind == "map":
        values = _read_maps(array, type_)
    elif kind == "struct":
        children = [read(child, field.type) for child, field in zip(array.flatten(), type_.fields, strict=True)]
        values = make_rows(struct_rows(type_).row_class, children, len(array))
    else:
        return array.to_pylist()  # type: ignore[no-any-return]
    if array.null_count:
        for position in pc.indices_nonzero(array.is_null()).to_pylist():
            values[position] = None
    return values


def _read_times(array: pa.Array, kind: str) -> list[Any]:
    """Return datetimes or dates, with any value in the place of a null."""
    if kind == "date":
        return dates(array.cast(pa.date32()).view(pa.int32()).fill_null(0).to_pylist())
    whole = array if array.type.unit == "us" else array.cast(pa.timestamp("us", array.type.tz))
    micros = whole.view(pa.int64()).fill_null(0).to_pylist()
    try:
        return instants(micros) if kind == "timestamp" else wall_times(micros)
    except OverflowError:
        worst = max(micros, key=abs)
        raise RowTypeError(
            f"there is a {kind} of {worst} microseconds since 1970, outside the years 1 to 9999 that a datetime can "
            f"hold: filter such rows out, or clamp the column",
            expected=kind,
            found=worst,
        ) from None


def _read_lists(array: pa.Array, type_: DataType) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    items = read(array.values.slice(first, offsets[-1] - first), type_.items[0])
    return [items[start - first : stop - first] for start, stop in zip(offsets, offsets[1:])]  # noqa: B905, RUF007


def _read_maps(array: pa.Array, type_: DataType) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first, size = offsets[0], offsets[-1] - offsets[0]
    keys = read(array.keys.slice(first, size), type_.items[0])
    items = read(array.items.slice(first, size), type_.items[1])
    return [
        dict(zip(keys[start - first : stop - first], items[start - first : stop - first], strict=True))
        for start, stop in zip(offsets, offsets[1:])  # noqa: B905, RUF007
    ]


# -- rows to Arrow -----------------------------------------------------------------------------------------------


def batch_of(rows: list[Any], row_type: RowType) -> pa.RecordBatch:
    """A record batch of rows, which are tuples of the right width; refuses a value of the wrong type.

    >>> batch_of([("a", 1.5), ("b", None)], RowType.of("card string, total double")).to_pylist()
    [{'card': 'a', 'total': 1.5}, {'card': 'b', 'total': None}]
    >>> batch_of([("a", "1.5")], RowType.of("card string, total double"))
    Traceback (most recent call last):
        ...
    emberstate.errors.RowTypeError: column total is double, found str ('1.5') in row ('a', '1.5')
    """
    if not all_tuples(rows, len(row_type.columns)):
        raise RowTypeError(f"a row is no tuple of {len(row_type.columns)} values ({row_type.schema})")
    made = make_columns(rows, [CLASSES.get(column.type.kind) for column in row_type.columns])
    arrays = []
    for position, (column, values, fits) in enumerate(zip(row_type.columns, *made, strict=True)):
        try:
            if not fits or not column.nullable:
                for value in values:
                    check_value(value, column.type, column.nullable)
            arrays.append(write(values, column.type))
        except (RowTypeError, *_REFUSED) as error:
            raise _refusal(rows, position, column, error) from None
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(row_type))


def _refusal(rows: list[Any], position: int, column: Column, error: Exception) -> RowTypeError:
    """Return the error of the first row whose value is rejected on its own."""
    for row in rows:
        try:
            check_value(row[position], column.type, column.nullable)
            write([row[position]], column.type)
        except RowTypeError as reason:
            return reason.reworded(f"column {column.name}{reason} in row {row!r:.500}").located(column=column.name)
        except _REFUSED as reason:
            what = f"column {column.name} is {column.type.name}: {reason}; in row {row!r:.500}"
            return RowTypeError(what, column=column.name)
    return RowTypeError(f"column {column.name} is {column.type.name}: {error}", column=column.name)


def write(values: list[Any], type_: DataType) -> pa.Array:
    """An array of values that were checked."""
    kind = type_.kind
    if kind == "array":
        offsets, items = _flattened(values)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), write(items, type_.items[0]))
    if kind == "map":
        offsets, pairs = _flattened([None if value is None else value.items() for value in values])
        keys = write([key for key, _ in pairs], type_.items[0])
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), keys, write([v for _, v in pairs], type_.items[1])
        )
    if kind == "struct":
        row_type = struct_rows(type_)
        tuples = [None if value is None else row_type.coerce(value) for value in values]
        children = [
            write([None if row is None else row[position] for row in tuples], field.type)
            for position, field in enumerate(type_.fields)
        ]
        fields = list(arrow_type(type_))
        mask = pa.array([row is None for row in tuples], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    return pa.array(values, arrow_type(type_))


def _flattened(values: list[Any]) -> tuple[list[int | None], list[Any]]:
    """Offsets (None: there is no list here) and items."""
    offsets: list[int | None] = []
    items: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(items))
        if value is not None:
            items.extend(value)
    return [*offsets, len(items)], items
