"""Rewriting a savepoint offline: another max parallelism, states dropped or renamed, operators renamed.

The result is a new savepoint that needs nothing of the old one. Its chains are as short as possible: bases, and deltas
only where a chain has values of older types (see `rewritten_states`). Its files do not contain dropped states. Before
its manifest is created, everything is read back and compared.

Memory holds some key groups of one state and one file of the result. If the max parallelism changes, keys move to other
groups: then all rows are on the local disk meanwhile, compressed, and memory holds a part of the key groups at a time
(a thirty-second, if keys are spread evenly).

Thread safety: one thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from emberstate.checkpoint.commit.savepoint import make_savepoint
from emberstate.checkpoint.files.limits import BASE_BATCH_ROWS
from emberstate.checkpoint.files.meta import FileMeta
from emberstate.checkpoint.files.sorted_rows import Rows
from emberstate.checkpoint.files.writer import FileAssembler
from emberstate.checkpoint.manifest.catalogue import naming_missing
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, FileDecisions, check_address, is_queue
from emberstate.checkpoint.manifest.invariants import check_manifest
from emberstate.checkpoint.manifest.layout import new_id
from emberstate.checkpoint.manifest.model import Manifest, Operator, SlotChain, StateFile
from emberstate.checkpoint.manifest.open_files import store_file
from emberstate.checkpoint.offline.rewritten_states import RewrittenRow, RewrittenState
from emberstate.checkpoint.offline.row_spill import RowSpill
from emberstate.checkpoint.read.reader import CheckpointReader, group_ranges
from emberstate.checkpoint.restore.operators import past_choices_of
from emberstate.clock import Clock
from emberstate.errors import InvariantError, RestoreRefusedError
from emberstate.keygroups import KeyGroupRange, KeySchema, check_max_parallelism, range_for_slot
from emberstate.storage.interface import Storage

#: A file of the result ends after the key group with which it exceeds this.
FILE_BYTES: Final = 64 * 1024 * 1024

Progress = Callable[[int], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRewrite:
    """The changes of an operator."""

    name: str | None = None
    max_parallelism: int | None = None
    #: By their names in the savepoint; timer queues are `timers/…`.
    drop_states: frozenset[str] = frozenset()
    rename_states: Mapping[str, str] = dataclasses.field(default_factory=dict)


def rewrite_savepoint(
    source: Storage,
    manifest: Manifest,
    target: Storage,
    name: str,
    rewrites: Mapping[str, OperatorRewrite],
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Rewrite a savepoint (or a pinned checkpoint) to savepoint `name` of `target`.

    `rewrites` has the changes by operator. `progress` gets the number of key groups read, for each state, first of the
    original and then of the result.

    Raises:
        StorageExistsError: there is a savepoint of that name.
        RestoreRefusedError: it is impossible; the message says what to do. Nothing was left behind.
    """
    todo = {operator.name: rewrites.get(operator.name, OperatorRewrite()) for operator in manifest.operators}
    unknown = sorted(rewrites.keys() - todo.keys())
    names = [rewrite.name or old for old, rewrite in todo.items()]
    if unknown:
        what = f"there is no operator {unknown[0]!r} to rewrite; there are {sorted(todo)}"
        raise RestoreRefusedError(what, operator=unknown[0])
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RestoreRefusedError(f"two operators would have the same name: {sorted(names)}", operator=twice)

    def write(new_path: Callable[[], str]) -> tuple[Operator, ...]:
        with CheckpointReader(source, manifest) as reader, naming_missing(source, manifest):
            written = [
                _OperatorWriter(reader, operator, todo[operator.name], target, new_path, progress)
                for operator in manifest.operators
            ]
            operators = tuple(writer.write() for writer in written)
        result = msgspec.structs.replace(manifest, operators=operators, outputs=(), requires=())
        check_manifest(result, "the rewritten savepoint")
        with CheckpointReader(target, result) as reader:
            for writer, operator in zip(written, operators, strict=True):
                writer.compare(reader, operator)
        return operators

    return make_savepoint(manifest, target, name, write, clock=clock)


