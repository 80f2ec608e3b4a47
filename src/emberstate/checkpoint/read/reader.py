"""`CheckpointReader`: reads a checkpoint or savepoint: the state of any key, or everything as Arrow.

It takes no lock, and the job may run or not. If the checkpoint is collected meanwhile, reads raise
CheckpointCollectedError; a pin keeps it. If the checkpoint exists but one of its files does not, it is damaged.

    get       returns the state of one key, through a descriptor: read-only, as a function would have seen it at
              the end of the checkpoint's batch, without entries that had expired by then
    timers, keys, to_arrow
              return everything that is stored, with the stored types: they need no class of the job and run none
              of its code; expired entries that are not cleaned up are included, with their stamps

It reads only the requested key groups, apart from deltas, whose batches hold several.

Thread safety: one thread at a time.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Hashable, Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from emberstate._html import table_html
from emberstate.checkpoint.files.meta import TIMERS_PREFIX, StoredState
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.catalogue import (
    checkpoint_numbers,
    naming_missing,
    read_checkpoint,
    read_savepoint,
    savepoint_names,
)
from emberstate.checkpoint.manifest.location_hints import nothing_in
from emberstate.checkpoint.manifest.model import Manifest, Operator, StateFile
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.checkpoint.manifest.pins import Pin, pin
from emberstate.checkpoint.read.entries import Entry, entries_of, schema_in
from emberstate.checkpoint.read.restored_groups import RestoredGroups
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.errors import CheckpointCollectedError, LifecycleError, StateDeclarationError
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.immutable_states import (
    ImmutableAggregatingState,
    ImmutableListState,
    ImmutableMapState,
    ImmutableReducingState,
    ImmutableValueState,
)
from emberstate.state.key_bytes import key_bytes
from emberstate.state.timers import VOID_NAMESPACE, Timer
from emberstate.storage.interface import Storage
from emberstate.storage.uri import open_storage

#: Key groups that are read together: deltas are read once for so many.
_GROUPS_AT_ONCE: Final = 16

#: How often to look for the newest checkpoint while a job commits and collects.
_TRIES: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class ReaderStatistics:
    """Counts of a reader."""

    files_opened: int
    groups_restored: int
    groups_cached: int


class CheckpointReader:
    """An open checkpoint; a context manager.

    >>> from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, OperatorSpec
    >>> from emberstate.storage.memory import MemoryStorage
    >>> from emberstate.state.descriptors import MapStateDescriptor
    >>> storage = MemoryStorage()
    >>> counts = OperatorSpec(name="counts", key_schema=KeySchema.from_python(str))
    >>> coordinator = CheckpointCoordinator.open(storage, "clicks", [counts])
    >>> with CheckpointReader.open(storage) as reader:
    ...     seen = reader.get("counts", MapStateDescriptor("seen", str, int), "ann")
    ...     reader.manifest.number, reader.operators, dict(seen)
    (1, ('counts',), {})
    """

    def __init__(self, storage: Storage, manifest: Manifest, pinned: Pin | None = None) -> None:
        """For `open`."""
        #: The checkpoint's storage.
        self.storage = storage
        self._pin = pinned
        self._closed = False
        self._files: dict[str, StateFileReader] = {}
        #: The manifest.
        self.manifest = manifest
        self._groups = RestoredGroups(storage, manifest, self.parts)

    @staticmethod
    def open(
        storage: Storage | str | os.PathLike[str],
        number: int | None = None,
        *,
        savepoint: str | None = None,
        pin_for: str | None = None,
    ) -> CheckpointReader:
        """Open the newest checkpoint, checkpoint `number`, or a savepoint; `pin_for` is the reason of a pin.

        Raises:
            CheckpointCollectedError: it is not there.
            CorruptionError: its manifest is damaged.
        """
        where = storage if isinstance(storage, Storage) else open_storage(storage)
        if savepoint is not None:
            if number is not None or pin_for is not None:
                what = "a savepoint has a name and no number, and needs no pin"
                raise StateDeclarationError(what, option="number" if number is not None else "pin_for")
            return CheckpointReader(where, read_savepoint(where, savepoint))
        if number is not None:
            return _opened(where, number, pin_for)
        for tries_left in reversed(range(_TRIES)):
            numbers = checkpoint_numbers(where)
            if not numbers:
                names = savepoint_names(where)
                raise CheckpointCollectedError(
                    f"there is no checkpoint in {where.describe()}, but there are savepoints: name one of {names}"
                    if names else f"there is no checkpoint: {nothing_in(where)}"
                )  # fmt: skip
            try:
                return _opened(where, numbers[-1], pin_for)
            except CheckpointCollectedError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of the operators that have state."""
        return tuple(operator.name for operator in self.manifest.operators)

    def states(self, operator: str) -> tuple[StoredState, ...]:
        """Return the states and timer queues of an operator, as last declared, under their present names."""
        found: dict[str, tuple[tuple[int, int], StoredState]] = {}
        for slot in self._operator(operator).slots:
            for position, file in enumerate(slot.files):
                decisions, age = file.decisions, (file.number, position)
                for stored in self._file(file).meta.states:
                    name = decisions.name_of(stored.address)
                    if name is not None and (name not in found or found[name][0] < age):
                        present = dataclasses.replace(stored, name=name.removeprefix(TIMERS_PREFIX))
                        found[name] = (age, present)
        return tuple(sorted((stored for _, stored in found.values()), key=lambda stored: stored.identity))

    def get(
        self,
        operator: str,
        descriptor: StateDescriptor,
        key: Any,
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> Any:
        """Return the state of a key, read-only: an `ImmutableValueState`, `ImmutableMapState` or the like.

        Returns an empty one for a key without state, as in a function.

        Raises:
            RestoreRefusedError: what is stored does not fit the descriptor.
        """
        found = self._operator(operator)
        group = KeySchema(found.key_schema).key_group(key, found.max_parallelism)
        backend = self._groups.backend(found, descriptor, namespace, namespace_type, group)
        backend.set_current_key(key)
        state = backend.get_partitioned_state(descriptor, namespace, namespace_type=namespace_type)
        codec = descriptor.codec
        if descriptor.kind == "value":
            return ImmutableValueState(state.value(), codec)
        if descriptor.kind == "list":
            return ImmutableListState(state.get(), codec)
        if descriptor.kind == "map":
            return ImmutableMapState(dict(state.items()), codec)
        if descriptor.kind == "reducing":
            return ImmutableReducingState(state.get(), codec)
        internal = backend.get_internal_state(descriptor, namespace, namespace_type=namespace_type)
        return ImmutableAggregatingState(internal.get_internal(), codec, descriptor.function)  # type: ignore[attr-defined]

    def keys(self, operator: str, state: str) -> Iterator[Any]:
        """Yield the keys that have the state in any namespace, each once, by key group."""
        found, table = self._table(operator, state)
        for entries in self._entries(found, table, None):
            yield from map(table.key, {entry.key: entry for entry in entries}.values())

    def timers(self, operator: str, queue: str, key: Any) -> list[Timer]:
        """Return the timers of a key, in firing order; namespaces as plain values."""
        found, table = self._table(operator, TIMERS_PREFIX + queue)
        schema = KeySchema(found.key_schema)
        wanted = key_bytes(schema).encode(schema.normalise(key))
        timers = [
            Timer(time, key, name, namespace)
            for entries in self._entries(found, table, [schema.key_group(key, found.max_parallelism)])
            for entry in entries
            if entry.key == wanted
            for time, name, namespace in table.timers(entry)
        ]
        return sorted(timers, key=lambda timer: (timer.time, timer.name))

    def of_key(self, operator: str, state: str, key: Any) -> pa.Table:
        """Return the rows of `to_arrow` for one key; reads only its key group."""
        found, table = self._table(operator, state)
        schema = KeySchema(found.key_schema)
        wanted = key_bytes(schema).encode(schema.normalise(key))
        groups = [schema.key_group(key, found.max_parallelism)]
        entries = [entry for some in self._entries(found, table, groups) for entry in some if entry.key == wanted]
        table.look_at(entries)
        arrow = table.schema()
        return pa.Table.from_batches([table.batch(entries, arrow)], arrow)

    def to_arrow(self, operator: str, state: str, key_groups: Iterable[int] | None = None) -> pa.Table:
        """Return a state, or the timers of queue `timers/…`, as a table with typed columns; of some key groups, or all.

        Columns: `key` (or `key_0`, `key_1`, …), `namespace`; then `value` of a value, reducing or aggregating
        state; `position` and `value` of a list, a row per element; `user_key` and `value` of a map, a row per
        user key; `time` and `name` of timers. With a time to live: `stamp`. For the types see `arrow_values`.
        """
        schema, batches = self._arrow(operator, state, key_groups)
        return pa.Table.from_batches(batches, schema)

    def to_batches(
        self, operator: str, state: str, key_groups: Iterable[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of `to_arrow`, a few key groups at a time."""
        return self._arrow(operator, state, key_groups)[1]

    def parts(self, operator: str, key_groups: KeyGroupRange) -> list[FileSlice]:
        """Return the state files of some key groups, in the order to apply them."""
        return [
            FileSlice(self._file(file), file.key_groups, file.decisions)
            for slot in self._operator(operator).slots
            for file in slot.files
            if file.key_groups.intersection(key_groups)
        ]

    def table(self, operator: str, state: str) -> StateColumns:
        """Return the columns of a state, or of the timers of queue `timers/…`."""
        found = self._operator(operator)
        states = {stored.address: stored for stored in self.states(operator)}
        if state not in states:
            raise StateDeclarationError(
                f"operator {operator!r} has no state {state!r} in {self.manifest.describe()}; it has {sorted(states)}",
                operator=operator,
                state=state,
            )
        writers = {
            place[1]
            for part in self.parts(operator, KeyGroupRange(0, found.max_parallelism - 1))
            if (place := schema_in(part, state)) is not None
        }
        return StateColumns(states[state], writers, found.key_schema)

    def scan(
        self, operator: str, table: StateColumns, key_groups: Iterable[int] | None = None
    ) -> Iterator[tuple[KeyGroupRange, list[Entry]]]:
        """Yield the stored entries of a state, some key groups at a time, in order."""
        groups = None if key_groups is None else list(key_groups)
        for wanted in group_ranges(self._operator(operator), groups):
            parts = self.parts(operator, wanted)
            with naming_missing(self.storage, self.manifest):
                entries = entries_of(parts, table.state.address, wanted, table.same)
            yield wanted, entries

    def statistics(self) -> ReaderStatistics:
        """Return the counts so far."""
        return ReaderStatistics(len(self._files), self._groups.restored, self._groups.cached)

    def close(self) -> None:
        """Release the pin and drop the caches; a second call does nothing."""
        self._closed = True
        self._groups.clear()
        self._files.clear()
        if self._pin is not None:
            self._pin.release()
            self._pin = None

    def _repr_html_(self) -> str:
        """The states of the checkpoint with their types, in a notebook."""
        rows = [
            (operator, stored.address, stored.kind, None if stored.type is None else stored.type.label)
            for operator in ([] if self._closed else self.operators)
            for stored in self.states(operator)
        ]
        title = f"{self.manifest.describe()}{', closed' if self._closed else ''}"
        return table_html(title, ("operator", "state", "kind", "type"), rows, len(rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- parts ----------------------------------------------------------------------------------------------

    def _operator(self, name: str) -> Operator:
        if self._closed:
            raise LifecycleError("the reader was closed: open another")
        found = self.manifest.operator(name)
        if found is None:
            raise StateDeclarationError(
                f"{self.manifest.describe()} has no operator {name!r}; it has {list(self.operators)}", operator=name
            )
        return found

    def _file(self, file: StateFile) -> StateFileReader:
        if file.id not in self._files:
            with naming_missing(self.storage, self.manifest):
                self._files[file.id] = open_state_file(self.storage, file)
        return self._files[file.id]

    def _table(self, operator: str, state: str) -> tuple[Operator, StateColumns]:
        return self._operator(operator), self.table(operator, state)

    def _entries(self, operator: Operator, table: StateColumns, groups: list[int] | None) -> Iterator[list[Entry]]:
        return (entries for _, entries in self.scan(operator.name, table, groups) if entries)

    def _arrow(
        self, operator: str, state: str, key_groups: Iterable[int] | None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        groups = None if key_groups is None else list(key_groups)
        found, table = self._table(operator, state)
        if table.needs_profile:
            for entries in self._entries(found, table, None):  # all, so that parts of a table have the same columns
                table.look_at(entries)
        schema = table.schema()
        return schema, (table.batch(entries, schema) for entries in self._entries(found, table, groups))


def _opened(storage: Storage, number: int, pin_for: str | None) -> CheckpointReader:
    if pin_for is None:
        return CheckpointReader(storage, read_checkpoint(storage, number))
    pinned = pin(storage, number, pin_for)
    try:
        return CheckpointReader(storage, read_checkpoint(storage, number), pinned)
    except BaseException:
        pinned.release()
        raise


def group_ranges(operator: Operator, groups: list[int] | None) -> Iterator[KeyGroupRange]:
    """Yield the key groups to read, in small ranges of neighbours."""
    every = KeyGroupRange(0, operator.max_parallelism - 1)
    wanted = list(every) if groups is None else sorted(set(groups))
    start = 0
    for position, group in enumerate(wanted, start=1):
        if group not in every:
            what = f"operator {operator.name!r} has the key groups {every}, asked for is {group}"
            raise StateDeclarationError(what, operator=operator.name, key_group=group)
        if position == len(wanted) or wanted[position] != group + 1 or position - start == _GROUPS_AT_ONCE:
            yield KeyGroupRange(wanted[start], group)
            start = position
