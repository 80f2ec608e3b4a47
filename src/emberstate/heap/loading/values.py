# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Filling the state maps of a backend from the rows of a file (`state.row_loading`), past loans, logs and images.

What is loaded is lent to nobody (state version 0). That is right only while no snapshot was ever taken, which the
caller checks. New maps have room for the run's entries.

A duplicate entry is a row that does not ascend, so finding it costs nothing. Lists and maps: `composites`.

Invariants: whatever the rows hold, maps stay sound; an invalid row raises `BadRow` or the decoder's CodecError, and
`row` is then its number.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.states.state_table import StateTable
from emberstate.state.row_columns import BadRow, Decoder, RowColumns
from emberstate.state.row_loading import FileRules, RowDecoders
from emberstate.state.ttl.stamped import Stamped

if not cython.compiled:  # compiled, these are C constants and functions
    from emberstate.heap.map.buckets import head_of, set_head
    from emberstate.heap.map.chains import entry_in
    from emberstate.heap.map.entry import new_entry
    from emberstate.state.row_columns import CLEARED, REPLACED, has_stamp, is_null, order_of, raw_at, value_at

    #: Of the keys of a run, the first and then one in this many has its key group computed.
    CHECK_EVERY = 64


def bulk_put(map: StateMap, key: Any, namespace: Any, state: Any, new: cython.bint) -> int:
    """Set a state that is lent to nobody. Raises BadRow if `new` and the entry exists."""
    if isinstance(map, CopyOnWriteStateMap):
        return bulk_insert(map, key, namespace, state, new)
    if new and map.contains_key(key, namespace):
        raise BadRow("the entry exists already")
    map.put(key, namespace, state)  # a loan until the caller seals
    return 0


def bulk_insert(map: CopyOnWriteStateMap, key: Any, namespace: Any, state: Any, new: cython.bint) -> int:
    """`bulk_put` into a copy-on-write map: past loans, logs and images."""
    if map.chores:
        map.do_chores()
    hash: cython.uint = map.hash_of(key, namespace)
    table: PageTable = map.primary
    bucket: cython.Py_ssize_t = hash & (table.capacity - 1)
    if bucket < map.rehash_index:
        table = cython.cast(PageTable, map.rehash)
        bucket = hash & (table.capacity - 1)
    if map.registry.busy:
        map.registry.refuse_change()
    entry: StateMapEntry | None = entry_in(map.registry, table, bucket, hash, key, namespace)
    if entry is not None:
        if new:
            raise BadRow("the entry exists already")
        entry.state = state
        entry.state_version = 0
        return 0
    head: StateMapEntry | None = head_of(table, bucket)
    set_head(table, bucket, new_entry(key, namespace, state, head, hash, map.registry.version, 0))
    map.size += 1
    map.modifications += 1
    if map.size > map.threshold:
        map.begin_growth()
    return 0