class _OperatorWriter:
    """Rewrites one operator."""

    def __init__(
        self,
        reader: CheckpointReader,
        operator: Operator,
        rewrite: OperatorRewrite,
        target: Storage,
        new_path: Callable[[], str],
        progress: Progress | None,
    ) -> None:
        self._reader = reader
        self._operator = operator
        self._rewrite = rewrite
        self._target = target
        self._new_path = new_path
        self._progress = progress
        self._max_parallelism = rewrite.max_parallelism or operator.max_parallelism
        check_max_parallelism(self._max_parallelism)
        self._number = reader.manifest.number
        self._states = _rewritten(reader, operator, rewrite)
        self._digest = _Digest()

    def write(self) -> Operator:
        """Write all files; return the operator with them."""
        parallelism = min(self._operator.parallelism, self._max_parallelism)
        slots: list[SlotChain] = []
        with contextlib.closing(self._groups()) as groups:
            upcoming = next(groups, None)
            for slot in range(parallelism):
                owned = range_for_slot(self._max_parallelism, parallelism, slot)
                writer = _SlotWriter(self, owned)
                while upcoming is not None and upcoming[0] in owned:
                    writer.add(*upcoming)
                    upcoming = next(groups, None)
                slots.append(SlotChain((owned.start, owned.end), new_id(), tuple(writer.end())))
        past_choices = past_choices_of(self._operator).with_options(
            FileDecisions(self._rewrite.drop_states, self._rewrite.rename_states), frozenset()
        )
        return Operator(
            self._rewrite.name or self._operator.name,
            self._operator.key_schema,
            self._max_parallelism,
            tuple(slots),
            {} if past_choices == NO_PAST_CHOICES else past_choices.to_dict(),
        )

    def compare(self, reader: CheckpointReader, operator: Operator) -> None:
        """Raise `InvariantError` if the written state differs from the state that was read."""
        found, grouper = _Digest(), KeySchema(operator.key_schema).key_grouper(operator.max_parallelism)
        there = {stored.address for stored in reader.states(operator.name)}
        for position, state in enumerate(self._states):
            if state.name not in there:
                continue  # the operator has no files at all
            again = RewrittenState(reader, operator, state.name, state.name)
            for groups, entries in reader.scan(operator.name, again.table):
                for entry in entries:
                    if grouper(again.table.key(entry)) != entry.key_group:
                        raise InvariantError(f"{again.table.state.label}: a key is in key group {entry.key_group}")
                    for row in again.rows(entry, entry.key_group, position):
                        found.add(row)
                self._told(len(groups))
        if found != self._digest:
            raise InvariantError(
                f"operator {self._operator.name!r}: what was read back is not what was written ({found.rows} of "
                f"{self._digest.rows} rows)",
                operator=self._operator.name,
            )

    # -- rows -----------------------------------------------------------------------------------------------

    def _groups(self) -> Generator[tuple[int, list[RewrittenRow]], None, None]:
        """Yield (key group, its rows) of the result, ascending, without empty groups."""
        if self._max_parallelism == self._operator.max_parallelism:
            for groups in group_ranges(self._operator, None):
                yield from _by_group(self._rows(groups))
            return
        with tempfile.TemporaryDirectory(prefix="emberstate-rewrite-") as folder:
            spill = RowSpill(Path(folder), self._max_parallelism)
            for groups in group_ranges(self._operator, None):
                spill.add(self._rows(groups))
            for rows in spill.partitions():
                yield from _by_group(rows)

    def _rows(self, groups: KeyGroupRange) -> Iterator[RewrittenRow]:
        """Yield the rows of some key groups of the original."""
        same = self._max_parallelism == self._operator.max_parallelism
        grouper = KeySchema(self._operator.key_schema).key_grouper(self._max_parallelism)
        for position, state in enumerate(self._states):
            for _, entries in self._reader.scan(self._operator.name, state.table, groups):
                for entry in entries:
                    group = entry.key_group if same else grouper(state.table.key(entry))
                    for row in state.rows(entry, group, position):
                        self._digest.add(row)
                        yield row
            self._told(len(groups))

    # -- files ----------------------------------------------------------------------------------------------

    @property
    def layers(self) -> int:
        """The most files of a key group in a chain of the result."""
        return max((len(state.layers) for state in self._states), default=0)

    def new_assembler(self, layer: int, groups: KeyGroupRange) -> tuple[FileAssembler, dict[int, int]]:
        """Return an assembler for a file of a layer, and the positions of the states in it."""
        inside = [position for position, state in enumerate(self._states) if layer < len(state.layers)]
        meta = FileMeta(
            "delta" if layer else "base",
            self._operator.key_schema,
            self._max_parallelism,
            groups,
            tuple(self._states[position].layers[layer].stored for position in inside),
        )
        return FileAssembler(meta), {position: place for place, position in enumerate(inside)}

    def store(self, layer: int, groups: tuple[int, int], parts: Sequence[bytes], seal: str) -> StateFile:
        """Write a file, for key groups of it."""
        ref = store_file(self._target, self._new_path(), parts)
        decided = [state.layers[layer].decisions for state in self._states if layer < len(state.layers)]
        decisions = FileDecisions(
            rename_fields={name: fields for one in decided for name, fields in one.rename_fields.items()},
            stamps={name: stamp for one in decided for name, stamp in one.stamps.items()},
        )
        kind = "delta" if layer else "base"
        return StateFile(new_id(), kind, groups, ref, seal, self._number, decisions.to_dict())  # type: ignore[arg-type]

    def _told(self, groups: int) -> None:
        if self._progress is not None:
            self._progress(groups)


