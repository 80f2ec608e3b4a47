"""Slices: the pieces that overlapping windows are made of, so that a row is stored once and not once per window.

Windows of one size start every `slide`. Cut time at every start and every end: the pieces are `gcd(size, slide)`
long, each window is a run of whole pieces, and a row is in exactly one.

>>> grid = SliceGrid(size=10, slide=4, offset=0)
>>> grid.slice_of(13)
TimeWindow(start=12, end=14)
>>> list(grid.windows_of(TimeWindow(12, 14)))
[TimeWindow(start=4, end=14), TimeWindow(start=8, end=18), TimeWindow(start=12, end=22)]

Immutable; any thread.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from emberstate.runtime.windows.time_window import TimeWindow


@dataclasses.dataclass(frozen=True, slots=True)
class SliceGrid:
    """The slices of windows of `size` that start at `offset` and every `slide` from there; slide < size."""

    size: int
    slide: int
    offset: int
    #: How long a slice is.
    width: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", math.gcd(self.size, self.slide))  # the class is frozen

    def slice_of(self, time: int) -> TimeWindow:
        """The slice that a moment is in."""
        start = time - (time - self.offset) % self.width
        return TimeWindow(start, start + self.width)

    def last_window(self, piece: TimeWindow) -> TimeWindow:
        """The latest window with this slice: the slice is dropped with it."""
        start = piece.start - (piece.start - self.offset) % self.slide
        return TimeWindow(start, start + self.size)

    def first_window(self, piece: TimeWindow) -> TimeWindow:
        """The earliest window that has this slice."""
        start = piece.end - self.size
        start += (self.offset - start) % self.slide
        return TimeWindow(start, start + self.size)

    def next_window(self, window: TimeWindow) -> TimeWindow:
        """The window that starts one slide later."""
        return TimeWindow(window.start + self.slide, window.end + self.slide)

    def windows_of(self, piece: TimeWindow) -> Iterator[TimeWindow]:
        """The windows that have this slice, earliest first."""
        window, last = self.first_window(piece), self.last_window(piece)
        while window <= last:
            yield window
            window = self.next_window(window)
