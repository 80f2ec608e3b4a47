"""`decode_keys`: the canonical bytes of keys to their columns as Arrow arrays; the reverse of `encode_keys`.

Numbers, booleans, dates and times are read by compiled loops, and texts and bytes that are a key alone by whole
columns, with no Python object per row. Texts beside other columns are made one by one; the codec decodes other keys.

Thread safety: pure.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.keygroups import KeySchema
from emberstate.state.cells.packing import array_header
from emberstate.state.cells.unpacking import FieldTarget, RecordUnpacker
from emberstate.state.key_bytes import key_bytes
from emberstate.state.row_columns import Cells

#: Key types that a `FieldTarget` holds: its kind, how its numbers are read, and the type of the column.
_KINDS: Final[dict[str, tuple[str, Any, pa.DataType]]] = {
    "bigint": ("int", np.int64, pa.int64()),
    "double": ("float", np.float64, pa.float64()),
    "boolean": ("bool", np.bool_, pa.bool_()),
    "date": ("date", np.int64, pa.date32()),
    "timestamp": ("timestamp", np.int64, pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("timestamp_ntz", np.int64, pa.timestamp("us")),
    "string": ("str", None, pa.large_string()),
}
#: How many bytes stand before a text or bytes, by the first of them.
_HEADS: Final = np.zeros(256, np.int64)
_HEADS[0xA0:0xC0] = 1
_HEADS[[0xC4, 0xD9]] = 2
_HEADS[[0xC5, 0xDA]] = 3
_HEADS[[0xC6, 0xDB]] = 5


def decode_keys(data: Any, offsets: Any, schema: KeySchema) -> list[pa.Array] | None:
    """Return a column for each part of the keys, which lie at `offsets` of 64 bits; None if only the codec can.

    >>> cells = np.frombuffer(b"\\xa3ann\\xa1b", np.uint8)
    >>> decode_keys(cells, np.array([0, 4, 6]), KeySchema(("string",)))[0].to_pylist()
    ['ann', 'b']
    """
    names = [kind.name for kind in schema.types]
    if len(names) == 1 and names[0] in ("string", "binary"):
        return [_texts(data, offsets, pa.large_string() if names[0] == "string" else pa.large_binary())]
    if any(name not in _KINDS for name in names) or int(offsets[-1]) > 2**31 - 1:
        return None
    count = len(offsets) - 1
    decode = key_bytes(schema).decode
    header = b"" if len(names) == 1 else array_header(len(names))
    fields = [FieldTarget(_KINDS[name][0], f"part_{at}", b"", False, None, count) for at, name in enumerate(names)]

    def parts(cell: bytes) -> SimpleNamespace:
        key = decode(cell)
        found = (key,) if len(names) == 1 else key
        return SimpleNamespace(**{f"part_{at}": value for at, value in enumerate(found)})

    cells = Cells(memoryview(data), memoryview(offsets.astype(np.int32)), None)
    RecordUnpacker(header, fields, parts, True).unpack(cells, 0, count)
    return [_array(field, *_KINDS[name][1:]) for field, name in zip(fields, names, strict=True)]


def _array(field: FieldTarget, dtype: Any, type_: pa.DataType) -> pa.Array:
    if dtype is None:
        return pa.array(field.objects, type_)
    values = np.frombuffer(field.data, dtype)
    if type_ == pa.date32():
        values = values.astype(np.int32)
    return pa.array(values).view(type_) if pa.types.is_temporal(type_) else pa.array(values, type_)


def _texts(data: Any, offsets: Any, type_: pa.DataType) -> pa.Array:
    """Cells of one text each, without what stands before it."""
    heads = _HEADS[data[offsets[:-1]]]
    starts = np.zeros(len(data) + 1, np.int8)  # 1 where a head begins, -1 behind it
    np.add.at(starts, offsets[:-1], 1)
    np.add.at(starts, offsets[:-1] + heads, -1)
    bare = np.ascontiguousarray(data[np.cumsum(starts[:-1], dtype=np.int8) == 0])
    ends = offsets - np.concatenate([[0], np.cumsum(heads)])
    return pa.Array.from_buffers(type_, len(heads), [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(bare)])