class _SlotWriter:
    """Writes the chain of one slot, key group by key group."""

    def __init__(self, operator: _OperatorWriter, owned: KeyGroupRange) -> None:
        self._operator = operator
        self._owned = owned
        self._files: list[StateFile] = []
        self._begin(owned.start)

    def _begin(self, start: int) -> None:
        self._start = start
        self._layers = [self._operator.new_assembler(layer, self._owned) for layer in range(self._operator.layers)]
        self._parts = [[assembler.head()] for assembler, _ in self._layers]

    def add(self, group: int, rows: Iterable[RewrittenRow]) -> None:
        """Add the rows of the next key group."""
        counts = [assembler.counts() for assembler, _ in self._layers]
        if sum(count.size for count in counts) > FILE_BYTES and any(count.rows for count in counts):
            self._cut(group - 1)
        collected = [Rows() for _ in self._layers]
        for row in rows:
            place = self._layers[row.layer][1][row.state]
            collected[row.layer].add(
                group, place, row.key, row.namespace, row.op, row.user_key, row.value, row.stamp, row.step
            )
        for (assembler, _), parts, some in zip(self._layers, self._parts, collected, strict=True):
            parts += [assembler.batch(batch) for batch in some.batches(BASE_BATCH_ROWS)]

    def end(self) -> list[StateFile]:
        """Return the chain."""
        self._cut(self._owned.end)
        return self._files

    def _cut(self, end: int) -> None:
        for layer, ((assembler, _), parts) in enumerate(zip(self._layers, self._parts, strict=True)):
            if layer == 0 or assembler.counts().rows:
                parts.append(assembler.end())
                self._files.append(self._operator.store(layer, (self._start, end), parts, assembler.seal))
        self._begin(end + 1)


@dataclasses.dataclass
class _Digest:
    """A digest of a set of rows, in any order and any key groups."""

    rows: int = 0
    sum: int = 0

    def add(self, row: RewrittenRow) -> None:
        content = msgspec.msgpack.encode((row.state, *row[3:]))
        self.rows += 1
        self.sum = (self.sum + int.from_bytes(hashlib.blake2b(content, digest_size=16).digest())) % 2**128


def _by_group(rows: Iterable[RewrittenRow]) -> Iterator[tuple[int, list[RewrittenRow]]]:
    groups: dict[int, list[RewrittenRow]] = {}
    for row in rows:
        groups.setdefault(row.key_group, []).append(row)
    yield from sorted(groups.items())


def _rewritten(reader: CheckpointReader, operator: Operator, rewrite: OperatorRewrite) -> list[RewrittenState]:
    """Return the states of the result, in the order of files."""
    there = {stored.address for stored in reader.states(operator.name)}
    unknown = sorted((rewrite.drop_states | rewrite.rename_states.keys()) - there)
    if unknown:
        raise RestoreRefusedError(
            f"operator {operator.name!r} has no state {unknown[0]!r} to rewrite; it has {sorted(there)}",
            operator=operator.name,
            state=unknown[0],
        )
    names = {old: rewrite.rename_states.get(old, old) for old in there - rewrite.drop_states}
    for old, new in rewrite.rename_states.items():
        check_address(new)
        if is_queue(old) != is_queue(new):
            what = f"{old!r} cannot be renamed to {new!r}: one is a timer queue, one a state"
            raise RestoreRefusedError(what, operator=operator.name, state=old)
        if old in rewrite.drop_states:
            what = f"{old!r} is dropped and renamed. Choose one of them."
            raise RestoreRefusedError(what, operator=operator.name, state=old)
    if len(set(names.values())) < len(names):
        what = f"two states of operator {operator.name!r} would have the same name: {names}"
        twice = next(new for new in names.values() if list(names.values()).count(new) > 1)
        raise RestoreRefusedError(what, operator=operator.name, state=twice)
    states = [RewrittenState(reader, operator, old, new) for old, new in names.items()]
    return sorted(states, key=lambda state: (is_queue(state.name), state.name))
