"""The index of timers against a plain sorted list, with small blocks, so that they are cut and emptied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.errors import InvariantError
from emberstate.heap.states import timer_index
from emberstate.heap.states.timer_index import TimerIndex
from tests.raising import raising

#: Few times and few keys, so that many timers share a time, and the ends of what fits into 64 bits.
times = st.integers(0, 3) | st.sampled_from([-(2**63), -1, 2**63 - 1])
timers = st.tuples(times, st.integers(0, 30), st.sampled_from("ab"))


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_index, "BLOCK", 4)
        yield


@given(st.sets(timers, max_size=40), st.lists(st.tuples(st.sampled_from("+-*"), timers), max_size=80))
def test_it_is_a_sorted_list(start: set[tuple[int, int, str]], steps: list[tuple[str, tuple[int, int, str]]]) -> None:
    """Catches a timer lost, repeated or out of order: at the edge of a block, among timers of one time, or where
    2**63 does not fit any more.
    """
    index, model = TimerIndex(start), sorted(start)
    for step, timer in steps:
        if step == "+" and timer not in model:
            index.add(timer)
            model.append(timer)
            model.sort()
        elif step == "-" and model:
            timer = min(model, key=lambda other: abs(other[1] - timer[1]))
            index.remove(timer)
            model.remove(timer)
        elif step == "*" and model:
            assert index.pop_first() == model.pop(0)
        index.check_invariants()
        assert index.first() == (model[0] if model else None)
        assert len(index) == len(model)
    assert list(index) == model


def test_many_timers_of_one_time() -> None:
    """Catches a search that goes through all blocks which end with the same time, or stops at the first."""
    index = TimerIndex()
    for number in range(1_000):
        index.add((7, number * 389 % 1_000))
    index.check_invariants()
    for number in range(0, 1_000, 2):
        index.remove((7, number))
    assert list(index) == [(7, number) for number in range(1, 1_000, 2)]


@pytest.mark.parametrize("timer", [(0, 1), (5, 0), (5, 9), (9, 1)])
def test_removing_what_is_not_there_is_a_broken_invariant(timer: tuple[int, int]) -> None:
    """Catches another timer removed in its place, silently."""
    for index in (TimerIndex([(5, 1), (5, 5), (6, 1), (6, 2), (6, 3)]), TimerIndex()):
        held = list(index)
        with raising(InvariantError, expected=timer):
            index.remove(timer)
        assert list(index) == held
