"""The segments of the history: small files with records, and how they are merged and thinned out.

    history/000003/1-000000000017-000000000032-16-<id>    level 1, records 17 to 32, 16 of them, by incarnation 3

A segment is one line, as of all small files (`envelope`), and then compressed JSON, one line per record. Segments are
written once. `_FAN` segments of one level are merged into one of the next, so a record is rewritten twice. When there
are more than two times `KEPT` records, every second one goes where old ones, beyond the last `KEPT`, stand densest. So
there are never more than about two times `KEPT`, however long the job runs.

A merge writes first and deletes then: after a crash in between records are there twice, and readers take each once, by
run and number. A segment that cannot be read is named and left alone.

Thread safety: pure functions; `read_lines` as the storage.
"""

from __future__ import annotations

import dataclasses
import errno
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.manifest.envelope import open_bytes, seal_bytes
from emberstate.checkpoint.manifest.layout import HISTORY, new_id
from emberstate.checkpoint.manifest.model import Ident, Number
from emberstate.errors import CorruptionError, StorageError
from emberstate.storage.interface import Storage

#: The last records, which are kept whole.
KEPT: Final = 10_000
#: The largest segment that a reader accepts: stored, and unpacked.
_MAX_STORED: Final = 16 * 1024 * 1024
_MAX_UNPACKED: Final = 32 * 1024 * 1024
#: What a writer puts into one: at most this many records, and no more once it has this many bytes.
SEGMENT_RECORDS: Final = 2_000
_SEGMENT_BYTES: Final = 8 * 1024 * 1024
#: Segments that are merged at once.
_FAN: Final = 16
_LAST_LEVEL: Final = 2

_PATH: Final = re.compile(
    rf"{HISTORY}/[0-9]{{6,12}}/([0-{_LAST_LEVEL}])-([0-9]{{12,19}})-([0-9]{{12,19}})-([0-9]{{1,4}})-[0-9a-f]{{1,40}}"
)


class RecordKey(msgspec.Struct, frozen=True):
    """What tells a record from others; the first field orders them."""

    number: Number = 0
    run: Ident = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A segment, by its name."""

    path: str
    level: int
    first: int
    last: int
    count: int

    @classmethod
    def named(cls, path: str) -> Segment | None:
        """The segment of a path; None if it names none.

        >>> Segment.named("history/000003/1-000000000017-000000000032-16-ab").count
        16
        >>> Segment.named("history/notes.txt") is None
        True
        """
        match = _PATH.fullmatch(path)
        return None if match is None else cls(path, *(int(part) for part in match.groups()))


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Segments to replace by others of a level; `step` 2 keeps every second record."""

    segments: tuple[Segment, ...]
    level: int
    step: int = 1


def found_segments(paths: Iterable[str]) -> list[Segment]:
    """The segments among the paths of a listing; other files are not ours."""
    return [segment for path in paths if (segment := Segment.named(path)) is not None]


def new_segments(incarnation: int, level: int, lines: Sequence[bytes]) -> list[tuple[Segment, bytes]]:
    """The segments for encoded records, which are ordered by number, each with its content."""
    made = []
    for part in _parts(lines):
        first, last = key_of(part[0]).number, key_of(part[-1]).number
        path = f"{HISTORY}/{incarnation:06}/{level}-{first:012}-{last:012}-{len(part)}-{new_id()}"
        content = seal_bytes("history", zlib.compress(b"".join(part)))
        made.append((Segment(path, level, first, last, len(part)), content))
    return made


def _parts(lines: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    begin = size = 0
    for end, line in enumerate(lines):
        if end > begin and (end - begin == SEGMENT_RECORDS or size >= _SEGMENT_BYTES):
            yield lines[begin:end]
            begin, size = end, 0
        size += len(line)
    if begin < len(lines):
        yield lines[begin:]


def encoded(record: HistoryRecord) -> bytes:
    """The line of a record."""
    return msgspec.json.encode(record) + b"\n"


def key_of(line: bytes) -> RecordKey:
    """The key of a line."""
    return msgspec.json.decode(line, type=RecordKey)


def read_lines(storage: Storage, path: str) -> list[bytes]:
    """The lines of a segment.

    Raises:
        CorruptionError: it is damaged, or larger than any that is written.
        RestoreRefusedError: a later version wrote it.
        StorageError: it cannot be read.
    """
    try:
        return lines_of(storage.read(path, limit=_MAX_STORED), path)
    except StorageError as error:
        if error.errno != errno.EFBIG:
            raise
        raise CorruptionError(f"{path}: {error.strerror}. The file is damaged.", **error.place) from None


def lines_of(data: bytes, path: str) -> list[bytes]:
    """The lines in the bytes of a segment. Raises as `read_lines` does."""
    unpacker = zlib.decompressobj()
    body = open_bytes("history", data, name=path)
    try:
        text = unpacker.decompress(body, _MAX_UNPACKED)
    except zlib.error as error:
        raise CorruptionError(f"{path}: its content cannot be unpacked: {error}", path=path) from None
    if not unpacker.eof or unpacker.unused_data or text.count(b"\n") > SEGMENT_RECORDS or text[-1:] not in (b"\n", b""):
        raise CorruptionError(
            f"{path}: expected at most {SEGMENT_RECORDS} whole records in {_MAX_UNPACKED} bytes, found more, or part "
            f"of one",
            path=path,
            expected=SEGMENT_RECORDS,
        )
    return [line + b"\n" for line in text.split(b"\n")[:-1]]


def records_of(lines: Iterable[bytes]) -> tuple[list[HistoryRecord], list[str]]:
    """The records of lines, and what is wrong with the lines that are none."""
    decoder = msgspec.json.Decoder(HistoryRecord)
    records, problems = [], []
    for line in lines:
        try:
            records.append(decoder.decode(line))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            problems.append(f"{error!s:.200}")
    return records, problems


def merged(lines: Iterable[bytes], step: int) -> list[bytes]:
    """The lines by number, each record once; of `step` following each other the last. Lines without a key go."""
    by_key: dict[RecordKey, bytes] = {}
    for line in lines:
        try:
            by_key[key_of(line)] = line
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
    ordered = [by_key[key] for key in sorted(by_key, key=lambda key: (key.number, key.run))]
    return ordered[step - 1 :: step]


def due(segments: Sequence[Segment]) -> Merge | None:
    """The merge that is due, or None."""
    ordered = sorted(segments, key=lambda segment: (segment.first, segment.last, segment.path))
    for level in range(_LAST_LEVEL):
        ones = [segment for segment in ordered if segment.level == level]
        if len(ones) >= _FAN:
            return Merge(tuple(ones[:_FAN]), level + 1)
    if sum(segment.count for segment in ordered) > 2 * KEPT:
        newest = max(segment.last for segment in ordered)
        old = [segment for segment in ordered if segment.last <= newest - KEPT]
        windows = [tuple(old[at : at + _FAN]) for at in range(max(1, len(old) - _FAN + 1))]
        densest = max(windows, key=_density)
        if densest:
            return Merge(densest, _LAST_LEVEL, step=2)
    return None


def _density(segments: Sequence[Segment]) -> float:
    if not segments:
        return 0.0
    span = max(segment.last for segment in segments) - min(segment.first for segment in segments) + 1
    return sum(segment.count for segment in segments) / span
