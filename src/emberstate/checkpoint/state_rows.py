"""From entries and their changes to the sorted rows of a state file: a row per step.

Rows are collected in small chunks (the interpreter lock is held for one at a time), sorted by Arrow, which
holds no lock, and cut into record batches. The order is that of the bytes, the same in every process: key
group, state, key, namespace; within an entry CLEARED first, then user keys, or elements in their order.

Thread safety: a `Rows` belongs to one thread; what it encodes must not change meanwhile (a snapshot's content
does not).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.arrow_batches import SCHEMA
from emberstate.checkpoint.file_limits import BATCH_BYTES, MAX_CELL_BYTES
from emberstate.checkpoint.state_bindings import StateBinding
from emberstate.errors import CodecError, StateTypeError
from emberstate.state.changes import Op

#: Rows that are turned into Arrow arrays at once: some hundred microseconds under the interpreter lock.
CHUNK_ROWS: Final = 4096
CHUNK_BYTES: Final = 16 * 1024 * 1024

# While sorted, offsets have 64 bits, for all rows together may exceed what a batch may. Beside the file's
# columns: the order of steps within an entry.
_SORTED: Final = pa.schema(
    [pa.field(field.name, pa.large_binary() if field.type == pa.binary() else field.type) for field in SCHEMA]
    + [pa.field("step", pa.uint32())]
)
_ORDER: Final = [(name, "ascending") for name in ("key_group", "state", "key", "namespace", "step", "user_key")]

_REPLACED: Final = int(Op.REPLACED)
_CLEARED: Final = int(Op.CLEARED)
_PUT: Final = int(Op.PUT)
_APPENDED: Final = int(Op.APPENDED)

_Cell = bytes | None
_Row = tuple[int, int, bytes, bytes, int, _Cell, _Cell, int | None, int]


class Rows:
    """Collects rows in any order and gives them back sorted, as record batches."""

    __slots__ = ("_bytes", "_chunks", "_pending", "_pending_bytes", "count")

    def __init__(self) -> None:
        self._pending: list[_Row] = []
        self._pending_bytes = 0
        self._chunks: list[pa.RecordBatch] = []
        self._bytes = 0
        #: How many there are.
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

    def batches(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows in order, in batches of at most `max_rows` rows and about `BATCH_BYTES`, or one row."""
        self._chunk()
        if not self._chunks:
            return
        table = pa.Table.from_batches(self._chunks, _SORTED)
        order = pc.sort_indices(table, sort_keys=_ORDER)
        for start, stop in self._cuts(table, order, max_rows):
            rows = table.take(order.slice(start, stop - start)).combine_chunks()
            columns = [rows.column(field.name).chunk(0).cast(field.type) for field in SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _cuts(self, table: pa.Table, order: pa.Array, max_rows: int) -> Iterator[tuple[int, int]]:
        count = table.num_rows
        if self._bytes <= BATCH_BYTES:
            yield from ((start, min(count, start + max_rows)) for start in range(0, count, max_rows))
            return
        sizes = pc.binary_length(table.column("key"))
        for name in ("namespace", "user_key", "value"):
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(table.column(name)), 0))
        start = held = row = 0
        for piece in sizes.take(order).chunks:
            for size in piece.to_pylist():
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


def check_size(size: int) -> None:
    """Refuse a row that no reader would take."""
    if size > MAX_CELL_BYTES:
        raise StateTypeError(
            f"$: it takes {size} bytes encoded, a state file holds up to {MAX_CELL_BYTES} at once; keep it "
            f"in parts, in a list or map state"
        )


