"""What `process_arrow` works on: a copy of a state's columns for the keys of one batch, read before and written after.

`BatchColumns` is the copy: one element per handle. The function changes it alone; `store` writes what was changed, once
and after the function has returned. So a function that raises, and catches nothing, has changed no state.

A state is in a `ColumnTable` if the backend has one (`TableAccess`), or is a value state like any other
(`ValueAccess`), which costs Python objects per key. With a time to live, loading is a read of all keys of the batch.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np

from emberstate.heap.columns.column_table import ColumnTable
from emberstate.heap.columns.layout import Array, Column, ColumnLayout
from emberstate.runtime.functions.batch_keys import BatchKeys
from emberstate.state.descriptors import ValueStateDescriptor
from emberstate.state.internal_states import InternalValueState
from emberstate.state.key_context import KeyContext
from emberstate.state.timers import VOID_NAMESPACE
from emberstate.state.ttl.config import TtlClock, TtlUpdate, TtlVisibility


@dataclasses.dataclass(slots=True)
class BatchColumns:
    """The entries of a batch's keys; those that are absent have the default."""

    columns: list[Column]
    present: Array
    changed: Array
    #: Of a `ColumnTable`: the rows of the handles, and which of them have expired or grow older by being read.
    rows: Array
    expired: Array
    aged: Array

    def reset(self, which: Array, default: list[Column]) -> None:
        """Give some handles the default, which has one row."""
        for column, one in zip(self.columns, default, strict=True):
            column.values[which] = one.values[0]
            if column.nulls is not None and one.nulls is not None:
                column.nulls[which] = one.nulls[0]

    def chosen(self, which: Array) -> list[Column]:
        """The columns of some handles."""
        return [Column(c.values[which], None if c.nulls is None else c.nulls[which]) for c in self.columns]


class ColumnAccess(Protocol):
    """Reads and writes the entries of a batch's keys."""

    layout: ColumnLayout
    #: What a key without an entry reads as; one row.
    default: list[Column]

    def load(self, keys: BatchKeys) -> BatchColumns:
        """Return a copy of the entries."""

    def store(self, keys: BatchKeys, loaded: BatchColumns) -> None:
        """Write the entries that were changed."""


class TableAccess:
    """A state in a column table."""

    def __init__(self, descriptor: ValueStateDescriptor[Any], table: ColumnTable, clock: TtlClock) -> None:
        self.layout = table.layout
        self._table = table
        self._ttl = descriptor.ttl
        self._clock = clock
        self.default = self.layout.columns_of([descriptor.default])

    def load(self, keys: BatchKeys) -> BatchColumns:
        """Return a copy of the entries."""
        table, ttl = self._table, self._ttl
        spaces = np.full(len(keys), table.namespace_numbers([VOID_NAMESPACE])[0], np.int32)
        rows = table.rows_of(keys.data, keys.offsets, keys.groups, spaces)
        present = table.store.alive[rows]
        expired = aged = nothing = np.zeros(len(keys), np.bool_)
        if ttl is not None:
            stamps, now = table.store.stamps[rows], self._clock.now(ttl.time)
            expired = present & (stamps <= now - ttl.micros)
            if ttl.visibility is TtlVisibility.NEVER_RETURN_EXPIRED:
                present = present & ~expired
            if ttl.update is TtlUpdate.ON_READ_AND_WRITE:
                aged = present & ~expired & (stamps < now)
        loaded = BatchColumns(table.gather(rows), present, nothing.copy(), rows, expired, aged)
        loaded.reset(~present, self.default)
        return loaded

    def store(self, keys: BatchKeys, loaded: BatchColumns) -> None:
        """Write the entries that were changed, or whose stamps a read renews; remove what has expired."""
        table, changed = self._table, loaded.changed
        written = np.flatnonzero(loaded.present & (changed | loaded.aged))
        if len(written):
            stamps = None
            if self._ttl is not None:
                stamps = np.full(len(written), self._clock.now(self._ttl.time), np.int64)
            table.write(loaded.rows[written], loaded.chosen(written), stamps)
        removed = (changed & ~loaded.present) | (loaded.expired & ~changed)
        if removed.any():
            table.remove_rows(loaded.rows[removed])


class ValueAccess:
    """A value state of any backend, key by key."""

    def __init__(self, descriptor: ValueStateDescriptor[Any], state: InternalValueState, context: KeyContext) -> None:
        self.layout = ColumnLayout(descriptor.codec.type)
        self._state = state
        self._context = context
        self._absent = descriptor.default
        self.default = self.layout.columns_of([descriptor.default])

    def load(self, keys: BatchKeys) -> BatchColumns:
        """Return a copy of the entries."""
        found = []
        for handle in range(len(keys)):
            self._move_to(keys, handle)
            found.append(self._state.value())
        self._context.clear()
        present = np.array([value is not None for value in found], np.bool_)
        columns = self.layout.columns_of([self._absent if value is None else value for value in found])
        nothing = np.zeros(len(keys), np.bool_)
        return BatchColumns(columns, present, nothing.copy(), np.empty(0, np.int64), nothing, nothing)

    def store(self, keys: BatchKeys, loaded: BatchColumns) -> None:
        """Write the entries that were changed."""
        changed = np.flatnonzero(loaded.changed)
        values = self.layout.records_of(loaded.chosen(changed))
        for handle, value in zip(changed.tolist(), values, strict=True):
            self._move_to(keys, handle)
            if loaded.present[handle]:
                self._state.update(value)
            else:
                self._state.clear()
        self._context.clear()

    def _move_to(self, keys: BatchKeys, handle: int) -> None:
        self._context.set_current_key_and_group(keys.key(handle), int(keys.groups[handle]))
