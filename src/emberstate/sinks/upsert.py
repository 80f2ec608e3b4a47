"""The rows of a delivery for an upsert in the driver's process: the last row of every key.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from emberstate.errors import SinkError
from emberstate.runtime.rows.row import RowType
from emberstate.sinks.interface import Delivery

#: The stored size of a batch that may be upserted in the driver's process, in bytes.
UPSERT_BYTES: Final = 256 * 1024 * 1024

_PLACE: Final = "__place"


def check_keys(keys: Sequence[str], row_type: RowType, sink: object) -> None:
    """Raise if the columns are not among those of the output."""
    missing = [key for key in keys if key not in row_type.names]
    if missing or len(set(keys)) != len(keys):
        raise SinkError(
            f"{sink!r}: expected columns of the output ({row_type.schema}), each once, found {list(keys)}.",
            option="merge",
            expected=list(row_type.names),
            found=list(keys),
        )


def last_rows(delivery: Delivery, keys: Sequence[str], sink: object) -> pa.Table:
    """The last row of every key, in the order of parts, and in a part in that of emission.

    Raises:
        SinkError: a key is null, which equals nothing; or there is too much for one process.
    """
    if delivery.size > UPSERT_BYTES:
        raise SinkError(
            f"{sink!r}: batch {delivery.batch} has {delivery.size} bytes; an upsert runs in the driver's process, and "
            f"takes up to {UPSERT_BYTES}. Make batches smaller (maxFilesPerTrigger, maxOffsetsPerTrigger and the "
            f"like), or append, and merge by a job of its own.",
            option="merge",
            expected=UPSERT_BYTES,
            found=delivery.size,
        )
    batches = [batch for part in delivery.parts for batch in part.batches()]
    table = pa.Table.from_batches(batches, delivery.arrow_schema)
    for key in keys:
        if table.column(key).null_count:
            raise SinkError(
                f"{sink!r}: batch {delivery.batch} has a null in column {key!r}, by which rows are merged: a null "
                f"equals nothing, so it would be inserted again and again. Filter such rows, or merge by other "
                f"columns.",
                option="merge",
                column=key,
            )
    placed = table.select(list(keys)).append_column(_PLACE, pa.array(range(table.num_rows), pa.int64()))
    last = placed.group_by(list(keys)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return table.take(last.combine_chunks().sort())
