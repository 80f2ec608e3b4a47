"""`AppendList`: versions share one list, and no version ever sees another's elements."""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.list_value import ListKind, append_list_of
from emberstate.keygroups import KeySchema
from emberstate.state.changes import ABSENT, Op
from emberstate.state.descriptors import ListStateDescriptor


@pytest.fixture
def backend() -> HeapKeyedStateBackend:
    """A backend with a current key."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1)
    backend.set_current_key("ann")
    return backend


def shown(snapshot: Any) -> list[int]:
    """The list that a snapshot shows."""
    for _, _, elements in snapshot.entries("l", 0):
        content: list[int] = elements
        return content
    return []


def stored(backend: HeapKeyedStateBackend) -> Any:
    """The header of the current key's list."""
    return backend.registered_kv_states["l"].peek("")


def test_appending_after_a_roll_back_cuts_the_lost_future_off(backend: HeapKeyedStateBackend) -> None:
    """Catches elements of a failed attempt that come back, and a copy of the whole list to avoid that."""
    state = backend.get_partitioned_state(ListStateDescriptor("l", int))
    state.add_all(range(3))
    shared = stored(backend).items
    with backend.snapshot() as snapshot:
        for attempt in range(3):
            state.add(10 + attempt)
            assert state.get() == [0, 1, 2, 10 + attempt]
            assert stored(backend).items is shared
            assert [ops for _, _, (_, _, ops) in backend.changes(snapshot)] == [((Op.APPENDED, [10 + attempt]),)]
            backend.roll_back(snapshot)
            backend.set_current_key("ann")
            assert state.get() == [0, 1, 2]
    assert len(shared) <= 4


def test_a_snapshot_of_a_lost_future_stays_readable(backend: HeapKeyedStateBackend) -> None:
    """Catches a cut that reaches into what a snapshot on a side branch still shows."""
    state = backend.get_partitioned_state(ListStateDescriptor("l", int))
    state.add(0)
    first = backend.snapshot()
    state.add(1)
    second = backend.snapshot()
    backend.roll_back(first)
    backend.set_current_key("ann")
    state.add(2)
    third = backend.snapshot()
    state.add(3)
    assert (shown(first), shown(second), shown(third), state.get()) == ([0], [0, 1], [0, 2], [0, 2, 3])
    for snapshot, expected in ((second, [0, 1]), (first, [0]), (third, [0, 2]), (second, [0, 1])):
        backend.roll_back(snapshot)
        backend.set_current_key("ann")
        assert state.get() == expected
        assert (shown(first), shown(second), shown(third)) == ([0], [0, 1], [0, 2])
    second.release()
    first.release()
    third.release()


def test_going_back_to_a_side_branch_leaves_the_other_one_whole(backend: HeapKeyedStateBackend) -> None:
    """Catches a branch taken for the only one because it was rolled back to: the other's elements were cut
    off.
    """
    state = backend.get_partitioned_state(ListStateDescriptor("l", int))
    state.add(0)
    first = backend.snapshot()
    state.add(1)
    second = backend.snapshot()
    backend.roll_back(first)
    third = backend.snapshot()
    backend.roll_back(second)
    backend.roll_back(third)
    backend.set_current_key("ann")
    state.add(7)
    assert (shown(first), shown(second), shown(third), state.get()) == ([0], [0, 1], [0], [0, 7])


def test_replacing_is_listed_as_cleared_then_appended(backend: HeapKeyedStateBackend) -> None:
    """Catches a replaced list that restores as the old elements followed by the new ones."""
    state = backend.get_partitioned_state(ListStateDescriptor("l", int))
    state.update([1, 2])
    with backend.snapshot() as snapshot:
        state.update([1, 2, 3])
        ((_, _, (_, _, ops)),) = backend.changes(snapshot)
        assert ops == ((Op.CLEARED,), (Op.APPENDED, [1, 2, 3]))
        state.clear()
        state.add(1)
        ((_, _, (_, _, ops)),) = backend.changes(snapshot)
        assert ops == ((Op.CLEARED,), (Op.APPENDED, [1]))
        state.clear()
        ((_, _, (_, _, ops)),) = backend.changes(snapshot)
        assert ops == ((Op.CLEARED,),)


def test_elements_handed_in_are_taken_back_without_touching_the_rest(backend: HeapKeyedStateBackend) -> None:
    """Catches elements that their giver still changes, and old elements copied again at every commit."""
    state = backend.get_partitioned_state(ListStateDescriptor("l", list[int]))
    first = [1]
    state.add(first)
    backend.snapshot().release()
    second = [2]
    with backend.snapshot():
        kept = stored(backend).items[0]
        assert kept is not first
        state.add(second)
        second.append(3)
        with backend.snapshot():
            second.append(99)
            first.append(99)
            assert state.get() == [[1], [2, 3]]
            assert stored(backend).items[0] is kept


@pytest.mark.parametrize("copy_element", [None, list.copy])
def test_the_kind(copy_element: Any) -> None:
    """Catches a header that shares its length with its copy, or a delta that looks at elements."""
    kind = ListKind(copy_element)
    old = append_list_of([[1], [2]])
    new = kind.copy(old)
    assert new.items is old.items
    assert len(new) == len(old) == 2
    assert repr(old) == "AppendList([[1], [2]])"
    assert kind.view(old, None) == [[1], [2]]
    assert (kind.view(old, None)[0] is old.items[0]) == (copy_element is None)
    assert kind.delta(old, new, None) == ()
    assert kind.delta(ABSENT, new, None) == ((Op.APPENDED, [[1], [2]]),)
    assert kind.delta(old, ABSENT, None) == ((Op.CLEARED,),)
    assert kind.delta(ABSENT, ABSENT, None) == ()
    assert kind.lends == (copy_element is not None)
