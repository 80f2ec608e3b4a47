"""How many bytes each state of a file has, for the limit of checkpoints that are kept in memory.

Thread safety: pure functions.

Reading state files: what a file is about, and its record batches by key group, fetching only what is
needed.

Opening reads the end of the file, usually in one request; every batch is one more. Nothing reaches Arrow
whose checksum does not fit, and nothing is decompressed whose declared size exceeds the limits.

Invariants: reading raises CorruptionError (bytes are not what was written) or RestoreRefusedError (a later
format) and, apart from what `read_range` raises, nothing else.

Thread safety: as `read_range`; the reader itself does not change after it is made.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa

from emberstate.checkpoint.files.batches import read_message
from emberstate.checkpoint.files.footer import END_OF_STREAM, HEAD, TAIL, footer_length, parse_footer
from emberstate.checkpoint.files.limits import DEFAULT_LIMITS, FileLimits
from emberstate.checkpoint.files.meta import BatchEntry, FileMeta, index_from_json
from emberstate.errors import CorruptionError, RestoreRefusedError
from emberstate.keygroups import KeyGroupRange
from emberstate.storage.checksums import checksum

#: What is read of the end at first; the footer of a delta fits, and that of most bases.
_FIRST_READ = 64 * 1024

ReadRange = Callable[[int, int], bytes]


class StateFileReader:
    """An open state file."""

    __slots__ = ("_blocks", "_limits", "_read_range", "entries", "meta", "name", "seal", "size")

    meta: FileMeta
    """What the file is about."""
    entries: list[BatchEntry]
    """Its record batches, in order."""
    seal: str
    """Checksum of the footer, which holds those of the batches: who knows it knows the file."""

    def __init__(
        self,
        read_range: ReadRange,
        size: int,
        limits: FileLimits = DEFAULT_LIMITS,
        *,
        name: str = "state file",
    ) -> None:
        """Open a file of `size` bytes; `read_range(offset, length)` gives exactly that part of it."""
        self.name = name
        self.size = size
        self._read_range = read_range
        self._limits = limits
        with self._naming("footer"):
            tail = self._read(max(0, size - _FIRST_READ), min(size, _FIRST_READ))
            length = footer_length(tail, size, limits)
            start = size - TAIL.size - length
            footer = tail[-TAIL.size - length : -TAIL.size]
            if len(footer) < length:
                footer = self._read(start, length)
            self.seal = checksum(footer + tail[-TAIL.size :])
            parsed = parse_footer(footer)
            self.meta = FileMeta.from_json(parsed.metadata, limits)
            self.entries = index_from_json(parsed.index, self.meta, limits)
            self._blocks = _checked(parsed.blocks, self.entries, start - len(END_OF_STREAM))

    @staticmethod
    def of_bytes(data: bytes, limits: FileLimits = DEFAULT_LIMITS, *, name: str = "state file") -> StateFileReader:
        """Open a file that is in memory."""
        return StateFileReader(lambda offset, length: data[offset : offset + length], len(data), limits, name=name)

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return sum(entry.rows for entry in self.entries)

    def batches(self, key_groups: KeyGroupRange | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(number, record batch) for every batch with rows of `key_groups` (default: all).

        A batch of a delta may have rows of other key groups too.
        """
        wanted = self.meta.key_groups if key_groups is None else key_groups
        for number, (entry, (offset, length)) in enumerate(zip(self.entries, self._blocks, strict=True)):
            if wanted.start <= entry.last and entry.first <= wanted.end:
                with self._naming(f"record batch {number}"):
                    batch = self._batch(entry, offset, length)
                yield number, batch

    def corruption(self, batch: int, what: str) -> CorruptionError:
        """The error for a batch whose content makes no sense."""
        return CorruptionError(f"{self.name}, record batch {batch}: {what}")

    def _batch(self, entry: BatchEntry, offset: int, length: int) -> pa.RecordBatch:
        message = self._read(offset, length)
        if zlib.crc32(message) != entry.checksum:
            raise CorruptionError(
                f"bytes {offset} to {offset + length} do not have the checksum they were written with"
            )
        batch = read_message(message, entry.rows, self._limits)
        groups = batch.column("key_group")
        if (groups[0].as_py(), groups[entry.rows - 1].as_py()) != (entry.first, entry.last):
            raise CorruptionError("the rows are of other key groups than the index says")
        return batch

    def _read(self, offset: int, length: int) -> bytes:
        data = self._read_range(offset, length)
        if len(data) != length:
            raise CorruptionError(f"{len(data)} bytes at {offset} where {length} should be: the file is shorter")
        return bytes(data)

    @contextlib.contextmanager
    def _naming(self, part: str) -> Iterator[None]:
        try:
            yield
        except CorruptionError as error:
            raise CorruptionError(f"{self.name}, {part}: {error}") from None
        except RestoreRefusedError as error:
            raise RestoreRefusedError(f"{self.name}: {error}") from None
        except RecursionError:
            raise CorruptionError(f"{self.name}, {part}: nested too deeply") from None


def _checked(blocks: list[tuple[int, ...]], entries: list[BatchEntry], end: int) -> list[tuple[int, int]]:
    """(offset, length) of the batches, which must follow one another without a gap up to `end`."""
    if len(blocks) != len(entries):
        raise CorruptionError(f"the footer lists {len(blocks)} record batches, the index {len(entries)}")
    places = []
    position = blocks[0][0] if blocks else end
    for offset, metadata, body in blocks:
        if offset != position or offset < len(HEAD) or metadata < 0 or body < 0:
            raise CorruptionError(f"a record batch of {metadata} and {body} bytes at {offset}, expected at {position}")
        places.append((offset, metadata + body))
        position = offset + metadata + body
    if position != end:
        raise CorruptionError(f"the record batches end at byte {position}, expected {end}")
    return places
