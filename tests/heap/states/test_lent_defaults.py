"""Defaults that can change, handed out by reads of nothing, on the heap."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from emberstate.errors import StateTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import CopyOnWriteStateTable, NestedMapsStateTable, StateTable
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig
from tests.raising import raising

TABLES = [CopyOnWriteStateTable, NestedMapsStateTable]
HOUR = timedelta(hours=1)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "change", "change", "hold", "held", "update", "clear", "snapshot", "roll back"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


def opened(table_type: type[StateTable], **options: Any) -> tuple[HeapKeyedStateBackend, Any]:
    """A backend with a value state that has a default, and a current key."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(int), table_type=table_type)
    backend.ttl_clock.processing_time = 0
    state = backend.get_partitioned_state(ValueStateDescriptor("v", list[int], default=[0], **options))
    backend.set_current_key(1)
    return backend, state


def content(backend: HeapKeyedStateBackend) -> dict[Any, Any]:
    """All that is stored, by key."""
    return {key: value for key, _, value in backend.registered_kv_states["v"]}


@pytest.mark.parametrize("table_type", TABLES)
@given(STEPS)
def test_any_order_of_reads_changes_and_points_in_time(table_type: type[StateTable], steps: list[Any]) -> None:
    """Catches: a changed default that is lost, comes back after a clear or roll-back, or reaches a later snapshot."""
    backend, state = opened(table_type)
    other = backend.get_partitioned_state(ValueStateDescriptor("v", list[int], default=[0]))  # a second handle
    live: dict[int, list[int]] = {}  # of every key that was read or written since the snapshot
    snapshot = backend.snapshot()
    stored: dict[int, list[int]] = {}
    defaults: set[int] = set()  # keys of `live` that have what they have by a read
    held: list[Any] = []  # what was read and is still the state's
    for number, (step, key) in enumerate(steps):
        backend.set_current_key(key)
        if step in ("read", "hold", "change"):
            value = (state, other)[number % 2].value()
            if key not in live:
                defaults.add(key)
            assert value == live.setdefault(key, [0])
            if step == "change":
                value.append(number)
                live[key] = list(value)
            if step == "hold":
                held.append((key, value))
        elif step == "held" and held:
            key, value = held.pop()
            value.append(number)
            live[key] = list(value)
        elif step == "update":
            state.update([number % 3])
            live[key] = [number % 3]
            defaults.discard(key)
            held = [one for one in held if one[0] != key]
        elif step == "clear":
            state.clear()
            live.pop(key, None)
            defaults.discard(key)
            held = [one for one in held if one[0] != key]
        elif step == "snapshot":
            snapshot.release()
            snapshot = backend.snapshot()
            for _, value in held:
                value.append(-1)  # reaches nothing
            held = []
            stored = {one: value for one, value in live.items() if one not in defaults or value != [0]}
            live = copy.deepcopy(stored)
            defaults.clear()
            assert content(backend) == stored
        elif step == "roll back":
            backend.roll_back(snapshot)
            held = []
            live = copy.deepcopy(stored)
            defaults.clear()
            assert content(backend) == stored
    backend.changes(snapshot)
    assert content(backend) == {one: value for one, value in live.items() if one not in defaults or value != [0]}
    backend.check_invariants()


@pytest.mark.parametrize("table_type", TABLES)
def test_a_default_that_expires(table_type: type[StateTable]) -> None:
    """Catches: a changed default without a stamp, that never expires, or one that is stored for being read."""
    backend, state = opened(table_type, ttl=TtlConfig(HOUR))
    backend.snapshot().release()
    state.value()
    backend.snapshot().release()
    assert content(backend) == {}
    state.value().append(1)
    backend.snapshot().release()
    backend.ttl_clock.processing_time = HOUR // timedelta(microseconds=1) - 1
    assert state.value() == [0, 1]
    backend.ttl_clock.processing_time += 1
    assert state.value() == [0]


@pytest.mark.parametrize("table_type", TABLES)
def test_a_default_changed_into_a_wrong_type_is_refused(table_type: type[StateTable]) -> None:
    """Catches: a wrong type that gets into a checkpoint by way of a default."""
    backend, state = opened(table_type)
    snapshot = backend.snapshot()
    state.value().append("text")
    with raising(StateTypeError, field="$[1]"):
        backend.changes(snapshot)
    backend.roll_back(snapshot)
    backend.set_current_key(1)
    assert state.value() == [0]
