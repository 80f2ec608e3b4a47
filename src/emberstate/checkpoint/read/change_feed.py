"""`ChangeFeed`: what changed in a state from one checkpoint to another, as Arrow batches with typed columns.

A row is one value, element of a list, user key of a map, or timer that was added, removed or changed. Columns:

    key_group   int32
    key         or key_0, key_1, …; namespace, and user_key, position, or time and name: as in `to_arrow`
    change      "added", "removed" or "changed"
    old, new    the value before and after; null where there is none. Timers have no values
    old_stamp, new_stamp
                of a state with time to live: when it was written; a new stamp alone is a change

Both checkpoints are compared as they are stored: what expired in between is removed when a base has left it out,
and not before. A list is compared position by position. What a start in between renamed is followed.

Cost follows change: key groups with the same files are not read; where files only were added, those key groups are
that these have rows of.

Thread safety: one thread at a time, as the readers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.files.meta import TIMERS, TIMERS_PREFIX, StoredState
from emberstate.checkpoint.manifest.catalogue import naming_missing
from emberstate.checkpoint.manifest.decisions import FileDecisions, is_queue
from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.arrow_values import ColumnProfile
from emberstate.checkpoint.read.entries import Cell, Entry, WriterSchema, entries_of, schema_in
from emberstate.checkpoint.read.reader import CheckpointReader, group_ranges
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.operators import past_choices_of
from emberstate.errors import RestoreRefusedError, StateDeclarationError
from emberstate.keygroups import KeyGroupRange

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"


class Change(NamedTuple):
    """What became of one cell, still encoded."""

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
        """`state` as `new` calls it, or `old` if `new` has it no more; a timer queue is `timers/` and its name.

        Raises:
            StateDeclarationError: neither has the operator, or the state.
            RestoreRefusedError: keys are in other groups now, or the state is another.
        """
        self._old = _Side(old, operator)
        self._new = _Side(new, operator)
        self.operator = _one_operator(self._old, self._new, operator)
        self._old.follow(self._new)
        stored = _present(self._old, self._new, state)
        #: The state, as it was last declared.
        self.state = stored
        self._table = StateColumns(stored, {*self._old.writers(state), *self._new.writers(state)}, self._key_schema)
        self._schema: pa.Schema | None = None

    @staticmethod
    def states(old: CheckpointReader, new: CheckpointReader, operator: str) -> list[str]:
        """The states of an operator in either checkpoint, as `new` calls them; what was renamed is there once."""
        before, after = _Side(old, operator), _Side(new, operator)
        _one_operator(before, after, operator)
        before.follow(after)
        return sorted({*before.states(), *after.states()}, key=lambda name: (is_queue(name), name))

    @property
    def _key_schema(self) -> tuple[str, ...]:
        return self.operator.key_schema

    @property
    def schema(self) -> pa.Schema:
        """The columns; of datetimes and decimals the types depend on the values, which are read for it once."""
        return self.look() if self._schema is None else self._schema

    def look(self, key_groups: Iterable[int] | None = None, key: bytes | None = None) -> pa.Schema:
        """Let the columns fit the changes of these key groups, or of a key, alone."""
        if self._table.needs_profile:
            for change in self.changes(key_groups, key):
                self._table.look_at([change.entry._replace(cells=[c for c in change[2:] if c is not None])])
        self._schema = self._make_schema()
        return self._schema

    @property
    def profiles(self) -> dict[str, ColumnProfile]:
        """What the types of the columns follow from, once they are known: for such a feed elsewhere."""
        return self._table.profiles

    def take_profiles(self, profiles: Mapping[str, ColumnProfile]) -> None:
        """Have the columns of another feed of the same two checkpoints; before anything is decoded."""
        self._table.take_profiles(profiles)
        self._schema = self._make_schema()

    def changes(self, key_groups: Iterable[int] | None = None, key: bytes | None = None) -> Iterator[Change]:
        """Every change, undecoded, by key group, key and namespace; of some key groups, or all; of an encoded key."""
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
        """The changes as record batches of at most so many rows."""
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
        """All of them as a table."""
        return pa.Table.from_batches(self.batches(key_groups), self.schema)

    # -- parts ----------------------------------------------------------------------------------------------

    def _ranges(self, key_groups: Iterable[int] | None) -> Iterator[KeyGroupRange]:
        """The key groups to look at: asked for, and touched."""
        asked = None if key_groups is None else set(key_groups)
        if asked is not None:
            list(group_ranges(self.operator, sorted(asked)))  # refuses what is no key group
        touched = set(_touched(self._old, self._new, self.state.address, self.operator.max_parallelism))
        return group_ranges(self.operator, sorted(touched if asked is None else touched & asked))

    def _entries(self, side: _Side, groups: KeyGroupRange) -> dict[tuple[int, bytes, bytes], Entry]:
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
        """The cells by what tells them apart: user key, or position."""
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


@dataclasses.dataclass
class _Side:
    """One of the two checkpoints."""

    reader: CheckpointReader
    name: str
    #: What was decided after this checkpoint, up to the other.
    later: FileDecisions = dataclasses.field(default_factory=FileDecisions)

    @property
    def operator(self) -> Operator | None:
        return self.reader.manifest.operator(self.name)

    def follow(self, newer: _Side) -> None:
        """Take the names that states and fields got on the way to a newer checkpoint."""
        if self.operator is None or newer.operator is None:
            return
        before, after = past_choices_of(self.operator).decisions, past_choices_of(newer.operator).decisions
        states = {old: new for old, new in after.rename_states.items() if before.rename_states.get(old) != new}
        fields = {}
        for state in after.rename_fields:
            done = before.fields_of(state)
            fields[state] = {path: new for path, new in after.fields_of(state).items() if done.get(path) != new}
        self.later = FileDecisions(rename_states=states, rename_fields=fields)

    def parts(self, groups: KeyGroupRange) -> list[FileSlice]:
        if self.operator is None:
            return []
        found = self.reader.parts(self.name, groups)
        if not self.later:
            return found
        return [
            dataclasses.replace(part, decisions=part.decisions.then(self.later).restricted_to(part.reader.meta.states))
            for part in found
        ]

    def states(self) -> dict[str, StoredState]:
        """The states by their names at the newer checkpoint."""
        if self.operator is None:
            return {}
        found = {}
        for stored in self.reader.states(self.name):
            name = self.later.name_of(stored.address)
            assert name is not None
            found[name] = dataclasses.replace(stored, name=name.removeprefix(TIMERS_PREFIX))
        return found

    def writers(self, state: str) -> Iterator[WriterSchema]:
        groups = KeyGroupRange(0, 0 if self.operator is None else self.operator.max_parallelism - 1)
        places = (schema_in(part, state) for part in self.parts(groups))
        return (place[1] for place in places if place is not None)


def _one_operator(old: _Side, new: _Side, name: str) -> Operator:
    before, after = old.operator, new.operator
    if before is None and after is None:
        there = sorted({*old.reader.operators, *new.reader.operators})
        raise StateDeclarationError(f"neither checkpoint has an operator {name!r}; there are {there}", operator=name)
    if before is None or after is None:
        return after or before  # type: ignore[return-value]
    one, other = (before.key_schema, before.max_parallelism), (after.key_schema, after.max_parallelism)
    if one != other:
        raise RestoreRefusedError(
            f"operator {name!r} has keys of {list(one[0])} in {one[1]} key groups in one checkpoint, and of "
            f"{list(other[0])} in {other[1]} in the other: they cannot be compared by key group. Export both, and "
            f"compare the tables.",
            operator=name,
        )
    return after


def _present(old: _Side, new: _Side, state: str) -> StoredState:
    before, after = old.states(), new.states()
    if state not in before and state not in after:
        raise StateDeclarationError(
            f"operator {new.name!r} has no state {state!r} in either checkpoint; there are {sorted({*before, *after})}",
            operator=new.name,
            state=state,
        )
    one, other = before.get(state), after.get(state)
    if one is None or other is None:
        return other or one  # type: ignore[return-value]
    if (one.kind, one.codec) != (other.kind, other.codec):
        raise RestoreRefusedError(
            f"{state!r} is a {one.kind} state ({one.codec}) in one checkpoint and a {other.kind} state "
            f"({other.codec}) in the other: it was dropped and is another. Export both, and compare the tables.",
            operator=new.name,
            state=state,
        )
    return other


def _touched(old: _Side, new: _Side, state: str, count: int) -> Iterator[int]:
    """The key groups in which the state may differ."""
    whole = KeyGroupRange(0, count - 1)
    before, after = old.parts(whole), new.parts(whole)
    bounds = {0, count}
    for part in (*before, *after):
        bounds |= {part.key_groups.start, part.key_groups.end + 1}
    edges = sorted(bounds)
    for start, stop in itertools.pairwise(edges):
        groups = KeyGroupRange(start, stop - 1)
        was = [part for part in before if part.key_groups.intersection(groups)]
        now = [part for part in after if part.key_groups.intersection(groups)]
        names = [[(part.reader.seal, part.decisions) for part in chain] for chain in (was, now)]
        if names[1][: len(was)] == names[0]:
            with naming_missing(new.reader.storage, new.reader.manifest):
                yield from _groups_in(now[len(was) :], state, groups)
        else:
            yield from groups


def _groups_in(parts: list[FileSlice], state: str, groups: KeyGroupRange) -> set[int]:
    """The key groups of which these files have rows of the state."""
    found: set[int] = set()
    for part in parts:
        place = schema_in(part, state)
        if place is None:
            continue
        for _, batch in part.reader.batches(groups):
            ours = batch.column("key_group").filter(pc.equal(batch.column("state"), place[0]))
            found.update(group for group in pc.unique(ours).to_pylist() if group in groups)
    return found
