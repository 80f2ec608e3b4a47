"""The record batches of a state file: their columns, and their bytes, which are checked before Arrow gets them.

A batch is an Arrow IPC message with zstd-compressed buffers. Arrow allocates the decompressed size that a buffer
declares, so these sizes are added up here first and compared with a limit, along with every other number of the
message. Then Arrow's own full validation checks what only decompression shows (offsets, counts of nulls).

Thread safety: pure functions.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from emberstate.checkpoint.files.flatbuffers import FlatTable
from emberstate.checkpoint.files.limits import FileLimits
from emberstate.errors import CorruptionError

#: One row per step of a change; see docs/format.md.
SCHEMA: Final = pa.schema(
    [
        pa.field("key_group", pa.uint16(), nullable=False),
        pa.field("state", pa.uint16(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("namespace", pa.binary(), nullable=False),
        pa.field("op", pa.uint8(), nullable=False),
        pa.field("user_key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("stamp", pa.int64()),
    ]
)

_BUFFERS: Final = sum(3 if field.type == pa.binary() else 2 for field in SCHEMA)
# One thread each: every slot has its own core.
_WRITE: Final = ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ: Final = ipc.IpcReadOptions(use_threads=False)
_SCHEMA_MESSAGE: Final = SCHEMA.serialize().to_pybytes()
_V5: Final = 4
_RECORD_BATCH: Final = 3
_ZSTD: Final = 1


def schema_message(metadata: dict[bytes, bytes]) -> bytes:
    """Return the schema, with metadata, as an Arrow message."""
    message: bytes = SCHEMA.with_metadata(metadata).serialize().to_pybytes()
    return message


def write_message(batch: pa.RecordBatch) -> tuple[bytes, int]:
    """Return a batch as an Arrow message, and the length of its metadata (with its prefix)."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, SCHEMA, options=_WRITE) as stream:
        stream.write_batch(batch)
    # A stream is the schema's message, the batch's, and 8 bytes at the end.
    message: bytes = sink.getvalue()[len(_SCHEMA_MESSAGE) : -8].to_pybytes()
    return message, 8 + int.from_bytes(message[4:8], "little")


def read_message(message: bytes, rows: int, limits: FileLimits) -> pa.RecordBatch:
    """Return the batch of a message, with `rows` rows. Raises `CorruptionError` if it is anything else."""
    _check_sizes(memoryview(message), rows, limits)
    try:
        # As a stream, since only streams can be read by one thread.
        stream = ipc.open_stream(pa.py_buffer(_SCHEMA_MESSAGE + message), options=_READ)
        batch = stream.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError, StopIteration) as error:
        raise CorruptionError(f"Arrow cannot read the record batch: {error}") from None
    if batch.num_rows != rows:
        raise CorruptionError(f"the record batch has {batch.num_rows} rows, the index says {rows}")
    for field, column in zip(SCHEMA, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise CorruptionError(f"column {field.name!r} has nulls")
    return batch


def message_header(data: memoryview) -> tuple[FlatTable, int]:
    """Return the header of the Arrow message at the start of the data, and where its body begins."""
    marker, length = struct.unpack_from("<Ii", data) if len(data) >= 8 else (0, 0)
    if marker != 0xFFFFFFFF or not 0 < length <= len(data) - 8:
        raise CorruptionError("the record batch does not begin as an Arrow message")
    return FlatTable.root(data[8 : 8 + length]), 8 + length


def batch_header(header: FlatTable) -> FlatTable:
    """Return the record batch's part of a message's header. Raises `CorruptionError` if there is none."""
    batch = header.table(2)
    if header.scalar(0, "<h") != _V5 or header.scalar(1, "<B") != _RECORD_BATCH or batch is None:
        raise CorruptionError("the message holds no record batch of Arrow's format version 5")
    return batch


def _check_sizes(message: memoryview, rows: int, limits: FileLimits) -> None:
    header, start = message_header(message)
    body, batch = message[start:], batch_header(header)
    if header.scalar(3, "<q") != len(body) or batch.scalar(0, "<q") != rows:
        raise CorruptionError(
            f"the record batch declares {header.scalar(3, '<q')} bytes and {batch.scalar(0, '<q')} rows; "
            f"there are {len(body)} bytes and the index says {rows} rows"
        )
    compression = batch.table(3)
    if compression is not None and (compression.scalar(0, "<b"), compression.scalar(1, "<b")) != (_ZSTD, 0):
        raise CorruptionError("the record batch is compressed with something else than zstd")
    nodes = batch.structs(1, "<qq")
    if len(nodes) != len(SCHEMA) or any(n != rows or not 0 <= nulls <= rows for n, nulls in nodes):
        raise CorruptionError(f"the record batch's columns are not {len(SCHEMA)} of {rows} rows: {nodes[:20]}")
    buffers = batch.structs(2, "<qq")
    if len(buffers) != _BUFFERS:
        raise CorruptionError(f"the record batch has {len(buffers)} buffers where {_BUFFERS} belong")
    check_buffers(buffers, body, compression is not None, limits)


def check_buffers(buffers: list[tuple[int, ...]], body: memoryview, compressed: bool, limits: FileLimits) -> None:
    """Raise `CorruptionError` unless buffers (offset, length) follow one another in the body, within the limits."""
    end = total = 0
    for offset, length in buffers:
        if length < 0 or offset < end or offset + length > len(body):
            raise CorruptionError(
                f"a buffer of {length} bytes at {offset} overlaps another, or leaves the {len(body)} bytes"
            )
        end = offset + length
        size = length
        if compressed and length:
            if length < 8:
                raise CorruptionError(f"a compressed buffer of {length} bytes cannot say how long it is")
            (declared,) = struct.unpack_from("<q", body, offset)
            size = length - 8 if declared == -1 else declared
        if size < 0 or total + size > limits.batch_bytes:
            raise CorruptionError(
                f"the record batch declares {total + size} bytes once decompressed, the limit is "
                f"{limits.batch_bytes}: a damaged or hostile file, or raise FileLimits.batch_bytes",
                option="batch_bytes",
                expected=limits.batch_bytes,
                found=total + size,
            )
        total += size
