"""Small maps as tuples, large ones as state maps of their own: the same to whoever uses them."""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.map_value import SMALL_LIMIT, small_put, small_remove
from emberstate.keygroups import KeySchema
from emberstate.state.changes import ABSENT, Op, apply_ops
from emberstate.state.descriptors import MapStateDescriptor


@pytest.fixture
def backend() -> HeapKeyedStateBackend:
    """A backend with a current key."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1)
    backend.set_current_key("ann")
    return backend


def stored(backend: HeapKeyedStateBackend) -> Any:
    """What the table holds for the current key."""
    return backend.registered_kv_states["m"].peek("")


def listed(backend: HeapKeyedStateBackend, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
    """The steps of the one entry that changed, or none."""
    changes = backend.changes(snapshot)
    return changes[0][2][2] if changes else ()


def test_small_maps() -> None:
    """Catches a put that moves a user key, and a removal of half a pair."""
    small: tuple[Any, ...] = ()
    for number in range(4):
        small = small_put(small, -1, number, str(number))
    small = small_put(small, 2, 1, "one")
    assert small == (0, "0", 1, "one", 2, "2", 3, "3")
    assert small_remove(small, 2) == (0, "0", 2, "2", 3, "3")
    assert small_remove(small, 0) == (1, "one", 2, "2", 3, "3")
    assert small_remove(small, 6) == (0, "0", 1, "one", 2, "2")


def test_a_map_turns_large_at_the_limit_and_stays_so(backend: HeapKeyedStateBackend) -> None:
    """Catches a map that changes its form at every put and removal around the limit, and maps never large."""
    state = backend.get_partitioned_state(MapStateDescriptor("m", int, int))
    for number in range(SMALL_LIMIT):
        state[number] = number
        assert isinstance(stored(backend), tuple)
    state[0] = 5
    assert isinstance(stored(backend), tuple)
    state[SMALL_LIMIT] = 1
    large = stored(backend)
    assert not isinstance(large, tuple)
    for number in range(SMALL_LIMIT):
        del state[number]
    assert stored(backend) is large
    del state[SMALL_LIMIT]
    assert stored(backend) is None
    state[1] = 1
    assert isinstance(stored(backend), tuple)


def test_values_that_can_change_are_large_at_once(backend: HeapKeyedStateBackend) -> None:
    """Catches a value that can change in a tuple, where it has no version of its own."""
    state = backend.get_partitioned_state(MapStateDescriptor("m", int, list[int]))
    state[1] = [1]
    assert not isinstance(stored(backend), tuple)


@pytest.mark.parametrize("before", [0, 1, SMALL_LIMIT, SMALL_LIMIT + 1, 3 * SMALL_LIMIT])
@pytest.mark.parametrize("after", [0, 1, SMALL_LIMIT, SMALL_LIMIT + 1, 3 * SMALL_LIMIT])
@pytest.mark.parametrize("how", ["replace", "adjust"])
def test_every_change_of_form_is_listed_and_undone(
    backend: HeapKeyedStateBackend, before: int, after: int, how: str
) -> None:
    """Catches a record that merges new content with old, or a roll-back across a change of form."""
    state = backend.get_partitioned_state(MapStateDescriptor("m", int, int))
    old = {number: number for number in range(before)}
    new = {number: -number for number in range(after)}
    state.put_all(old)
    with backend.snapshot() as snapshot:
        for _ in range(2):
            if how == "replace":
                state.clear()
            else:
                for number in range(after, before):
                    state.remove(number)
            state.put_all(new)
            found = apply_ops(old or ABSENT, listed(backend, snapshot))
            assert found == (new or ABSENT)
            assert dict(state.items()) == new
            backend.roll_back(snapshot)
            backend.set_current_key("ann")
            assert dict(state.items()) == old
            assert listed(backend, snapshot) == ()


@pytest.mark.parametrize("size", [4, 4 * SMALL_LIMIT])
def test_records_name_only_what_changed(backend: HeapKeyedStateBackend, size: int) -> None:
    """Catches a commit that writes the whole map for one user key."""
    state = backend.get_partitioned_state(MapStateDescriptor("m", int, int))
    state.put_all({number: number for number in range(size)})
    with backend.snapshot() as snapshot:
        state[1] = 100
        del state[2]
        state[-1] = 5
        state[-2] = 6
        del state[-2]
        assert sorted(listed(backend, snapshot)) == [(Op.PUT, -1, 5), (Op.PUT, 1, 100), (Op.REMOVED, 2)]
