"""`BatchRunner`: runs micro-batches as transactions: intent, run and prepare, commit, sink.

    begin    the coordinator fixes the batch's times and gives every slot its task
    stages   one Spark job each; its only rows are the slots' answers. The next stage reads the stored output of the
             one before, so no stage ever runs again because a later one failed.
    commit   one manifest; from here on the batch is done, and its output is what is stored
    sinks    get DataFrames that read the stored output

A batch that Spark sends again is not run again if it was committed: its output goes to the sinks again, the same bytes.
Its input is not looked at, and may be gone; unless the query has a stateful operator of Spark's before the pipeline,
whose own state is committed only by running it.

Of the watermark: a batch starts with what the rows up to the batch before gave. The stage that event time comes from
fires timers as rows come. A later stage goes on from where it was at the end of the batch before, and gets to a
watermark of its own (`watermark.stage_watermarks`); one with an event time holds rows until then.

Thread safety: one thread, that of the query's batches; a savepoint is taken by any, between the coordinator's steps.
Made for one run of one query.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.coordinator import Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.manifest.layout import new_id
from emberstate.checkpoint.manifest.model import Batch, Manifest
from emberstate.errors import InvariantError
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.operator.runner import TIMER_QUEUES
from emberstate.runtime.operator.slot import agreed_broadcast, broadcast_operator_name
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.times import MAX_TIME, from_micros
from emberstate.spark.driver.anchor import Anchor
from emberstate.spark.driver.job_start import open_job, stage_specs
from emberstate.spark.driver.keyed_frame import keyed_frame
from emberstate.spark.driver.once_per_batch import once_per_batch
from emberstate.spark.driver.outputs import StoredOutput, output_frame
from emberstate.spark.driver.recorded_outputs import RowTypes, changed, delivered_as, recorded_stages, sent_to_sinks
from emberstate.spark.driver.source_position import SourcePosition, evaluate, has_stateful_operator
from emberstate.spark.driver.stage_run import StageRun, commit_micros, counts, slot_seconds, starts, user_counters
from emberstate.spark.driver.watermark import holding_back, idle_since, next_watermark, stage_watermarks
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.progress import Progress
from emberstate.spark.slot.client import SlotId
from emberstate.spark.slot.failure import emberstate_error, naming_sink
from emberstate.spark.slot.messages import SlotAnswer, SlotProgram, SlotRequest, program_digest
from emberstate.spark.slot.task import ANSWER_SCHEMA, SlotShim
from emberstate.spark.spark_session import application_token, driver_path, plain_execution
from emberstate.storage.interface import Storage
from emberstate.units import as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("emberstate.spark")

#: What slots call the number of their processing-time timers.
_WAITING_TIMERS: Final = f"backend/timers/{TIMER_QUEUES[TimeDomain.PROCESSING]}/timers"
#: After so many batches an input that holds the watermark back is told of.
_HELD_BACK_BATCHES: Final = 10


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
        """Take the job over, to begin with this batch: from here on an older runner cannot commit."""
        self._plan = plan
        self._backend = backend
        self._parallelism = plan.parallelism or min(spark.sparkContext.defaultParallelism, plan.max_parallelism)
        self._row_types = plan.row_types(input)
        self._specs = stage_specs(plan, self._row_types, input, others, self._parallelism)
        self._token = application_token(spark)
        self._anchor = Anchor(plan.name, self._parallelism)
        self._coordinating = threading.Lock()
        row_types = {stage.name: types for stage, types in zip(plan.stages, self._row_types, strict=True)}
        self._stages = recorded_stages(row_types)
        self._coordinator = open_job(plan, self._specs, self._stages, backend, batch, position)
        self._programs = [self._program(spark, number) for number in range(len(self._specs))]
        self._warned: set[str] = set()  # stages whose late rows were told of
        self._held_back = 0  # batches in a row in which rows came and the watermark stood still
        self.last_progress: Progress | None = None
        #: Processing-time timers that were waiting when the last batch that ran ended.
        self.waiting_timers = 0
        log.info(
            "Pipeline %r runs as %s, from %s, with %d slots",
            plan.name, self._coordinator.holder, self._coordinator.latest.describe(), self._parallelism,
        )  # fmt: skip

    def savepoint(self, name: str, target: Storage | None = None) -> None:
        """Copy the latest checkpoint, whole, to a savepoint of that name; any thread."""
        with self._coordinating:
            self._coordinator.savepoint(name, target)

    def close(self) -> None:
        """Give up what is held in Spark. Slots end by themselves."""
        self._anchor.release()
        for broadcast, _ in self._programs:
            broadcast.unpersist()

    # -- opening --------------------------------------------------------------------------------------------

    def _program(self, spark: SparkSession, number: int) -> tuple[Any, str]:
        """What the slots of a stage run, as a Spark broadcast, and its digest."""
        from pyspark import cloudpickle

        stage = self._plan.stages[number]
        program = SlotProgram(
            stage=self._specs[number],
            state_backend=self._backend,
            policy=self._plan.policy,
            drop_null_keys=stage.input.null_keys == "drop",
            idle_seconds=self._idle_seconds,
        )
        data: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        return spark.sparkContext.broadcast(data), program_digest(data)

    @property
    def _idle_seconds(self) -> float:
        return as_duration(self._plan.slot_idle, "slot_idle").total_seconds()

    @property
    def _job_at_location(self) -> str:
        return f"{self._plan.name} at {self._backend.open_storage().describe()}"

    # -- a batch --------------------------------------------------------------------------------------------

    @property
    def last_batch(self) -> Batch | None:
        """The last batch that was committed; None before the job's first."""
        return self._coordinator.latest.batch

    def run_batch(self, frame: DataFrame, batch: int, position: SourcePosition, ended: bool = False) -> Progress:
        """Run a batch to its end, or deliver it again. If the input `ended` with it, event time gets to its end."""
        job = f"{self._job_at_location} ({self._coordinator.latest.location})"  # places in memory are all called alike
        with once_per_batch(job, position.run, batch):
            return self._run_or_deliver(frame, batch, position, ended)

    def _run_or_deliver(self, frame: DataFrame, batch: int, position: SourcePosition, ended: bool) -> Progress:
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
        self._deliver(spark, manifest, batch, row_types)
        done = time.perf_counter()
        seconds = slot_seconds(runs)
        seconds["commit"] = committed - started - sum(run.seconds for run in runs)
        seconds["sink"] = done - committed
        progress = self._progress(manifest, batch, isinstance(begun, Redelivery), runs)
        statistics = [answer.statistics for run in runs for answer in run.answers]
        seconds["background"] = max((one.get("rewrites/last_micros", 0) / 1e6 for one in statistics), default=0.0)
        self.waiting_timers = sum(one.get(_WAITING_TIMERS, 0) for one in statistics)
        progress = dataclasses.replace(progress, seconds={"total": done - started, **seconds})
        self._warn_of_slow_input(progress)
        self.last_progress = progress
        log.info("%s", progress)
        for listener in self._plan.listeners:
            try:
                listener(progress)
            except Exception:
                log.exception("A listener of pipeline %r failed; the batch is done all the same", self._plan.name)
        return progress

    def _again(self, spark: SparkSession, manifest: Manifest, batch: int, position: SourcePosition) -> RowTypes:
        """What a batch that was committed already is delivered as."""
        log.info("Pipeline %r: batch %d was committed already and is delivered again", self._plan.name, batch)
        operators = [operator.name for operator in manifest.operators]
        row_types = delivered_as(self._backend.open_storage(), manifest, self._stages, operators)
        for other in changed(row_types, self._stages):
            log.warning("Pipeline %r: batch %d was run with other columns: %s", self._plan.name, batch, other)
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
            run, all_acknowledgements = self._run_stage(frame, number, tasks, side, end)
            if timed is not None and number != timed:
                all_acknowledgements = [
                    msgspec.structs.replace(one, max_event_time=None, input_times=()) for one in all_acknowledgements
                ]
            if stage.follows:
                self._warn_of_late_rows(stage.name, run)
            runs.append(run)
            acknowledgements += all_acknowledgements
            if number + 1 < len(self._specs):
                written = [output for one in run.acknowledgements for output in one.outputs if output.name == MAIN]
                outputs = [_content(output) for output in written]
                assert stage.handed_on is not None
                frame = output_frame(spark, outputs, stage.handed_on, self._backend)
        with self._coordinating:
            reached_by = {name: end for name, (_, end) in later.items()}
            return self._coordinator.commit(begun, acknowledgements, commit_micros(runs), reached_by)

    def _warn_of_late_rows(self, stage: str, run: StageRun) -> None:
        """Say, once per stage, that rows were stamped older than it allows: no later batch will make it better."""
        late = sum(one.counts.get("late_rows", 0) for one in run.acknowledgements)
        if late and stage not in self._warned:
            self._warned.add(stage)
            log.warning(
                "Pipeline %r: %d rows came late to stage %r: the stage before stamped them older than event time was "
                "when it put them out, as with the start of a window that is over. Stamp them with the window's end, "
                "or give event_time(column, out_of_orderness) of stage %r as much as they are older",
                self._plan.name, late, stage, stage,
            )  # fmt: skip

    def _warn_of_slow_input(self, progress: Progress) -> None:
        """Say that one of two inputs keeps the watermark where it is, once until it moves again."""
        before = self.last_progress
        still = before is not None and before.watermark == progress.watermark
        if progress.watermark_held_by is None or not still:
            self._held_back = 0
        elif progress.rows_in:
            self._held_back += 1
            if self._held_back == _HELD_BACK_BATCHES:
                log.warning(
                    "Pipeline %r: the watermark has stood still at %s for %d batches with rows, since input %r is "
                    "behind: no timer fires, no window closes. If it may be silent for long, give it an idle_timeout",
                    self._plan.name, progress.watermark, self._held_back, progress.watermark_held_by,
                )  # fmt: skip

    def _run_stage(
        self, frame: DataFrame, number: int, tasks: Sequence[SlotTask], side: SlotTask | None, end_watermark: int | None
    ) -> tuple[StageRun, list[Acknowledgement]]:
        """Have all slots run their part; their answers, and the acknowledgements to commit."""
        started = time.perf_counter()
        spark, stage = frame.sparkSession, self._specs[number]
        broadcast, digest = self._programs[number]
        attempt = new_id()
        requests = tuple(
            SlotRequest(
                incarnation=task.holder.incarnation,
                batch=task.batch.id,
                task_attempt=0,
                task=task.to_bytes(),
                broadcast_task=None if side is None else side.to_bytes(),
                broadcast_attempt=attempt,
                broadcast_rows=b"",
                end_watermark=end_watermark,
                program=digest,
            )
            for task in tasks
        )
        slot_id = SlotId(
            application=spark.sparkContext.applicationId or "",
            job=self._job_at_location,
            location=self._coordinator.latest.location,
            operator=stage.name,
            slot=0,
            token=self._token,
            idle_seconds=self._idle_seconds,
            stall_seconds=as_duration(self._plan.slot_stall, "slot_stall").total_seconds(),
        )
        shim = SlotShim(slot_id=slot_id, requests=requests, program=broadcast, path=driver_path(spark))
        with plain_execution(spark), _clear_errors(stage.name, tasks[0].batch.id):
            anchor = self._anchor.frame(spark)
            rows = keyed_frame(frame, stage, anchor).mapInArrow(shim, ANSWER_SCHEMA).collect()
            if not rows:  # Spark could see in the plan that there is no input, and ran no task
                frame = spark.createDataFrame(spark.sparkContext.emptyRDD(), frame.schema)
                rows = keyed_frame(frame, stage, anchor).mapInArrow(shim, ANSWER_SCHEMA).collect()
        by_slot = {row.slot: SlotAnswer.from_bytes(bytes(row.answer)) for row in rows}
        if len(rows) != len(tasks) or by_slot.keys() != set(range(len(tasks))):
            raise InvariantError(
                f"stage {stage.name!r}, batch {tasks[0].batch.id}: expected one answer of each of {len(tasks)} slots, "
                f"got {len(rows)} of slots {sorted(by_slot)}",
                operator=stage.name,
                batch=tasks[0].batch.id,
            )
        answers = [by_slot[slot] for slot in range(len(tasks))]
        decoded = [[Acknowledgement.from_bytes(data) for data in answer.acknowledgements] for answer in answers]
        keyed = [first for first, *_ in decoded]
        prepared = [*keyed, *agreed_broadcast(stage.name, decoded)]
        return StageRun(time.perf_counter() - started, answers, keyed), prepared

    # -- outputs --------------------------------------------------------------------------------------------

    def _deliver(self, spark: SparkSession, manifest: Manifest, batch: int, row_types: RowTypes) -> None:
        plan = self._plan
        assert plan.sink is not None
        for output, sink in {**plan.side_sinks, (plan.stages[-1].name, MAIN): plan.sink}.items():
            if output not in row_types:
                continue  # a stage without a schema puts nothing out
            places: list[StoredOutput] = [
                stored.place for stored in manifest.outputs if (stored.operator, stored.name) == output
            ]
            with naming_sink(plan.name, sink, output, batch):
                sink(output_frame(spark, places, row_types[output], self._backend), batch)

    def _progress(self, manifest: Manifest, batch: int, redelivered: bool, runs: Sequence[StageRun]) -> Progress:
        total = counts(runs)
        ran = manifest.batch
        watermark = None if ran is None or ran.watermark is None else from_micros(ran.watermark)
        last = self._plan.stages[-1].name
        rows_out: dict[str, int] = {}
        for output in manifest.outputs:
            if output.name != MAIN or output.operator == last:
                rows_out[output.name] = rows_out.get(output.name, 0) + output.rows
        statistics = [answer.statistics for run in runs for answer in run.answers]
        return Progress(
            pipeline=self._plan.name,
            batch=batch,
            checkpoint=manifest.number,
            redelivered=redelivered,
            rows_in=total["rows"],
            rows_out=rows_out,
            late_rows=total["late_rows"],
            late_rows_dropped=total["late_rows_dropped"],
            null_keys=total["null_keys"],
            timers_fired=total["timers_fired"],
            slots=starts(runs),
            state_entries=sum(one.get("backend/entries", 0) for one in statistics),
            state_bytes=_stored_bytes(manifest),
            delta_bytes=total["delta_bytes"],
            watermark=watermark,
            watermark_held_by=None if ran is None else holding_back(self._plan, ran),
            counters=user_counters(total),
            seconds={},
        )


def _stored_bytes(manifest: Manifest) -> int:
    """What the state takes in the checkpoint."""
    return sum(file.place.size for operator in manifest.operators for slot in operator.slots for file in slot.files)


def _content(output: Any) -> StoredOutput:
    return output.place if output.content is None else output.content  # type: ignore[no-any-return]


def _tasks_of(begun: Transaction, stage: StageSpec) -> tuple[list[SlotTask], SlotTask | None]:
    """The tasks of a stage's slots, and that of its broadcast state."""
    keyed = [task for task in begun.tasks if task.operator == stage.name]
    side = [task for task in begun.tasks if task.operator == broadcast_operator_name(stage.name)]
    return keyed, side[0] if side else None


def _at_watermark(task: SlotTask, watermark: int | None) -> SlotTask:
    return msgspec.structs.replace(task, batch=msgspec.structs.replace(task.batch, watermark=watermark))


@contextlib.contextmanager
def _clear_errors(operator: str, batch: int) -> Iterator[None]:
    """Raise what a slot raised, not Spark's account of it."""
    try:
        yield
    except Exception as error:
        found = emberstate_error(error, f"operator {operator!r}, batch {batch}")
        if found is None:
            raise
        raise found.located(operator=operator, batch=batch) from None  # it says everything
