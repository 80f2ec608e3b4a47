"""`encode_keys`: the key columns of Arrow batches to the canonical bytes of their keys.

The bytes are those of `KeyBytes.encode` for the canonical key of every row, which are made by compiled loops, with no
Python object per row. Decimals alone go through Python.

Thread safety: pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.codec import codec_for
from emberstate.errors import StateTypeError
from emberstate.keygroups import KeySchema, KeyType
from emberstate.state.cells.packing import Column, array_header, pack


def encode_keys(arrays: Sequence[pa.Array], schema: KeySchema) -> tuple[bytearray, memoryview]:
    """Return the bytes of the keys, and one offset of 64 bits more than there are keys.

    Args:
        arrays: the key columns, as many as `schema` has and of its Spark types or types that it casts to them.

    Raises:
        StateTypeError: a row has no key: a null, NaN, or a time outside the years 1 to 9999.

    >>> data, offsets = encode_keys([pa.array(["ann", "bob"]), pa.array([7, 8])], KeySchema(("string", "bigint")))
    >>> bytes(data[offsets[1] : offsets[2]])
    b'\\x92\\xa3bob\\x08'
    """
    columns = []
    for array, kind in zip(arrays, schema.types, strict=True):
        if array.null_count:
            _refuse(arrays, schema, pc.index(array.is_null(), True).as_py())
        columns.append(_COLUMNS.get(kind.name, _decimals)(array, kind))
        if kind.name == "double":
            nan = pc.index(pc.is_nan(array), True).as_py()
            if nan >= 0:
                _refuse(arrays, schema, nan)
    return pack(b"" if len(columns) == 1 else array_header(len(columns)), columns, len(arrays[0]))


def binary_cells(data: Any, offsets: Any) -> pa.LargeBinaryArray:
    """Return packed cells as an Arrow column, which shares their memory.

    >>> binary_cells(*encode_keys([pa.array([7])], KeySchema(("bigint",)))).to_pylist()
    [b'\\x07']
    """
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _refuse(arrays: Sequence[pa.Array], schema: KeySchema, row: int) -> None:
    values = tuple(array[row].as_py() for array in arrays)
    schema.check(values if len(values) > 1 else values[0])
    raise StateTypeError(f"row {row} has no key: {values!r}")


def _numbers(kind: str, type_: pa.DataType) -> Callable[[pa.Array, KeyType], Column]:
    def column(array: pa.Array, _: KeyType) -> Column:
        return Column(kind, data=_values(array.cast(type_)))

    return column


def _dates(array: pa.Array, _: KeyType) -> Column:
    return Column("date", data=_values(array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())))


def _times(kind: str) -> Callable[[pa.Array, KeyType], Column]:
    def column(array: pa.Array, _: KeyType) -> Column:
        zone = array.type.tz if pa.types.is_timestamp(array.type) else None
        return Column(kind, data=_values(array.cast(pa.timestamp("us", zone)).cast(pa.int64())))

    return column


def _doubles(array: pa.Array, _: KeyType) -> Column:
    # -0.0 + 0.0 is 0.0, and nothing else changes.
    return Column("float", data=_values(pc.add(array.cast(pa.float64()), 0.0)))


def _cells(kind: str, type_: pa.DataType) -> Callable[[pa.Array, KeyType], Column]:
    def column(array: pa.Array, _: KeyType) -> Column:
        array = array.cast(type_)
        _, offsets, data = array.buffers()
        if offsets is None or len(array) == 0:
            return Column(kind, data=b"", offsets=b"")
        start = 8 * array.offset
        return Column(kind, data=b"" if data is None else data, offsets=offsets[start : start + 8 * len(array) + 8])

    return column


def _decimals(array: pa.Array, kind: KeyType) -> Column:
    normalise = KeySchema([kind.name]).normalise
    values = [normalise(value) for value in array.to_pylist()]
    return Column("object", objects=values, encode=codec_for(kind.python_type).encode)


def _values(array: pa.Array) -> Any:
    """The numbers of an array without nulls."""
    size = array.type.bit_width // 8
    return array.buffers()[1][size * array.offset : size * (array.offset + len(array))] if len(array) else b""


_COLUMNS: Final[dict[str, Callable[[pa.Array, KeyType], Column]]] = {
    "bigint": _numbers("int", pa.int64()),
    "boolean": _numbers("bool", pa.uint8()),
    "double": _doubles,
    "date": _dates,
    "timestamp": _times("timestamp"),
    "timestamp_ntz": _times("timestamp_ntz"),
    "string": _cells("text", pa.large_string()),
    "binary": _cells("bytes", pa.large_binary()),
}
