"""Outputs on their way to whoever delivers them: the rows of one output as bytes, and back.

The bytes are an Arrow IPC stream: a schema, record batches that are not compressed, and an end. They are stored with a
checkpoint, and live as long as it.

A reader trusts them as little as a state file. What Arrow would believe is looked at first: which messages there are,
that every number in them fits the bytes that are there, that nothing is to be decompressed; so they cost no more than
their own size. Then comes Arrow's own full validation. Whatever is wrong is a `CorruptionError`.

Thread safety: pure functions.

>>> totals = RowType.of("card string, total double")
>>> from emberstate.runtime.arrow_rows import batch_of
>>> read_output(write_output([batch_of([("ann", 2.5)], totals)], totals), totals)
[Row(card='ann', total=2.5)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from emberstate.checkpoint.arrow_batches import batch_header, check_buffers, message_header
from emberstate.checkpoint.file_limits import DEFAULT_LIMITS, FileLimits
from emberstate.errors import CorruptionError
from emberstate.runtime.arrow_rows import arrow_schema, row_type_of, rows_of
from emberstate.runtime.row import Row, RowType

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def write_output(batches: Sequence[pa.RecordBatch], row_type: RowType) -> bytes:
    """The rows of some batches as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(row_type)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_output(content: bytes, row_type: RowType) -> list[Row]:
    """The rows that were written.

    Raises:
        CorruptionError: it is something else.
    """
    return [row for batch in output_batches(content, row_type) for row in rows_of(batch, row_type)]


def output_batches(content: bytes, row_type: RowType, name: str = "") -> Iterator[pa.RecordBatch]:
    """The record batches that were written; `name` is where they stand, for messages.

    Raises:
        CorruptionError: it is something else.
    """
    where = f"an output{name and f' ({name})'}"
    try:
        if not content.endswith(_END):
            raise CorruptionError("it does not end as an Arrow stream: it is cut off, or none")
        data, schema = memoryview(content)[: -len(_END)], arrow_schema(row_type)
        _, at = message_header(data)
        found = pa.ipc.read_schema(pa.py_buffer(data[:at]))
        if found != schema:
            columns = ", ".join(f"{field.name}: {field.type}" for field in found)
            raise CorruptionError(f"it has columns ({columns:.300}), expected are ({row_type.schema})")
        while at < len(data):
            end = at + _checked_size(data[at:])
            batch = pa.ipc.read_record_batch(pa.py_buffer(data[at:end]), schema)
            batch.validate(full=True)
            for field, column in zip(schema, batch.columns, strict=True):
                if column.null_count and not field.nullable:
                    raise CorruptionError(f"column {field.name!r} has nulls")
            yield batch
            at = end
    except (CorruptionError, pa.ArrowException, ValueError, OSError) as error:
        raise CorruptionError(
            f"{where} cannot be read: {error!s:.500}. It is damaged or was exchanged: restore an older checkpoint or a "
            f"savepoint."
        ) from None


def output_columns(content: bytes) -> RowType:
    """The columns that an output was written with, whatever they are.

    Raises:
        CorruptionError: it is no output.
    """
    try:
        _, end = message_header(memoryview(content))
        return row_type_of(pa.ipc.read_schema(pa.py_buffer(content[:end])))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise CorruptionError(f"the columns of an output cannot be read: {error!s:.500}") from None


def _checked_size(data: memoryview) -> int:
    """The size of the record batch that some bytes begin with, if it keeps within them."""
    header, start = message_header(data)
    batch, size = batch_header(header), header.scalar(3, "<q")
    if not 0 <= size <= len(data) - start:
        raise CorruptionError(f"a record batch declares {size} bytes, {len(data) - start} are there")
    if batch.table(3) is not None:
        raise CorruptionError("a record batch is compressed, which no output is")
    # A column of nulls takes no bytes at all, any other at least a bit for each of its values.
    most = max(8 * size, DEFAULT_LIMITS.batch_rows)
    counts = [(batch.scalar(0, "<q"), 0), *batch.structs(1, "<qq")]
    if any(not 0 <= nulls <= rows <= most for rows, nulls in counts):
        raise CorruptionError(f"a record batch of {size} bytes declares (rows, nulls) {counts[:20]}")
    check_buffers(batch.structs(2, "<qq"), data[start : start + size], False, FileLimits(batch_bytes=size))
    return start + size
