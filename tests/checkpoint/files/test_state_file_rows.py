"""Rows that no writer writes, and what becomes of stamps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from emberstate.checkpoint.files.batches import SCHEMA
from emberstate.checkpoint.files.bindings import bindings_of, meta_of
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, FileAssembler
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import CorruptionError, Place, RestoreRefusedError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.changes import Op
from emberstate.state.descriptors import ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig
from emberstate.state.ttl.stamped import Stamped
from tests.checkpoint.files.state_file_small import outcome, small_backend, small_files
from tests.raising import raising

Row = tuple[int, int, bytes, bytes, int, bytes | None, bytes | None, int | None]


def text(value: str) -> bytes:
    return bytes([0xA0 | len(value)]) + value.encode()


def file_of(kind: str, rows: list[Row], merged: int = 1) -> bytes:
    """A file of small_backend() with these rows, as they are; states: 0 list, 1 map, 2 value, 3 timers."""
    backend = small_backend()
    meta = meta_of(backend, kind, KeyGroupRange(0, 1), bindings_of(backend))
    assembler = FileAssembler(type(meta)(kind, meta.key_schema, 2, meta.key_groups, meta.states, merged))
    parts = [assembler.head()]
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        parts.append(assembler.batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)))
    return b"".join([*parts, assembler.end()])


def group_of(key: str) -> int:
    return KeySchema.from_python(str).key_group(key, 2)


A = (group_of("a"), text("a"))
VOID = text("")


def row(
    state: int,
    op: Op | int,
    value: bytes | None = None,
    *,
    key: tuple[int, bytes] = A,
    namespace: bytes = VOID,
    user_key: bytes | None = None,
    stamp: int | None = None,
) -> Row:
    return (key[0], state, key[1], namespace, int(op), user_key, value, stamp)


BAD_ROWS: dict[str, tuple[str, list[Row], str]] = {
    "unknown op": ("delta", [row(2, 9, text("x"))], "step 9"),
    "unknown state": ("delta", [row(7, Op.REPLACED, text("x"))], "state 7"),
    "wrong key group": (
        "base",
        [row(2, Op.REPLACED, text("x"), key=(1 - A[0], A[1]))],
        "belongs to key group",
    ),
    "the same entry twice": ("base", [row(2, Op.REPLACED, text("x"))] * 2, "more than one value"),
    "the same key, encoded differently": (
        "base",
        [row(2, Op.REPLACED, text("x")), row(2, Op.REPLACED, text("y"), key=(A[0], b"\xd9\x01a"))],
        "exists already",
    ),
    "states descend": ("delta", [row(2, Op.CLEARED), row(0, Op.CLEARED)], "do not ascend"),
    "namespaces descend": ("delta", [row(2, Op.CLEARED, namespace=text("b")), row(2, Op.CLEARED)], "ascend"),
    "cleared in a base": ("base", [row(2, Op.CLEARED)], "base"),
    "cleared with a value": ("delta", [row(2, Op.CLEARED, text("x"))], "cleared"),
    "a value with a user key": ("delta", [row(2, Op.REPLACED, text("x"), user_key=text("u"))], "user key"),
    "a stamp without time to live": ("delta", [row(2, Op.REPLACED, text("x"), stamp=1)], "stamp"),
    "a value of another type": ("delta", [row(2, Op.REPLACED, b"\x05")], "do not hold str"),
    "text that is no UTF-8": ("delta", [row(2, Op.REPLACED, b"\xa1\xff")], "utf-8"),
    "bytes behind a value": ("delta", [row(2, Op.REPLACED, b"\xa1xx")], "do not hold str"),
    "an empty value": ("delta", [row(2, Op.REPLACED, b"")], "do not hold str"),
    "a key of another type": (
        "delta",
        [row(2, Op.REPLACED, text("x"), key=(A[0], b"\x05"))],
        "do not hold str",
    ),
    "an int of more than 63 bits": ("delta", [row(0, Op.APPENDED, b"\xcf" + b"\xff" * 8)], "do not hold int"),
    "an element that is null": ("delta", [row(0, Op.APPENDED)], "no element"),
    "a list replaced": ("delta", [row(0, Op.REPLACED, b"\x01")], "no element"),
    "cleared after the beginning": (
        "delta",
        [row(0, Op.APPENDED, b"\x01"), row(0, Op.CLEARED)],
        "cleared after",
    ),
    "a user key missing": ("delta", [row(1, Op.PUT, b"\x01")], "user key is missing"),
    "user keys descend": (
        "delta",
        [row(1, Op.PUT, b"\x01", user_key=text("b")), row(1, Op.PUT, b"\x01", user_key=text("a"))],
        "user keys do not ascend",
    ),
    "a user key twice, encoded differently": (
        "delta",
        [row(1, Op.PUT, b"\x01", user_key=text("b")), row(1, Op.PUT, b"\x01", user_key=b"\xd9\x01b")],
        "twice",
    ),
    "removed and not there": ("delta", [row(1, Op.REMOVED, user_key=text("b"))], "does not exist"),
    "removed after cleared": (
        "delta",
        [row(1, Op.CLEARED), row(1, Op.REMOVED, user_key=text("b"))],
        "step 4",
    ),
    "removed with a value": ("delta", [row(1, Op.REMOVED, b"\x01", user_key=text("b"))], "value or a stamp"),
    "a timer with a value": (
        "delta",
        [row(3, Op.PUT, b"\x01", user_key=b"\x93\x01" + text("t") + VOID)],
        "value or a stamp",
    ),
    "a timer of another shape": ("delta", [row(3, Op.PUT, user_key=b"\x92\x01" + text("t"))], "do not hold"),
}


@pytest.mark.reliability(27)
@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_no_writer_writes(name: str) -> None:
    """Catches: nonsense taken for state, or told without saying where it is."""
    kind, rows, complaint = BAD_ROWS[name]
    place: Place = {"path": "evil"}
    if name not in ("unknown state", "states descend"):  # which state is at fault cannot be told there
        place |= {"state": ("list", "map", "value", "timers")[rows[-1][1]], "key_group": rows[-1][0]}
    backend = small_backend()
    with raising(CorruptionError, r"record batch 0: .*row \d+", **place) as caught:
        restore([StateFileReader.of_bytes(file_of(kind, rows), name="evil")], backend)
    assert complaint in str(caught.value)


@pytest.mark.reliability(27)
def test_the_same_base_twice_is_refused() -> None:
    """Catches: two bases of one key group that are merged silently."""
    base, *_ = small_files()
    assert outcome(base, base) is CorruptionError


def test_in_a_merged_delta_a_removed_user_key_may_be_absent() -> None:
    """Catches: a merged delta refused because the key was put and removed within it."""
    rows = [row(1, Op.PUT, b"\x01", user_key=text("a")), row(1, Op.REMOVED, user_key=text("b"))]
    assert outcome(file_of("delta", rows)) is CorruptionError
    assert outcome(file_of("delta", rows, merged=2))[1] == [("a", "", {"a": 1})]


def test_the_good_rows_are_good() -> None:
    """Catches: BAD_ROWS that are refused for another reason than the one they are about."""
    rows = [
        row(0, Op.CLEARED),
        row(0, Op.APPENDED, b"\x01"),
        row(1, Op.PUT, b"\x01", user_key=text("b")),
        row(2, Op.REPLACED, text("x")),
        row(3, Op.PUT, user_key=b"\x93\x01" + text("t") + VOID),
    ]
    assert outcome(file_of("delta", rows)) == [
        [("a", "", [1])],
        [("a", "", {"b": 1})],
        [("a", "", "x")],
        [("a", "", {(1, "t", ""): True})],
    ]


def test_stamps_and_time_to_live_switched_on_and_off() -> None:
    """Catches: stamps lost, or values that are Stamped where nothing expects it."""
    ttl = TtlConfig(timedelta(seconds=1))

    def make(with_ttl: bool, now: int | None = 5) -> HeapKeyedStateBackend:
        backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)
        backend.ttl_clock.processing_time = now
        backend.get_partitioned_state(ValueStateDescriptor("v", int, ttl=ttl if with_ttl else None))
        return backend

    def written(with_ttl: bool) -> bytes:
        backend = make(with_ttl)
        backend.set_current_key("a")
        backend.get_partitioned_state(ValueStateDescriptor("v", int, ttl=ttl if with_ttl else None)).update(7)
        with backend.snapshot() as snapshot:
            return b"".join(BaseWriter(backend, snapshot))

    def restored(data: bytes, backend: HeapKeyedStateBackend) -> Any:
        restore([StateFileReader.of_bytes(data)], backend)
        return next(iter(backend.registered_kv_states["v"]))[2]

    assert restored(written(True), make(True, now=99)) == Stamped(7, 5)
    assert restored(written(True), make(False)) == 7
    assert restored(written(False), make(True, now=99)) == Stamped(7, 99)
    with raising(RestoreRefusedError, "stamps", state="v"):
        restored(written(False), make(True, now=None))
