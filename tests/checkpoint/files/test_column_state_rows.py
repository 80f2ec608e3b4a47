"""Rows of files in a column table: what no writer writes is rejected, and old records have the codec's verdict."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pyarrow as pa
import pytest

from emberstate.checkpoint.files.batches import SCHEMA
from emberstate.checkpoint.files.bindings import bindings_of, meta_of
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, FileAssembler, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.codec import codec_for
from emberstate.errors import CorruptionError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.columns.column_table import ColumnTable
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.changes import Op
from emberstate.state.descriptors import AggregatingStateDescriptor
from emberstate.state.key_bytes import key_bytes
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl.config import TtlConfig
from emberstate.state.ttl.stamped import Stamped
from tests.raising import raising

Row = tuple[int, bytes, bytes, int, bytes | None, bytes | None, int | None]


@dataclasses.dataclass(frozen=True)
class Total:
    """A record with columns of numbers and of objects."""

    n: int = 0
    best: float | None = None
    day: datetime.date | None = None
    at: datetime.datetime | None = None
    shop: str | None = None


@dataclasses.dataclass(frozen=True)
class OldTotal:
    """The same, before fields were added, removed and put in another order."""

    shop: str | None = None
    best: float | None = None
    gone: int = 3


class Fold(AggregateFunction[Any, Any, Any]):
    """Only declares its state."""

    def create_accumulator(self) -> Any:
        """Nothing yet."""
        return Total()

    def add(self, value: Any, accumulator: Any) -> Any:
        """The newest."""
        return value

    def get_result(self, accumulator: Any) -> Any:
        """The newest."""
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        """The newer."""
        return other


def backend_of(
    type_: type = Total, ttl: TtlConfig | None = None, key: str = "string"
) -> tuple[HeapKeyedStateBackend, ColumnTable]:
    """A backend with the state in columns."""
    backend = HeapKeyedStateBackend(KeySchema([key]), max_parallelism=2)
    backend.ttl_clock.processing_time = 0
    return backend, backend.get_column_state(AggregatingStateDescriptor("total", Fold(), type_, ttl=ttl))


RECORD = codec_for(Total).encode(Total(7))


def row(
    op: int = Op.REPLACED,
    value: bytes | None = RECORD,
    *,
    key: str | bytes = "a",
    group: int | None = None,
    namespace: bytes = b"\xa0",
    user_key: bytes | None = None,
    stamp: int | None = None,
) -> Row:
    """A row of the state, of a text as key or of the bytes of one."""
    schema = KeySchema(["string"])
    cell = key_bytes(schema).encode(key) if isinstance(key, str) else key
    found = schema.key_group(key, 2) if isinstance(key, str) else schema.key_group("a", 2)
    return (found if group is None else group, cell, namespace, int(op), user_key, value, stamp)


def file_of(kind: str, rows: list[Row]) -> StateFileReader:
    """A file with these rows, as they are."""
    backend, _ = backend_of()
    assembler = FileAssembler(meta_of(backend, kind, KeyGroupRange(0, 1), bindings_of(backend)))
    columns = zip(*[(group, 0, *rest) for group, *rest in rows], strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return StateFileReader.of_bytes(b"".join([assembler.head(), assembler.batch(batch), assembler.end()]))


A_IN_TWO_BYTES = b"\xd9\x01a"
BAD_ROWS: dict[str, tuple[str, list[Row], str]] = {
    "unknown step": ("delta", [row(9)], "row 0.*step 9"),
    "removed in a base": ("base", [row(Op.CLEARED, None)], "step 2"),
    "put": ("delta", [row(), row(Op.PUT, key="c")], "row 1.*step 3"),
    "wrong key group": ("base", [row(group=1 - row()[0])], "belongs to key group"),
    "out of order": ("base", [row(key="c"), row()], "row 1.*ascend"),
    "twice": ("base", [row(), row()], "row 1.*ascend"),
    "twice, encoded differently": ("base", [row(), row(key=A_IN_TWO_BYTES)], "row 1.*exists already"),
    "user key": ("base", [row(user_key=b"\xa1x")], "user key"),
    "no record": ("base", [row(), row(value=None, key="c")], "row 1.*null"),
    "stamp": ("base", [row(stamp=5)], "stamp"),
    "removed with a record": ("delta", [row(Op.CLEARED)], "cleared entry"),
    "removed with a stamp": ("delta", [row(Op.CLEARED, None, stamp=5)], "cleared entry"),
    "no map": ("base", [row(), row(value=b"\x07", key="c")], "row 1.*hold"),
    "cut": ("base", [row(value=RECORD[:-1])], "hold"),
    "no key": ("base", [row(), row(key=b"\xd9\x01\xff", group=row()[0])], "row 1"),
    "no text for a namespace": ("base", [row(namespace=b"\x07")], "hold"),
}


@pytest.mark.parametrize(("kind", "rows", "word"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows(kind: str, rows: list[Row], word: str) -> None:
    """Catches: a damaged file that restores to wrong columns, or an error that does not say where."""
    backend, _ = backend_of()
    with raising(CorruptionError, word, state="total"):
        restore([file_of(kind, rows)], backend)


def test_a_key_in_another_form() -> None:
    """Catches: a key that a file has in another form than the rows that come later: two entries of one key."""
    backend, table = backend_of()
    restore([file_of("base", [row(key=A_IN_TWO_BYTES)])], backend)
    backend.set_current_key("a")
    assert table.get("") == Total(7)


def test_an_entry_of_a_second_base() -> None:
    """Catches: bases of two files that overlap, of which the later silently wins."""
    backend, _ = backend_of()
    with raising(CorruptionError, "exists already", state="total"):
        restore([file_of("base", [row()]), file_of("base", [row()])], backend)


@pytest.mark.parametrize("ttl", [None, TtlConfig("1 hour")])
@pytest.mark.parametrize("key", ["string", "bigint", "double", "decimal(10,2)", "timestamp"])
def test_base_and_deltas(key: str, ttl: TtlConfig | None) -> None:
    """Catches: fields, stamps or keys of some type that come back changed; removed entries that come back."""
    backend, table = backend_of(Total, ttl, key)
    kinds = {kind.name: kind for kind in KeySchema([key]).types}
    keys = [KeySchema([key]).normalise(kinds[key].parse(text)) for text in TEXTS[key]]
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    records = [
        Total(-5, 0.5, datetime.date(1969, 12, 31), noon, "é"),
        Total(2**63 - 1, None, None, None, None),
        Total(0, float("-inf"), None, noon, ""),
    ]
    files = []
    for number, (one, record) in enumerate(zip(keys, records, strict=True)):
        backend.set_current_key(one)
        table.put("", record if ttl is None else Stamped(record, number))
    with backend.snapshot() as snapshot:
        files.append(b"".join(BaseWriter(backend, snapshot)))
        table.remove("")
        backend.set_current_key(keys[0])
        table.put("w", records[2] if ttl is None else Stamped(records[2], 9))
        files.append(write_delta(backend, snapshot).data)
    restored, found = backend_of(Total, ttl, key)
    restore([StateFileReader.of_bytes(data) for data in files], restored)
    assert sorted(found, key=repr) == sorted(table, key=repr)
    assert len(found) == 3
    restored.check_invariants()


TEXTS = {
    "string": ["ann", "", "é"],
    "bigint": ["7", "-70000", "0"],
    "double": ["0.5", "-1e300", "0"],
    "decimal(10,2)": ["1.5", "-1", "0"],
    "timestamp": ["2026-01-31T12:00:00Z", "1960-01-31T12:00:00.000001Z", "9999-01-31T12:00:00Z"],
}


def test_a_record_that_was_declared_otherwise() -> None:
    """Catches: an added, removed or moved field that the quick reader takes for another."""
    backend, table = backend_of(OldTotal)
    backend.set_current_key("ann")
    table.put("", OldTotal("x", 2.0, 4))
    with backend.snapshot() as snapshot:
        base = b"".join(BaseWriter(backend, snapshot))
    restored, found = backend_of()
    restore([StateFileReader.of_bytes(base)], restored)
    assert list(found) == [("ann", "", Total(0, 2.0, None, None, "x"))]
