"""`StateFileReader`: a state file's metadata, and its record batches by key group. Reads only what is needed.

Opening reads the end of the file, usually in one request; every batch is one more. Arrow gets only bytes whose checksum
was compared, and nothing is decompressed whose declared size exceeds the limits.

Invariants: reading raises CorruptionError (the file is damaged), RestoreRefusedError (a later format) and what
`read_range` raises, nothing else.

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

#: Bytes of the end that are read first: enough for the footer of a delta, and of most bases.
_FIRST_READ = 64 * 1024

ReadRange = Callable[[int, int], bytes]


class StateFileReader:
    """An open state file."""

    __slots__ = ("_blocks", "_limits", "_read_range", "entries", "meta", "name", "seal", "size")

    meta: FileMeta
    """The metadata."""
    entries: list[BatchEntry]
    """Its record batches, in order."""
    seal: str
    """Checksum of the footer, which holds the checksums of the batches; so it identifies the file."""

    def __init__(
        self,
        read_range: ReadRange,
        size: int,
        limits: FileLimits = DEFAULT_LIMITS,
        *,
        name: str = "state file",
    ) -> None:
        """Open a file of `size` bytes; `read_range(offset, length)` returns exactly that part of it."""
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
        """The number of rows."""
        return sum(entry.rows for entry in self.entries)

    def batches(self, key_groups: KeyGroupRange | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (number, record batch) for every batch with rows of `key_groups` (default: all).

        A batch of a delta may have rows of other key groups too.
        """
        wanted = self.meta.key_groups if key_groups is None else key_groups
        for number, (entry, (offset, length)) in enumerate(zip(self.entries, self._blocks, strict=True)):
            if wanted.start <= entry.last and entry.first <= wanted.end:
                with self._naming(f"record batch {number}"):
                    batch = self._batch(entry, offset, length)
                yield number, batch

    def corruption(
        self, number: int, what: str, *, key_group: int | None = None, state: str | None = None
    ) -> CorruptionError:
        """Return the error for a batch with invalid content."""
        what = f"{self.name}, record batch {number}: {what}"
        return CorruptionError(what, path=self.name, key_group=key_group, state=state)

    def _batch(self, entry: BatchEntry, offset: int, length: int) -> pa.RecordBatch:
        message = self._read(offset, length)
        if zlib.crc32(message) != entry.checksum:
            raise CorruptionError(
                f"bytes {offset} to {offset + length} have another checksum than when they were written",
                expected=entry.checksum,
                found=zlib.crc32(message),
            )
        batch = read_message(message, entry.rows, self._limits)
        groups = batch.column("key_group")
        if (groups[0].as_py(), groups[entry.rows - 1].as_py()) != (entry.first, entry.last):
            raise CorruptionError("the rows have other key groups than the index says")
        return batch

    def _read(self, offset: int, length: int) -> bytes:
        data = self._read_range(offset, length)
        if len(data) != length:
            what = f"expected {length} bytes at {offset}, found {len(data)}: the file is too short"
            raise CorruptionError(what, expected=length, found=len(data))
        return bytes(data)

    @contextlib.contextmanager
    def _naming(self, part: str) -> Iterator[None]:
        """Prefix errors with the file and the part of it; their attributes stay."""
        try:
            yield
        except CorruptionError as error:
            raise error.reworded(f"{self.name}, {part}: {error}").located(path=self.name) from None
        except RestoreRefusedError as error:
            raise error.reworded(f"{self.name}: {error}").located(path=self.name) from None
        except RecursionError:
            raise CorruptionError(f"{self.name}, {part}: nested too deeply", path=self.name) from None


def _checked(blocks: list[tuple[int, ...]], entries: list[BatchEntry], end: int) -> list[tuple[int, int]]:
    """Return (offset, length) of the batches, which must follow one another without a gap up to `end`."""
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
