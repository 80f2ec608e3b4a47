"""`HistoryReader`: reads the history of a location, beside a running job or without one. It writes nothing.

Thread safety: any thread; one reads at a time.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Final

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.segments import Segment, found_segments, read_lines, records_of
from emberstate.checkpoint.manifest.layout import HISTORY
from emberstate.errors import CorruptionError, RestoreRefusedError, StorageNotFoundError
from emberstate.storage.interface import Storage

#: How often a listing may be out of date: the job merges segments meanwhile.
_TRIES: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """What was read."""

    #: Oldest first.
    records: tuple[HistoryRecord, ...]
    #: A sentence for each segment that was skipped, wholly or in part.
    damaged: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Content:
    records: Sequence[HistoryRecord]
    problem: str | None


class HistoryReader:
    """The history of one location. It keeps what it has read, since segments never change: keep it, and read again.

    >>> from emberstate.storage.memory import MemoryStorage
    >>> HistoryReader(MemoryStorage()).read()
    History(records=(), damaged=())
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._contents: dict[str, _Content] = {}

    def read(self, last: int | None = None) -> History:
        """Return the last records, or all.

        Raises:
            StorageError: the storage cannot be read.
        """
        with self._lock:
            for _ in range(_TRIES - 1):
                try:
                    return self._read(last)
                except StorageNotFoundError:
                    continue  # merged since it was listed
            return self._read(last)

    def _read(self, last: int | None) -> History:
        segments = found_segments(self._storage.list(HISTORY))
        there = {segment.path for segment in segments}
        self._contents = {path: content for path, content in self._contents.items() if path in there}
        found: dict[tuple[int, str], HistoryRecord] = {}
        damaged = []
        for segment in sorted(segments, key=lambda segment: -segment.last):
            if last is not None and self._complete(found, last, segment):
                break
            content = self._content(segment)
            found.update({(record.number, record.run): record for record in content.records})
            if content.problem is not None:
                damaged.append(content.problem)
        records = [found[key] for key in sorted(found)]
        return History(tuple(records if last is None else records[max(0, len(records) - last) :]), tuple(damaged))

    def _complete(self, found: dict[tuple[int, str], HistoryRecord], last: int, following: Segment) -> bool:
        """Whether the last records are found, and none of them is in segments up to this one."""
        return sum(number > following.last for number, _ in found) >= last

    def _content(self, segment: Segment) -> _Content:
        known = self._contents.get(segment.path)
        if known is not None:
            return known
        try:
            lines = read_lines(self._storage, segment.path)
        except (CorruptionError, RestoreRefusedError) as error:
            content = _Content((), str(error))
        else:
            records, problems = records_of(lines)
            many = f"{len(problems)} of {len(lines)} records are malformed, or of a later version"
            content = _Content(records, f"{segment.path}: {many}: {problems[0]}" if problems else None)
        self._contents[segment.path] = content
        return content
