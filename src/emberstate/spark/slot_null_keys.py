"""Rows whose key has a null: they belong to no key group, and are taken out and counted.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.runtime.keyed_input import INPUT_COLUMN, ROW_COLUMNS, KeyedInput


def without_null_keys(batch: pa.RecordBatch, inputs: Sequence[KeyedInput]) -> tuple[pa.RecordBatch, int]:
    """The batch without them, and how many there were.

    >>> batch = pa.record_batch({"card": ["a", None, "b"], "amount": [1, 2, 3]})
    >>> rows, dropped = without_null_keys(batch, [KeyedInput("card string, amount bigint", ["card"])])
    >>> rows.column("amount").to_pylist(), dropped
    ([1, 3], 1)
    """
    null = _null_keys(batch, inputs)
    dropped = 0 if null is None else pc.sum(null).as_py() or 0
    return (batch.filter(pc.invert(null)), dropped) if dropped else (batch, 0)


def _null_keys(batch: pa.RecordBatch, inputs: Sequence[KeyedInput]) -> pa.BooleanArray | None:
    found = None
    if len(inputs) == 1:
        columns = [batch.column(name) for name in inputs[0].key_columns if name in batch.schema.names]
        for column in columns:
            if column.null_count:
                found = column.is_null() if found is None else pc.or_(found, column.is_null())
        return found
    which = batch.column(INPUT_COLUMN)
    for number, (name, input) in enumerate(zip(ROW_COLUMNS, inputs, strict=True)):
        rows = batch.column(name)
        for key in input.key_columns:
            null = pc.and_(pc.equal(which, number), pc.struct_field(rows, key).is_null())
            found = null if found is None else pc.or_(found, null)
    return found
