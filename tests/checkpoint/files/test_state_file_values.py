"""Keys and values through state files: every type, every length, evolution, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.checkpoint.files import sorted_rows as state_rows
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.codec import pickle_codec
from emberstate.errors import RestoreRefusedError, StateTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state import row_columns
from emberstate.state.changes import Op
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from tests.checkpoint.files.state_file_world import MAX_PARALLELISM, Profile, content_of, do, handle, make_backend
from tests.raising import raising


def base_of(backend: HeapKeyedStateBackend, snapshot: KeyedStateSnapshot) -> bytes:
    return b"".join(BaseWriter(backend, snapshot))


def opened(data: bytes) -> list[StateFileReader]:
    return [StateFileReader.of_bytes(data)]


KEYS_OF_EVERY_TYPE: dict[str, list[Any]] = {
    "bigint": [0, -1, 127, 128, -129, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)],
    "string": ["", "a", "x" * 31, "x" * 32, "y" * 255, "y" * 256, "z" * 70_000, "é", "\U0001f600", "a\0b"],
    "binary": [b"", b"\x00", b"x" * 255, b"x" * 256, b"y" * 70_000],
    "boolean": [True, False],
    "double": [0.0, -1.5, math.inf, -math.inf, 5e-324],
    "date": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC)],
    "timestamp_ntz": [datetime.datetime(2024, 3, 31, 2, 30, fold=1)],
    "decimal(10,2)": [decimal.Decimal("0.1"), decimal.Decimal("-99999999.99"), decimal.Decimal("-0")],
}


@pytest.mark.reliability(21)
@pytest.mark.parametrize("type_name", KEYS_OF_EVERY_TYPE)
@pytest.mark.parametrize("columns", [1, 2])
def test_keys_of_every_type(type_name: str, columns: int) -> None:
    """Catches: a key that comes back as another one, or in another key group; a length that a decoder
    miscounts."""
    schema = KeySchema([type_name] * columns)

    def make() -> tuple[HeapKeyedStateBackend, Any, Any]:
        backend = HeapKeyedStateBackend(schema, max_parallelism=MAX_PARALLELISM)
        value = backend.get_partitioned_state(ValueStateDescriptor("value", int))
        return backend, value, backend.get_partitioned_state(MapStateDescriptor("map", str, float))

    keys = [key if columns == 1 else (key,) * columns for key in KEYS_OF_EVERY_TYPE[type_name]]
    backend, value, map_state = make()
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        value.update(number)
        map_state["u"] = float(number)
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored, value, map_state = make()
    restore(opened(data), restored)
    restored.check_invariants()
    for number, key in enumerate(keys):
        restored.set_current_key(key)
        assert value.value() == number and map_state["u"] == number
    stored = {repr(key) for key, _, _ in restored.registered_kv_states["value"]}
    assert stored == {repr(key) for key, _, _ in backend.registered_kv_states["value"]}


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.lists(st.floats()),
    st.lists(st.binary()),
)
def test_scalars_come_back_exactly(ints: list[int], texts: list[str], floats: list[float], raws: list[bytes]) -> None:
    """Catches: a form of MessagePack that the compiled decoder reads otherwise than the codec."""
    values = {"int": ints, "str": texts, "float": floats, "bytes": raws}
    descriptors = {
        name: ListStateDescriptor(name, type_)
        for name, type_ in (("int", int), ("str", str), ("float", float), ("bytes", bytes))
    }

    def make() -> HeapKeyedStateBackend:
        backend = HeapKeyedStateBackend(KeySchema.from_python(int), max_parallelism=2)
        for descriptor in descriptors.values():
            backend.get_partitioned_state(descriptor)
        return backend

    backend = make()
    backend.set_current_key(1)
    for name, descriptor in descriptors.items():
        backend.get_partitioned_state(descriptor).update(values[name])
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = make()
    restore(opened(data), restored)
    restored.set_current_key(1)
    for name, descriptor in descriptors.items():
        assert repr(restored.get_partitioned_state(descriptor).get()) == repr(values[name])


@pytest.mark.parametrize("state", ["profile", "drafts", "notes"])
@pytest.mark.parametrize("new", [True, False])
def test_what_cannot_be_encoded_names_state_key_and_path(state: str, new: bool) -> None:
    """Catches: an error at commit that does not say where the wrong value is."""
    backend = make_backend()
    backend.set_current_key("ann")
    value: Any = {"profile": Profile("Ann", []), "drafts": [1], "notes": {"a": b"1"}}[state]
    wrong: Any = {"profile": Profile("Ann", [5]), "drafts": ["x"], "notes": {"a": "x"}}[state]  # type: ignore[list-item]
    field = {"profile": "$.tags[0]", "drafts": "$[0]", "notes": "$['a']"}[state]
    handled = handle(backend, state, "w1")
    store = {"profile": "update", "drafts": "add", "notes": "put"}[state]
    arguments = ((1, "a"),) if state == "notes" else ()
    if not new:
        getattr(handled, store)(*arguments, value)
    with backend.snapshot() as snapshot:
        getattr(handled, store)(*arguments, wrong)
        with raising(StateTypeError, "namespace 'w1'", state=state, key="ann", field=field):
            write_delta(backend, snapshot)
        backend.roll_back(snapshot)


def test_timers_in_typed_namespaces() -> None:
    """Catches: a window's timers restored without their type, or into a queue that was declared otherwise."""
    backend = make_backend()
    windows = backend.get_timer_queue("windows", namespace_type=tuple[int, int])
    backend.set_current_key("ann")
    windows.register(5, "close", (0, 5))
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = make_backend()
    queue = restored.get_timer_queue("windows", namespace_type=tuple[int, int])
    restore(opened(data), restored)
    restored.check_invariants()
    assert queue.poll(5) == (5, "ann", "close", (0, 5))
    with raising(RestoreRefusedError, "not declared", state="timers/windows"):
        restore(opened(data), make_backend())
    other = make_backend()
    other.get_timer_queue("windows")
    with raising(RestoreRefusedError, "timer type", state="timers/windows"):
        restore(opened(data), other)


