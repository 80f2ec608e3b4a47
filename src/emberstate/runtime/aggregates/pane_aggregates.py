"""`PlainAggregates`, `SlicedAggregates`: aggregates in windows that do not merge.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import Any

from emberstate.runtime.aggregates.emission import Every
from emberstate.runtime.aggregates.pane_timers import GroupTimers, forget_slices, group_up, single_out
from emberstate.runtime.aggregates.window_aggregates import WindowAggregates, WindowColumns
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.windows.plain_window_function import PlainWindowFunction
from emberstate.runtime.windows.sliced_window_function import SlicedWindowFunction
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.window_trigger_context import WINDOW_TIMER


class _Panes(WindowAggregates):
    """Of windows that do not merge."""

    _grid: Any  # SliceGrid, or None: the functions below have one, or may have
    _index: Any

    def _in_columns(self, ctx: FunctionContext) -> WindowColumns | None:
        if isinstance(self.aggregates.emit, Every):
            return None
        found = self._column_table(ctx)
        if found is None:
            return None
        from emberstate.runtime.aggregates.pane_columns import PaneColumns

        return PaneColumns(self.aggregates, *found, self._grid, ctx, self._drop_late_rows)

    def resume(self, ctx: FunctionContext) -> None:
        """Go on from what columns, or single rows, left."""
        if self._columns is None:
            single_out(self.spec.contents.name, self._adopt, ctx)
            return
        group_up(ctx)
        if self._index is not None:
            forget_slices(self._index.name, self._internal(self._index, str), ctx)

    def _adopt(self, pane: TimeWindow, timers: GroupTimers) -> None:
        """Set the timers of a pane of the current key: those of its key group, and of each window still to fire."""
        windows = [pane]
        if self._grid is not None and self._index is not None:
            windows = list(self._grid.windows_of(pane))
            self._internal(self._index, str).put(pane.start, True)
        mine = [(window, time) for window, time in timers if window in windows]
        for window, time in mine:
            self._ctx.timers.event.register(WINDOW_TIMER, time, window)
        unfired = min((window for window, time in mine if time == window.end), default=None)
        for window in windows:
            if unfired is not None and window > unfired:
                self._await_end(window)
                self._await_cleanup(window)


class PlainAggregates(_Panes, PlainWindowFunction):
    """Of windows that do not merge."""

    def _content(self, window: Any) -> list[Any]:
        return self._contents.elements(window)


class SlicedAggregates(_Panes, SlicedWindowFunction):
    """Of sliding windows that fire at their end."""

    _in_row = False

    def _take(self, row: Any, time: int, out: list[Any]) -> bool:
        self._in_row = True
        taken = super()._take(row, time, out)
        self._in_row = False
        return taken

    def _emit(self, window: Any, elements: list[Any], out: list[Any]) -> None:
        if self._in_row:  # a window that has fired, and that a late row changes
            self._defer(window)
        else:
            super()._emit(window, elements, out)

    def _content(self, window: Any) -> list[Any]:
        return self._contents.elements(window)
