"""Assigners and slices: where windows are, and what is refused."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.codec import key_codec_for
from emberstate.errors import StateDeclarationError
from emberstate.runtime.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from emberstate.runtime.windows.time_window import GlobalWindow, TimeWindow
from tests.raising import raising
from tests.runtime.windows.world import micros

TIMES = st.integers(-(2**55), 2**55)
SIZES = st.integers(1, 40)


@given(time=TIMES, size=SIZES, data=st.data())
def test_tumbling_windows_tile_time(time: int, size: int, data: st.DataObject) -> None:
    """Catches: a window that its row is not in, or that does not start at the offset, before 1970 above all."""
    offset = data.draw(st.integers(1 - size, size - 1))

    [window] = TumblingEventTimeWindows.of(micros(size), micros(offset)).assign(None, time)

    assert window.start <= time < window.end
    assert (window.end - window.start, (window.start - offset) % size) == (size, 0)


@given(time=TIMES, size=SIZES, slide=SIZES, data=st.data())
def test_sliding_windows_are_all_that_hold_the_row(time: int, size: int, slide: int, data: st.DataObject) -> None:
    """Catches: a window too many or too few, or out of order."""
    offset = data.draw(st.integers(1 - slide, slide - 1))
    starts = [s for s in range(time - size + 1, time + 1) if (s - offset) % slide == 0]

    found = SlidingEventTimeWindows.of(micros(size), micros(slide), micros(offset)).assign(None, time)

    assert found == [TimeWindow(start, start + size) for start in starts]


@given(time=TIMES, size=SIZES, slide=SIZES, data=st.data())
def test_windows_are_runs_of_slices(time: int, size: int, slide: int, data: st.DataObject) -> None:
    """Catches: a slice that is only partly in a window; first, last and all windows of a slice that disagree."""
    offset = data.draw(st.integers(1 - slide, slide - 1))
    windows = SlidingEventTimeWindows.of(micros(size), micros(slide), micros(offset))
    grid = windows.grid()
    if grid is None:
        assert slide >= size
        return

    piece = grid.slice_of(time)
    holding = list(windows.assign(None, time))

    assert piece.start <= time < piece.end
    assert all(window.start <= piece.start and piece.end <= window.end for window in holding)
    assert list(grid.windows_of(piece)) == holding
    assert (grid.first_window(piece), grid.last_window(piece)) == (holding[0], holding[-1])
    assert list(windows.assign(None, piece.end - 1)) == holding


def test_processing_time_assigners_do_the_same() -> None:
    """Catches: two families of windows that drift apart."""
    for one, other in (
        (TumblingEventTimeWindows.of("7 seconds"), TumblingProcessingTimeWindows.of("7 seconds")),
        (SlidingEventTimeWindows.of("7 hours", "2 hours"), SlidingProcessingTimeWindows.of("7 hours", "2 hours")),
        (EventTimeSessionWindows.with_gap("1 hour"), ProcessingTimeSessionWindows.with_gap("1 hour")),
    ):
        assert one.assign(None, 10**12) == other.assign(None, 10**12)
        assert (one.is_event_time, other.is_event_time) == (True, False)


BAD: list[tuple[Any, str]] = [
    (lambda: TumblingEventTimeWindows.of(timedelta(0)), "size"),
    (lambda: TumblingEventTimeWindows.of(timedelta(seconds=-1)), "size"),
    (lambda: TumblingEventTimeWindows.of(timedelta.max), "size"),
    (lambda: TumblingEventTimeWindows.of(3600), "size"),  # type: ignore[arg-type]
    (lambda: TumblingEventTimeWindows.of("1 hour", "1 hour"), "offset"),
    (lambda: SlidingEventTimeWindows.of("1 hour", "0 seconds"), "slide"),
    (lambda: SlidingEventTimeWindows.of("1 hour", "1 minute", timedelta(minutes=-1)), "offset"),
    (lambda: EventTimeSessionWindows.with_gap("0 seconds"), "gap"),
    (lambda: EventTimeSessionWindows.with_dynamic_gap("1 hour"), "with_dynamic_gap"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "option"), BAD)
def test_declarations_that_cannot_work(make: Any, option: str) -> None:
    """Catches: windows of no length or beyond int64, and bare numbers without a unit, accepted silently."""
    with raising(StateDeclarationError, option=option):
        make()


def test_a_dynamic_gap_is_checked_for_every_row() -> None:
    """Catches: a session of no length, which would never take in a second row; the message must show the row."""
    windows = EventTimeSessionWindows.with_dynamic_gap(lambda row: timedelta(seconds=row))

    with raising(StateDeclarationError, "row -3", option="gap"):
        windows.assign(-3, 0)


def test_assigners_can_be_sent_and_compared() -> None:
    """Catches: a pipeline with windows that cannot be shipped to where it runs."""
    for made in (
        TumblingEventTimeWindows.of("1 hour", "5 minutes"),
        SlidingProcessingTimeWindows.of("1 hour", "5 minutes"),
        ProcessingTimeSessionWindows.with_gap("1 hour"),
        GlobalWindows(),
    ):
        assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_windows_are_keys_with_codecs() -> None:
    """Catches: a window that does not come back from a checkpoint as what it was."""
    for window in (TimeWindow(-(2**60), 2**60), GlobalWindow()):
        codec = key_codec_for(type(window))
        back = codec.decode(codec.encode(window))
        assert (back, type(back)) == (window, type(window))
