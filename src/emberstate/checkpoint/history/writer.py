"""`HistoryWriter`: writes records of the history in the background.

    add → waits in memory → a segment, one every `flush_seconds` at most → merged with others (`segments`)

A batch never waits for it, and never fails with it. Records that cannot be written wait, a bounded number; beyond it
the oldest are dropped and counted, and the first failure is logged. A crash loses the records that wait. A process that
has been overtaken may write on: its files have names of its own.

Thread safety: any thread. A thread of its own writes, while there are records.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import threading
import time
import weakref
from typing import Final

import msgspec

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.segments import (
    Merge,
    Segment,
    due,
    encoded,
    found_segments,
    merged,
    new_segments,
    read_lines,
)
from emberstate.checkpoint.manifest.layout import CLAIMS, HISTORY, new_id
from emberstate.errors import CorruptionError, RestoreRefusedError, StorageNotFoundError
from emberstate.storage.interface import Storage

_log = logging.getLogger("emberstate.history")

#: How long records are collected after a segment was written, in seconds.
FLUSH_SECONDS: Final = 2.0
#: Records that may wait.
_MOST_WAITING: Final = 1_000
#: How long the end of the process waits for the last records, in seconds.
_EXIT_SECONDS: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryStatistics:
    """Counts of a writer."""

    #: Records that were given, written, and dropped since they could not be written.
    records: int
    written: int
    dropped: int
    segments: int
    merges: int
    #: Writes and merges that failed; they are repeated.
    failures: int
    #: Segments that could not be read, and are left alone.
    damaged: int


class HistoryWriter:
    """Writes the history of one run of a job."""

    def __init__(self, storage: Storage, incarnation: int, *, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._storage = storage
        self._incarnation = incarnation
        self._flush_seconds = flush_seconds
        self._run = new_id()
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._waiting: list[HistoryRecord] = []
        self._urgent = False
        self._thread: threading.Thread | None = None
        self._writing = False
        self._records = self._dropped = 0
        # Of the thread:
        self._segments: list[Segment] | None = None
        self._next = 0
        self._resumes = 0.0
        self._failing = False
        self._written = self._made = self._merges = self._failures = self._damaged = 0
        _writers.add(self)

    def add(self, record: HistoryRecord, *, soon: bool = False) -> None:
        """Have a record written: with others, or, if `soon`, at once."""
        record = msgspec.structs.replace(record, run=self._run, incarnation=self._incarnation)
        with self._changed:
            self._records += 1
            self._waiting.append(record)
            self._urgent = self._urgent or soon
            self._trim()
            self._wake()

    def flush(self, seconds: float) -> bool:
        """Write what waits, and wait for it up to `seconds`; returns whether all is written."""
        with self._changed:
            if self._waiting:
                self._urgent = True
                self._wake()
            self._changed.wait_for(lambda: self._thread is None or not (self._waiting or self._writing), seconds)
            return not self._waiting and not self._writing

    def statistics(self) -> HistoryStatistics:
        """Return the counts so far."""
        return HistoryStatistics(
            self._records, self._written, self._dropped, self._made, self._merges, self._failures, self._damaged
        )

    # -- the thread -----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="emberstate-history")
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._urgent, self._resumes - time.monotonic())
                records, self._waiting, self._urgent = self._waiting, [], False
                if not records:
                    self._thread = None
                    self._changed.notify_all()
                    return
                self._writing = True
            records = self._write(records)
            self._resumes = time.monotonic() + self._flush_seconds
            if records:
                with self._changed:
                    self._waiting = records + self._waiting
                    self._trim()
                    self._writing, self._thread = False, None
                    self._changed.notify_all()
                return  # the next record tries again

    def _trim(self) -> None:
        over = len(self._waiting) - _MOST_WAITING
        if over > 0:
            del self._waiting[:over]
            self._dropped += over

    def _write(self, records: list[HistoryRecord]) -> list[HistoryRecord]:
        """Write records as a segment; returns those that are not written."""
        left = records
        try:
            if not self._storage.list(CLAIMS):
                return self._forget(records)  # the location was deleted: do not make it again
            segments = self._known()
            left = [self._numbered(record) for record in records]
            for segment, content in new_segments(self._incarnation, 0, [encoded(record) for record in left]):
                self._storage.write_new(segment.path, content)
                segments.append(segment)
                self._made += 1
                self._written += segment.count
                left = left[segment.count :]
            while (merge := due(segments)) is not None:
                self._merge(segments, merge)
            self._failing = False
        except Exception as error:
            self._failures += 1
            if not self._failing:
                self._failing = True
                _log.warning(
                    "Writing the history in %s failed: %s. Batches go on; it is tried again with later ones, and up to "
                    "%d records wait for that",
                    self._storage.describe(), error, _MOST_WAITING,
                )  # fmt: skip
        return left

    def _forget(self, records: list[HistoryRecord]) -> list[HistoryRecord]:
        with self._changed:
            self._dropped += len(records)
        return []

    def _known(self) -> list[Segment]:
        """All segments; the first time they are listed."""
        if self._segments is None:
            found = found_segments(self._storage.list(HISTORY))
            self._next = max((segment.last for segment in found), default=0) + 1
            self._segments = found
        return self._segments

    def _numbered(self, record: HistoryRecord) -> HistoryRecord:
        if record.number:
            return record  # it has failed before, or its outcome is unknown
        number, self._next = self._next, self._next + 1
        return msgspec.structs.replace(record, number=number)

    def _merge(self, segments: list[Segment], merge: Merge) -> None:
        lines: list[bytes] = []
        replaced = []
        for segment in merge.segments:
            try:
                lines += read_lines(self._storage, segment.path)
                replaced.append(segment.path)
            except StorageNotFoundError:
                pass  # a process that was overtaken has merged it
            except (CorruptionError, RestoreRefusedError) as error:
                self._damaged += 1
                _log.warning("A segment of the history is left alone: %s", error)
        made = new_segments(self._incarnation, merge.level, merged(lines, merge.step))
        for segment, content in made:
            self._storage.write_new(segment.path, content)
        gone = set(merge.segments)
        segments[:] = [segment for segment in segments if segment not in gone] + [segment for segment, _ in made]
        self._merges += 1
        self._storage.delete_all(replaced)


_writers: weakref.WeakSet[HistoryWriter] = weakref.WeakSet()


def flush_all(seconds: float = _EXIT_SECONDS) -> None:
    """Have all writers of this process write what waits, and wait for it up to `seconds`; at exit it is called."""
    deadline = time.monotonic() + seconds
    for writer in list(_writers):
        if writer._thread is not None:
            writer.flush(max(0.0, deadline - time.monotonic()))


atexit.register(flush_all)
