"""`BatchRunner`: runs every micro-batch of one run of a query as a transaction.

    begin    the coordinator fixes the batch's times and gives every slot its task
    stages   one Spark job each (`stage_runner`). A stage reads the stored output of the stage before, so a stage never
             runs again because a later one failed.
    commit   one manifest; from here on the batch is done, and its output is what is stored
    sinks    get DataFrames that read the stored output

A batch that Spark sends again after its commit is not run again: the sinks get its stored output again, the same bytes.
Its input is not read, and may be gone, unless the query has a stateful operator of Spark before the pipeline: that
commits its own state only by running.

A batch starts at the watermark that the rows up to the batch before gave. The stage that has event time first fires
timers as rows come. A later stage resumes where it was at the end of the batch before, and advances to a watermark of
its own (`watermark.stage_watermarks`); one with an event time holds rows until then.

Thread safety: one thread, that of the query's batches; `savepoint` is for any thread, and runs between the
coordinator's steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.coordinator import Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.history.writer import HistoryWriter
from emberstate.checkpoint.manifest.model import Batch, Manifest
from emberstate.runtime.operator.slot import broadcast_operator_name
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.spark.driver.batch_history import BatchHistory
from emberstate.spark.driver.delivery import deliver
from emberstate.spark.driver.failed_attempts import failed_attempts
from emberstate.spark.driver.job_start import combined_frames, open_job, stage_specs
from emberstate.spark.driver.notices import Notices
from emberstate.spark.driver.once_per_batch import once_per_batch
from emberstate.spark.driver.outputs import output_frame
from emberstate.spark.driver.recorded_outputs import RowTypes, changed, delivered_as, recorded_stages, sent_to_sinks
from emberstate.spark.driver.source_position import SourcePosition, evaluate, has_stateful_operator
from emberstate.spark.driver.stage_run import StageRun, commit_micros, progress_of, slot_seconds, waiting_timers
from emberstate.spark.driver.stage_runner import StageRunner
from emberstate.spark.driver.watermark import idle_since, next_watermark, stage_watermarks
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.progress import Progress
from emberstate.storage.interface import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("emberstate.spark")


class BatchRunner:
    """Runs the batches of one run of one query."""

    def __init__(
        self,
        plan: PipelinePlan,
        spark: SparkSession,
        input: RowType,
        others: Mapping[str, RowType],
        backend: StateBackend,
        batch: int,
        position: SourcePosition,
    ) -> None:
        """Take the job over at this batch: from here on an older runner cannot commit."""
        self._plan = plan
        self._backend = backend
        self._coordinating = threading.Lock()
        self._notices = Notices(plan.name)
        parallelism = plan.parallelism or min(spark.sparkContext.defaultParallelism, plan.max_parallelism)
        row_types = plan.row_types(input)
        self._specs = stage_specs(plan, row_types, input, others, parallelism)
        self._stages = recorded_stages({spec.name: types for spec, types in zip(self._specs, row_types, strict=True)})
        self._coordinator, before = open_job(plan, self._specs, self._stages, backend, batch, position)
        self._job = f"{plan.name} at {backend.open_storage().describe()}"
        self._location = self._coordinator.latest.location
        combined = combined_frames(plan, self._specs, row_types, input)
        self.stages = StageRunner(plan, self._specs, combined, spark, backend, self._job, self._location)
        self.last_progress: Progress | None = None
        # The location of a static run is discarded.
        incarnation = self._coordinator.holder.incarnation
        writer = None if plan.bounded else HistoryWriter(backend.open_storage(), incarnation)
        self._history = BatchHistory(plan.name, writer, plan.listeners)
        self._history.opened(self._coordinator.latest, before)
        #: Processing-time timers that were waiting at the end of the last batch that ran.
        self.waiting_timers = 0
        _log.info(
            "Pipeline %r runs as %s, from %s, with %d slots",
            plan.name, self._coordinator.holder, self._coordinator.latest.describe(), parallelism,
        )  # fmt: skip

    def savepoint(self, name: str, target: Storage | None = None) -> None:
        """Copy the latest checkpoint, whole, to a savepoint of that name; for any thread."""
        with self._coordinating:
            self._coordinator.savepoint(name, target)
            self._history.savepoint(name, self._coordinator.latest.number)

    def close(self) -> None:
        """Release what Spark holds for this run. Slots end by themselves."""
        self.stages.close()

    @property
    def latest(self) -> Manifest:
        """The newest checkpoint."""
        return self._coordinator.latest

    @property
    def last_batch(self) -> Batch | None:
        """The last batch that was committed; None before the job's first."""
        return self._coordinator.latest.batch

    def run_batch(self, frame: DataFrame, batch: int, position: SourcePosition, ended: bool = False) -> Progress:
        """Run a batch, or deliver it again if it was committed. If the input `ended` with it, event time does too."""
        job = f"{self._job} ({self._location})"  # all locations in memory have the same name
        with once_per_batch(job, position.run, batch):
            began = time.time_ns() // 1000
            try:
                progress = self._run_or_deliver(frame, batch, position, ended, began)
            except Exception as error:
                self._history.failed(batch, began, error)
                raise
        self._notices.slow_input(progress)
        self.last_progress = progress
        _log.info("%s", progress)
        for listener in self._plan.listeners:
            try:
                listener(progress)
            except Exception:
                _log.exception("A listener of pipeline %r failed; the batch is done all the same", self._plan.name)
        return progress

    def _run_or_deliver(
        self, frame: DataFrame, batch: int, position: SourcePosition, ended: bool, began: int
    ) -> Progress:
        started = time.perf_counter()
        spark = frame.sparkSession
        with self._coordinating:
            last = self._coordinator.latest.times
            begun = self._coordinator.begin(
                batch,
                query=position.query,
                source=position.offsets,
                watermark=next_watermark(self._plan, last),
                idle=idle_since(self._plan, last),
                ended=ended,
            )
        runs: list[StageRun] = []
        if isinstance(begun, Redelivery):
            manifest = begun.manifest
            row_types = self._again(spark, manifest, batch, position)
        else:
            manifest = self._run(frame, begun, runs)
            row_types = sent_to_sinks(self._stages)
        committed = time.perf_counter()
        self._coordinator.check_holder()
        deliver(self._plan, spark, manifest, row_types, self._backend)
        done = time.perf_counter()
        self.waiting_timers = waiting_timers(runs)
        commit = committed - started - sum(run.seconds for run in runs)
        progress = progress_of(
            self._plan,
            manifest,
            batch,
            runs,
            redelivered=isinstance(begun, Redelivery),
            seconds={"total": done - started, **slot_seconds(runs), "commit": commit, "sink": done - committed},
        )
        names = [stage.name for stage in self._specs]
        repeated = [
            one for run, name in zip(runs, names, strict=False) for one in failed_attempts(spark, name, run.answers)
        ]
        self._history.done(progress, manifest, runs, names, began, repeated)
        return progress

    def _again(self, spark: SparkSession, manifest: Manifest, batch: int, position: SourcePosition) -> RowTypes:
        """Make ready to deliver a committed batch again; returns the schemas of its outputs."""
        _log.info("Pipeline %r: batch %d was committed already and is delivered again", self._plan.name, batch)
        operators = [operator.name for operator in manifest.operators]
        row_types = delivered_as(self._backend.open_storage(), manifest, self._stages, operators)
        for other in changed(row_types, self._stages):
            _log.warning("Pipeline %r: batch %d was run with other columns: %s", self._plan.name, batch, other)
        if has_stateful_operator(spark, position):
            evaluate(position)
        return row_types

    def _run(self, frame: DataFrame, begun: Transaction, runs: list[StageRun]) -> Manifest:
        spark = frame.sparkSession
        timed = self._plan.event_time_stage
        later = stage_watermarks(self._plan, begun.start.times, begun.batch)
        acknowledgements: list[Acknowledgement] = []
        for number, stage in enumerate(self._specs):
            tasks, side = _tasks_of(begun, stage)
            end = MAX_TIME if begun.batch.ended else None
            if timed is not None and number > timed:
                before, reached = later.get(stage.name, (None, None))
                tasks = [_at_watermark(task, before) for task in tasks]
                end = reached if end is None else end
            run, all_acknowledgements = self.stages.run(frame, number, tasks, side, end)
            if timed is not None and number != timed:
                all_acknowledgements = [
                    msgspec.structs.replace(one, max_event_time=None, input_times=()) for one in all_acknowledgements
                ]
            self._notices.late_rows(stage, run)
            runs.append(run)
            acknowledgements += all_acknowledgements
            if number + 1 < len(self._specs):
                written = [output for one in run.acknowledgements for output in one.outputs if output.name == MAIN]
                outputs = [StoredOutput.of(output) for output in written]
                assert stage.handed_on is not None
                frame = output_frame(spark, outputs, stage.handed_on, self._backend)
        with self._coordinating:
            reached_by = {name: end for name, (_, end) in later.items()}
            return self._coordinator.commit(begun, acknowledgements, commit_micros(runs), reached_by)


def _tasks_of(begun: Transaction, stage: StageSpec) -> tuple[list[SlotTask], SlotTask | None]:
    """The tasks of a stage's slots, and that of its broadcast state."""
    keyed = [task for task in begun.tasks if task.operator == stage.name]
    side = [task for task in begun.tasks if task.operator == broadcast_operator_name(stage.name)]
    return keyed, side[0] if side else None


def _at_watermark(task: SlotTask, watermark: int | None) -> SlotTask:
    return msgspec.structs.replace(task, batch=msgspec.structs.replace(task.batch, watermark=watermark))
