"""`ColumnTable`: a state whose records are in columns, as a table of a heap backend.

It is used in two ways. Batches of keys, as columns, are what it is for: `rows_of`, `gather`, `write`, `remove_rows`,
`rows_in`. And it is a `StateTable`, so handles, checkpoints, the clean-up of expired entries and the command line use
it as any other: one entry at a time, records made when they are asked for. A record that was handed out is a copy;
changing it changes no state.

Key bytes are those of state files (`KeyBytes`).

Thread safety: the backend's owner thread; any thread may call `entries` and `chunks`, which read under the registry's
lock, a part of the rows at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

import numpy as np

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.heap.columns.column_rows import ColumnRows
from emberstate.heap.columns.layout import Array, Column, ColumnLayout
from emberstate.heap.columns.snapshot_chunks import ColumnChunk, changed_chunk, chunks
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.states.kinds import RecordKind
from emberstate.heap.states.state_table import StateTable, StateTableStatistics
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.changes import EntryChange, Op
from emberstate.state.key_bytes import key_bytes
from emberstate.state.key_context import CHECK_EVERY, KeyContext
from emberstate.state.ttl.stamped import Stamped

#: Rows whose records an iteration makes at once.
ITERATED_AT_ONCE: Final = 256
_CLEARED: Final = ((Op.CLEARED,),)


class ColumnTable(StateTable):
    """The records of one state.

    >>> import dataclasses
    >>> from emberstate.keygroups import KeyGroupRange, KeySchema
    >>> @dataclasses.dataclass
    ... class Total:
    ...     n: int
    >>> context = KeyContext(KeySchema.from_python(str), 128, KeyGroupRange(0, 127))
    >>> table = ColumnTable("total", ColumnLayout(Total), context, SnapshotRegistry())
    >>> context.set_current_key("ann")
    >>> table.put("", Total(3))
    >>> table.get(""), list(table)
    (Total(n=3), [('ann', '', Total(n=3))])
    """

    def __init__(
        self,
        name: str,
        layout: ColumnLayout,
        context: KeyContext,
        registry: SnapshotRegistry,
        *,
        stamped: bool = False,
    ) -> None:
        """Make an empty table; `stamped`: its entries have a time to live, and contents are `Stamped`."""
        StateTable.__init__(self, name, RecordKind(), context, registry)
        self.layout = layout
        self.stamped = stamped
        self.store = ColumnRows(layout, registry)
        keys = key_bytes(context.key_schema)
        self._encode: Callable[[Any], bytes] = keys.encode
        self._decode: Callable[[bytes], Any] = keys.decode
        self._unchecked = 0

    # -- batches ---------------------------------------------------------------------------------------------

    def namespace_numbers(self, namespaces: list[Any]) -> Array:
        """Return a number for each namespace, for `rows_of`; numbers, and rows, are valid until the next call."""
        self.context.check_open()
        return self.store.numbers_of(namespaces)

    def rows_of(self, data: Any, offsets: Array, key_groups: Array, namespaces: Array) -> Array:
        """Return the row of each key and namespace number; an unknown one gets a row, which has no entry yet.

        Keys are canonical, as a large binary column. Checks that the key groups are owned, and some keys' own groups.
        """
        self.context.check_open()
        start, end = self.context.key_group_range.start, self.context.key_group_range.end
        if len(key_groups) and not (start <= key_groups.min() and key_groups.max() <= end):
            foreign = int(key_groups[(key_groups < start) | (key_groups > end)][0])
            self.context.key_group_range.check(foreign)
        rows = self.store.rows_of(data, offsets, key_groups, namespaces)
        self._check_groups(rows, key_groups)
        return rows

    def find_rows(self, data: Any, offsets: Array, namespaces: Array) -> Array:
        """Return the row of each key and namespace number that has an entry, else -1."""
        self.context.check_open()
        with self.registry.lock:
            rows = self.store.index.find_rows(data, offsets, namespaces)
        rows[(rows >= 0) & ~self.store.alive[rows]] = -1
        return rows

    def rows_in(self, namespaces: list[Any]) -> Array:
        """Return the rows that have an entry in any of the namespaces, ascending; O(all rows), a few ns each."""
        self.context.check_open()
        numbers = [number for namespace in namespaces if (number := self.store.namespaces.find(namespace)) >= 0]
        if not numbers:
            return np.empty(0, np.int64)
        rows = np.flatnonzero(self.store.alive)
        return rows[np.isin(self.store.index.namespaces_of(rows), numbers)]

    def namespaces_of(self, rows: Array) -> list[Any]:
        """The namespace of each row."""
        numbers = self.store.index.namespaces_of(rows).tolist()
        return [self.store.namespaces.namespace(number) for number in numbers]

    def gather(self, rows: Array) -> list[Column]:
        """Return copies of what `rows` have; those without an entry have nothing yet."""
        self.context.check_open()
        return self.store.gather(rows)

    def write(self, rows: Array, columns: list[Column], stamps: Array | None = None) -> None:
        """Set the records of `rows`, each of them once."""
        self.context.check_open()
        self.store.write(rows, columns, stamps)

    def expired_rows(self, first: int, last: int, horizon: int) -> Array:
        """Return those of the rows [first, last) that have an entry whose stamp is `horizon` or before."""
        part = self.store.alive[first:last] & (self.store.stamps[first:last] <= horizon)
        return first + np.flatnonzero(part)

    def remove_rows(self, rows: Array) -> int:
        """Remove the entries of `rows`, each of them once; return how many there were."""
        self.context.check_open()
        return self.store.remove(rows)

    def _check_groups(self, rows: Array, key_groups: Array) -> None:
        """Raise if a key came with another key group before, or (of one in `CHECK_EVERY`) has another one."""
        wrong = np.flatnonzero(self.store.groups[rows] != key_groups)
        if len(wrong):
            key = self.key_of(int(rows[wrong[0]]))
            self.context.check_group(key, int(key_groups[wrong[0]]))
            raise StateDeclarationError(
                f"state {self.name!r}: key {key!r} came with two key groups", state=self.name, key=key
            )
        for position in range(CHECK_EVERY - 1 - self._unchecked, len(rows), CHECK_EVERY):
            self.context.check_group(self.key_of(int(rows[position])), int(key_groups[position]))
        self._unchecked = (self._unchecked + len(rows)) % CHECK_EVERY

    # -- the current key -------------------------------------------------------------------------------------

    def get(self, namespace: Hashable) -> Any:
        """Return a copy of the record, or None."""
        row = self._current(namespace)
        return None if row is None else self._contents(np.array([row]))[0]

    def peek(self, namespace: Hashable) -> Any:
        """Return a copy of the record, or None."""
        return self.get(namespace)

    def contains_key(self, namespace: Hashable) -> bool:
        """Whether the current key has an entry in `namespace`."""
        return self._current(namespace) is not None

    def put(self, namespace: Hashable, state: Any) -> Any:
        """Set the record; returns None."""
        self.context.check_key(self.name)
        if namespace is None:
            raise StateTypeError(f"a namespace must not be None (key {self.context.key!r})", key=self.context.key)
        self.put_all([self._encode(self.context.key)], [self.context.key_group], [namespace], [state])

    def put_and_get_old(self, namespace: Hashable, state: Any) -> Any:
        """Set the record and return the one before, or None."""
        old = self.get(namespace)
        self.put(namespace, state)
        return old

    def remove(self, namespace: Hashable) -> bool:
        """Remove the entry; return whether there was one."""
        row = self._current(namespace)
        return row is not None and self.store.remove(np.array([row])) == 1

    def remove_and_get_old(self, namespace: Hashable) -> Any:
        """Remove the entry and return its record, or None."""
        old = self.get(namespace)
        self.remove(namespace)
        return old

    def transform(self, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Set the record to `function(record or None, argument)`; if that raises, nothing changes."""
        new = function(self.get(namespace), argument)
        self.put(namespace, new)
        return new

    def put_all(self, keys: list[bytes], key_groups: list[int], namespaces: list[Any], contents: list[Any]) -> None:
        """Set the records of different entries, whose keys are canonical bytes."""
        stamps = None
        if self.stamped:
            stamps = np.array([content.stamp for content in contents], np.int64)
            contents = [content.value for content in contents]
        columns = self.layout.columns_of(contents)  # first: if it raises, nothing has changed
        offsets = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(key) for key in keys], out=offsets[1:])
        with self.registry.lock:
            numbers = self.namespace_numbers(namespaces)
            rows = self.store.rows_of(b"".join(keys), offsets, np.array(key_groups, np.int32), numbers)
            self.store.write(rows, columns, stamps)

    def row_of(self, key: Any, namespace: Hashable) -> int:
        """The row of a canonical key that has an entry."""
        row = self._row(self._encode(key), namespace)
        assert row is not None
        return row

    def _current(self, namespace: Hashable) -> int | None:
        """The row of the current key, if it has an entry."""
        self.context.check_key(self.name)
        return self._row(self._encode(self.context.key), namespace)

    def _row(self, key: bytes, namespace: Hashable) -> int | None:
        with self.registry.lock:
            number = self.store.namespaces.find(namespace)
            row = self.store.index.find(key, number) if number >= 0 else -1
        return row if row >= 0 and self.store.alive[row] else None

    # -- all keys --------------------------------------------------------------------------------------------

    def used_maps(self) -> list[Any]:
        """None: the entries are in no map."""
        return []

    def __len__(self) -> int:
        return self.store.size

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, record), key groups ascending; adding or removing one meanwhile raises."""
        rows = np.flatnonzero(self.store.alive)
        rows = rows[np.argsort(self.store.groups[rows], kind="stable")]
        started = self.store.modifications
        for first in range(0, len(rows), ITERATED_AT_ONCE):
            part = rows[first : first + ITERATED_AT_ONCE]
            keys = [self.key_of(row) for row in part.tolist()]
            for entry in zip(keys, self.namespaces_of(part), self._contents(part), strict=True):
                yield entry
                if self.store.modifications != started:
                    raise RuntimeError(
                        f"iteration failed: state {self.name!r} gained or lost entries, or was rolled back, during "
                        f"iteration. Collect the keys first."
                    )

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`, key groups ascending; O(all entries)."""
        for key, found in self.keys_and_namespaces():
            if found == namespace:
                yield key

    def keys_and_namespaces(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the (key, namespace) pairs of all entries, key groups ascending; O(all entries)."""
        for key, namespace, _ in self:
            yield key, namespace
            self.context.check_open()  # the caller may iterate on another thread

    def entries(self, key_group: int, point: SnapshotPoint) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, record) of one owned key group at `point`, from any thread."""
        self.context.key_group_range.check(key_group)
        for chunk in chunks(self.store, point, key_group):
            yield from self._entries_in(chunk)

    def changes(self, snapshot: SnapshotPoint) -> list[tuple[int, EntryChange]]:
        """(key group, record of change) for every entry that differs from `snapshot`, key groups ascending."""
        chunk = changed_chunk(self.store, snapshot)
        groups, alive = chunk.key_groups.tolist(), chunk.alive.tolist()
        return [
            (group, (key, namespace, ((Op.REPLACED, content),) if there else _CLEARED))
            for group, there, (key, namespace, content) in zip(groups, alive, self._entries_in(chunk), strict=True)
        ]

    def entry_columns(self, key_group: int, point: SnapshotPoint) -> Iterator[EntryColumns]:
        """What `entries` has, as columns, from any thread."""
        self.context.key_group_range.check(key_group)
        return (self._columns_in(chunk) for chunk in chunks(self.store, point, key_group))

    def changed_columns(self, snapshot: SnapshotPoint) -> EntryColumns:
        """What `changes` has, as columns."""
        return self._columns_in(changed_chunk(self.store, snapshot))

    def _columns_in(self, chunk: ColumnChunk) -> EntryColumns:
        used = np.flatnonzero(np.bincount(chunk.namespaces))
        places = np.zeros(int(used[-1]) + 1 if len(used) else 0, np.int32)
        places[used] = np.arange(len(used))
        return EntryColumns(
            key_groups=chunk.key_groups,
            key_data=chunk.key_data,
            key_offsets=chunk.key_offsets,
            namespaces=[self.store.namespaces.namespace(number) for number in used.tolist()],
            namespace_numbers=places[chunk.namespaces],
            alive=chunk.alive,
            fields=[column.as_field() for column in chunk.columns],
            stamps=chunk.stamps if self.stamped else None,
        )

    def _entries_in(self, chunk: ColumnChunk) -> Iterator[tuple[Any, Any, Any]]:
        data, offsets = chunk.key_data.tobytes(), chunk.key_offsets.tolist()
        keys = [self._decode(data[start:end]) for start, end in itertools.pairwise(offsets)]
        namespaces = [self.store.namespaces.namespace(number) for number in chunk.namespaces.tolist()]
        return zip(keys, namespaces, self._stamped(chunk.columns, chunk.stamps), strict=True)

    def _contents(self, rows: Array) -> list[Any]:
        return self._stamped(self.store.gather(rows), self.store.stamps[rows])

    def _stamped(self, columns: list[Column], stamps: Array) -> list[Any]:
        records = self.layout.records_of(columns)
        if not self.stamped:
            return records
        return [Stamped(record, stamp) for record, stamp in zip(records, stamps.tolist(), strict=True)]

    def key_of(self, row: int) -> Any:
        """The key of a row."""
        return self._decode(self.store.index.key(row))

    # -- inspection ------------------------------------------------------------------------------------------

    def statistics(self) -> StateTableStatistics:
        """Return contents and counters of the table; the copies of entries are rows saved for snapshots."""
        groups = np.unique(self.store.groups[self.store.alive])
        return StateTableStatistics(self.name, self.store.size, len(groups), 0, self.store.saved, 0)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the rows are broken or a key is in a foreign group. O(all entries)."""
        self.store.check_invariants()
        for row in np.flatnonzero(self.store.alive).tolist():
            self.context.check_group(self.key_of(row), int(self.store.groups[row]))
