"""`RecordLoader`: fills a column table from the rows of a file (`state.row_loading`), a run at a time, by columns.

Keys are decoded and encoded again, so that only canonical bytes get into the table's index, whoever wrote the file.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import functools

import numpy as np

from emberstate.codec import codec_for
from emberstate.heap.columns.column_table import ColumnTable
from emberstate.heap.columns.layout import Array, Column, ColumnField, ColumnLayout
from emberstate.state.cells.canonical_keys import CanonicalKeys
from emberstate.state.cells.records import RecordCells
from emberstate.state.cells.unpacking import FieldTarget
from emberstate.state.key_bytes import key_bytes
from emberstate.state.row_columns import BadRow, RowColumns, distinct_cells, nulls_of
from emberstate.state.row_loading import FileRules, RowDecoders

_REPLACED = 1
_CLEARED = 2
#: Of the keys of a run, the first and then one in this many has its key group computed.
_CHECK_EVERY = 64


class RecordLoader:
    """Loads the rows of one state of one file; a `RowLoader`."""

    def __init__(self, table: ColumnTable, decoders: RowDecoders, rules: FileRules) -> None:
        self._table = table
        self._decoders = decoders
        self._rules = rules
        self._records = _record_cells(table.layout)
        self._keys = CanonicalKeys(table.context.key_schema)
        self._decode_key = key_bytes(table.context.key_schema).decode
        self._last: tuple[int, bytes, bytes] | None = None
        self.row = 0

    def load(self, columns: RowColumns, start: int, stop: int) -> None:
        """Load a run: the rows [start, stop), all of one key group."""
        self.row = start
        self._check_order(columns, start, stop)
        replaced, stamps = self._check_steps(columns, start, stop)
        values = self._values(columns, start, stop)
        rows = self._rows(columns, start, stop)
        if self._rules.base:
            self._refuse_first(self._table.store.alive[rows], start, "the entry exists already")
        self._table.write(
            rows[replaced],
            [Column(c.values[replaced], None if c.nulls is None else c.nulls[replaced]) for c in values],
            None if stamps is None else stamps[replaced],
        )
        self._table.remove_rows(rows[~replaced])

    def _check_order(self, columns: RowColumns, start: int, stop: int) -> None:
        group = columns.key_group(start)
        ends = [(group, key, namespace) for row in (start, stop - 1) for key, namespace in [columns.place(row)]]
        wrong = columns.first_disorder(start, stop)
        if self._last is not None and self._last[0] == group and ends[0] <= self._last:
            wrong = start
        if wrong >= 0:
            self.row = wrong
            raise BadRow("keys and namespaces do not ascend, or an entry occurs twice")
        self._last = ends[1]

    def _check_steps(self, columns: RowColumns, start: int, stop: int) -> tuple[Array, Array | None]:
        """Return which rows set a record, and the stamps to keep; reject rows that are neither set nor removed."""
        rules = self._rules
        steps = np.frombuffer(columns.steps(start, stop), np.uint8)
        replaced = steps == _REPLACED
        null = np.frombuffer(nulls_of(columns.values, start, stop), np.bool_)
        numbers, has = columns.stamps_of(start, stop)
        stamped = np.frombuffer(has, np.bool_)
        other = ~replaced if rules.base else ~replaced & (steps != _CLEARED)
        if other.any():
            step, kind = steps[other.argmax()], "base" if rules.base else "delta"
            self._refuse_first(other, start, f"step {step} does not belong in a {kind} of such a state")
        keyed = ~np.frombuffer(nulls_of(columns.user_keys, start, stop), np.bool_)
        empty = ~replaced & (keyed | ~null | stamped)
        self._refuse_first(empty, start, "a cleared entry has a user key, a value or a stamp")
        self._refuse_first(keyed, start, "a value has a user key")
        self._refuse_first(replaced & null, start, "a record is null")
        what = "the stamp is missing" if rules.stamped else "there is a stamp, the state has none"
        self._refuse_first(replaced & (stamped != rules.stamped), start, what)
        if not rules.keeps_stamps:
            return replaced, None
        if rules.decided_stamp is not None:
            return replaced, np.full(stop - start, rules.decided_stamp, np.int64)
        return replaced, np.frombuffer(numbers, np.int64)

    def _rows(self, columns: RowColumns, start: int, stop: int) -> Array:
        """The rows of the run's entries in the table, each once."""
        group = columns.key_group(start)
        try:
            data, offsets = self._keys.encode(columns.keys, start, stop)
        except Exception:
            self.row = self._keys.row
            raise
        ends = np.asarray(offsets)
        for position in range(0, stop - start, _CHECK_EVERY):
            key = self._decode_key(bytes(data[ends[position] : ends[position + 1]]))
            found = self._table.context.grouper(key)
            if found != group:
                self.row = start + position
                raise BadRow(f"key {key!r} belongs to key group {found}")
        cells, numbers = distinct_cells(columns.namespaces, start, stop)
        namespaces = [self._decoders.namespace.decode(cell) for cell in cells]
        spaces = self._table.namespace_numbers(namespaces)[numbers]
        store = self._table.store
        rows = store.rows_of(data, ends, np.full(stop - start, group, np.int32), spaces)
        self._refuse_first(store.groups[rows] != group, start, "the key is in another key group, too")
        order = np.argsort(rows, kind="stable")
        again = np.zeros(len(rows), np.bool_)
        again[order[1:]] = rows[order[1:]] == rows[order[:-1]]
        self._refuse_first(again, start, "the entry exists already")  # encoded in another way
        return rows

    def _values(self, columns: RowColumns, start: int, stop: int) -> list[Column]:
        unpacker, fields = self._records.unpacker(stop - start, self._decoders.value)
        try:
            unpacker.unpack(columns.values, start, stop)
        except Exception:
            self.row = unpacker.row
            raise
        return [_column(field, target) for field, target in zip(self._table.layout.fields, fields, strict=True)]

    def _refuse_first(self, wrong: Array, start: int, text: str) -> None:
        if wrong.any():
            self.row = start + int(wrong.argmax())
            raise BadRow(text)


@functools.lru_cache(maxsize=64)
def _record_cells(layout: ColumnLayout) -> RecordCells:
    codec = codec_for(layout.record)
    objects = {field.name for field in layout.fields if field.dtype is object}
    kinds = {
        field.name: "object" for field in RecordCells(codec).fields if field.name in objects and field.kind != "str"
    }
    return RecordCells(codec, kinds)


def _column(field: ColumnField, target: FieldTarget) -> Column:
    if field.dtype is object:
        return Column(np.fromiter(target.objects, object, len(target.objects)), None)
    nulls = np.frombuffer(target.nulls, np.bool_) if field.masked else None
    return Column(np.frombuffer(target.data, field.dtype), nulls)
