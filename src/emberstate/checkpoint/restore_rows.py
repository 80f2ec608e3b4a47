"""From state files back to live state: any key groups from any set of files, in the order they were written.

A base and the deltas after it are applied row by row through `heap.bulk_load`. Which stored state goes into
which declared one is decided before the first row is read: what cannot be restored faithfully is refused with
nothing changed. What is found wrong with rows raises CorruptionError naming file, batch and row, and leaves
the backend half filled: throw it away.

Loading runs no code of the file's: values are decoded by the codec that the caller declares, and only if the
file says that the same codec wrote them.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from emberstate.checkpoint.key_bytes import KeyBytes, key_bytes
from emberstate.checkpoint.state_bindings import StateBinding, bindings_of
from emberstate.checkpoint.state_file_reader import StateFileReader
from emberstate.checkpoint.state_meta import TIMERS, StoredState
from emberstate.codec import Codec, TypeSchema, compare, decoder_for
from emberstate.errors import CodecError, EmberstateError, RestoreRefusedError
from emberstate.heap.bulk_load import BulkLoader, ValueLoader
from emberstate.heap.bulk_load_composites import ListLoader, MapLoader
from emberstate.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from emberstate.heap.row_columns import SCALARS, BadRow, Cells, Decoder, RowColumns
from emberstate.heap.snapshots import FIRST_VERSION
from emberstate.keygroups import KeyGroupRange
from emberstate.state.stamped import Stamped


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreCounts:
    """What a restore read and did."""

    files: int
    batches: int
    rows: int


def restore(
    readers: Iterable[StateFileReader],
    backend: HeapKeyedStateBackend,
    key_groups: KeyGroupRange | None = None,
) -> RestoreCounts:
    """Load `key_groups` (default: all that the backend owns) from files, in the order in which they were
    written.

    The states must be registered (`get_partitioned_state`) and the backend empty and never snapshotted. Timer
    queues that are not there yet are made.

    Raises:
        RestoreRefusedError: the files do not fit what is declared; nothing was changed.
        CorruptionError: a file is damaged; the backend is of no use any more.
    """
    wanted = backend.context.key_group_range if key_groups is None else key_groups
    files = list(readers)
    _check_backend(backend, wanted)
    _make_queues(files, backend)
    bindings = {binding.stored.identity: binding for binding in bindings_of(backend)}
    loads = [_loaders(reader, backend, bindings) for reader in files]
    batches = rows = 0
    for reader, loaders in zip(files, loads, strict=True):
        for number, batch in reader.batches(wanted):
            rows += _apply(reader, number, batch, loaders, wanted)
            batches += 1
    backend.registry.seal()  # what maps without versions took as lent
    for binding in bindings.values():
        if binding.stored.kind == TIMERS:
            backend._timer_queues[binding.stored.name]._rebuild()
    return RestoreCounts(len(files), batches, rows)


_Load = tuple[BulkLoader, StateBinding]


def _apply(
    reader: StateFileReader, number: int, batch: pa.RecordBatch, loaders: list[_Load], wanted: KeyGroupRange
) -> int:
    """Load the wanted rows of one batch; how many they are."""
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
        loader, binding = loaders[state]
        try:
            loader.load(columns, start, stop)
        except (BadRow, CodecError, UnicodeDecodeError) as error:
            raise reader.corruption(number, f"key group {group}, row {loader.row}, {binding.label}: {error}") from None
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


# -- what may go where ---------------------------------------------------------------------------------------


def _check_backend(backend: HeapKeyedStateBackend, wanted: KeyGroupRange) -> None:
    for bound in (wanted.start, wanted.end):
        backend.context.key_group_range.check(bound)
    if backend.registry.version != FIRST_VERSION or backend.registry.live:
        raise RestoreRefusedError("state can be restored only before the backend's first snapshot: use a new backend")
    if backend.number_of_entries() or any(len(queue.table) for queue in backend._timer_queues.values()):
        raise RestoreRefusedError("the backend holds state already: restore into a new one")


def _make_queues(files: list[StateFileReader], backend: HeapKeyedStateBackend) -> None:
    for reader in files:
        for state in reader.meta.states:
            if state.kind != TIMERS or state.name in backend._timer_queues or state.user_key is None:
                continue
            if state.user_key.kind != "tuple" or state.user_key.items[-1].kind != "str":
                raise RestoreRefusedError(
                    f"{reader.name} has timer queue {state.name!r} with timers {state.user_key.label}: declare it "
                    f"first, get_timer_queue(name, namespace_type=…)"
                )
            backend.get_timer_queue(state.name)


def _loaders(
    reader: StateFileReader, backend: HeapKeyedStateBackend, bindings: dict[tuple[bool, str], StateBinding]
) -> list[_Load]:
    """For every state of a file, what loads it; RestoreRefusedError if one has no place to go."""
    meta, context = reader.meta, backend.context
    if meta.key_schema != context.key_schema.type_names or meta.max_parallelism != context.max_parallelism:
        raise RestoreRefusedError(
            f"{reader.name} has keys of {meta.key_schema} in {meta.max_parallelism} key groups, declared are "
            f"{context.key_schema.type_names} in {context.max_parallelism}: keys would be in other groups. "
            f"Declare what is stored, or rewrite the checkpoint offline."
        )
    keys = key_bytes(context.key_schema)
    loads = []
    for stored in meta.states:
        binding = bindings.get(stored.identity)
        if binding is None:
            raise RestoreRefusedError(
                f"{reader.name} has {stored.kind} state {stored.name!r}, which is not declared: declare it"
            )
        try:
            loader = _loader(stored, binding, backend, keys, base=meta.kind == "base", exact=meta.merged == 1)
        except RestoreRefusedError as error:
            raise RestoreRefusedError(f"{reader.name}, {binding.label}: {error}") from None
        loads.append((loader, binding))
    return loads


def _loader(
    stored: StoredState,
    binding: StateBinding,
    backend: HeapKeyedStateBackend,
    keys: KeyBytes,
    *,
    base: bool,
    exact: bool,
) -> BulkLoader:
    if stored.kind != binding.stored.kind:
        raise RestoreRefusedError(f"it was a {stored.kind} state; keep the kind, or store it under a new name")
    if stored.codec != binding.stored.codec:
        raise RestoreRefusedError(f"its codec was {stored.codec!r}; keep the codec")
    keep_stamps, default_stamp = binding.ttl is not None, None
    if binding.ttl is not None and stored.ttl is None:
        try:
            default_stamp = backend.ttl_clock.now(binding.ttl.time)
        except EmberstateError as error:
            raise RestoreRefusedError(f"it had no time to live, and gets its stamps now: {error}") from None
    make: Callable[..., BulkLoader] = ValueLoader
    if stored.kind == "list":
        make = ListLoader
    elif stored.kind in ("map", TIMERS):
        make = functools.partial(MapLoader, timers=stored.kind == TIMERS)
    return make(
        binding.table,
        Decoder(keys.decode, keys.scalar),
        _decoder("namespace", stored.namespace, binding.namespace_codec),
        _decoder("user key", stored.user_key, binding.user_key_codec),
        _decoder("value", stored.type, binding.codec),
        backend.context.grouper,
        base=base,
        exact=exact,
        stamped=stored.ttl is not None,
        stamp_type=Stamped if keep_stamps else None,
        default_stamp=default_stamp,
    )


def _decoder(part: str, stored: TypeSchema | None, codec: Codec[Any] | None) -> Decoder:
    if stored is None or codec is None:
        return Decoder(_nothing, None)
    verdict = compare(stored, codec)
    if verdict.kind == "refused":
        raise RestoreRefusedError(f"its {part} type: {verdict}")
    decode = decoder_for(stored, codec)
    plain = verdict.kind == "compatible" and stored.kind == codec.schema.kind and stored.kind in SCALARS
    # A float as a key must not be NaN, which only the codec knows.
    return Decoder(decode, stored.kind if plain and not (codec.is_key and stored.kind == "float") else None)


def _nothing(data: bytes) -> Any:
    raise CodecError("there is a value where none belongs")
