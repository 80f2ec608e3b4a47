"""Delivers the outputs of a committed batch to the sinks of a pipeline.

Thread safety: the driver's thread.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.sinks.interface import Delivery, Origin, Sink, Start
from emberstate.sinks.parts import Part
from emberstate.spark.driver import outputs
from emberstate.spark.driver.job_description import described
from emberstate.spark.driver.recorded_outputs import RowTypes, recorded_stages, sent_to_sinks
from emberstate.spark.plan.pipeline import PipelinePlan, sink_name
from emberstate.spark.slot.failure import naming_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")

#: The columns of what a task answers.
_ANSWER = "number bigint, answer binary"


def check_sinks(plan: PipelinePlan, spark: SparkSession, input: RowType, before: Manifest | None) -> None:
    """Have every sink check its target; `before` is the job's newest checkpoint.

    Raises:
        SinkError: a target cannot be delivered to.
    """
    types = zip(plan.stages, plan.row_types(input), strict=True)
    stages = recorded_stages({stage.name: row_types for stage, row_types in types})
    for output, row_type in sent_to_sinks(stages).items():
        origin = None if before is None else _origin(before, output)
        for sink in plan.sinks_of(output):
            if isinstance(sink, Sink):
                sink.check(Start(spark, plan.name, *output, row_type, origin))


def deliver(
    plan: PipelinePlan, spark: SparkSession, manifest: Manifest, row_types: RowTypes, backend: StateBackend
) -> None:
    """Give every sink its output of the batch that the manifest committed."""
    assert manifest.batch is not None
    batch = manifest.batch.id
    for output, row_type in row_types.items():
        sinks = plan.sinks_of(output)
        if not sinks:
            continue
        origin = _origin(manifest, output)
        assert origin is not None
        found = [one for one in manifest.outputs if (one.operator, one.name) == output and one.rows]
        parts = _parts([(one.rows, StoredOutput.of(one)) for one in found], row_type, backend)
        delivery = SparkDelivery(spark, origin, batch, row_type, parts, backend)
        stage, name = output
        description = f"{plan.name}: sink of {stage}{'' if name == MAIN else f' ({name})'}, batch {batch}"
        for sink in sinks:
            with naming_sink(plan.name, sink_name(sink), output, batch), described(spark, description):
                if isinstance(sink, Sink):
                    sink.deliver(delivery)
                else:
                    sink(delivery.frame(), batch)


def _origin(manifest: Manifest, output: tuple[str, str]) -> Origin | None:
    if manifest.batch is None:
        return None
    return Origin(manifest.location, manifest.job, manifest.batch.query, *output)


def _parts(found: Sequence[tuple[int, StoredOutput]], row_type: RowType, backend: StateBackend) -> list[Part]:
    if backend.open_slot_storage() is None:  # tasks cannot reach it
        storage = backend.open_storage()
        found = [(rows, stored.inline(storage)) for rows, stored in found]
    return [Part(number, rows, row_type, stored, backend) for number, (rows, stored) in enumerate(found)]


class SparkDelivery(Delivery):
    """A batch of an output, with Spark to read it."""

    def __init__(
        self,
        spark: SparkSession,
        origin: Origin,
        batch: int,
        row_type: RowType,
        parts: Sequence[Part],
        backend: StateBackend,
    ) -> None:
        super().__init__(origin, batch, row_type, parts)
        self._spark = spark
        self._backend = backend

    def frame(self) -> DataFrame:
        return outputs.output_frame(self._spark, [part.stored for part in self.parts], self.row_type, self._backend)

    def in_tasks(self, function: Callable[[Part], R]) -> list[R]:
        if self.size <= outputs.DRIVER_BYTES:
            return [function(part) for part in self.parts]
        count = len(self.parts)
        tasks = self._spark.range(0, count, 1, count).mapInArrow(_Task(function, self.parts), _ANSWER)
        answers = {row.number: pickle.loads(row.answer) for row in tasks.collect()}
        return [answers[number] for number in range(count)]


@dataclasses.dataclass(frozen=True, slots=True)
class _Task:
    """The function of `mapInArrow` that calls another with the parts of the numbers it gets."""

    function: Callable[[Part], Any]
    parts: tuple[Part, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            answers = [pickle.dumps(self.function(self.parts[number])) for number in numbers]
            yield pa.RecordBatch.from_pydict({"number": numbers, "answer": pa.array(answers, pa.binary())})
