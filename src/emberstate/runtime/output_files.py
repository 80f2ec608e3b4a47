"""Outputs on their way to whoever delivers them: the rows of one output as bytes, and back.

The bytes are an Arrow IPC stream. They are stored with a checkpoint until a later batch has committed.

Thread safety: pure functions.

>>> totals = RowType.of("card string, total double")
>>> from emberstate.runtime.arrow_rows import batch_of
>>> read_output(write_output([batch_of([("ann", 2.5)], totals)], totals), totals)
[Row(card='ann', total=2.5)]
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from emberstate.errors import CorruptionError
from emberstate.runtime.arrow_rows import arrow_schema, rows_of
from emberstate.runtime.row import Row, RowType


def write_output(batches: Sequence[pa.RecordBatch], row_type: RowType) -> bytes:
    """The rows of some batches as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(row_type)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_output(content: bytes, row_type: RowType) -> list[Row]:
    """The rows that were written; CorruptionError if it is something else."""
    try:
        with pa.ipc.open_stream(content) as reader:
            if reader.schema != arrow_schema(row_type):
                raise CorruptionError(f"an output has columns ({reader.schema}), expected are ({row_type.schema})")
            return [row for batch in reader for row in rows_of(batch, row_type)]
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"an output cannot be read: {error!s:.300}") from None
