"""The attempts of a stage's tasks that failed before Spark ran them again, as Spark's status store has them.

Asked for only if a slot's answer came from a later attempt. If a version of Spark differs, the attempts are counted
without their errors.

Thread safety: the driver's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from emberstate.checkpoint.history.model import MAX_FAILURES, FailureRecord
from emberstate.spark.slot.failure import emberstate_error, one_line
from emberstate.spark.slot.messages import SlotAnswer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("emberstate.spark")

#: How long Spark may take to hand on what it knows, in milliseconds.
_PATIENCE: Final = 10_000


def failed_attempts(spark: SparkSession, stage: str, answers: Sequence[SlotAnswer]) -> tuple[FailureRecord, ...]:
    """The failed attempts of a stage's tasks; none if every answer came from a first attempt."""
    again = {answer.spark_stage for answer in answers if answer.earlier_attempts}
    if not again:
        return ()
    try:
        found = [_record(task, stage) for number in sorted(again) for task in _failed_tasks(spark, number)]
    except Exception as error:
        _log.warning("Spark does not tell why tasks were repeated (%s: %s)", type(error).__name__, error)
        found = []
    known = {record.slot for record in found}
    found += [
        FailureRecord(stage=stage, slot=slot, message="Spark does not tell why")
        for slot, answer in enumerate(answers)
        if answer.earlier_attempts and slot not in known
    ]
    return tuple(found[:MAX_FAILURES])


def _failed_tasks(spark: SparkSession, stage: int) -> list[Any]:
    """Failed and killed tasks of a stage of Spark."""
    context = spark.sparkContext
    jvm, scala = context._jvm, context._jsc.sc()
    assert jvm is not None
    scala.listenerBus().waitUntilEmpty(_PATIENCE)
    statuses = jvm.java.util.ArrayList()
    for name in ("FAILED", "KILLED"):
        statuses.add(jvm.org.apache.spark.status.api.v1.TaskStatus.valueOf(name))
    tasks = scala.statusStore().taskList(stage, 0, 0, MAX_FAILURES, jvm.scala.Option.apply(None), True, statuses)
    return [tasks.apply(number) for number in range(tasks.size())]


def _record(task: Any, stage: str) -> FailureRecord:
    text = task.errorMessage().getOrElse(None) if task.errorMessage().isDefined() else "killed by Spark"
    found = emberstate_error(RuntimeError(text), f"stage {stage!r}")
    said = text.strip().partition("\n")[0] if found is None else one_line(found)
    return FailureRecord(
        error="" if found is None else type(found).__name__,
        message=said.encode(errors="replace").decode()[:1000],
        stage=stage,
        slot=task.partitionId(),
        executor=f"{task.host()} ({task.executorId()})"[:200],
    )
