# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Bulk loading of lists and maps, whose entries have many rows; see `values`.

The rows of an entry are collected and then applied at once; an entry that continues in another batch is applied in
parts. User keys ascend by their bytes within an entry.

Invariants and thread safety: as `values`.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.loading.values import BulkLoader
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.states.list_value import AppendList, append_list_of
from emberstate.heap.states.map_value import PLAIN, MapKind
from emberstate.state.changes import ABSENT
from emberstate.state.row_columns import BadRow, RowColumns

if not cython.compiled:  # compiled, these are C constants and functions
    from emberstate.heap.loading.values import bulk_insert, bulk_put
    from emberstate.state.row_columns import (
        APPENDED,
        CLEARED,
        PUT,
        REMOVED,
        has_stamp,
        is_null,
        order_of,
        raw_at,
        value_at,
    )


class CompositeLoader(BulkLoader):
    """What lists and maps share: entries of several rows."""

    __slots__ = ("cleared", "first", "fresh", "start")

    cleared: bool  # the entry's rows began with CLEARED
    first: bool  # no row of the entry was collected yet
    fresh: bool  # the entry began in this run
    start: int  # the run's first row

    def load(self, columns: RowColumns, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> None:
        """Load a run: the rows [start, stop), all of one key group."""
        entries: cython.Py_ssize_t = 1
        row: cython.Py_ssize_t
        for row in range(start + 1, stop):
            entries += begins(columns, row)
        self.begin_run(columns, start, entries)
        self.start = start
        for row in range(start, stop):
            self.row = row
            began: cython.bint = self.begin_entry(columns, row) != 0
            if began or row == start:
                self.fresh = self.first = began
                self.cleared = False
            if columns.ops[row] == CLEARED:
                if not began or self.base:
                    raise BadRow("an entry is cleared after its beginning, or in a base")
                self.check_empty(columns, row)
                self.cleared = True
            else:
                self.take(columns, row)
                self.first = False
            if row + 1 == stop or begins(columns, row + 1):
                self.finish()
        self.end_run(columns, stop)

    def take(self, columns: RowColumns, row: cython.Py_ssize_t) -> int:
        """Collect a row of the entry."""
        raise NotImplementedError

    def finish(self) -> int:
        """Apply what was collected to the entry."""
        raise NotImplementedError


def begins(columns: RowColumns, row: cython.Py_ssize_t) -> int:
    """Return 1 if the row belongs to another entry than the row before, else 0."""
    return order_of(columns.keys, row, row - 1) != 0 or order_of(columns.namespaces, row, row - 1) != 0


class ListLoader(CompositeLoader):
    """Loads a list state."""

    __slots__ = ("elements",)

    elements: list[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        """As `BulkLoader`."""
        BulkLoader.__init__(self, *args, **options)
        self.elements = []

    def take(self, columns: RowColumns, row: cython.Py_ssize_t) -> int:
        """Collect an element."""
        if columns.ops[row] != APPENDED or not is_null(columns.user_keys, row) or is_null(columns.values, row):
            raise BadRow(f"no element of a list: step {columns.ops[row]}")
        self.elements.append(self.content(columns, row))
        return 0

    def finish(self) -> int:
        """Append the elements to the entry."""
        elements: list[Any] = self.elements
        self.elements = []
        state = self.map.peek(self.key, self.namespace)
        if not elements:  # cleared, and no more
            self.map.remove(self.key, self.namespace)
        elif state is None or self.cleared:
            bulk_put(self.map, self.key, self.namespace, append_list_of(elements), False)
        elif self.base and self.fresh:
            raise BadRow("the entry exists already")
        else:
            header: AppendList = state
            header.items.extend(elements)
            header.length = len(header.items)
        return 0


class MapLoader(CompositeLoader):
    """Loads a map state, or the timers of a queue."""

    __slots__ = ("last_user_key", "puts", "removed", "steps", "timers")

    last_user_key: bytes
    puts: dict[Any, Any]
    removed: list[Any]
    steps: int
    timers: bool

    def __init__(self, *args: Any, timers: bool, **options: Any) -> None:
        """As `BulkLoader`; `timers`: there are no values, and True is stored for each user key."""
        BulkLoader.__init__(self, *args, **options)
        self.timers = timers
        self.last_user_key = b""
        self.puts = {}
        self.removed = []
        self.steps = 0

    def take(self, columns: RowColumns, row: cython.Py_ssize_t) -> int:
        """Collect a user key put or removed."""
        op: cython.int = columns.ops[row]
        if (op != PUT and (op != REMOVED or self.base or self.cleared)) or is_null(columns.user_keys, row):
            raise BadRow(f"step {op} does not belong here, or its user key is missing")
        ascends: cython.bint = True
        if row == self.start and not self.first:
            ascends = raw_at(columns.user_keys, row) > self.last_user_key
        elif not self.first:
            ascends = order_of(columns.user_keys, row, row - 1) > 0
        if not ascends:
            raise BadRow("user keys do not ascend, or one occurs twice")
        user_key = value_at(self.user_keys, columns.user_keys, row)
        bare: cython.bint = op == REMOVED or self.timers
        if bare and (not is_null(columns.values, row) or has_stamp(columns, row)):
            raise BadRow("a row without a value has a value or a stamp")
        if op == REMOVED:
            self.removed.append(user_key)
        else:
            self.puts[user_key] = True if self.timers else self.content(columns, row)
        self.steps += 1
        return 0

    def end_run(self, columns: RowColumns, stop: cython.Py_ssize_t) -> int:
        """Note the last entry and user key of the run, which the next batch may continue."""
        BulkLoader.end_run(self, columns, stop)
        self.last_user_key = b"" if is_null(columns.user_keys, stop - 1) else raw_at(columns.user_keys, stop - 1)
        return 0

    def finish(self) -> int:
        """Put and remove the user keys."""
        if len(self.puts) + len(self.removed) != self.steps:
            raise BadRow("a user key occurs twice, encoded differently")
        state = None if self.cleared else self.map.peek(self.key, self.namespace)
        if state is not None and self.base and self.fresh:
            raise BadRow("the entry exists already")
        if state is None or isinstance(state, tuple):
            self.replace(() if state is None else state)
        else:
            self.change_large(state)
        self.puts = {}
        self.removed = []
        self.steps = 0
        return 0

    def change_large(self, large: CopyOnWriteStateMap) -> int:
        """Change a large map in place."""
        for user_key in self.removed:
            if not large.remove(user_key, PLAIN):
                self.check_leavable(user_key)
        for user_key, user_value in self.puts.items():
            bulk_insert(large, user_key, PLAIN, user_value, False)
        if large.size == 0:
            self.remove_entry()
        return 0

    def check_leavable(self, user_key: Any) -> int:
        """Reject a REMOVED that finds nothing, unless a base may have left the user key out, or deltas were merged."""
        if self.exact and not self.stamped:
            raise BadRow(f"user key {user_key!r} is removed and does not exist")
        return 0

    def remove_entry(self) -> int:
        """Remove an entry without user keys; reject it unless the base may have left out what had expired."""
        if not self.cleared and not self.stamped:
            raise BadRow("all user keys were removed, and the entry was not")
        self.map.remove(self.key, self.namespace)
        return 0

    def replace(self, small: tuple[Any, ...]) -> int:
        """Replace a small or absent map by a new one, small or large."""
        content: dict[Any, Any] = self.puts
        if small:
            content = dict(zip(small[::2], small[1::2]))  # noqa: B905 - pairs
        for user_key in self.removed:
            if content.pop(user_key, ABSENT) is ABSENT:
                self.check_leavable(user_key)
        if small:
            content.update(self.puts)
        kind: MapKind = self.table.kind  # type: ignore[assignment]
        if not content:
            self.remove_entry()
        elif len(content) <= kind.small_limit:
            pairs: list[Any] = []
            for user_key, user_value in content.items():
                pairs.append(user_key)
                pairs.append(user_value)
            bulk_put(self.map, self.key, self.namespace, tuple(pairs), False)
        else:
            large = CopyOnWriteStateMap(kind.value_kind, self.table.registry, len(content) + len(content) // 2)
            for user_key, user_value in content.items():
                bulk_insert(large, user_key, PLAIN, user_value, True)
            bulk_put(self.map, self.key, self.namespace, large, False)
        return 0
