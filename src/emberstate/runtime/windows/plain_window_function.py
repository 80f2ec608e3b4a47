"""`PlainWindowFunction`: windows that do not merge: tumbling, sliding, global, and a user's own.

Sliding windows may share their content (see `window_contents`); the trigger is asked for each of them.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import Any

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.windows.awaited_windows import AwaitedWindows
from emberstate.runtime.windows.slices import SliceGrid
from emberstate.runtime.windows.trigger import TriggerResult
from emberstate.runtime.windows.window_contents import SlicedContents, WholeContents, WindowContents, slice_index
from emberstate.runtime.windows.window_function import WindowFunction, WindowSpec


class PlainWindowFunction(WindowFunction):
    """Windows that do not merge; with a grid, their content is kept in its slices."""

    def __init__(self, spec: WindowSpec, grid: SliceGrid | None) -> None:
        super().__init__(spec)
        self._grid = grid
        self._index = None if grid is None else slice_index(grid)

    def declared_states(self) -> list[Declaration]:
        """The states of all windows, and the index of slices."""
        found = super().declared_states()
        return found if self._index is None else [*found, Declaration(self._index)]

    def open(self, ctx: FunctionContext) -> None:
        """Open the states."""
        super().open(ctx)
        self._awaited = AwaitedWindows(ctx)
        state = self._window_state()
        self._contents: WindowContents
        if self._grid is None or self._index is None:
            self._contents = WholeContents(state)
        else:
            self._contents = SlicedContents(state, self._internal(self._index, str), self._grid)

    def _take(self, row: Any, time: int, out: list[Any]) -> bool:
        windows = self.spec.assigner.assign(row, time)
        in_time = [window for window in windows if not self._is_late(window)]
        if not in_time:
            return not windows  # a row between windows is not late
        self._contents.add(row, time, in_time)
        for window in in_time:
            if self._end_is_cleanup:
                if self._awaited.add(window):
                    self._await_end(window)
            else:
                self._follow(self._on_element(row, window), window, out)
                self._await_cleanup(window)
        return True

    def _fire_timer(self, timer: KeyedTimer, is_cleanup: bool, out: list[Any]) -> None:
        window = timer.namespace
        self._awaited.discard(window)
        self._follow(self._asked(timer, window), window, out)
        if is_cleanup:
            self._contents.clear(window)
            self._trigger_context.window = window
            self._trigger.clear(window, self._trigger_context)
            self._clear_user_states(window)
        else:
            self._await_cleanup(window)

    def _follow(self, result: TriggerResult, window: Any, out: list[Any]) -> None:
        if result.is_fire:
            self._emit(window, self._contents.elements(window), out)
        if result.is_purge:
            self._contents.purge(window)
