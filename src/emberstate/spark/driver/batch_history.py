"""`BatchHistory`: keeps the history of one run of a query, and tells listeners that want records.

Nothing here fails a batch: what goes wrong is logged, once, and counted.

Thread safety: the thread of the query's batches; `savepoint` is for any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from emberstate.checkpoint.history.listener import RecordListener
from emberstate.checkpoint.history.model import FailureRecord, HistoryRecord
from emberstate.checkpoint.history.writer import HistoryWriter
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.spark.driver.batch_record import batch_record, failure_record, opening_record
from emberstate.spark.driver.stage_run import StageRun
from emberstate.spark.progress import Progress
from emberstate.spark.slot.failure import was_stopped

_log = logging.getLogger("emberstate.spark")


class BatchHistory:
    """The records of one run of a query; `writer` is None if the location does not outlive the run."""

    def __init__(self, job: str, writer: HistoryWriter | None, listeners: Iterable[object] = ()) -> None:
        self._job = job
        self._writer = writer
        self._listeners = [one for one in listeners if isinstance(one, RecordListener)]
        #: Records that could not be made.
        self.failures = 0

    def opened(self, opening: Manifest, before: Manifest | None) -> None:
        """The job was taken over; `before` is the checkpoint that it started from."""
        self._add(lambda: opening_record(opening, before), soon=True)

    def done(
        self,
        progress: Progress,
        manifest: Manifest,
        runs: Sequence[StageRun],
        stages: Sequence[str],
        began: int,
        failures: Sequence[FailureRecord],
    ) -> None:
        """A batch was committed and delivered; it began at `began`, in microseconds since 1970."""
        self._add(lambda: batch_record(progress, manifest, runs, stages, began, failures))

    def failed(self, batch: int, began: int, error: Exception) -> None:
        """A batch failed; that its query was stopped is no failure."""
        if not was_stopped(error):
            self._add(lambda: failure_record(self._job, batch, began, error), soon=True)

    def savepoint(self, name: str, checkpoint: int) -> None:
        """A savepoint was made of a checkpoint."""
        now = time.time_ns() // 1000
        self._add(
            lambda: HistoryRecord(kind="savepoint", job=self._job, time=now, checkpoint=checkpoint, savepoint=name),
            soon=True,
        )

    def _add(self, make: Callable[[], HistoryRecord], *, soon: bool = False) -> None:
        if self._writer is None and not self._listeners:
            return
        try:
            record = make()
            if self._writer is not None:
                self._writer.add(record, soon=soon)
            for listener in self._listeners:
                listener.record(record)
        except Exception:
            self.failures += 1
            if self.failures == 1:
                _log.exception("Job %r: a record of its history, or a listener to it, failed; batches go on", self._job)
