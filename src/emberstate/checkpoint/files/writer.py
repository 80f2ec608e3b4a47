"""Writes state files: a delta of the changes since a snapshot, or a base of everything in a snapshot.

A file is an Arrow IPC file (docs/format.md). Both writers return bytes; the caller stores them.

Invariants: equal logical state gives equal rows in the same order, in any process. A record batch of a base holds one
key group. A file ends with an index and cannot be read without its end.

Thread safety: `write_delta` runs on the backend's owner thread. A `BaseWriter` may run on any one thread while the
owner changes the backend, as long as its snapshot is live.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator

import pyarrow as pa

from emberstate.checkpoint.files.batches import schema_message, write_message
from emberstate.checkpoint.files.bindings import StateBinding, bindings_of, meta_of
from emberstate.checkpoint.files.column_entries import ColumnEncoder
from emberstate.checkpoint.files.encoder import EntryEncoder, encode_changes
from emberstate.checkpoint.files.footer import END_OF_STREAM, HEAD, METADATA_KEY, build_footer
from emberstate.checkpoint.files.limits import BASE_BATCH_ROWS, DELTA_BATCH_ROWS
from emberstate.checkpoint.files.meta import TIMERS, BatchEntry, FileMeta, index_to_json
from emberstate.checkpoint.files.sorted_rows import Rows
from emberstate.errors import StateTypeError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.key_bytes import key_bytes
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.ttl.filter import horizon_of, unexpired
from emberstate.storage.checksums import checksum


@dataclasses.dataclass(frozen=True, slots=True)
class FileCounts:
    """Counts of a file."""

    rows: int
    batches: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenFile:
    """A whole state file in memory."""

    data: bytes
    counts: FileCounts
    #: Checksum of the footer, by which a manifest identifies the file.
    seal: str


class FileAssembler:
    """Makes a file part by part: `head`, any number of `batch`, `end`; the file is their results in order."""

    __slots__ = ("_blocks", "_entries", "_metadata", "_rows", "_size", "seal")

    def __init__(self, meta: FileMeta) -> None:
        self._metadata = {METADATA_KEY: meta.to_json()}
        self._blocks: list[tuple[int, int, int]] = []
        self._entries: list[BatchEntry] = []
        self._rows = 0
        self._size = 0
        #: Checksum of the footer, once it is written.
        self.seal = ""

    def head(self) -> bytes:
        """Return the beginning of the file."""
        # Without the metadata, which readers take from the footer: it would make a small delta half as large again.
        return self._counted(HEAD + schema_message({}))

    def batch(self, batch: pa.RecordBatch) -> bytes:
        """Return one record batch; its rows are sorted, and follow those of the batch before."""
        message, metadata_length = write_message(batch)
        groups = batch.column("key_group")
        first, last, rows = groups[0].as_py(), groups[len(groups) - 1].as_py(), batch.num_rows
        self._blocks.append((self._size, metadata_length, len(message) - metadata_length))
        self._entries.append(BatchEntry(first, last, rows, zlib.crc32(message)))
        self._rows += rows
        return self._counted(message)

    def end(self) -> bytes:
        """Return the end of the file."""
        footer = build_footer(schema_message(self._metadata), self._blocks, index_to_json(self._entries))
        self.seal = checksum(footer)
        return self._counted(END_OF_STREAM + footer)

    def counts(self) -> FileCounts:
        """What was written so far."""
        return FileCounts(self._rows, len(self._blocks), self._size)

    def _counted(self, part: bytes) -> bytes:
        self._size += len(part)
        return part


def assemble(meta: FileMeta, rows: Rows, max_rows: int = DELTA_BATCH_ROWS) -> WrittenFile:
    """Return a file of these rows."""
    assembler = FileAssembler(meta)
    parts = [assembler.head()]
    parts += [assembler.batch(batch) for batch in rows.batches(max_rows)]
    parts.append(assembler.end())
    return WrittenFile(b"".join(parts), assembler.counts(), assembler.seal)


def write_delta(backend: KeyedStateBackend, snapshot: KeyedStateSnapshot) -> WrittenFile:
    """Return the changes of `backend` since `snapshot` as a file. The cost follows the changes.

    Raises:
        StateTypeError: a value is not of its declared type; the message names state, key and path.
    """
    bindings = bindings_of(backend)
    rows = Rows()
    keys = key_bytes(backend.context.key_schema)
    of_states: dict[str, EntryEncoder] = {}
    of_queues: dict[str, EntryEncoder] = {}
    try:
        listed, columns = backend.split_changes(snapshot)
    except StateTypeError as error:
        raise backend.refusal(error) from None
    for position, binding in enumerate(bindings):
        is_queue, name = binding.stored.identity
        if not is_queue and name in columns:
            ColumnEncoder(position, binding, keys.decode, rows).add(columns[name])
        else:
            (of_queues if is_queue else of_states)[name] = EntryEncoder(position, binding, keys, rows)
    encode_changes(of_states, listed)
    encode_changes(of_queues, backend.timer_changes(snapshot))
    return assemble(meta_of(backend, "delta", backend.context.key_group_range, bindings), rows)


class BaseWriter:
    """Iterates over the parts of a file with everything that a snapshot has of some key groups.

    What had expired by then is left out; see `emberstate.state.ttl.filter`.

    Iterating gives bytes; put together they are the file. What is held at once is one key group's share of
    one state, and no part takes the interpreter lock for long.

    >>> from emberstate.heap.backend import HeapKeyedStateBackend
    >>> from emberstate.keygroups import KeySchema
    >>> backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    >>> with backend.snapshot() as snapshot:
    ...     writer = BaseWriter(backend, snapshot)
    ...     data = b"".join(writer)
    >>> writer.counts().rows, len(data) == writer.counts().size
    (0, True)
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        snapshot: KeyedStateSnapshot,
        key_groups: KeyGroupRange | None = None,
        *,
        batch_rows: int = BASE_BATCH_ROWS,
    ) -> None:
        """Write `key_groups` (default: all that the backend owns) as `snapshot`, which must stay live, saw
        them."""
        owned = backend.context.key_group_range
        self._groups = owned if key_groups is None else key_groups
        for bound in (self._groups.start, self._groups.end):
            owned.check(bound)
        self._snapshot = snapshot
        self._bindings = bindings_of(backend, snapshot)
        self._keys = key_bytes(backend.context.key_schema)
        self._batch_rows = batch_rows
        self._assembler = FileAssembler(meta_of(backend, "base", self._groups, self._bindings))
        self._parts = self._write()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._parts)

    def counts(self) -> FileCounts:
        """What was written so far."""
        return self._assembler.counts()

    @property
    def seal(self) -> str:
        """Checksum of the footer, after the last part."""
        return self._assembler.seal

    def _write(self) -> Iterator[bytes]:
        yield self._assembler.head()
        for group in self._groups:
            for batch in self._batches(group):
                yield self._assembler.batch(batch)
        yield self._assembler.end()

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        rows = Rows()
        for position, binding in enumerate(self._bindings):
            if binding.stored.kind == TIMERS or not self._add_columns(position, binding, group, rows):
                self._add_entries(position, binding, group, rows)
            if rows.count >= self._batch_rows:  # small states of a group share a batch
                yield from rows.batches(self._batch_rows)
                rows = Rows()
        yield from rows.batches(self._batch_rows)

    def _add_columns(self, position: int, binding: StateBinding, group: int, rows: Rows) -> bool:
        """Add the entries of a state that is in columns; return whether it is."""
        parts = self._snapshot.entry_columns(binding.stored.name, group)
        if parts is None:
            return False
        horizon = None if binding.ttl is None else horizon_of(binding.ttl, self._snapshot.ttl_clock)
        encoder = ColumnEncoder(position, binding, self._keys.decode, rows)
        for entries in parts:
            encoder.add(entries, horizon)
        return True

    def _add_entries(self, position: int, binding: StateBinding, group: int, rows: Rows) -> None:
        read = self._snapshot.timers if binding.stored.kind == TIMERS else self._snapshot.entries
        entries = read(binding.stored.name, group)
        if binding.ttl is not None:
            entries = unexpired(entries, binding.ttl, self._snapshot.ttl_clock)
        EntryEncoder(position, binding, self._keys, rows).add_entries(group, entries)
