"""`StageRunner`: runs one stage of one batch as a Spark job, in which every slot runs its part.

The job's only rows are the slots' answers, one per slot. The rows of the stage's output stay where the slots stored
them.

Thread safety: one thread, that of the query's batches. Made for one run of one query.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.manifest.layout import new_id
from emberstate.errors import InvariantError
from emberstate.runtime.operator.slot import agreed_broadcast
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.spark.driver.aggregate_columns import overflow_error
from emberstate.spark.driver.anchor import Anchor
from emberstate.spark.driver.combined_frame import CombinedFrame
from emberstate.spark.driver.job_description import described
from emberstate.spark.driver.keyed_frame import KeyedFrame
from emberstate.spark.driver.stage_run import StageRun
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.slot.address import SlotId
from emberstate.spark.slot.failure import emberstate_error
from emberstate.spark.slot.messages import SlotAnswer, SlotProgram, SlotRequest, program_digest
from emberstate.spark.slot.task import SlotShim
from emberstate.spark.spark_session import application_token, driver_path, plain_execution
from emberstate.units import as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StageRunner:
    """Runs the stages of one run of a query."""

    def __init__(
        self,
        plan: PipelinePlan,
        stages: Sequence[StageSpec],
        combined: Sequence[CombinedFrame | None],
        spark: SparkSession,
        backend: StateBackend,
        job: str,
        location: str,
    ) -> None:
        """`combined` makes the partial rows of stages with declared aggregates. `job` names the job in messages and in
        ps; `location` is the identity of its location."""
        self._plan = plan
        self._stages = stages
        self._combined = combined
        self._keyed: list[KeyedFrame | None] = [None] * len(stages)  # made by the first batch
        self._application = spark.sparkContext.applicationId or ""
        self._backend = backend
        self._job = job
        self._location = location
        self._token = application_token(spark)
        self._idle_seconds = as_duration(plan.slot_idle, "slot_idle").total_seconds()
        self._programs = [self._program(spark, number) for number in range(len(stages))]
        #: Ties slots to executors.
        self.anchor = Anchor(plan.name, stages[0].parallelism)

    def close(self) -> None:
        """Release what Spark holds for this run. Slots end by themselves."""
        self.anchor.release()
        for broadcast, _ in self._programs:
            broadcast.unpersist()

    def _program(self, spark: SparkSession, number: int) -> tuple[Any, str]:
        """The program of a stage's slots, as a Spark broadcast, and its digest."""
        from pyspark import cloudpickle

        program = SlotProgram(
            stage=self._stages[number],
            state_backend=self._backend,
            policy=self._plan.policy,
            drop_null_keys=self._plan.stages[number].input.null_keys == "drop",
            idle_seconds=self._idle_seconds,
        )
        data: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        return spark.sparkContext.broadcast(data), program_digest(data)

    def run(
        self, frame: DataFrame, number: int, tasks: Sequence[SlotTask], side: SlotTask | None, end_watermark: int | None
    ) -> tuple[StageRun, list[Acknowledgement]]:
        """Run stage `number` on the rows of `frame`; returns the slots' answers, and the acknowledgements to commit.

        `tasks` has the task of every slot, `side` that of the broadcast state. After the rows, event time advances to
        `end_watermark`.
        """
        started = time.perf_counter()
        stage, batch = self._stages[number], tasks[0].batch.id
        shim = self._shim(frame.sparkSession, number, tasks, side, end_watermark)
        description = f"{self._plan.name}: stage {stage.name}, batch {batch}"
        with _slot_errors(stage.name, batch), described(frame.sparkSession, description):
            rows = self._collect(frame, number, tasks[0].batch.watermark, shim)
        by_slot = {row.slot: SlotAnswer.from_bytes(bytes(row.answer)) for row in rows}
        if len(rows) != len(tasks) or by_slot.keys() != set(range(len(tasks))):
            raise InvariantError(
                f"stage {stage.name!r}, batch {batch}: expected one answer of each of {len(tasks)} slots, got "
                f"{len(rows)} of slots {sorted(by_slot)}",
                operator=stage.name,
                batch=batch,
            )
        answers = [by_slot[slot] for slot in range(len(tasks))]
        decoded = [[Acknowledgement.from_bytes(data) for data in answer.acknowledgements] for answer in answers]
        keyed = [first for first, *_ in decoded]
        prepared = [*keyed, *agreed_broadcast(stage.name, decoded)]
        return StageRun(time.perf_counter() - started, answers, keyed), prepared

    def _collect(self, frame: DataFrame, number: int, watermark: int | None, shim: SlotShim) -> list[Any]:
        spark = frame.sparkSession
        with plain_execution(spark):
            rows = self._answers(frame, number, watermark, shim).collect()
            if not rows:  # Spark saw in the plan that there is no input, and ran no task
                frame = spark.createDataFrame(spark.sparkContext.emptyRDD(), frame.schema)
                rows = self._answers(frame, number, watermark, shim).collect()
        return rows

    def _answers(self, frame: DataFrame, number: int, watermark: int | None, shim: SlotShim) -> DataFrame:
        combined = self._combined[number]
        rows = frame if combined is None else combined.of(frame, watermark)
        keyed = self._keyed[number]
        if keyed is None:
            keyed = self._keyed[number] = KeyedFrame(rows, self._stages[number])
        return keyed.answers(rows, self.anchor.frame(frame.sparkSession), shim)

    def _shim(
        self,
        spark: SparkSession,
        number: int,
        tasks: Sequence[SlotTask],
        side: SlotTask | None,
        end_watermark: int | None,
    ) -> SlotShim:
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
            application=self._application,
            job=self._job,
            location=self._location,
            operator=self._stages[number].name,
            slot=0,
            token=self._token,
            idle_seconds=self._idle_seconds,
            stall_seconds=as_duration(self._plan.slot_stall, "slot_stall").total_seconds(),
        )
        return SlotShim(slot_id=slot_id, requests=requests, program=broadcast, path=driver_path(spark))


@contextlib.contextmanager
def _slot_errors(operator: str, batch: int) -> Iterator[None]:
    """Raise the error of the slot instead of Spark's report of it."""
    try:
        yield
    except Exception as error:
        found = emberstate_error(error, f"operator {operator!r}, batch {batch}") or overflow_error(error)
        if found is None:
            raise
        raise found.located(operator=operator, batch=batch) from None  # its message has the slot's traceback