class BulkLoader:
    """Loads the rows of one state of one file: the part that all kinds of state share; a `RowLoader`."""

    __slots__ = (
        "base", "decided_stamp", "exact", "group", "group_of", "keeps_stamps", "key", "keys", "last_group", "last_key",
        "last_namespace", "map", "namespace", "namespace_row", "namespaces", "row", "stamped", "table", "user_keys",
        "values",
    )  # fmt: skip

    table: StateTable
    keys: Decoder
    namespaces: Decoder
    user_keys: Decoder
    values: Decoder
    group_of: Callable[[Any], int]
    base: bool
    exact: bool
    stamped: bool
    keeps_stamps: bool
    decided_stamp: int | None
    row: int
    last_group: int | None  # of the run before, while its last entry may continue
    last_key: bytes
    last_namespace: bytes
    map: StateMap  # the run's
    group: int
    key: Any  # the row's
    namespace: Any
    namespace_row: int  # the row that `namespace` was decoded from; -1 at the beginning of a run

    def __init__(self, table: StateTable, decoders: RowDecoders, rules: FileRules) -> None:
        self.table = table
        self.keys = decoders.key
        self.namespaces = decoders.namespace
        self.user_keys = decoders.user_key
        self.values = decoders.value
        self.group_of = table.context.grouper
        self.base = rules.base
        self.exact = rules.exact
        self.stamped = rules.stamped
        self.keeps_stamps = rules.keeps_stamps
        self.decided_stamp = rules.decided_stamp
        self.row = 0
        self.last_group = None
        self.last_key = b""
        self.last_namespace = b""
        self.group = 0
        self.key = None
        self.namespace = None
        self.namespace_row = -1

    def load(self, columns: RowColumns, start: int, stop: int) -> None:
        """Load a run: the rows [start, stop), all of one key group."""
        raise NotImplementedError

    def begin_run(self, columns: RowColumns, start: cython.Py_ssize_t, entries: cython.Py_ssize_t) -> int:
        """Find or make the map of the run's key group; a new one has room for `entries`."""
        self.row = start
        self.group = columns.key_groups[start]
        self.namespace_row = -1
        if self.last_group is not None and self.last_group != self.group:
            self.last_group = None
        position: cython.Py_ssize_t = self.group - self.table.context.start
        map: StateMap | None = self.table.maps[position]
        if map is None:
            map = self.table.make_map()
            if isinstance(map, CopyOnWriteStateMap):
                map = CopyOnWriteStateMap(self.table.kind, self.table.registry, entries + entries // 2)
            self.table.maps[position] = map
        self.map = map
        return 0

    def end_run(self, columns: RowColumns, stop: cython.Py_ssize_t) -> int:
        """Note the last entry of the run, which the next batch may continue."""
        self.last_group = self.group
        self.last_key = raw_at(columns.keys, stop - 1)
        self.last_namespace = raw_at(columns.namespaces, stop - 1)
        return 0

    def begin_entry(self, columns: RowColumns, row: cython.Py_ssize_t) -> int:
        """Return 1 if this row begins an entry, 0 if it continues one; sets `key` and `namespace`."""
        order: cython.int = 1
        within: cython.bint = self.namespace_row >= 0
        if within:
            order = order_of(columns.keys, row, row - 1)
            if order == 0:
                order = order_of(columns.namespaces, row, row - 1)
        elif self.last_group is not None:
            here = (raw_at(columns.keys, row), raw_at(columns.namespaces, row))
            before = (self.last_key, self.last_namespace)
            order = (here > before) - (here < before)
        if order < 0:
            raise BadRow("keys and namespaces do not ascend, or an entry occurs twice")
        if order == 0 and within:
            return 0
        if not within or order_of(columns.namespaces, row, self.namespace_row) != 0:
            self.namespace = value_at(self.namespaces, columns.namespaces, row)
            self.namespace_row = row
        self.key = value_at(self.keys, columns.keys, row)
        if not within or row % CHECK_EVERY == 0:
            group: cython.Py_ssize_t = self.group_of(self.key)
            if group != self.group:
                raise BadRow(f"key {self.key!r} belongs to key group {group}")
        return 0 if order == 0 else 1

    def content(self, columns: RowColumns, row: cython.Py_ssize_t) -> Any:
        """The value of a row, stamped if the state has a time to live."""
        value = None if is_null(columns.values, row) else value_at(self.values, columns.values, row)
        if has_stamp(columns, row) != self.stamped:
            raise BadRow("the stamp is missing" if self.stamped else "there is a stamp, the state has none")
        if not self.keeps_stamps:
            return value
        return Stamped(value, columns.stamps[row] if self.decided_stamp is None else self.decided_stamp)

    def check_empty(self, columns: RowColumns, row: cython.Py_ssize_t) -> int:
        """Reject a CLEARED that has a user key, a value or a stamp."""
        if not is_null(columns.user_keys, row) or not is_null(columns.values, row) or has_stamp(columns, row):
            raise BadRow("a cleared entry has a user key, a value or a stamp")
        return 0


class ValueLoader(BulkLoader):
    """Loads a state that has one value per entry."""

    __slots__ = ()

    def load(self, columns: RowColumns, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> None:
        """Load a run: the rows [start, stop), all of one key group."""
        self.begin_run(columns, start, stop - start)
        row: cython.Py_ssize_t
        for row in range(start, stop):
            self.row = row
            if not self.begin_entry(columns, row):
                raise BadRow("the entry has more than one value")
            op: cython.int = columns.ops[row]
            if op == REPLACED:
                if not is_null(columns.user_keys, row):
                    raise BadRow("a value has a user key")
                bulk_put(self.map, self.key, self.namespace, self.content(columns, row), self.base)
            elif op == CLEARED and not self.base:
                self.check_empty(columns, row)
                self.map.remove(self.key, self.namespace)
            else:
                raise BadRow(f"step {op} does not belong in a {'base' if self.base else 'delta'} of such a state")
        self.end_run(columns, stop)
