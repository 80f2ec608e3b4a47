"""`MergingAggregates`: aggregates in sessions, row by row or in columns.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emberstate.runtime.aggregates.emission import CLOSED
from emberstate.runtime.aggregates.session_timers import SESSIONS, to_columns, to_rows
from emberstate.runtime.aggregates.window_aggregates import WindowAggregates, WindowColumns
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.windows.assigners import SessionWindows
from emberstate.runtime.windows.merging_window_function import MergingWindowFunction
from emberstate.runtime.windows.merging_windows import MERGING_WINDOWS
from emberstate.runtime.windows.time_window import TimeWindow

if TYPE_CHECKING:
    from emberstate.runtime.aggregates.session_columns import SessionColumns


class MergingAggregates(WindowAggregates, MergingWindowFunction):
    """Of sessions."""

    _columns: SessionColumns | None

    def _in_columns(self, ctx: FunctionContext) -> WindowColumns | None:
        assigner = self.given.window.assigner if self.given.window is not None else None
        if self.aggregates.emit != CLOSED or not isinstance(assigner, SessionWindows) or assigner.fixed_gap is None:
            return None
        from emberstate.runtime.aggregates.session_columns import SessionColumns, fits_columns

        if not fits_columns(assigner.fixed_gap, self.spec.allowed_lateness, ctx.lag):
            return None
        found = self._column_table(ctx)
        return None if found is None else SessionColumns(self.aggregates, *found, ctx, self._drop_late_rows)

    def resume(self, ctx: FunctionContext) -> None:
        """Go on from what columns, or single rows, left."""
        records, windows = self._internal(self.spec.contents, TimeWindow), self._internal(MERGING_WINDOWS, str)
        if self._columns is None:
            to_rows(self.spec.contents.name, records, windows, self._adopt, ctx)
            return
        for group in ctx.backend.context.key_group_range:
            times = [timer.time for timer in ctx.timers.event.queue.timers_of_group(group) if timer.name == SESSIONS]
            if times:
                self._columns.awaited[group] = min(times)
        to_columns(records, windows, self._expect, ctx)

    def _adopt(self, window: TimeWindow, waits: bool) -> None:
        """Set the timers of a session of the current key."""
        if waits:
            self._await_end(window)
        self._await_cleanup(window)

    def _expect(self, window: TimeWindow, waits: bool) -> None:
        """Have the key group of the current key wait for a session."""
        assert self._columns is not None
        self._columns.expect(window.end if waits else self._cleanup_time(window))

    def _window_of(self, namespace: Any) -> Any:
        return self._windows.window_with(namespace) or namespace  # it may have grown since the timer was set

    def _content(self, window: Any) -> list[Any]:
        state_window = self._windows.state_window(window)
        return [] if state_window is None else self._state.elements((state_window,))
