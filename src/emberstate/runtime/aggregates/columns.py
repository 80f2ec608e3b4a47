"""`ColumnAggregates`: the records of a stage in columns (`heap.columns`), changed by whole batches of partial rows.

It does what `RecordFunction` does to single rows, to the same state: a stage may use both. No Python object is made per
row, from the batch of partial rows to the batch of results.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.heap.columns.column_table import ColumnTable
from emberstate.heap.columns.folds import distinct_rows
from emberstate.heap.columns.layout import Array, Column
from emberstate.runtime.aggregates.column_plan import ColumnPlan, FoldError
from emberstate.runtime.aggregates.key_columns import decode_keys
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.rows.arrow_rows import arrow_schema, write
from emberstate.state.cells.keys import encode_keys
from emberstate.state.timers import VOID_NAMESPACE

#: Keys of these types may come in several forms: the results have the canonical one, which the state has.
_SEVERAL_FORMS: Final = ("double", "decimal")


class ColumnAggregates:
    """Merges partial rows, remembers which rows changed, and makes their results."""

    def __init__(self, spec: AggregateSpec, plan: ColumnPlan, table: ColumnTable) -> None:
        self._spec = spec
        self._plan = plan
        self._table = table
        self._schema = arrow_schema(spec.output)
        self._keys = spec.keys
        types = table.context.key_schema.type_names
        self._keeps_keys = not any(name.startswith(_SEVERAL_FORMS) for name in types)
        #: Rows that changed since `take_changed`, in order, and their keys if `_keeps_keys`.
        self._changed: list[tuple[Array, list[pa.Array]]] = []
        self._taken = np.empty(0, np.int64)

    def merge(self, batch: pa.RecordBatch, key_groups: memoryview) -> None:
        """Merge partial rows without windows into the records of their keys; see `fold`."""
        distinct, positions = self.fold(batch, np.asarray(key_groups), [VOID_NAMESPACE], None)
        kept: list[pa.Array] = []
        if self._keeps_keys:
            first = np.empty(len(distinct), np.int64)
            # The first of a row's positions is written last.
            first[positions[::-1]] = np.arange(len(positions) - 1, -1, -1)
            kept = [batch.column(name).take(pa.array(first)) for name in self._keys]
        self._changed.append((distinct, kept))

    def fold(
        self, batch: pa.RecordBatch, key_groups: Array, namespaces: list[Any], which: Array | None
    ) -> tuple[Array, Array]:
        """Fold partial rows into the records of their keys; return the records' rows, and which one each row is in.

        `which` has each row's position in `namespaces`; None: all are in the first.

        Raises:
            RowTypeError: a sum is more than its type holds; nothing has changed.
        """
        table = self._table
        keys = [batch.column(name) for name in self._keys]
        data, offsets = encode_keys(keys, table.context.key_schema)
        numbers = table.namespace_numbers(namespaces)
        spaces = numbers[which] if which is not None else np.full(len(batch), numbers[0], np.int32)
        rows = table.rows_of(data, np.asarray(offsets), key_groups, spaces)
        distinct, positions = distinct_rows(rows, table.store.scratch)
        columns = table.gather(distinct)
        try:
            for fold in self._plan.folds:
                fold(columns, positions, batch)
        except FoldError as error:
            raise error.error.located(key=table.key_of(int(rows[error.row]))) from None
        table.write(distinct, columns)
        return distinct, positions

    def was_taken(self, key: Any, namespace: Any) -> bool:
        """Whether the last call of `take_changed` returned the result of a canonical key."""
        return self._table.row_of(key, namespace) in self._taken

    def take_changed(self) -> pa.RecordBatch | None:
        """Return the results of the rows that changed since the last call, each once, by their first change."""
        self._taken = np.empty(0, np.int64)
        if not self._changed:
            return None
        rows = np.concatenate([rows for rows, _ in self._changed])
        _, first = np.unique(rows, return_index=True)
        first.sort()
        if self._keeps_keys:
            parts = zip(*[keys for _, keys in self._changed], strict=True)
            keys = [pa.concat_arrays(list(arrays)).take(pa.array(first)) for arrays in parts]
        else:
            keys = self.keys_of(rows[first])
        self._changed = []
        self._taken = rows[first]
        return self.results(self._table.gather(self._taken), keys, [])

    def results(self, columns: list[Column], keys: list[pa.Array], bounds: list[pa.Array]) -> pa.RecordBatch:
        """Return the output rows of records that have these keys, and bounds of windows."""
        results = [result(columns) for result in self._plan.results]
        arrays = [*(keys if self._spec.key_columns else []), *bounds, *results]
        fitting = [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(fitting, schema=self._schema)

    def keys_of(self, rows: Array) -> list[pa.Array]:
        """The keys of rows, as columns."""
        decoded = decode_keys(*self._table.store.index.keys(rows), self._table.context.key_schema)
        if decoded is not None:
            return decoded
        found = [self._table.key_of(row) for row in rows.tolist()]
        types = [self._spec.partial.columns[self._spec.partial.position(name)].type for name in self._keys]
        parts = [found] if len(types) == 1 else [list(part) for part in zip(*found, strict=True)]
        return [write(part, type_) for part, type_ in zip(parts, types, strict=True)]
