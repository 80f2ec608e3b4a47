"""`ColumnEncoder`: turns entries that a table gives as columns into the rows of a state file.

The rows are those that `EntryEncoder` makes of the same entries, to the byte; there is no Python object per entry.

Thread safety: as `Rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.files.bindings import StateBinding
from emberstate.checkpoint.files.sorted_rows import Rows
from emberstate.errors import CodecError, EmberstateError, StateTypeError
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.cells.keys import binary_cells
from emberstate.state.cells.records import FieldValues, record_cells
from emberstate.state.changes import Op

_REPLACED: Final = pa.scalar(int(Op.REPLACED), pa.uint8())
_CLEARED: Final = pa.scalar(int(Op.CLEARED), pa.uint8())


class ColumnEncoder:
    """Encodes for one state of records."""

    __slots__ = ("_binding", "_decode_key", "_records", "_rows", "_state")

    def __init__(self, state: int, binding: StateBinding, decode_key: Callable[[bytes], Any], rows: Rows) -> None:
        assert binding.codec is not None
        self._state = state
        self._binding = binding
        self._decode_key = decode_key
        self._rows = rows
        self._records = record_cells(binding.codec)

    def add(self, entries: EntryColumns, horizon: int | None = None) -> None:
        """Add entries or changes; entries with a stamp up to `horizon` are left out.

        Raises:
            StateTypeError: a field is not of its declared type; the error has state and key.
        """
        count = len(entries)
        if not count:
            return
        keys = binary_cells(entries.key_data, entries.key_offsets)
        alive = _array(pa.uint8(), count, entries.alive).cast(pa.bool_())
        try:
            data, offsets = self._records.encode(entries.fields, count)
            namespaces = _cells(map(self._binding.namespace_codec.encode, entries.namespaces))
        except (StateTypeError, CodecError) as error:
            raise self._refusal(entries, keys, alive, error) from None
        values = binary_cells(data, offsets)
        ops = pa.repeat(_REPLACED, count)
        stamps = pa.nulls(count, pa.int64())
        if entries.stamps is not None:
            stamps = _array(pa.int64(), count, entries.stamps)
        if not pc.all(alive).as_py():
            values = pc.if_else(alive, values, pa.scalar(None, pa.large_binary()))
            stamps = pc.if_else(alive, stamps, pa.scalar(None, pa.int64()))
            ops = pc.if_else(alive, _REPLACED, _CLEARED)
        columns = [
            _array(pa.int32(), count, entries.key_groups),
            keys,
            namespaces.take(_array(pa.int32(), count, entries.namespace_numbers)),
            ops,
            values,
            stamps,
        ]
        if horizon is not None:
            kept = pc.greater(stamps, horizon)
            columns = [column.filter(kept) for column in columns]
        self._rows.add_cells(self._state, columns)

    def _refusal(
        self, entries: EntryColumns, keys: pa.LargeBinaryArray, alive: pa.Array, error: EmberstateError
    ) -> StateTypeError:
        """The error with its place, which is looked for: encoding goes by columns."""
        numbers = memoryview(entries.namespace_numbers)
        for row in range(len(entries)):
            namespace = entries.namespaces[numbers[row]]
            try:
                self._binding.namespace_codec.encode(namespace)
                if alive[row].as_py():
                    self._records.encode([_at(values, row) for values in entries.fields], 1)
            except (StateTypeError, CodecError) as found:
                key = self._decode_key(keys[row].as_py())
                text = f"{self._binding.label}, key {key!r}, namespace {namespace!r}: {found}"
                return StateTypeError(text, state=self._binding.stored.name, key=key, field=found.field)
        return StateTypeError(f"{self._binding.label}: {error}", state=self._binding.stored.name, field=error.field)


def _at(values: FieldValues, row: int) -> FieldValues:
    """A column with the one value of a row."""
    if isinstance(values.data, list):
        return FieldValues(values.data[row : row + 1])
    nulls = None if values.nulls is None else memoryview(values.nulls).cast("B")[row : row + 1]
    return FieldValues(memoryview(values.data)[row : row + 1], nulls)


def _array(type_: pa.DataType, count: int, *buffers: Any) -> pa.Array:
    return pa.Array.from_buffers(type_, count, [None, *map(pa.py_buffer, buffers)])


def _cells(cells: Iterable[bytes]) -> pa.LargeBinaryArray:
    return pa.array(list(cells), pa.large_binary())
