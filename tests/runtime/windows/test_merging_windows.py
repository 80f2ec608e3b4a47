"""`MergingWindowSet` against a sweep over all windows that were ever added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.errors import InvariantError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.windows.merging_windows import MERGING_WINDOWS, MergingWindowSet
from emberstate.runtime.windows.time_window import TimeWindow


def make() -> tuple[HeapKeyedStateBackend, MergingWindowSet]:
    """A set, with a current key."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    backend.set_current_key("ann")
    return backend, MergingWindowSet(backend.get_internal_state(MERGING_WINDOWS))


def swept(windows: list[TimeWindow]) -> list[TimeWindow]:
    """What windows become when all that overlap or touch are one."""
    found: list[TimeWindow] = []
    for window in sorted(windows):
        if found and window.start <= found[-1].end:
            found[-1] = TimeWindow(found[-1].start, max(found[-1].end, window.end))
        else:
            found.append(window)
    return found


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=30))
def test_against_a_sweep(rows: list[tuple[int, int]]) -> None:
    """Catches: windows that overlap and stay two, a merge across a gap, content that is lost or in two windows."""
    backend, windows = make()
    added: list[TimeWindow] = []
    contents: dict[TimeWindow, list[TimeWindow]] = {}  # by state window

    for start, length in rows:
        window = TimeWindow(start, start + length)
        merge = windows.merge_of(window)
        windows.add(merge)
        for absorbed in merge.merged_state_windows:
            contents[merge.state_window] += contents.pop(absorbed)
        contents.setdefault(merge.state_window, []).append(window)
        added.append(window)
        windows.check_invariants()
        assert windows.merge_of(merge.window).merged == ()

    for whole in swept(added):
        state = windows.state_window(whole)
        assert state is not None
        assert sorted(contents.pop(state)) == sorted(w for w in added if whole.start <= w.start < whole.end)
        windows.retire(whole)
    assert contents == {}
    assert backend.number_of_entries() == 0


def test_asking_changes_nothing() -> None:
    """Catches: a row that turns out to be late and has merged windows all the same."""
    _, windows = make()
    windows.add(windows.merge_of(TimeWindow(0, 10)))

    merge = windows.merge_of(TimeWindow(5, 15))

    assert merge.window == TimeWindow(0, 15)
    assert windows.state_window(TimeWindow(0, 10)) == TimeWindow(0, 10)
    assert windows.state_window(TimeWindow(0, 15)) is None


@pytest.mark.parametrize(
    "pairs",
    [
        {TimeWindow(0, 5): TimeWindow(0, 5), TimeWindow(5, 9): TimeWindow(6, 7)},
        {TimeWindow(0, 5): TimeWindow(0, 5), TimeWindow(6, 9): TimeWindow(0, 5)},
        {TimeWindow(0, 5): TimeWindow(4, 6)},
    ],
)
def test_broken_sets_are_noticed(pairs: dict[TimeWindow, TimeWindow]) -> None:
    """Catches: `check_invariants` that never fails."""
    backend, windows = make()
    state = backend.get_internal_state(MERGING_WINDOWS)
    for window, state_window in pairs.items():
        state.put(window, state_window)

    with pytest.raises(InvariantError):
        windows.check_invariants()