class EntryEncoder:
    """Turns the entries of one state into rows."""

    __slots__ = (
        "_binding", "_encode_key", "_encode_namespace", "_encode_user_key", "_encode_value", "_namespace",
        "_namespace_bytes", "_rows", "_stamped", "_state",
    )  # fmt: skip

    def __init__(self, state: int, binding: StateBinding, encode_key: Callable[[Any], bytes], rows: Rows) -> None:
        self._state = state
        self._binding = binding
        self._encode_key = encode_key
        self._encode_namespace = binding.namespace_codec.encode
        self._encode_value = None if binding.codec is None else binding.codec.encode
        self._encode_user_key = None if binding.user_key_codec is None else binding.user_key_codec.encode
        self._stamped = binding.ttl is not None
        self._rows = rows
        self._namespace: Any = None
        self._namespace_bytes = b""

    def add_entries(self, key_group: int, entries: Iterable[tuple[Any, Any, Any]]) -> None:
        """Add whole entries of one key group: (key, namespace, value or list or dict of user keys)."""
        if self._binding.stored.kind == "list":
            for key, namespace, content in entries:
                self.add_steps(key_group, key, namespace, ((Op.APPENDED, content),))
        elif self._encode_user_key is not None:
            for key, namespace, content in entries:
                steps = [(Op.PUT, user_key, value) for user_key, value in content.items()]
                self.add_steps(key_group, key, namespace, steps)
        else:
            entries = iter(entries)
            while self._add_values(key_group, entries):
                pass

    def _add_values(self, key_group: int, entries: Iterator[tuple[Any, Any, Any]]) -> bool:
        """Add a chunk of entries with one value each; False when there are no more. One loop, for it is the
        hot one."""
        keys: list[bytes] = []
        namespaces: list[bytes] = []
        values: list[_Cell] = []
        stamps: list[int] = []
        held = 0
        key = namespace = None
        try:
            for key, namespace, value in itertools.islice(entries, CHUNK_ROWS):
                keys.append(self._encode_key(key))
                if namespace is not self._namespace:
                    self._namespace_bytes = self._encode_namespace(namespace)
                    self._namespace = namespace
                namespaces.append(self._namespace_bytes)
                if self._stamped:
                    stamps.append(value.stamp)
                    value = value.value
                if value is None:
                    values.append(None)
                    continue
                cell = self._encode_value(value)  # type: ignore[misc]
                values.append(cell)
                held += len(cell)
                if held > CHUNK_BYTES:
                    check_size(len(cell))
                    break
        except (StateTypeError, CodecError) as error:
            raise self._refusal(key, namespace, error) from None
        if keys:
            self._rows.add_values(key_group, self._state, keys, namespaces, values, stamps if self._stamped else None)
        return bool(keys)

    def add_steps(self, key_group: int, key: Any, namespace: Any, steps: Any) -> None:
        """Add the rows of a change record; StateTypeError, with state and key, for what cannot be encoded."""
        add, state = self._rows.add, self._state
        try:
            key_bytes = self._encode_key(key)
            if namespace is not self._namespace:  # mostly the last one again
                self._namespace_bytes = self._encode_namespace(namespace)
                self._namespace = namespace
            namespace_bytes = self._namespace_bytes
            for step in steps:
                op = int(step[0])
                if op == _REPLACED:
                    value, stamp = self._value(step[1])
                    add(key_group, state, key_bytes, namespace_bytes, op, None, value, stamp, 0)
                elif op == _CLEARED:
                    add(key_group, state, key_bytes, namespace_bytes, op, None, None, None, 0)
                elif op == _APPENDED:
                    for number, element in enumerate(step[1], start=1):
                        value, stamp = self._value(element)
                        add(key_group, state, key_bytes, namespace_bytes, op, None, value, stamp, number)
                else:
                    assert self._encode_user_key is not None
                    user_key = self._encode_user_key(step[1])
                    value, stamp = self._value(step[2]) if op == _PUT else (None, None)
                    add(key_group, state, key_bytes, namespace_bytes, op, user_key, value, stamp, 1)
        except (StateTypeError, CodecError) as error:
            raise self._refusal(key, namespace, error) from None

    def _refusal(self, key: Any, namespace: Any, error: Exception) -> StateTypeError:
        return StateTypeError(f"{self._binding.label}, key {key!r}, namespace {namespace!r}: {error}")

    def _value(self, value: Any) -> tuple[bytes | None, int | None]:
        stamp = None
        if self._stamped:
            value, stamp = value.value, value.stamp
        if value is None or self._encode_value is None:
            return None, stamp
        return self._encode_value(value), stamp
