"""`StateScan`: a read of one state of a checkpoint, or of its changes since another. Planned once, read in parts.

A scan has the checkpoint's number and id, the key groups and the columns. It travels to every reader of a part, which
needs nothing else; all parts have the same columns. Only files of the requested key groups are read, apart from deltas,
whose batches hold several.

The scan does not pin the checkpoint: if it is collected before a part is read, that raises CheckpointCollectedError.
For long reads pin it (`pins`), or read a savepoint.

Thread safety: a scan is immutable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.files.meta import StoredState
from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.arrow_values import ColumnProfile
from emberstate.checkpoint.read.change_feed import ChangeFeed
from emberstate.checkpoint.read.entries import Entry
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.errors import CheckpointCollectedError, StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.state.key_bytes import key_bytes
from emberstate.storage.interface import Storage

Location = Storage | str | os.PathLike[str]

#: Stored bytes that one part of a scan should have, and rows of one of its batches.
PART_BYTES: Final = 16 * 1024 * 1024
BATCH_ROWS: Final = 10_000

#: A time to live beyond this, some 9,000 years, is for ever.
_FOR_EVER: Final = 9_000 * 366 * 24 * 3600 * 1_000_000
_INSTANT: Final = pa.timestamp("us", "UTC")


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointName:
    """A checkpoint by number, or a savepoint by name; and its id, to recognise a replacement."""

    number: int | None
    savepoint: str | None
    ident: str

    @staticmethod
    def of(reader: CheckpointReader, savepoint: str | None) -> CheckpointName:
        """Return the name of an open one."""
        return CheckpointName(None if savepoint is not None else reader.manifest.number, savepoint, reader.manifest.id)

    def open(self, location: Location) -> CheckpointReader:
        """Open it again."""
        reader = CheckpointReader.open(location, self.number, savepoint=self.savepoint)
        if reader.manifest.id != self.ident:
            raise CheckpointCollectedError(
                f"{reader.manifest.describe()} has replaced the one that this read began with. Begin the read again.",
                checkpoint=self.number,
                expected=self.ident,
                found=reader.manifest.id,
            )
        return reader


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StateScan:
    """A planned read of one state."""

    checkpoint: CheckpointName
    #: The checkpoint that changes are counted from; None to read the state itself.
    since: CheckpointName | None
    operator: str
    state: str
    key_groups: tuple[int, ...]
    #: Only this key, encoded.
    key: bytes | None
    schema: pa.Schema
    #: How many parts it should be read in.
    parts: int
    profiles: Mapping[str, ColumnProfile]
    ttl_micros: int | None

    def groups_of_part(self, part: int, parts: int) -> tuple[int, ...]:
        """Return the key groups of one of `count` parts: neighbours."""
        count = len(self.key_groups)
        return self.key_groups[part * count // parts : (part + 1) * count // parts]

    def batches(self, location: Location, key_groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some of the scan's key groups, or all; opens the checkpoint itself."""
        wanted = self.key_groups if key_groups is None else key_groups
        if not wanted:
            return
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(self.checkpoint.open(location))
            if self.since is not None:
                old = stack.enter_context(self.since.open(location))
                feed = ChangeFeed(old, reader, self.operator, self.state)
                feed.take_profiles(self.profiles)
                yield from feed.batches(wanted, BATCH_ROWS, self.key)
                return
            table = reader.table(self.operator, self.state)
            table.take_profiles(self.profiles)
            columns = pa.schema([field for field in self.schema if field.name != "expires"])
            for _, entries in reader.scan(self.operator, table, wanted):
                for some in _slices(_of_key(entries, self.key)):
                    yield _with_expiry(table.batch(some, columns), self.ttl_micros)

    def to_arrow(self, location: Location) -> pa.Table:
        """Return all rows as a table."""
        return pa.Table.from_batches(self.batches(location), self.schema)


