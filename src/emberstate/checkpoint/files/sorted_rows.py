"""The sorted rows of a state file: a row per step of an entry.

`EntryEncoder` makes them, or `ColumnEncoder`. They are collected in chunks (those of entries are small, for each holds
the interpreter lock once), sorted without a lock (`row_order`), and cut into record batches. The order is that of the
bytes, the same in every process: key group, state, key, namespace; within an entry CLEARED first, then user keys, or
elements in their order.

Thread safety: a `Rows` belongs to one thread; what it encodes must not change meanwhile (a snapshot's content
does not).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.files.batches import SCHEMA
from emberstate.checkpoint.files.limits import BATCH_BYTES, MAX_CELL_BYTES
from emberstate.checkpoint.files.row_order import sorted_order
from emberstate.errors import StateTypeError
from emberstate.state.changes import Op

#: Rows that are turned into Arrow arrays at once: some hundred microseconds under the interpreter lock.
CHUNK_ROWS: Final = 4096
CHUNK_BYTES: Final = 16 * 1024 * 1024

# While sorted, offsets have 64 bits, since all rows together may exceed a batch. Besides the file's columns: the order
# of steps within an entry.
_SORTED: Final = pa.schema(
    [pa.field(field.name, pa.large_binary() if field.type == pa.binary() else field.type) for field in SCHEMA]
    + [pa.field("step", pa.uint32())]
)

_REPLACED: Final = int(Op.REPLACED)

_Cell = bytes | None
_Row = tuple[int, int, bytes, bytes, int, _Cell, _Cell, int | None, int]


class Rows:
    """Collects rows in any order and returns them sorted, as record batches."""

    __slots__ = ("_bytes", "_chunks", "_pending", "_pending_bytes", "count")

    def __init__(self) -> None:
        self._pending: list[_Row] = []
        self._pending_bytes = 0
        self._chunks: list[pa.RecordBatch] = []
        self._bytes = 0
        #: The number of rows.
        self.count = 0

    def add(
        self,
        key_group: int,
        state: int,
        key: bytes,
        namespace: bytes,
        op: int,
        user_key: _Cell,
        value: _Cell,
        stamp: int | None,
        step: int,
    ) -> None:
        """Add a row; `step` orders the rows of an entry before their user keys do."""
        size = len(key) + len(namespace) + (len(user_key) if user_key else 0) + (len(value) if value else 0)
        check_size(size)
        self._pending.append((key_group, state, key, namespace, op, user_key, value, stamp, step))
        self._pending_bytes += size
        self.count += 1
        if len(self._pending) >= CHUNK_ROWS or self._pending_bytes >= CHUNK_BYTES:
            self._chunk()

    def add_columns(self, columns: Sequence[list[Any] | int | None]) -> None:
        """Add rows as columns: those of `add`, in its order; a number, or None, is the value of all rows."""
        count = len(columns[2])  # type: ignore[arg-type] # the keys, which differ
        self._keep(
            [
                pa.array(column, field.type)
                if isinstance(column, list)
                else pa.repeat(pa.scalar(column, field.type), count)
                for column, field in zip(columns, _SORTED, strict=True)
            ]
        )
        self.count += count

    def add_values(
        self,
        key_group: int,
        state: int,
        keys: list[bytes],
        namespaces: list[bytes],
        values: list[_Cell],
        stamps: list[int] | None,
    ) -> None:
        """Add a chunk of REPLACED rows of one state in one key group."""
        count = len(keys)
        columns = [
            pa.repeat(pa.scalar(key_group, pa.uint16()), count),
            pa.repeat(pa.scalar(state, pa.uint16()), count),
            pa.array(keys, pa.large_binary()),
            pa.array(namespaces, pa.large_binary()),
            pa.repeat(pa.scalar(_REPLACED, pa.uint8()), count),
            pa.nulls(count, pa.large_binary()),
            pa.array(values, pa.large_binary()),
            pa.nulls(count, pa.int64()) if stamps is None else pa.array(stamps, pa.int64()),
            pa.repeat(pa.scalar(0, pa.uint32()), count),
        ]
        self._keep(columns)
        self.count += count

    def add_cells(self, state: int, columns: Sequence[pa.Array]) -> None:
        """Add rows without user keys of one state: key groups, keys, namespaces, steps, values and stamps, as Arrow has
        them."""
        key_groups, keys, namespaces, ops, values, stamps = columns
        count = len(keys)
        sizes = pc.add(pc.add(_lengths(keys), _lengths(namespaces)), _lengths(values))
        check_size(pc.max(sizes).as_py() or 0)
        self._keep(
            [
                key_groups.cast(pa.uint16()),
                pa.repeat(pa.scalar(state, pa.uint16()), count),
                keys,
                namespaces,
                ops,
                pa.nulls(count, pa.large_binary()),
                values,
                stamps,
                pa.repeat(pa.scalar(0, pa.uint32()), count),
            ]
        )
        self.count += count

    def batches(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in batches of at most `max_rows` rows and about `BATCH_BYTES`, or one row."""
        self._chunk()
        if not self._chunks:
            return
        rows = pa.Table.from_batches(self._chunks, _SORTED).combine_chunks().to_batches()[0]
        order = sorted_order(rows)
        for start, stop in self._cuts(rows, order, max_rows):
            batch = rows.take(order.slice(start, stop - start))
            columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _cuts(self, rows: pa.RecordBatch, order: pa.Array, max_rows: int) -> Iterator[tuple[int, int]]:
        count = rows.num_rows
        if self._bytes <= BATCH_BYTES:
            yield from ((start, min(count, start + max_rows)) for start in range(0, count, max_rows))
            return
        sizes = _lengths(rows.column("key"))
        for name in ("namespace", "user_key", "value"):
            sizes = pc.add(sizes, _lengths(rows.column(name)))
        start = held = row = 0
        for size in sizes.take(order).to_pylist():
            if row > start and (held + size > BATCH_BYTES or row - start == max_rows):
                yield start, row
                start, held = row, 0
            held += size
            row += 1
        yield start, row

    def _chunk(self) -> None:
        if self._pending:
            columns = zip(*self._pending, strict=True)
            self._keep([pa.array(column, field.type) for column, field in zip(columns, _SORTED, strict=True)])
            self._pending = []
            self._pending_bytes = 0

    def _keep(self, columns: list[pa.Array]) -> None:
        chunk = pa.RecordBatch.from_arrays(columns, schema=_SORTED)
        self._chunks.append(chunk)
        self._bytes += chunk.nbytes


def _lengths(column: pa.LargeBinaryArray) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0)


def check_size(size: int) -> None:
    """Reject a row that no reader would accept."""
    if size > MAX_CELL_BYTES:
        raise StateTypeError(
            f"$: it takes {size} bytes encoded, a state file holds up to {MAX_CELL_BYTES} at once. Keep it "
            f"in parts, in a list or map state."
        )
