"""`QueryRunner`: starts queries of a pipeline, and runs the batches that they send.

Every run of a query gets a `BatchRunner` of its own; a later run takes the job over from the one before.

Thread safety: the thread of one query's batches at a time. A batch of a query that was stopped is rejected. Properties
are for any thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from emberstate.checkpoint.commit.starting_point import find_latest
from emberstate.errors import EmberstateError, StateDeclarationError
from emberstate.spark.driver.batch_runner import BatchRunner
from emberstate.spark.driver.delivery import check_sinks
from emberstate.spark.driver.keyed_frame import input_row_types
from emberstate.spark.driver.source_position import SourcePosition, SourcePositions
from emberstate.spark.heartbeat import AtEnd, Ticks, ticks_of
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.slot.failure import cause_first, one_line, was_stopped
from emberstate.spark.spark_session import missing_settings, refuse_unsupported
from emberstate.ui.server import PageServer
from emberstate.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("emberstate.spark")


class QueryRunner:
    """The queries of one pipeline."""

    def __init__(self, plan: PipelinePlan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._run = ""  # the run of a query that `batches` is for
        self._positions = SourcePositions()
        self._settings_checked = False
        self._timers_told = False
        self._sinks_checked = False  # by `start`, for the run that it starts
        #: Runs the batches of the present run; None before the first batch.
        self.batches: BatchRunner | None = None
        #: The error of the last batch; None if it did not fail.
        self.last_error: Exception | None = None
        #: The web page, if it was asked for.
        self.page: PageServer | None = None

    def start(
        self,
        frame: DataFrame,
        checkpoint: str,
        *,
        heartbeat: Duration | None,
        trigger: Mapping[str, Any] | None,
        query_name: str | None,
        at_end: AtEnd,
    ) -> StreamingQuery:
        """Start a query over all inputs; see `Pipeline.start`."""
        from pyspark.errors import AnalysisException

        self._check_sinks(frame)
        self._sinks_checked = True
        ticks = ticks_of(self._plan, frame.sparkSession, checkpoint, heartbeat, trigger, at_end)
        if ticks is not None:
            frame = ticks.added_to(frame)
            found = find_latest(self._plan.backend.open_storage(), self._plan.name).manifest
            ticks.follow(None if found is None else found.batch)
        writer = frame.writeStream.foreachBatch(functools.partial(self.run_batch, ticks=ticks))
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        if query_name is not None:
            writer = writer.queryName(query_name)
        try:
            return writer.start()
        except AnalysisException as error:
            raise StateDeclarationError(
                f"pipeline {self._plan.name!r}: Spark cannot run its input as a stream: {str(error).splitlines()[0]} A "
                f"static table is joined so that the rows of the stream decide: stream.join(table, …), 'inner' or "
                f"'left'.",
                option="df",
            ) from error

    def show_page(self) -> None:
        """Start the web page of the job, once; it ends with the process, so that it shows a job that failed, too."""
        if self.page is None:
            self.page = PageServer([self._plan.backend.open_storage()])
            self.page.start()
            _log.warning("Pipeline %r: its web page is at %s", self._plan.name, self.page.address)

    def run_batch(self, df: DataFrame, batch_id: int, ticks: Ticks | None = None) -> None:
        """Run a batch; Spark calls this by foreachBatch."""
        refuse_unsupported(df)
        self.last_error = None
        where = f"pipeline {self._plan.name!r}, batch {batch_id}"
        try:
            self._run_batch(df, batch_id, ticks)
        except Exception as error:
            self.last_error = error.located(batch=batch_id) if isinstance(error, EmberstateError) else error
            if was_stopped(error):
                _log.info("%s: the query was stopped", where)
            else:
                _log.error("%s failed: %s", where, one_line(error))
            shown = cause_first(error, where)
            raise shown from shown.__cause__

    def _run_batch(self, df: DataFrame, batch_id: int, ticks: Ticks | None) -> None:
        position = self._positions.of(df.sparkSession, batch_id)
        with contextlib.nullcontext() if ticks is None else ticks.cleared_on_failure():
            with self._lock:
                batches = self.batches
                if batches is None or position.run != self._run:
                    batches = self._take_over(df, batch_id, position, batches)
            if ticks is None:
                batches.run_batch(df, batch_id, position)
            else:
                ticks.check_source()
                ended = ticks.end_input(position.offsets, batches.last_batch)
                batches.run_batch(df, batch_id, position, ended=ended)
                ticks.follow(batches.last_batch)
        if batches.waiting_timers and (ticks is None or not ticks.heartbeat) and not self._timers_told:
            self._timers_told = True
            _log.warning(
                "Pipeline %r has processing-time timers that wait for data: Spark starts no batch without. Start it "
                "with pipeline.start(df, checkpoint=…, heartbeat=…) to have them fire on an idle stream",
                self._plan.name,
            )

    def _take_over(
        self, df: DataFrame, batch_id: int, position: SourcePosition, before: BatchRunner | None
    ) -> BatchRunner:
        """Open the job for a run of a query, at the first batch of the run."""
        if before is not None:
            before.close()
        self.check_settings(df.sparkSession)
        self._plan.check_complete()
        if not self._sinks_checked:
            self._check_sinks(df)
        self._sinks_checked = False  # another start checks again
        first, others = input_row_types(self._plan, df)
        self.batches = BatchRunner(self._plan, df.sparkSession, first, others, self._plan.backend, batch_id, position)
        self._run = position.run
        return self.batches

    def _check_sinks(self, frame: DataFrame) -> None:
        """Raise if a sink's target cannot be delivered to; nothing is written before."""
        first, _ = input_row_types(self._plan, frame)
        found = find_latest(self._plan.backend.open_storage(), self._plan.name).manifest
        check_sinks(self._plan, frame.sparkSession, first, found)

    def check_settings(self, spark: SparkSession) -> None:
        """Warn, once, of settings that the session lacks."""
        if not self._settings_checked:
            self._settings_checked = True
            for line in missing_settings(spark):
                _log.warning("Pipeline %r: the Spark session's %s", self._plan.name, line)
