"""The heap's walks over what expires: what may happen to a large map or a long list between two steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import CopyOnWriteStateTable, NestedMapsStateTable
from emberstate.heap.ttl_sweep import ELEMENTS
from emberstate.keygroups import KeySchema
from emberstate.state.changes import Op
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig

LIFE = 10
TTL = TtlConfig(timedelta(microseconds=LIFE))
LONG = 5 * ELEMENTS


@pytest.fixture(params=[CopyOnWriteStateTable, NestedMapsStateTable], ids=["copy-on-write", "nested"])
def backend(request: pytest.FixtureRequest) -> HeapKeyedStateBackend:
    """A backend at time 0, with a current key."""
    made = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1, table_type=request.param)
    made.ttl_clock.processing_time = 0
    made.set_current_key("ann")
    return made


def stored(backend: HeapKeyedStateBackend, name: str) -> Any:
    """What the one entry of a state holds, expired or not, without stamps; None if there is no entry."""
    contents = [content for _, _, content in backend.registered_kv_states[name]]
    assert len(contents) <= 1
    if not contents:
        return None
    [content] = contents
    if isinstance(content, list):
        return [element.value for element in content]
    return {user_key: value.value for user_key, value in content.items()}


def step_into(backend: HeapKeyedStateBackend) -> None:
    """Take the clean-up to the middle of the only entry."""
    while backend.statistics().clean_up.looked_at < ELEMENTS:
        assert backend.clean_up(1) < LONG // 2


def finish(backend: HeapKeyedStateBackend) -> int:
    """Finish the pass that is under way; how many were removed."""
    passes = backend.statistics().clean_up.passes
    removed = 0
    while backend.statistics().clean_up.passes == passes:
        removed += backend.clean_up(1)
    return removed


def test_elements_appended_meanwhile_stay(backend: HeapKeyedStateBackend) -> None:
    """Catches a list that takes its place again without what was added while it was walked."""
    state = backend.get_partitioned_state(ListStateDescriptor("s", int, ttl=TTL))
    state.add_all(range(LONG))
    backend.ttl_clock.processing_time = 5
    state.add(-1)
    backend.ttl_clock.processing_time = LIFE
    step_into(backend)
    state.add(-2)
    with backend.snapshot():
        state.add(-3)
        assert finish(backend) == LONG
    assert stored(backend, "s") == [-1, -2, -3]


def test_a_list_replaced_meanwhile_is_left_alone(backend: HeapKeyedStateBackend) -> None:
    """Catches an old list put in the place of a new one."""
    state = backend.get_partitioned_state(ListStateDescriptor("s", int, ttl=TTL))
    changes: list[Callable[[], Any]] = [lambda: state.update([7]), lambda: state.clear(), lambda: state.get()]
    for change in changes:
        backend.ttl_clock.processing_time = 0
        state.update(list(range(LONG)))
        backend.ttl_clock.processing_time = LIFE
        step_into(backend)
        change()
        now = stored(backend, "s")
        finish(backend)
        assert stored(backend, "s") == now


def test_a_list_rolled_back_meanwhile_is_left_to_the_next_pass(backend: HeapKeyedStateBackend) -> None:
    """Catches survivors of a future that is gone: cut back and appended to again, the list is the same object and
    as long as it was.
    """
    state = backend.get_partitioned_state(ListStateDescriptor("s", int, ttl=TTL))
    state.add(-1)
    backend.ttl_clock.processing_time = 5
    with backend.snapshot() as snapshot:
        state.add_all(range(LONG))
        backend.ttl_clock.processing_time = 0
        state.add_all([-2] * LONG)
        backend.ttl_clock.processing_time = LIFE
        step_into(backend)
        backend.roll_back(snapshot)
        backend.set_current_key("ann")
        backend.ttl_clock.processing_time = 5
        state.add_all([-3] * LONG)
        backend.ttl_clock.processing_time = 0
        state.add_all([-4] * LONG)
        backend.ttl_clock.processing_time = LIFE
        assert finish(backend) == 0
        assert stored(backend, "s") == [-1] + [-3] * LONG + [-4] * LONG
        assert finish(backend) == LONG + 1
        assert stored(backend, "s") == [-3] * LONG


def test_a_long_list_is_written_anew_only_if_half_of_it_has_expired(backend: HeapKeyedStateBackend) -> None:
    """Catches a commit that writes a whole list for each element that expires."""
    state = backend.get_partitioned_state(ListStateDescriptor("s", int, ttl=TTL))
    for half in (LONG // 2 - 1, LONG // 2):
        backend.ttl_clock.processing_time = 0
        state.update([-1] * half)
        backend.ttl_clock.processing_time = 5
        state.add_all(range(LONG - half))
        backend.ttl_clock.processing_time = LIFE
        with backend.snapshot() as snapshot:
            removed = backend.clean_up(10**9)
            listed = backend.changes(snapshot)
            if half < LONG // 2:
                assert (removed, listed) == (0, [])
            else:
                assert removed == half
                [(_, _, (_, _, ops))] = listed
                assert [op[0] for op in ops] == [Op.CLEARED, Op.APPENDED]
                assert len(ops[1][1]) == LONG - half


def test_elements_that_can_change_are_those_of_the_state(backend: HeapKeyedStateBackend) -> None:
    """Catches a walk over several transactions that brings back what a caller still holds: what is changed after
    its transaction must reach nothing.
    """
    state = backend.get_partitioned_state(ListStateDescriptor("s", list[int], ttl=TTL))
    backend.ttl_clock.processing_time = 5
    mine = [7]
    state.add(mine)
    backend.ttl_clock.processing_time = 0
    state.add_all([[number] for number in range(LONG)])
    backend.ttl_clock.processing_time = LIFE
    step_into(backend)
    with backend.snapshot():
        mine.append(99)
        assert finish(backend) == LONG
        assert stored(backend, "s") == [[7]]


@pytest.mark.parametrize("value_type", [int, list[int]])
def test_a_large_map_changed_meanwhile(backend: HeapKeyedStateBackend, value_type: Any) -> None:
    """Catches a walk that removes what was written anew, stops at the first change, or goes on in a map that is not
    the entry's any more.
    """
    state = backend.get_partitioned_state(MapStateDescriptor("s", int, value_type, ttl=TTL))
    one: Any = 1 if value_type is int else [1]
    state.put_all(dict.fromkeys(range(LONG), one))
    backend.ttl_clock.processing_time = LIFE
    step_into(backend)
    left = list(stored(backend, "s"))
    assert 0 < len(left) < LONG
    state.put_all(dict.fromkeys(left[::2], one))
    state.remove(left[1])
    for number in range(LONG, 4 * LONG):  # the table grows
        state[number] = one
    finish(backend)
    assert set(stored(backend, "s")) == {*left[::2], *range(LONG, 4 * LONG)}
    backend.ttl_clock.processing_time = 2 * LIFE
    step_into(backend)
    backend.clean_up(1)
    state.clear()
    state.put_all(dict.fromkeys(range(LONG), one))
    finish(backend)
    assert set(stored(backend, "s")) == set(range(LONG))
    backend.check_invariants()


def test_an_empty_table_that_was_large_costs_what_its_buckets_cost(backend: HeapKeyedStateBackend) -> None:
    """Catches a call that looks for an entry through all the buckets of a table that was emptied."""
    state = backend.get_partitioned_state(ValueStateDescriptor("s", int, ttl=TTL))
    for number in range(5_000):
        backend.set_current_key(f"k{number}")
        state.update(number)
    backend.ttl_clock.processing_time = LIFE
    assert backend.clean_up(10**9) == 5_000
    before = backend.statistics().clean_up
    if isinstance(backend.registered_kv_states["s"], CopyOnWriteStateTable):
        assert backend.clean_up(10) == 0
        assert backend.statistics().clean_up.passes == before.passes
    assert finish(backend) == 0
