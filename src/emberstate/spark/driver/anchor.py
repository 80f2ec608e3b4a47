"""`Anchor`: ties the tasks of a slot to the executor that has the slot.

It is a DataFrame of one row per slot, each in a partition of its own with a preferred executor. A keyed stage joins its
rows with it, and Spark runs a task where a partition that it reads prefers to be, if it can. The join costs nothing:
both sides are partitioned alike, so no row moves. In local mode there is one executor, and no anchor.

When executors come or go, slots are assigned anew: those of an executor that is gone, and as many others as it takes
for each executor to have its share. A slot whose task runs elsewhere restores its state; only speed depends on it.

Of Spark's internals this needs an RDD with preferred locations, and a logical plan over an RDD with a known
partitioning, which a local checkpoint leaves. If a version of Spark differs, a warning says so once, and tasks run
where Spark decides.

Thread safety: the driver's thread.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from emberstate.runtime.rows.columns import SLOT_COLUMN
from emberstate.spark.driver.placement import assign, preference
from emberstate.spark.spark_session import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("emberstate.spark")

#: An application younger than this may still get executors, in seconds; the first slots wait until none has come for
#: `_SETTLED_SECONDS`.
_YOUNG_SECONDS: Final = 30.0
_SETTLED_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.05


class Anchor:
    """The anchor of one run of a pipeline."""

    def __init__(self, job: str, parallelism: int) -> None:
        self._job = job
        self._parallelism = parallelism
        self._frame: DataFrame | None = None
        self._session: Any = None
        self._executors: frozenset[str] = frozenset()
        self._broken = False
        #: Executors by slot.
        self.placement: dict[int, str] = {}

    def frame(self, spark: SparkSession) -> DataFrame | None:
        """The anchor for a stage, made anew if executors have changed; None where none is needed.

        Adaptive execution must be off in the session.
        """
        if self._broken or is_local(spark):
            return None
        executors = executor_ids(spark) if self._session is not None else _settled(spark)
        same_session = self._session is not None and self._session.equals(spark._jsparkSession)
        if not executors:
            return None  # Spark waits for executors, and says so
        if self._frame is None or executors != self._executors or not same_session:
            self._make(spark, executors)
        return self._frame

    def release(self) -> None:
        """Drop the frame."""
        self._frame = None

    def _make(self, spark: SparkSession, executors: frozenset[str]) -> None:
        try:
            details = _details(spark, executors)
            if not details:
                return  # Spark will know them soon
            cores = {ident: details[ident][1] for ident in preference(self._job, details)}
            placement = assign(self._parallelism, cores, self.placement)
            # An executor, as Spark's scheduler writes a location.
            locations = [f"executor_{details[ident][0]}_{ident}" for ident in placement.values()]
            self._frame = located_slots(spark, locations)
        except Exception as error:
            self._broken = True
            _log.warning(
                "Slots cannot be tied to executors with this version of Spark (%s: %s). Results are right, but a slot "
                "whose task runs elsewhere restores its state first, which takes time.",
                type(error).__name__, error,
            )  # fmt: skip
            return
        moved = sum(1 for slot, ident in placement.items() if self.placement.get(slot, ident) != ident)
        _log.info("%d slots on executors %s; %d moved", self._parallelism, sorted(details), moved)
        self.placement, self._session = placement, spark._jsparkSession
        self._executors = frozenset(details)


def located_slots(spark: SparkSession, locations: list[str]) -> DataFrame:
    """A DataFrame of the rows 0, 1, 2 …, each in the partition of its number, which prefers that location."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    context = spark.sparkContext
    jvm, gateway, count = context._jvm, context._gateway, len(locations)
    assert jvm is not None and gateway is not None
    slots = spark.range(0, count, 1, 1).select(F.col("id").cast("int").alias(SLOT_COLUMN))
    # Never evaluated: its plan is over an RDD partitioned by slot, and that RDD is replaced.
    plan = slots.repartitionById(count, F.col(SLOT_COLUMN)).localCheckpoint(eager=False)._jdf.queryExecution().logical()
    pairs = []
    for slot, location in enumerate(locations):
        values = gateway.new_array(jvm.java.lang.Object, 1)
        values[0] = slot
        row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values)
        pairs.append(jvm.scala.Tuple2(row, jvm.PythonUtils.toSeq([location])))
    row_class = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    rows = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), jvm.scala.reflect.ClassTag.apply(row_class))
    parts = gateway.new_array(jvm.java.lang.Object, plan.productArity())
    for number in range(plan.productArity()):
        part = plan.productElement(number)
        parts[number] = rows if number == 1 else part
    located = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan.makeCopy(parts))
    return DataFrame(located, spark)


def executor_ids(spark: SparkSession) -> frozenset[str]:
    """The ids of the executors."""
    ids: str = spark.sparkContext._jsc.sc().getExecutorIds().mkString(",")
    return frozenset(ids.split(",")) - {""}


def _details(spark: SparkSession, executors: frozenset[str]) -> dict[str, tuple[str, int]]:
    """Host and cores of those executors that Spark's status store has."""
    known = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = {}
    for number in range(known.size()):
        one = known.apply(number)
        if one.id() in executors and one.totalCores() > 0:
            found[one.id()] = (one.hostPort().rpartition(":")[0], one.totalCores())
    return found


def _settled(spark: SparkSession) -> frozenset[str]:
    """The executors, once no more come: after the start of an application they appear one after the other."""
    born: float = spark.sparkContext.startTime / 1000
    executors, since = executor_ids(spark), time.monotonic()
    while time.time() - born < _YOUNG_SECONDS:
        if executors and time.monotonic() - since >= _SETTLED_SECONDS:
            break
        time.sleep(_POLL_SECONDS)
        found = executor_ids(spark)
        if found != executors:
            executors, since = found, time.monotonic()
    return executors
