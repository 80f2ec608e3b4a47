"""Where the rows of windows are stored: window by window, or in slices that overlapping windows share.

`WholeContents` has a namespace per window: a row in three windows is stored three times, and each window can be
dropped alone. `SlicedContents` has a namespace per slice: a row is stored once, however many windows it is in; a
window's result is merged from its slices, which are dropped with their last window. The slices that a key has are a
state too, so that reading a window costs as many slices as there are, not as there could be.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.runtime.windows.slices import SliceGrid
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.window_state import CONTENTS, WindowState
from emberstate.state.descriptors import MapStateDescriptor
from emberstate.state.internal_states import InternalMapState


class WindowContents(abc.ABC):
    """What the windows of the current key hold."""

    __slots__ = ()

    @abc.abstractmethod
    def add(self, row: Any, time: int, windows: Sequence[Any]) -> None:
        """Add a row at `time`, which is in these windows."""

    @abc.abstractmethod
    def elements(self, window: Any) -> list[Any]:
        """Return a window's rows, or their one result; an empty list if it is empty."""

    @abc.abstractmethod
    def purge(self, window: Any) -> None:
        """Empty a window that stays open."""

    @abc.abstractmethod
    def clear(self, window: Any) -> Sequence[Any]:
        """Drop what only this window needs: it is closed. Returns the namespaces that were dropped."""


class WholeContents(WindowContents):
    """Each window for itself."""

    __slots__ = ("_state",)

    def __init__(self, state: WindowState) -> None:
        self._state = state

    def add(self, row: Any, time: int, windows: Sequence[Any]) -> None:
        """Take a row into each window."""
        for window in windows:
            self._state.add(window, row)

    def elements(self, window: Any) -> list[Any]:
        """A window's rows, or their one result."""
        return self._state.elements((window,))

    def purge(self, window: Any) -> None:
        """Empty a window."""
        self._state.clear(window)

    def clear(self, window: Any) -> Sequence[Any]:
        """Drop a window's content."""
        self._state.clear(window)
        return (window,)


def sliced_names(grid: SliceGrid) -> tuple[str, str]:
    """The names of the states of slices and of their index.

    The names contain the grid: slices of one grid cannot be read in another. With other windows a restore reports a
    missing state instead of merging what does not fit.
    """
    which = f"size={grid.size} slide={grid.slide} offset={grid.offset}"
    return f"{CONTENTS} of slices {which}", f"window-slices {which}"


def slice_index(grid: SliceGrid) -> MapStateDescriptor[int, bool]:
    """The starts of the slices that a key has."""
    return MapStateDescriptor(sliced_names(grid)[1], int, bool)


class SlicedContents(WindowContents):
    """Slices that windows share."""

    __slots__ = ("_grid", "_index", "_state")

    def __init__(self, state: WindowState, index: InternalMapState, grid: SliceGrid) -> None:
        self._state = state
        self._index = index
        self._grid = grid

    def add(self, row: Any, time: int, windows: Sequence[Any]) -> None:
        """Take a row into its slice."""
        self.add_to(self._grid.slice_of(time), row)

    def add_to(self, piece: TimeWindow, row: Any) -> None:
        """Take a row into a slice."""
        self._state.add(piece, row)
        if not self._index.contains(piece.start):
            self._index.put(piece.start, True)

    def add_to_known(self, piece: TimeWindow, row: Any) -> None:
        """Take a row into a slice that the key has."""
        self._state.add(piece, row)

    def elements(self, window: TimeWindow) -> list[Any]:
        """A window's rows, slice by slice, or their one result."""
        return self.elements_of(self.slices(window))

    def elements_of(self, slices: Sequence[TimeWindow]) -> list[Any]:
        """The rows of some slices, or their one result."""
        return self._state.elements(slices)

    def slices(self, window: TimeWindow) -> list[TimeWindow]:
        """The slices that the key has of a window, earliest first."""
        return self._slices(window.start, window.end)

    def purge(self, window: TimeWindow) -> None:
        """Raise: other windows need the same slices."""
        raise StateDeclarationError(
            f"a trigger with may_purge = False returned PURGE for {window}. Overlapping windows share their content "
            f"then, and one cannot be emptied alone. Leave may_purge at True.",
            option="may_purge",
        )

    def clear(self, window: TimeWindow) -> Sequence[TimeWindow]:
        """Drop the slices that this is the last window of."""
        dropped = self._slices(window.start, min(window.start + self._grid.slide, window.end))
        for piece in dropped:
            self._state.clear(piece)
            self._index.remove(piece.start)
        return dropped

    def _slices(self, start: int, end: int) -> list[TimeWindow]:
        width = self._grid.width
        return [TimeWindow(known, known + width) for known in self._starts(start, end)]

    def _starts(self, start: int, end: int) -> list[int]:
        """Return the starts of the key's slices in a span of whole slices; O(the fewer of possible and stored ones)."""
        index = self._index
        width = self._grid.width
        if (end - start) // width < index.size():
            return [known for known in range(start, end, width) if index.contains(known)]
        return sorted([known for known in index.keys() or () if start <= known < end])
