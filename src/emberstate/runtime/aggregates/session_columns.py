"""`SessionColumns`: aggregates in sessions of event time that emit when they close, in columns (`heap.columns`).

It does what `MergingAggregates` does to single rows. A row of the column table is one session: its bounds and its phase
(`SESSION`) are in the record, behind the aggregates. Its namespace says which of the key's sessions it is: the latest
is in `place(0)`, the one before in `place(1)`. So a key's sessions are found by probing places until one is free, and
sessions, which close in order of time, leave no gap. Other windows are never empty, and places are: `[n, n)`.

A key group has a timer, with any of its keys, at the earliest moment at which one of its sessions fires or is cleaned
up, or before. One that fires makes the next call of `close` look through the table.

Invariants, after every batch and `close`: the places of a key are taken without a gap, sessions with an earlier start
further behind; no session has fired or been cleaned up before the timer of its key group.

Rows come in order of event time; with allowed lateness the out-of-orderness is above zero, so that no row extends a
session that has fired at this row's own moment (`fits_columns`).

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.heap.columns.column_table import ColumnTable
from emberstate.heap.columns.layout import Array, Column
from emberstate.runtime.aggregates.column_plan import ColumnPlan, FoldError
from emberstate.runtime.aggregates.columns import ColumnAggregates
from emberstate.runtime.aggregates.partial_columns import as_partial_rows, pane_times
from emberstate.runtime.aggregates.session_merging import MergedSessions, Sessions, merge_sessions
from emberstate.runtime.aggregates.session_timers import SESSIONS, place
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.rows.arrow_rows import batch_of, rows_of
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.window_function import FIRINGS
from emberstate.state.cells.keys import binary_cells, encode_keys
from emberstate.state.key_bytes import key_bytes

_BOUND: Final = pa.timestamp("us", "UTC")
#: How many sessions a key may have open at one time, about; with more of them, single rows are the cheaper way.
_MOST_OPEN: Final = 64
_WAITING, _FIRED, _AGAIN = 0, 1, 2


def fits_columns(gap: int, lateness: int, lag: int) -> bool:
    """Whether sessions with this gap, allowed lateness and out-of-orderness may be in columns."""
    return (lateness == 0 or lag > 0) and (lateness + lag) // gap <= _MOST_OPEN


class SessionColumns:
    """The sessions of one slot."""

    def __init__(
        self,
        spec: AggregateSpec,
        plan: ColumnPlan,
        table: ColumnTable,
        ctx: FunctionContext,
        drop_late: Callable[[list[Any]], None],
    ) -> None:
        """`drop_late` takes the partial rows whose sessions are past."""
        assert spec.window is not None
        self._spec = spec
        self._plan = plan
        self._table = table
        self._ctx = ctx
        self._drop_late = drop_late
        self._lateness = spec.window.allowed_lateness
        self._columns = ColumnAggregates(spec, plan, table)
        self._decode = key_bytes(table.context.key_schema).decode
        #: Where the record has start, end and phase.
        self._bounds = len(spec.record)
        #: Key group -> its earliest timer.
        self.awaited: dict[int, int] = {}
        #: Key groups whose timers have fired since `close`.
        self._due: set[int] = set()
        self._again = False
        self._emitted: list[pa.RecordBatch] = []

    # -- rows ------------------------------------------------------------------------------------------------

    def add_row(self, row: Any) -> None:
        """Merge a partial row of the current key in."""
        group = np.array([self._table.context.key_group], np.int32)
        self.add(batch_of([tuple(row)], self._spec.partial), group.data)

    def add(self, batch: pa.RecordBatch, groups: memoryview) -> None:
        """Merge partial rows into the sessions of their keys; rows that are late are dropped."""
        self.close()
        if not len(batch):
            return
        starts, ends, times = pane_times(batch)
        nows = np.maximum(np.maximum.accumulate(times - self._ctx.lag), self._ctx.event_now)
        data, offsets = encode_keys([batch.column(name) for name in self._spec.keys], self._table.context.key_schema)
        cells = binary_cells(data, offsets).dictionary_encode()
        keys, key_of = cells.dictionary, cells.indices.to_numpy().astype(np.int64)
        key_groups = np.empty(len(keys), np.int32)
        key_groups[key_of] = np.asarray(groups)
        key_of_old, places, old = self._known(keys)
        gathered = self._table.gather(old)
        bounds = [column.values for column in gathered[self._bounds :]]
        order = np.argsort(key_of, kind="stable")
        merged = merge_sessions(
            Sessions(_offsets(key_of_old, len(keys)), *bounds),
            _offsets(key_of, len(keys)),
            starts[order],
            ends[order],
            nows[order],
            self._lateness,
        )
        into = np.empty(len(batch), np.int64)
        into[order] = merged.rows
        late = into < 0
        if late.any():
            partial = self._spec.partial
            self._drop_late(rows_of(batch.select(partial.names).filter(pa.array(late)), partial))
            batch, into = batch.filter(pa.array(~late)), into[~late]
        counts = np.diff(merged.offsets)
        key_of_new = np.repeat(np.arange(len(keys)), counts)
        new_places = merged.offsets[1:][key_of_new] - 1 - np.arange(len(key_of_new))
        changed = np.zeros(len(key_of_new), np.bool_)
        changed[into] = True
        changed |= (merged.firsts < 0) | (places[merged.firsts] != new_places if len(places) else True)
        kept = np.flatnonzero(changed)
        columns = self._folded(merged, kept, gathered, batch, into, keys, key_of_new)
        self._write(kept, columns, keys.take(pa.array(key_of_new[kept])), key_groups[key_of_new[kept]], new_places)
        self._table.remove_rows(old[places >= counts[key_of_old]])
        self._again = self._again or bool((merged.phases == _AGAIN).any())
        _, ends, phases = (column.values for column in columns[self._bounds :])
        self._await(ends, phases, key_groups[key_of_new[kept]], lambda at: keys[int(key_of_new[kept[at]])].as_py())

    def _known(self, keys: pa.Array) -> tuple[Array, Array, Array]:
        """The sessions of keys, by key and start: the number of the key, the place and the row of each."""
        table = self._table
        asked = np.arange(len(keys))
        found: list[tuple[Array, Array, Array]] = []
        while len(asked):
            number = table.store.namespaces.find(place(len(found)))
            if number < 0:
                break
            data, offsets = _cells(keys if len(asked) == len(keys) else keys.take(pa.array(asked)))
            rows = table.find_rows(data, offsets, np.full(len(asked), number, np.int32))
            there = rows >= 0
            asked = asked[there]
            found.append((asked, np.full(len(asked), len(found), np.int64), rows[there]))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
        key_of, places, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((-places, key_of))
        return key_of[order], places[order], rows[order]

    def _folded(
        self,
        merged: MergedSessions,
        kept: Array,
        gathered: list[Column],
        batch: pa.RecordBatch,
        into: Array,
        keys: pa.Array,
        key_of: Array,
    ) -> list[Column]:
        """The records of the sessions in `kept`: what they had, then what they absorb, then the partial rows."""
        at = np.empty(len(merged.starts), np.int64)
        at[kept] = np.arange(len(kept))
        columns = self._table.layout.empty(len(kept))
        firsts = merged.firsts[kept]
        going_on = np.flatnonzero(firsts >= 0)
        for mine, theirs in zip(columns, gathered, strict=True):
            mine.values[going_on] = theirs.values[firsts[going_on]]
            if mine.nulls is not None and theirs.nulls is not None:
                mine.nulls[going_on] = theirs.nulls[firsts[going_on]]
        absorbed = np.flatnonzero(merged.firsts[merged.old] != np.arange(len(merged.old)))
        parts = [(batch, into)]
        if len(absorbed):
            taken = [Column(c.values[absorbed], None if c.nulls is None else c.nulls[absorbed]) for c in gathered]
            parts.insert(0, (as_partial_rows(taken, self._spec.record), merged.old[absorbed]))
        for part, targets in parts:
            try:
                for fold in self._plan.folds:
                    fold(columns, at[targets], part)
            except FoldError as error:
                key = self._decode(keys[int(key_of[targets[error.row]])].as_py())
                raise error.error.located(key=key) from None
        for column, values in zip(columns[self._bounds :], (merged.starts, merged.ends, merged.phases), strict=True):
            _set(column, values[kept])
        return columns

    def _write(self, kept: Array, columns: list[Column], keys: pa.Array, groups: Array, places: Array) -> None:
        if len(kept):
            numbers = self._table.namespace_numbers([place(n) for n in range(int(places[kept].max()) + 1)])
            data, offsets = _cells(keys)
            self._table.write(self._table.rows_of(data, offsets, groups, numbers[places[kept]]), columns)

    # -- timers ----------------------------------------------------------------------------------------------

    def fire(self, timer: KeyedTimer) -> None:
        """Note that sessions of the key group of a timer, whose key is current, may be due."""
        group = self._table.context.key_group
        self._due.add(group)
        if self.awaited.get(group, MAX_TIME) <= timer.micros:
            del self.awaited[group]

    def close(self) -> None:
        """Emit and clean up the sessions that are due."""
        if not self._due:
            return
        due, self._due = np.array(sorted(self._due), np.int32), set()
        now, store = self._ctx.event_now, self._table.store
        rows = np.flatnonzero(store.alive)
        rows = rows[np.isin(store.groups[rows], due)]
        _, ends, phases = self._bounds_of(rows)
        gone = ends + self._lateness <= now
        fires = (ends <= now) & (phases == _WAITING) | gone & (phases == _AGAIN)
        self._emit(rows[fires], rows[fires & ~gone])
        self._table.remove_rows(rows[gone])
        rows = rows[~gone]
        _, ends, phases = self._bounds_of(rows)
        self._await(ends, phases, store.groups[rows], lambda at: store.index.key(int(rows[at])))

    def finish(self) -> list[pa.RecordBatch]:
        """What the transaction emits: sessions that closed, then sessions that late rows changed."""
        self.close()
        if self._again:
            self._again = False
            rows = np.flatnonzero(self._table.store.alive)
            rows = rows[self._bounds_of(rows)[2] == _AGAIN]
            self._emit(rows, rows)
        emitted, self._emitted = self._emitted, []
        return emitted

    def expect(self, time: int) -> None:
        """See to it that the key group of the current key has a timer at `time` or before."""
        group = self._table.context.key_group
        if time < self.awaited.get(group, MAX_TIME):
            self.awaited[group] = time
            self._ctx.timers.event.register(SESSIONS, time, place(0))

    def _await(self, ends: Array, phases: Array, groups: Array, key_of: Callable[[int], bytes]) -> None:
        """Do so for sessions in any key groups; `key_of` returns the bytes of a session's key."""
        first, last = self._table.context.key_group_range.start, self._table.context.key_group_range.end
        times = np.full(last - first + 1, MAX_TIME, np.int64)
        np.minimum.at(times, groups - first, np.where(phases == _WAITING, ends, ends + self._lateness))
        some = np.empty(len(times), np.int64)
        some[groups - first] = np.arange(len(groups))
        for number in np.flatnonzero(times < MAX_TIME).tolist():
            time, group = int(times[number]), first + number
            if time < self.awaited.get(group, MAX_TIME):
                self._table.context.set_current_key_and_group(self._decode(key_of(int(some[number]))), group)
                self.expect(time)

    # -- results ---------------------------------------------------------------------------------------------

    def _emit(self, rows: Array, fired: Array) -> None:
        """Emit sessions, in the order of their ends; those in `fired` stay, and have fired."""
        if not len(rows):
            return
        starts, ends, _ = self._bounds_of(rows)
        order = np.argsort(ends, kind="stable")
        rows = rows[order]
        self._ctx.count(FIRINGS, len(rows))
        bounds = [pa.array(times[order]).cast(_BOUND) for times in (starts, ends)]
        self._emitted.append(self._columns.results(self._table.gather(rows), self._columns.keys_of(rows), bounds))
        if len(fired):
            columns = self._table.gather(fired)
            columns[-1].values[:] = _FIRED
            self._table.write(fired, columns)

    def _bounds_of(self, rows: Array) -> tuple[Array, Array, Array]:
        """Starts, ends and phases of sessions."""
        starts, ends, phases = (column.values[rows] for column in self._table.store.columns[self._bounds :])
        return starts, ends, phases


def _set(column: Column, values: Array) -> None:
    column.values[:] = values
    if column.nulls is not None:
        column.nulls[:] = False


def _offsets(numbers: Array, count: int) -> Array:
    """Where the items of each number begin, if they are sorted by it; and how many there are."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))]).astype(np.int64)


def _cells(keys: pa.Array) -> tuple[Any, Array]:
    """Bytes and offsets of a large binary column."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    return b"" if data is None else np.frombuffer(data, np.uint8), ends
