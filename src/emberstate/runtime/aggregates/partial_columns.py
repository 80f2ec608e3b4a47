"""Partial rows as columns: what they say of time, and records as partial rows, to be folded into others.

Thread safety: functions of their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from emberstate.errors import InvariantError
from emberstate.heap.columns.layout import Array, Column
from emberstate.runtime.aggregates.spec import PANE_END, PANE_START, TIME
from emberstate.runtime.rows.arrow_rows import arrow_type, write
from emberstate.runtime.rows.data_types import Column as RecordColumn


def pane_times(batch: pa.RecordBatch) -> tuple[Array, Array, Array]:
    """The start and end of each row's pane, and its time, which is in the pane."""
    starts, ends = (np.ascontiguousarray(batch.column(name).to_numpy()) for name in (PANE_START, PANE_END))
    times = batch.column(TIME)
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_numpy()
    wrong = np.flatnonzero((micros < starts) | (micros >= ends))
    if len(wrong):
        row = batch.slice(int(wrong[0]), 1).to_pylist()[0]
        what = f"a partial row of [{row[PANE_START]}, {row[PANE_END]}) has the time {micros[wrong[0]]}"
        raise InvariantError(what, found=repr(row))
    return starts, ends, micros


def as_partial_rows(found: Sequence[Column], record: Sequence[RecordColumn]) -> pa.RecordBatch:
    """The records in `found`, whose first columns are those of `record`, as a batch of partial rows."""
    arrays = [_array(column, part.type) for part, column in zip(record, found, strict=False)]
    return pa.RecordBatch.from_arrays(arrays, names=[part.name for part in record])


def _array(column: Column, type_: Any) -> pa.Array:
    if column.values.dtype == object:
        return write(column.values.tolist(), type_)
    return pa.array(column.values, mask=column.nulls).cast(arrow_type(type_))
