"""`SlicedWindowFunction`: sliding windows that fire at their end, at a cost per row that does not grow with how many
windows the row is in.

A row goes into its slice. Of its windows only the first that has not fired gets a timer; a window that fires sets the
timer of the next one, as long as that one has a slice. So a day sliding by a minute costs a row two timers, not 1,440.

Invariant (after every row and timer): for every slice of a key and every window of it that is still to fire, this
window or an earlier one of the slice has a timer; and the slice's last window has a timer at its clean-up time.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import Any

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.windows.awaited_windows import AwaitedWindows
from emberstate.runtime.windows.slices import SliceGrid
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.window_contents import SlicedContents, slice_index
from emberstate.runtime.windows.window_function import WindowFunction, WindowSpec


class SlicedWindowFunction(WindowFunction):
    """Sliding windows with their default trigger."""

    def __init__(self, spec: WindowSpec, grid: SliceGrid) -> None:
        super().__init__(spec)
        self._grid = grid
        self._index = slice_index(grid)

    def declared_states(self) -> list[Declaration]:
        """The states of all windows, and the index of slices."""
        return [*super().declared_states(), Declaration(self._index)]

    def open(self, ctx: FunctionContext) -> None:
        """Open the states."""
        super().open(ctx)
        self._contents = SlicedContents(self._window_state(), self._internal(self._index, str), self._grid)
        self._awaited = AwaitedWindows(ctx)

    def _take(self, row: Any, time: int, out: list[Any]) -> bool:
        grid = self._grid
        piece = grid.slice_of(time)
        passed = self._passed()
        if time >= passed and not self._awaited.add(piece):  # nor has one of its windows fired yet
            self._contents.add_to_known(piece, row)
            return True
        last = grid.last_window(piece)
        if self._is_late(last):
            return False
        self._contents.add_to(piece, row)
        window = grid.first_window(piece)
        while window.end <= passed and window <= last:
            if not self._is_late(window):  # it has fired, and fires again
                self._emit(window, self._contents.elements(window), out)
                self._await_cleanup(window)
            window = grid.next_window(window)
        if window <= last:
            self._await_end(window)
        self._await_cleanup(last)
        return True

    def _fire_timer(self, timer: KeyedTimer, is_cleanup: bool, out: list[Any]) -> None:
        window = timer.namespace
        assert isinstance(window, TimeWindow)
        if timer.micros == window.end:
            slices = self._contents.slices(window)
            self._emit(window, self._contents.elements_of(slices), out)
            following = self._grid.next_window(window)
            if slices and slices[-1].start >= following.start:
                self._await_end(following)
        if is_cleanup:
            for piece in self._contents.clear(window):
                self._awaited.discard(piece)
            self._clear_user_states(window)
        else:
            self._await_cleanup(window)  # of the function's states, or the allowed lateness has grown

    def _passed(self) -> int:
        """Return the time up to which windows have fired."""
        return self._ctx.event_now if self._is_event_time else self._trigger_context.processing_time
