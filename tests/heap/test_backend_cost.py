"""What operations cost, counted in copies and objects rather than in seconds: cost follows change."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from emberstate.codec import Codec, codec_for
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tests.heap.conftest import COMPILED
from tests.state.support import Mean

MANY = 100_000 if COMPILED else 10_000
#: Entries of one bucket's chain that a change copies, and some that are moved because the map is growing.
FEW = 40


class Counting:
    """A codec that counts the copies made through it."""

    def __init__(self, type_: Any) -> None:
        original = codec_for(type_)
        self.copies = 0
        self.codec: Codec[Any] = Codec()
        for name in Codec.__slots__:
            setattr(self.codec, name, getattr(original, name))

        def copy(value: Any) -> Any:
            self.copies += 1
            return original.copy(value)

        self.codec.copy = copy


@pytest.fixture
def backend() -> HeapKeyedStateBackend:
    """A backend with a current key."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    backend.set_current_key("ann")
    return backend


def stored(backend: HeapKeyedStateBackend, name: str) -> Any:
    """What the table holds for the current key."""
    return backend.registered_kv_states[name].peek("")


def copied(backend: HeapKeyedStateBackend, name: str) -> tuple[int, int]:
    """Entries copied so far: in the state's table, and in the map that the current key has in it."""
    large = stored(backend, name).statistics()
    table = backend.registered_kv_states[name].statistics()
    return table.entry_copies + table.state_copies, large.entry_copies + large.state_copies


@pytest.mark.parametrize("value_type", [int, list[int]])
def test_touching_one_user_key_copies_a_bounded_part(backend: HeapKeyedStateBackend, value_type: Any) -> None:
    """Catches Flink's copy of the whole map on the first touch after a snapshot."""
    counting = Counting(value_type)
    descriptor: MapStateDescriptor[int, Any] = MapStateDescriptor("m", int, counting.codec)
    state = backend.get_partitioned_state(descriptor)
    for number in range(MANY):
        state[number] = number if value_type is int else [number]
    backend.snapshot().release()
    touches: list[Callable[[], Any]] = [
        lambda: state.put(5, 6 if value_type is int else [6]),
        lambda: state.get(7),
        lambda: state.remove(9),
        lambda: state.put(-1, None),
        lambda: state.contains(11),
    ]
    for touch in touches:
        counting.copies = 0
        outer, inner = copied(backend, "m")
        with backend.snapshot() as snapshot:
            touch()
            changes = backend.changes(snapshot)
            backend.roll_back(snapshot)
            backend.set_current_key("ann")
            after = copied(backend, "m")
        assert len(changes) <= 1
        assert sum(len(ops) for _, _, (_, _, ops) in changes) <= 1
        assert after[0] - outer <= FEW
        assert after[1] - inner <= FEW
        assert counting.copies <= 3


@pytest.mark.parametrize("element_type", [int, list[int]])
def test_appending_to_a_large_list_copies_no_element(backend: HeapKeyedStateBackend, element_type: Any) -> None:
    """Catches a list copied as a whole, or its elements one by one, on the first append after a snapshot."""
    counting = Counting(element_type)
    descriptor: ListStateDescriptor[Any] = ListStateDescriptor("l", counting.codec)
    state = backend.get_partitioned_state(descriptor)
    make: Any = int if element_type is int else (lambda number: [number])
    state.update([make(number) for number in range(MANY)])
    backend.snapshot().release()
    shared = stored(backend, "l").items
    first = shared[0]
    for commit in range(3):
        counting.copies = 0
        with backend.snapshot() as snapshot:
            state.add(make(commit))
            (change,) = backend.changes(snapshot)
            assert len(change[2][2]) == 1
            backend.roll_back(snapshot)
            backend.set_current_key("ann")
            state.add(make(commit))
            assert len(backend.changes(snapshot)) == 1
        assert stored(backend, "l").items is shared
        assert shared[0] is first
        assert counting.copies <= 2
    assert len(state) == MANY + 3


def test_user_keys_are_listed_without_copying_values(backend: HeapKeyedStateBackend) -> None:
    """Catches `for key in m`, `len(m)` or `key in m` that copies every value."""
    counting = Counting(list[int])
    descriptor: MapStateDescriptor[int, Any] = MapStateDescriptor("m", int, counting.codec)
    state = backend.get_partitioned_state(descriptor)
    for number in range(1000):
        state[number] = [number]
    with backend.snapshot() as snapshot:
        counting.copies = 0
        assert set(state) == set(state.keys()) == set(range(1000))
        assert len(state) == 1000
        assert 5 in state
        assert not state.is_empty()
        assert counting.copies == 0
        assert backend.changes(snapshot) == []


def test_a_value_read_often_is_copied_once(backend: HeapKeyedStateBackend) -> None:
    """Catches a copy per read; one per transaction is what it takes."""
    counting = Counting(list[int])
    descriptor: ValueStateDescriptor[Any] = ValueStateDescriptor("v", counting.codec)
    state = backend.get_partitioned_state(descriptor)
    state.update([1])
    with backend.snapshot():
        counting.copies = 0
        for _ in range(100):
            state.value()
        assert counting.copies == 1


def test_values_that_cannot_change_are_never_copied(backend: HeapKeyedStateBackend) -> None:
    """Catches copies of what needs none: numbers, and an accumulator that is a tuple."""
    counting = Counting(tuple[float, int])
    state = backend.get_partitioned_state(AggregatingStateDescriptor("a", Mean(), counting.codec))
    for number in range(100):
        with backend.snapshot():
            state.add(float(number))
            state.get()
    assert counting.copies == 0


def blocks_of_a_snapshot(entries: int) -> int:
    """How many memory blocks a snapshot of 128 key groups and three states takes while it is live."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(int))
    states = [
        backend.get_partitioned_state(ValueStateDescriptor("v", int)),
        backend.get_partitioned_state(ListStateDescriptor("l", int)),
        backend.get_partitioned_state(MapStateDescriptor("m", int, int)),
    ]
    for key in range(entries):
        backend.set_current_key(key)
        states[0].update(key)
        states[1].add(key)
        states[2][key] = key
    backend.snapshot().release()
    gc.collect()
    before = sys.getallocatedblocks()
    snapshot = backend.snapshot()
    taken = sys.getallocatedblocks() - before
    snapshot.release()
    return taken


def test_a_snapshot_allocates_the_same_for_few_and_many_entries() -> None:
    """Catches a snapshot that copies an array, or makes an object, per key group, state or entry."""
    blocks_of_a_snapshot(10)  # what the interpreter makes on the first time
    few, many = blocks_of_a_snapshot(10), blocks_of_a_snapshot(10_000)
    assert few == many
    assert many < 30


def test_changes_and_roll_back_look_at_what_was_touched_only(backend: HeapKeyedStateBackend) -> None:
    """Catches a commit or roll-back that walks the whole state."""
    counting = Counting(list[int])
    descriptor: ValueStateDescriptor[Any] = ValueStateDescriptor("v", counting.codec)
    state = backend.get_partitioned_state(descriptor)
    for number in range(2_000):
        backend.set_current_key(f"k{number}")
        state.update([number])
    with backend.snapshot() as snapshot:
        counting.copies = 0
        for number in range(5):
            backend.set_current_key(f"k{number}")
            state.value().append(1)
        assert len(backend.changes(snapshot)) == 5
        assert counting.copies == 10  # lent, and taken back
        backend.roll_back(snapshot)
        assert backend.changes(snapshot) == []
        assert counting.copies == 10
