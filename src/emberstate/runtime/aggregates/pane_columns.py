"""`PaneColumns`: aggregates in tumbling and sliding windows of event time, in columns (`heap.columns`).

It does what `PlainAggregates` and `SlicedAggregates` do to single rows, to the same records: a row of the column table
is what one key has in one pane, a tumbling window or a slice. What differs are the timers. Windows close for all keys
of a key group at the same event time, so a key group has one timer for a window, with any of its keys: `PANES`. The
timers that are there say which windows have yet to fire, and they move with their key group. What a run that worked row
by row has left becomes such timers first (`pane_timers`).

A timer that fires is noted, and the window is closed for all key groups at once when event time goes on (`close`).

Invariants, after every batch and timer: for every pane of a key group, the first of its windows that has not fired has
a timer at its end, and its last window has one at its clean-up time. So has a window that is to be emitted again.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.heap.columns.column_table import ColumnTable
from emberstate.heap.columns.layout import Array, Column
from emberstate.runtime.aggregates.column_plan import ColumnPlan, FoldError
from emberstate.runtime.aggregates.columns import ColumnAggregates
from emberstate.runtime.aggregates.emission import CLOSED
from emberstate.runtime.aggregates.pane_timers import PANES
from emberstate.runtime.aggregates.partial_columns import as_partial_rows, pane_times
from emberstate.runtime.aggregates.spec import PANE_START, AggregateSpec
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.rows.arrow_rows import batch_of, rows_of
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.slices import SliceGrid
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.window_function import FIRINGS
from emberstate.state.cells.keys import binary_cells

_BOUND: Final = pa.timestamp("us", "UTC")


@dataclasses.dataclass(slots=True)
class _Due:
    """A window whose timers fire: of which key groups, and what they are for."""

    groups: set[int]
    fires: bool
    is_cleanup: bool


class PaneColumns:
    """The panes of one slot."""

    def __init__(
        self,
        spec: AggregateSpec,
        plan: ColumnPlan,
        table: ColumnTable,
        grid: SliceGrid | None,
        ctx: FunctionContext,
        drop_late: Callable[[list[Any]], None],
    ) -> None:
        """`drop_late` takes the partial rows whose windows are all past."""
        assert spec.window is not None
        self._spec = spec
        self._plan = plan
        self._table = table
        self._grid = grid
        self._ctx = ctx
        self._drop_late = drop_late
        #: Windows are emitted when they close; if not, at the end of every transaction in which they changed.
        self._emits_closed = spec.emit == CLOSED
        self._lateness = spec.window.allowed_lateness
        self._columns = ColumnAggregates(spec, plan, table)
        #: (key group, pane) whose timers this copy has set.
        self._awaited: set[tuple[int, TimeWindow]] = set()
        #: Windows whose timers have fired at `_due_at`, and are not closed yet.
        self._due: dict[TimeWindow, _Due] = {}
        self._due_at = 0
        #: Windows to emit at the end of the transaction, because they have fired already or are emitted when they
        #: change: the rows of the table that have changed.
        self._changed: dict[TimeWindow, list[Array]] = {}
        self._emitted: list[pa.RecordBatch] = []

    # -- rows ------------------------------------------------------------------------------------------------

    def add_row(self, row: Any) -> None:
        """Merge a partial row of the current key in."""
        group = np.array([self._table.context.key_group], np.int32)
        self.add(batch_of([tuple(row)], self._spec.partial), group.data)

    def add(self, batch: pa.RecordBatch, groups: memoryview) -> None:
        """Merge partial rows into their panes, and set the timers of these; rows that are late are dropped."""
        key_groups = np.asarray(groups)
        self.close()
        if batch.column(PANE_START).null_count:  # rows between windows
            inside = batch.column(PANE_START).is_valid()
            batch, key_groups = batch.filter(inside), key_groups[inside.to_numpy(zero_copy_only=False)]
        if not len(batch):
            return
        panes, which = self._panes_of_rows(batch)
        now = self._ctx.event_now
        late = np.array([self._is_late(self._last_window(pane), now) for pane in panes], np.bool_)
        if late.any():
            partial = self._spec.partial
            self._drop_late(rows_of(batch.select(partial.names).filter(pa.array(late[which])), partial))
            kept = ~late[which]
            batch, key_groups, which = batch.filter(pa.array(kept)), key_groups[kept], which[kept]
            if not len(batch):
                return
        rows, positions = self._columns.fold(batch, key_groups, panes, which)
        pane_of_row = np.empty(len(rows), np.int64)
        pane_of_row[positions] = which
        groups_of_rows = self._table.store.groups[rows]
        for number, pane in enumerate(panes):
            if not late[number]:
                mine = np.flatnonzero(pane_of_row == number)
                self._await(pane, rows[mine], groups_of_rows[mine], now)

    def _panes_of_rows(self, batch: pa.RecordBatch) -> tuple[list[TimeWindow], Array]:
        """The panes of a batch, earliest first, and which of them each row is in."""
        starts, ends, _ = pane_times(batch)
        found, first, which = np.unique(starts, return_index=True, return_inverse=True)
        return [TimeWindow(*bounds) for bounds in zip(found.tolist(), ends[first].tolist(), strict=True)], which

    def _await(self, pane: TimeWindow, rows: Array, groups: Array, now: int) -> None:
        """Set the timers of a pane's windows for the key groups of some rows; note which windows they change."""
        passed = [window for window in self._windows(pane) if window.end <= now] if now >= pane.end else []
        seen = passed if self._emits_closed else self._windows(pane)
        again = [window for window in seen if not self._is_late(window, now)]
        for window in again:
            self._changed.setdefault(window, []).append(rows)
        known, first = np.unique(groups, return_index=True)
        for group, row in zip(known.tolist(), rows[first].tolist(), strict=True):
            if (again and self._emits_closed) or (group, pane) not in self._awaited:
                self._awaited.add((group, pane))
                self._set_current(row, group)
                for window in again:
                    self._await_cleanup(window)
                following = self._first_after(pane, passed)
                if following is not None and self._emits_closed:
                    self._register(following.end, following)
                self._await_cleanup(self._last_window(pane))

    def _first_after(self, pane: TimeWindow, passed: list[TimeWindow]) -> TimeWindow | None:
        """The first window of a pane that comes after some of them; None if there is none."""
        if not passed:
            return next(self._windows(pane))
        if self._grid is None or passed[-1] == self._last_window(pane):
            return None
        return self._grid.next_window(passed[-1])

    # -- timers ----------------------------------------------------------------------------------------------

    def fire(self, timer: KeyedTimer) -> None:
        """Note that a window closes for the key group of a timer, whose key is current; wait for what comes next."""
        window, group = timer.namespace, self._table.context.key_group
        assert isinstance(window, TimeWindow)
        if timer.micros != self._due_at:
            self.close()
        self._due_at = timer.micros
        is_cleanup = timer.micros >= self._cleanup_time(window)
        due = self._due.setdefault(window, _Due(set(), self._emits_closed and timer.micros == window.end, is_cleanup))
        if group in due.groups:
            return
        due.groups.add(group)
        if due.fires and self._grid is not None:
            following = self._grid.next_window(window)
            if any(following.start <= pane.start < window.end for pane, _ in self._table.store.namespaces):
                self._register(following.end, following)
        if not is_cleanup:
            self._await_cleanup(window)

    def close(self) -> None:
        """Emit and clean up the windows that are due."""
        due, self._due = self._due, {}
        for window, one in sorted(due.items()):
            groups = np.array(sorted(one.groups), np.int32)
            if one.fires:
                self._emit(window, groups, None)
            elif one.is_cleanup and window in self._changed:
                self._emit_again(window, groups)
            if one.is_cleanup:
                dropped = self._dropped_with(window)
                self._table.remove_rows(self._rows_in(dropped, groups))
                self._awaited.difference_update((group, pane) for group in one.groups for pane in dropped)

    def finish(self) -> list[pa.RecordBatch]:
        """What the transaction emits: windows that closed, by their end, then windows that have changed."""
        self.close()
        for window in sorted(self._changed):
            self._emit_again(window, None)
        emitted, self._emitted = self._emitted, []
        return emitted

    # -- results ---------------------------------------------------------------------------------------------

    def _emit_again(self, window: TimeWindow, groups: Array | None) -> None:
        """Emit a window for the keys that have changed, of some key groups or of all."""
        changed = np.concatenate(self._changed.pop(window))
        if groups is not None:
            mine = np.isin(self._table.store.groups[changed], groups)
            if not mine.all():
                self._changed[window] = [changed[~mine]]
            changed = changed[mine]
        self._emit(window, groups, changed)

    def _emit(self, window: TimeWindow, groups: Array | None, changed: Array | None) -> None:
        """Emit a window for all its keys in some key groups, or for those of them that have a `changed` row."""
        rows = self._rows_in(self._panes(window), groups)
        if self._grid is None:
            if changed is not None:
                rows = rows[np.isin(rows, changed)]
            columns = self._table.gather(rows)
        else:
            rows, columns = self._merged(rows, changed)
        if not len(rows):
            return
        self._ctx.count(FIRINGS, len(rows))
        bounds = [pa.array(np.full(len(rows), time, np.int64)).cast(_BOUND) for time in (window.start, window.end)]
        self._emitted.append(self._columns.results(columns, self._columns.keys_of(rows), bounds))

    def _merged(self, rows: Array, changed: Array | None) -> tuple[Array, list[Column]]:
        """One row of each key, and what all its panes have together, merged from the earliest on."""
        table = self._table
        numbers = table.store.index.namespaces_of(rows)
        starts = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
        for number in np.unique(numbers).tolist():
            starts[number] = table.store.namespaces.namespace(number).start
        order = np.argsort(starts[numbers], kind="stable")
        rows = rows[order]
        positions = self._key_numbers(rows)
        if changed is not None:
            wanted = np.zeros(int(positions.max()) + 1 if len(positions) else 0, np.bool_)
            wanted[positions[np.isin(rows, changed)]] = True
            rows = rows[wanted[positions]]
            positions = self._key_numbers(rows)
        _, first = np.unique(positions, return_index=True)
        merged = table.layout.empty(len(first))
        found = table.gather(rows)
        batch = as_partial_rows(found, self._spec.record)
        try:
            for fold in self._plan.folds:
                fold(merged, positions, batch)
        except FoldError as error:
            raise error.error.located(key=table.key_of(int(rows[error.row]))) from None
        return rows[first], merged

    def _key_numbers(self, rows: Array) -> Array:
        """A number for the key of each row, by first appearance."""
        cells = binary_cells(*self._table.store.index.keys(rows))
        return np.ascontiguousarray(cells.dictionary_encode().indices.to_numpy().astype(np.int64))

    def _rows_in(self, panes: list[TimeWindow], groups: Array | None) -> Array:
        rows = self._table.rows_in(panes)
        return rows if groups is None else rows[np.isin(self._table.store.groups[rows], groups)]

    # -- windows and panes -----------------------------------------------------------------------------------

    def _windows(self, pane: TimeWindow) -> Iterator[TimeWindow]:
        return iter((pane,)) if self._grid is None else self._grid.windows_of(pane)

    def _last_window(self, pane: TimeWindow) -> TimeWindow:
        return pane if self._grid is None else self._grid.last_window(pane)

    def _panes(self, window: TimeWindow) -> list[TimeWindow]:
        return self._between(window, window.end)

    def _dropped_with(self, window: TimeWindow) -> list[TimeWindow]:
        """The panes that this is the last window of."""
        return self._between(window, window.end if self._grid is None else window.start + self._grid.slide)

    def _between(self, window: TimeWindow, end: int) -> list[TimeWindow]:
        if self._grid is None:
            return [window]
        width = self._grid.width
        return [TimeWindow(start, start + width) for start in range(window.start, min(end, window.end), width)]

    def _is_late(self, window: TimeWindow, now: int) -> bool:
        return window.end + self._lateness <= now

    def _cleanup_time(self, window: TimeWindow) -> int:
        return min(window.end + self._lateness, MAX_TIME)

    def _await_cleanup(self, window: TimeWindow) -> None:
        time = self._cleanup_time(window)
        if time < MAX_TIME:
            self._register(time, window)

    def _register(self, time: int, window: TimeWindow) -> None:
        self._ctx.timers.event.register(PANES, time, window)

    def _set_current(self, row: int, group: int) -> None:
        self._table.context.set_current_key_and_group(self._table.key_of(row), group)
