"""From state files back to live state: any key groups from any set of files, in the order they were written.

A base and the deltas after it are applied row by row, by loaders of the backend (`state.row_loading`). Which stored
state goes into which declared one is decided before the first row is read (`check_restore`): what cannot be
restored faithfully is rejected with nothing changed. An invalid row raises CorruptionError naming file, batch and row,
and leaves the backend incomplete; the caller drops it. Restoring again into a new one has the same result.

Loading runs no code from a file: the declared codec decodes the values, and only if the file says that the same codec
wrote them.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from emberstate.checkpoint.files.bindings import StateBinding, bindings_of
from emberstate.checkpoint.files.meta import TIMERS, StoredState
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, FileDecisions, PastChoices
from emberstate.checkpoint.restore.check import check_restore
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.checkpoint.restore.compare import Part, namespace_part, user_key_part, value_part
from emberstate.checkpoint.restore.file_slice import FileSlice, as_slice
from emberstate.checkpoint.restore.undeclared import keep
from emberstate.checkpoint.restore.verdict import RestoreVerdict
from emberstate.codec import OpaqueCodec, compare, decoder_for
from emberstate.errors import CodecError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.key_bytes import KeyBytes, key_bytes
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.row_columns import SCALARS, BadRow, Cells, Decoder, RowColumns
from emberstate.state.row_loading import FileRules, RowDecoders, RowLoader

_log = logging.getLogger("emberstate.checkpoint")


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreCounts:
    """The result of a restore."""

    files: int
    batches: int
    rows: int
    verdict: RestoreVerdict


def restore(
    parts: Iterable[FileSlice | StateFileReader],
    backend: KeyedStateBackend,
    choices: RestoreChoices = NO_CHOICES,
    past_choices: PastChoices = NO_PAST_CHOICES,
) -> RestoreCounts:
    """Load the backend's key groups from `parts`, in the order given; a reader stands for its whole file.

    The parts of a key group must be in the order in which they were written. Rows of key groups that are not the
    part's, or not the backend's, are skipped; batches with no other rows are not read.

    The states must be registered (`get_partitioned_state`), and the backend empty and never snapshotted. Stored timer
    queues that are not registered are made if their namespaces are strings.

    One slot of many passes slices with the decisions of a verdict on all files, `choices` with nothing but
    `keep_states`, and the verdict's `past_choices`.

    Raises:
        RestoreRefusedError: the files do not fit what is declared; nothing was changed.
        CorruptionError: a file is damaged; the backend is unusable.
    """
    todo = [as_slice(part) for part in parts]
    backend.check_unused()
    verdict = check_restore(
        [(part.reader.meta, part.decisions) for part in todo],
        bindings_of(backend),
        key_schema=backend.context.key_schema,
        max_parallelism=backend.context.max_parallelism,
        choices=choices,
        past_choices=past_choices,
        ttl_clock=backend.ttl_clock,
    )
    verdict.refuse()
    _log_decisions(verdict)
    return load(todo, backend, verdict)


def load(todo: Sequence[FileSlice], backend: KeyedStateBackend, verdict: RestoreVerdict) -> RestoreCounts:
    """Load the parts as their verdict says."""
    for name in verdict.queues:
        backend.get_timer_queue(name)
    for stored in verdict.kept:
        keep(stored, backend)
    bindings = {binding.stored.address: binding for binding in bindings_of(backend)}
    decoders = _Decoders(bindings, key_bytes(backend.context.key_schema))
    batches = rows = 0
    for part, decisions in zip(todo, verdict.decisions, strict=True):
        wanted = part.key_groups.intersection(backend.context.key_group_range)
        loaders = _loaders(part.reader, decisions, backend, decoders) if wanted else []
        for number, batch in part.reader.batches(wanted):
            rows += _apply(part.reader, number, batch, loaders, wanted)
            batches += 1
    backend.after_load()
    return RestoreCounts(len(todo), batches, rows, verdict)


def _log_decisions(verdict: RestoreVerdict) -> None:
    for state in verdict.states:
        if state.kind == "dropped":
            _log.warning("restore: stored state %r is dropped (drop_states)", state.name)
        elif state.kind == "kept":
            _log.warning("restore: stored state %r is not declared, and kept as bytes (keep_states)", state.name)


_Load = tuple[RowLoader, StateBinding] | None  # None: the state was dropped


def _apply(
    reader: StateFileReader, number: int, batch: pa.RecordBatch, loaders: list[_Load], wanted: KeyGroupRange
) -> int:
    """Load the wanted rows of one batch; return their number."""
    columns = _columns(batch)
    try:
        runs = columns.runs()
    except BadRow as error:
        raise reader.corruption(number, str(error)) from None
    rows = 0
    for start, stop, group, state in runs:
        if not wanted.start <= group <= wanted.end:
            continue
        if state >= len(loaders):
            raise reader.corruption(number, f"row {start}: state {state} of {len(loaders)}")
        load = loaders[state]
        if load is None:
            continue
        loader, binding = load
        try:
            loader.load(columns, start, stop)
        except (BadRow, CodecError, UnicodeDecodeError) as error:
            what = f"key group {group}, row {loader.row}, {binding.label}: {error}"
            raise reader.corruption(number, what, key_group=group, state=binding.stored.name) from None
        rows += stop - start
    return rows


def _columns(batch: pa.RecordBatch) -> RowColumns:
    groups, states, keys, namespaces, ops, user_keys, values, stamps = batch.columns
    stamp_valid = stamps.buffers()[0] if stamps.null_count else None
    return RowColumns(
        _view(groups.buffers()[1], "H", len(batch)),
        _view(states.buffers()[1], "H", len(batch)),
        _cells(keys),
        _cells(namespaces),
        _view(ops.buffers()[1], "B", len(batch)),
        _cells(user_keys),
        _cells(values),
        _view(stamps.buffers()[1], "q", len(batch)),
        None if stamp_valid is None else memoryview(stamp_valid).cast("B"),
    )


def _cells(column: pa.Array) -> Cells:
    valid, offsets, data = column.buffers()
    return Cells(
        None if data is None else memoryview(data).cast("B"),
        _view(offsets, "i", len(column) + 1),
        memoryview(valid).cast("B") if column.null_count else None,
    )


def _view(buffer: pa.Buffer, layout: str, count: int) -> memoryview:
    return memoryview(buffer).cast("B").cast(layout)[:count]  # type: ignore[call-overload, no-any-return]


# -- what goes where ------------------------------------------------------------------------------------------


def _loaders(
    reader: StateFileReader, decisions: FileDecisions, backend: KeyedStateBackend, decoders: _Decoders
) -> list[_Load]:
    """The loader of every state of a file."""
    loads: list[_Load] = []
    for stored in reader.meta.states:
        name = decisions.name_of(stored.address)
        if name is None:
            loads.append(None)
            continue
        binding = decoders.bindings[name]
        rules = FileRules(
            base=reader.meta.kind == "base",
            exact=reader.meta.merged == 1,
            stamped=stored.ttl is not None,
            keeps_stamps=binding.ttl is not None,
            decided_stamp=decisions.stamps.get(stored.address),
        )
        make = backend.timer_loader if stored.kind == TIMERS else backend.loader
        of_state = decoders.of(stored, name, decisions.fields_of(stored.address))
        loads.append((make(binding.stored.name, of_state, rules), binding))
    return loads


class _Decoders:
    """The decoders of rows, made once for all files that store a state alike."""

    def __init__(self, bindings: Mapping[str, StateBinding], keys: KeyBytes) -> None:
        self.bindings = bindings
        self._key = Decoder(keys.decode, keys.scalar)
        self._made: dict[Any, RowDecoders] = {}

    def of(self, stored: StoredState, name: str, renames: dict[str, str]) -> RowDecoders:
        case = (stored, name, frozenset(renames.items()))
        made = self._made.get(case)
        if made is None:
            binding = self.bindings[name]
            made = self._made[case] = RowDecoders(
                self._key,
                _decoder(namespace_part(stored, binding, renames)),
                _decoder(user_key_part(stored, binding, renames)),
                _decoder(value_part(stored, binding, renames)),
            )
        return made


def _decoder(part: Part | None) -> Decoder:
    if part is None:
        return Decoder(_nothing, None)
    codec = part.codec
    if isinstance(codec, OpaqueCodec):
        return Decoder(codec.decode, None)
    decode = decoder_for(part.stored, codec, part.renames)
    same = part.stored.kind == codec.schema.kind and compare(part.stored, codec, part.renames).kind == "compatible"
    # A float as a key must not be NaN; only the codec checks that.
    plain = same and part.stored.kind in SCALARS and not (codec.is_key and part.stored.kind == "float")
    return Decoder(decode, part.stored.kind if plain else None, part.stored == codec.schema and not part.renames)


def _nothing(data: bytes) -> Any:
    raise CodecError("expected no value, found one")
