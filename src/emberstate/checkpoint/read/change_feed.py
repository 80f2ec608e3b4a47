"""`ChangeFeed`: what changed in a state from one checkpoint to another, as Arrow batches with typed columns.

A row is one value, element of a list, user key of a map, or timer that was added, removed or changed. Columns:

    key_group   int32
    key         or key_0, key_1, …; namespace, and user_key, position, or time and name: as in `to_arrow`
    change      "added", "removed" or "changed"
    old, new    the value before and after; null where there is none. Timers have no values
    old_stamp, new_stamp
                of a state with time to live: when it was written; a new stamp alone is a change

Both checkpoints are compared as stored: an entry that expired in between is removed once a base has left it out. A list
is compared position by position. Renames of a start in between are followed.

The cost follows the changes: key groups with the same files are not read; where files were only added, only key groups
present in the new files are read.

Thread safety: one thread at a time, as the readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from emberstate.checkpoint.files.meta import TIMERS
from emberstate.checkpoint.manifest.catalogue import naming_missing
from emberstate.checkpoint.manifest.decisions import is_queue
from emberstate.checkpoint.read.arrow_values import ColumnProfile
from emberstate.checkpoint.read.compared_checkpoint import (
    ComparedCheckpoint,
    one_operator,
    present_state,
    touched_groups,
)
from emberstate.checkpoint.read.entries import Cell, Entry, entries_of
from emberstate.checkpoint.read.reader import CheckpointReader, group_ranges
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.keygroups import KeyGroupRange

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"


class Change(NamedTuple):
    """The change of one cell, still encoded."""

    entry: Entry
    position: int
    old: Cell | None
    new: Cell | None

    @property
    def kind(self) -> str:
        """One of "added", "removed", "changed"."""
        return ADDED if self.old is None else REMOVED if self.new is None else CHANGED


class ChangeFeed:
    """The changes of one state between two checkpoints of a job, savepoints included.

    >>> from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, OperatorSpec
    >>> from emberstate.storage.memory import MemoryStorage
    >>> from emberstate.checkpoint.commit.slot import SlotCheckpoint
    >>> from emberstate.heap.backend import HeapKeyedStateBackend
    >>> from emberstate.keygroups import KeySchema
    >>> from emberstate.state.descriptors import ValueStateDescriptor
    >>> keys, total = KeySchema.from_python(str), ValueStateDescriptor("total", int)
    >>> def make(groups):
    ...     backend = HeapKeyedStateBackend(keys, key_group_range=groups)
    ...     backend.get_partitioned_state(total)
    ...     return backend
    >>> storage = MemoryStorage()
    >>> coordinator = CheckpointCoordinator.open(storage, "clicks", [OperatorSpec(name="counts", key_schema=keys)])
    >>> slot, transaction = SlotCheckpoint(make, None), coordinator.begin(0, query="q", source="")
    >>> slot.start(transaction.tasks[0])
    'restored'
    >>> slot.backend.set_current_key("ann")
    >>> slot.backend.get_partitioned_state(total).update(7)
    >>> manifest = coordinator.commit(transaction, [slot.prepare()])
    >>> with CheckpointReader.open(storage, 1) as old, CheckpointReader.open(storage, 2) as new:
    ...     ChangeFeed(old, new, "counts", "total").to_arrow().drop(["namespace"]).to_pylist()
    [{'key_group': 75, 'key': 'ann', 'change': 'added', 'old': None, 'new': 7}]
    """

    def __init__(self, old: CheckpointReader, new: CheckpointReader, operator: str, state: str) -> None:
        """`state` is the name in `new`, or in `old` if `new` no longer has it; a timer queue is `timers/` and its name.

        Raises:
            StateDeclarationError: neither has the operator, or the state.
            RestoreRefusedError: keys are in other groups now, or the state was replaced.
        """
        self._old = ComparedCheckpoint(old, operator)
        self._new = ComparedCheckpoint(new, operator)
        self.operator = one_operator(self._old, self._new, operator)
        self._old.follow(self._new)
        stored = present_state(self._old, self._new, state)
        #: The state, as it was last declared.
        self.state = stored
        self._table = StateColumns(stored, {*self._old.writers(state), *self._new.writers(state)}, self._key_schema)
        self._schema: pa.Schema | None = None

    @staticmethod
    def states(old: CheckpointReader, new: CheckpointReader, operator: str) -> list[str]:
        """Return the states of an operator in either checkpoint, by their names in `new`; a renamed one once."""
        before, after = ComparedCheckpoint(old, operator), ComparedCheckpoint(new, operator)
        one_operator(before, after, operator)
        before.follow(after)
        return sorted({*before.states(), *after.states()}, key=lambda name: (is_queue(name), name))

    @property
    def _key_schema(self) -> tuple[str, ...]:
        return self.operator.key_schema

    @property
    def schema(self) -> pa.Schema:
        """The columns. The types of datetimes and decimals depend on the values, which are read once for this."""
        return self.look() if self._schema is None else self._schema

    def look(self, key_groups: Iterable[int] | None = None, key: bytes | None = None) -> pa.Schema:
        """Return columns that fit the changes of these key groups, or of a key, alone."""
        if self._table.needs_profile:
            for change in self.changes(key_groups, key):
                self._table.look_at([change.entry._replace(cells=[c for c in change[2:] if c is not None])])
        self._schema = self._make_schema()
        return self._schema

    @property
    def profiles(self) -> dict[str, ColumnProfile]:
        """The profiles of the columns, for a feed of the same changes in another process."""
        return self._table.profiles

    def take_profiles(self, profiles: Mapping[str, ColumnProfile]) -> None:
        """Use the columns of another feed of the same two checkpoints. Call it before anything is decoded."""
        self._table.take_profiles(profiles)
        self._schema = self._make_schema()

    def changes(self, key_groups: Iterable[int] | None = None, key: bytes | None = None) -> Iterator[Change]:
        """Yield every change, undecoded, by key group, key and namespace; of some key groups, or of an encoded key."""
        for groups in self._ranges(key_groups):
            before = self._entries(self._old, groups)
            after = self._entries(self._new, groups)
            for ident in sorted(before.keys() | after.keys()):
                if key is not None and ident[1] != key:
                    continue
                yield from self._of_entry(before.get(ident), after.get(ident))

    def batches(
        self, key_groups: Iterable[int] | None = None, rows: int = 10_000, key: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes as record batches of at most `rows` rows."""
        schema = self.schema
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        for change in self.changes(key_groups, key):
            values = self._row(change)
            for name, column in columns.items():
                column.append(values[name])
            if len(columns["change"]) >= rows:
                yield self._table.columns_to_batch(columns, schema)
                columns = {name: [] for name in schema.names}
        if columns["change"]:
            yield self._table.columns_to_batch(columns, schema)

    def to_arrow(self, key_groups: Iterable[int] | None = None) -> pa.Table:
        """Return the changes as a table."""
        return pa.Table.from_batches(self.batches(key_groups), self.schema)

    # -- parts ----------------------------------------------------------------------------------------------

    def _ranges(self, key_groups: Iterable[int] | None) -> Iterator[KeyGroupRange]:
        """Return the key groups to read: requested, and possibly changed."""
        asked = None if key_groups is None else set(key_groups)
        if asked is not None:
            list(group_ranges(self.operator, sorted(asked)))  # rejects an invalid key group
        touched = set(touched_groups(self._old, self._new, self.state.address, self.operator.max_parallelism))
        return group_ranges(self.operator, sorted(touched if asked is None else touched & asked))

    def _entries(self, side: ComparedCheckpoint, groups: KeyGroupRange) -> dict[tuple[int, bytes, bytes], Entry]:
        with naming_missing(side.reader.storage, side.reader.manifest):
            entries = entries_of(side.parts(groups), self.state.address, groups, self._table.same)
        same = self._table.same
        return {(e.key_group, e.key, same(e.writer, "namespace", e.namespace)): e for e in entries}

    def _of_entry(self, old: Entry | None, new: Entry | None) -> Iterator[Change]:
        entry = new or old
        assert entry is not None
        before, after = self._cells(old), self._cells(new)
        for position, ident in enumerate(sorted(before.keys() | after.keys())):
            was, now = before.get(ident), after.get(ident)
            if was is None or now is None or self._differ(was, now):
                yield Change(entry, position, was, now)

    def _cells(self, entry: Entry | None) -> dict[Any, Cell]:
        """Return the cells by user key, or by position."""
        if entry is None:
            return {}
        if self.state.user_key is None:
            return dict(enumerate(entry.cells))
        return {self._table.same(c.writer, "user_key", c.user_key or b""): c for c in entry.cells}

    def _differ(self, old: Cell, new: Cell) -> bool:
        if self.state.ttl is not None and None not in (old.stamp, new.stamp) and old.stamp != new.stamp:
            return True
        if (old.writer.stored.type, old.writer.renames) == (new.writer.stored.type, new.writer.renames):
            return old.value != new.value  # encoding is deterministic
        return bool(self._table.value(old) != self._table.value(new))

    def _make_schema(self) -> pa.Schema:
        fields = {field.name: field.type for field in self._table.schema()}
        value, stamp = fields.pop("value", None), fields.pop("stamp", None)
        columns = {"key_group": pa.int32(), **fields, "change": pa.string()}
        if value is not None:
            columns |= {"old": value, "new": value}
        if stamp is not None:
            columns |= {"old_stamp": stamp, "new_stamp": stamp}
        return pa.schema(list(columns.items()))

    def _row(self, change: Change) -> dict[str, Any]:
        entry, position, old, new = change
        cell = new or old
        assert cell is not None
        values = {"key_group": entry.key_group, "change": change.kind, **self._table.key_columns(entry)}
        values |= self._table.row(entry, cell, position)
        if self.state.kind != TIMERS:
            for name, one in (("old", old), ("new", new)):
                values[name] = None if one is None else self._table.value(one)
                values[f"{name}_stamp"] = None if one is None else one.stamp
        return values
