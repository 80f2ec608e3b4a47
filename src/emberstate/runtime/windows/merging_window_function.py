"""`MergingWindowFunction`: windows that merge when they overlap or touch: sessions.

A session with its default trigger and no lateness does not move its timer with every row. The timer of its first row
fires early, finds that the session has grown, and waits for the new end. Invariant of such sessions: one of the windows
that a session was merged from, or itself, has a timer at its own end.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import Any, Final

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.windows.merging_windows import MERGING_WINDOWS, Merge, MergingWindowSet
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.trigger import TriggerResult
from emberstate.runtime.windows.window_function import WindowFunction
from emberstate.runtime.windows.window_state import CONTENTS

#: The name of the state with the contents, by state window.
MERGING_CONTENTS: Final = f"{CONTENTS} of merging windows"


class MergingWindowFunction(WindowFunction):
    """Windows that merge."""

    def declared_states(self) -> list[Declaration]:
        """The states of all windows, and the set of windows of a key."""
        return [*super().declared_states(), Declaration(MERGING_WINDOWS)]

    def open(self, ctx: FunctionContext) -> None:
        """Open the states."""
        super().open(ctx)
        self._state = self._window_state()
        self._windows = MergingWindowSet(self._internal(MERGING_WINDOWS, str))

    def _take(self, row: Any, time: int, out: list[Any]) -> bool:
        assigned = self.spec.assigner.assign(row, time)
        taken = not assigned
        for alone in assigned:
            merge = self._windows.merge_of(alone)
            window = merge.window
            if self._is_late(window):
                continue
            taken = True
            self._windows.add(merge)
            if self._end_is_cleanup:
                if merge.is_new:
                    self._await_end(window)
                elif merge.merged_state_windows:
                    self._state.merge(merge.state_window, merge.merged_state_windows)
                self._state.add(merge.state_window, row)
                continue
            if merge.merged:
                self._merge(merge)
            self._state.add(merge.state_window, row)
            self._follow(self._on_element(row, window), window, merge.state_window, out)
            self._await_cleanup(window)
        return taken

    def _merge(self, merge: Merge) -> None:
        context = self._trigger_context
        context.window, context.merged = merge.window, merge.merged
        self._trigger.on_merge(merge.window, context)
        for old in merge.merged:
            context.window = old
            self._trigger.clear(old, context)
            if self._is_event_time:
                context.delete_event_time_timer(self._cleanup_time(old))
            else:
                context.delete_processing_time_timer(self._cleanup_time(old))
        if merge.merged_state_windows:
            self._state.merge(merge.state_window, merge.merged_state_windows)

    def _fire_timer(self, timer: KeyedTimer, is_cleanup: bool, out: list[Any]) -> None:
        part = timer.namespace
        assert isinstance(part, TimeWindow)
        window = self._windows.window_with(part)
        if window is None:
            return  # it is closed
        if window.end > part.end:  # it has grown
            if self.spec.fires_at_end and not self._end_is_cleanup:
                self._await_end(window)
            self._await_cleanup(window)
            return
        state_window = self._windows.state_window(window)
        assert state_window is not None
        self._follow(self._asked(timer, window), window, state_window, out)
        if is_cleanup:
            self._state.clear(state_window)
            self._trigger_context.window = window
            self._trigger.clear(window, self._trigger_context)
            self._windows.retire(window)
        else:
            self._await_cleanup(window)

    def _follow(self, result: TriggerResult, window: TimeWindow, state_window: TimeWindow, out: list[Any]) -> None:
        if result.is_fire:
            self._emit(window, self._state.elements((state_window,)), out)
        if result.is_purge:
            self._state.clear(state_window)