@dataclasses.dataclass
class Before:
    """A value as it was declared once."""

    name: str
    visits: int


@dataclasses.dataclass
class After:
    """The same with a field more and one less."""

    name: str
    level: str = "new"


@pytest.mark.reliability(25)
def test_added_and_removed_fields_migrate() -> None:
    """Catches: a decoder that is not the stored schema's."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=2)
    backend.set_current_key("ann")
    backend.get_partitioned_state(ValueStateDescriptor("v", Before)).update(Before("Ann", 3))
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=2)
    value = restored.get_partitioned_state(ValueStateDescriptor("v", After))
    restore(opened(data), restored)
    restored.set_current_key("ann")
    assert value.value() == After("Ann", "new")


def test_pickled_state_restores_where_pickle_is_declared() -> None:
    """Catches: the pickle codec refused although both sides ask for it by name."""
    descriptor = ValueStateDescriptor("v", pickle_codec(complex))
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=2)
    backend.set_current_key("ann")
    backend.get_partitioned_state(descriptor).update(1 + 2j)
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=2)
    value = restored.get_partitioned_state(descriptor)
    restore(opened(data), restored)
    restored.set_current_key("ann")
    assert value.value() == 1 + 2j


def test_large_values_split_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a batch whose bytes outgrow Arrow's 32-bit offsets, or rows lost where batches are cut by
    bytes."""
    monkeypatch.setattr(state_rows, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(state_rows, "CHUNK_BYTES", 3_000)
    backend = make_backend()
    for i in range(200):
        do(backend, ("visits", f"key-{i % 5}", "", ["x" * (i * 7)]))
        do(backend, ("last", f"key-{i}", "", b"y" * (i * 11)))
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    assert len(opened(data)[0].entries) > 20
    restored = make_backend()
    restore(opened(data), restored)
    assert content_of(restored) == content_of(backend)


def test_steps_and_scalars_have_the_same_numbers_in_c() -> None:
    """Catches: a number changed in one of the places where a C constant stands for it."""
    declared = (Path(row_columns.__file__).parent / "row_columns.pxd").read_text(encoding="utf-8")
    constants = {name: int(number) for name, number in re.findall(r"^    ([A-Z_]+) = (\d+)$", declared, re.MULTILINE)}
    assert {op.name: op.value for op in Op}.items() <= constants.items()
    names = {"int": "AS_INT", "str": "AS_TEXT", "float": "AS_FLOAT", "bytes": "AS_BYTES"}
    assert {names[kind]: number for kind, number in row_columns.SCALARS.items()}.items() <= constants.items()
    source = Path(row_columns.__file__).with_name("row_columns.py").read_text(encoding="utf-8")
    assert all(f"    {op.name} = {op.value}\n" in source for op in Op)