def plan_scan(
    location: Location,
    state: str,
    *,
    operator: str | None = None,
    checkpoint: int | None = None,
    savepoint: str | None = None,
    since: int | None = None,
    key: Any = None,
    key_groups: Iterable[int] | None = None,
) -> StateScan:
    """Plan a read; `operator` may be omitted if there is one.

    Raises:
        CheckpointCollectedError: a checkpoint does not exist.
        StateDeclarationError: it has no such operator or state, or the key is not of its type.
    """
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(CheckpointReader.open(location, checkpoint, savepoint=savepoint))
        found = choose_operator(reader, operator)
        groups, wanted = _chosen(found, key, key_groups)
        name = CheckpointName.of(reader, savepoint)
        if since is None:
            table = reader.table(found.name, state)
            if table.needs_profile:
                for _, entries in reader.scan(found.name, table, groups):
                    table.look_at(_of_key(entries, wanted))
            stored, schema, profiles, first = table.state, _schema(table.schema(), table.state), table.profiles, None
        else:
            old = stack.enter_context(CheckpointReader.open(location, since))
            first = CheckpointName.of(old, None)
            feed = ChangeFeed(old, reader, found.name, state)
            stored, schema, profiles = feed.state, feed.look(groups, wanted), feed.profiles
        return StateScan(
            checkpoint=name,
            since=first,
            operator=found.name,
            state=state,
            key_groups=groups,
            key=wanted,
            schema=schema,
            parts=_parts(found, groups),
            profiles=profiles,
            ttl_micros=None if stored.ttl is None else stored.ttl.micros,
        )


def choose_operator(reader: CheckpointReader, name: str | None) -> Operator:
    """Return the operator of that name, or the only one."""
    if name is None:
        if len(reader.operators) != 1:
            raise StateDeclarationError(
                f"{reader.manifest.describe()} has the operators {list(reader.operators)}: name one"
            )
        name = reader.operators[0]
    found = reader.manifest.operator(name)
    if found is None:
        raise StateDeclarationError(
            f"{reader.manifest.describe()} has no operator {name!r}; it has {list(reader.operators)}", operator=name
        )
    return found


# -- parts ----------------------------------------------------------------------------------------------------


def _chosen(operator: Operator, key: Any, key_groups: Iterable[int] | None) -> tuple[tuple[int, ...], bytes | None]:
    """Return the key groups to read, and the encoded key, if it is only one."""
    count = operator.max_parallelism
    groups = tuple(range(count)) if key_groups is None else tuple(sorted(set(key_groups)))
    if any(not 0 <= group < count for group in groups):
        raise StateDeclarationError(
            f"operator {operator.name!r} has the key groups 0 to {count - 1}, asked for are {list(groups)!r:.200}",
            operator=operator.name,
        )
    if key is None:
        return groups, None
    schema = KeySchema(operator.key_schema)
    canonical = schema.normalise(key)
    group = schema.key_group(canonical, count)
    return ((group,) if group in groups else ()), key_bytes(schema).encode(canonical)


def _of_key(entries: list[Entry], key: bytes | None) -> list[Entry]:
    return entries if key is None else [entry for entry in entries if entry.key == key]


def _slices(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries in lists with few rows; a large list or map is not split."""
    some: list[Entry] = []
    rows = 0
    for entry in entries:
        some.append(entry)
        rows += len(entry.cells)
        if rows >= BATCH_ROWS:
            yield some
            some, rows = [], 0
    if some:
        yield some


def _schema(columns: pa.Schema, state: StoredState) -> pa.Schema:
    return columns if state.ttl is None else columns.append(pa.field("expires", _INSTANT))


def _with_expiry(batch: pa.RecordBatch, ttl_micros: int | None) -> pa.RecordBatch:
    """Return the batch with the time when each row expires; null beyond the range of timestamps."""
    if ttl_micros is None:
        return batch
    stamps = batch.column("stamp").cast(pa.int64())
    expires = pa.nulls(len(stamps), pa.int64()) if ttl_micros > _FOR_EVER else pc.add(stamps, ttl_micros)
    return batch.append_column(pa.field("expires", _INSTANT), expires.cast(_INSTANT))


def _parts(operator: Operator, groups: tuple[int, ...]) -> int:
    """Return the number of parts of about `PART_BYTES` each."""
    wanted, size = set(groups), 0.0
    for slot in operator.slots:
        for file in slot.files:
            share = sum(group in wanted for group in file.key_groups) / len(file.key_groups)
            size += file.place.size * share
    return max(1, min(len(groups), round(size / PART_BYTES)))
