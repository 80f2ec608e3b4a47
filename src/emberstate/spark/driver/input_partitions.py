"""Groups rows within the partitions of a frame, without an exchange.

Spark groups rows by moving those of a group to one place. Partial rows need no such place: the slots merge them. So
the frame claims to be partitioned by the grouping columns already, and Spark's `groupBy` stays within each partition:
one hash aggregation before the one exchange to the slots.

Of Spark's internals this needs a logical plan over an RDD whose partitioning can be said. If a version of Spark
differs, a warning says so once, and `groupBy` exchanges rows itself: a cost, no other result.

Thread safety: the driver's threads.
"""

from __future__ import annotations

import functools
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from emberstate.runtime.rows.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_log = logging.getLogger("emberstate.spark")

#: The plan over an RDD, and where it has its partitioning.
_OVER_ROWS: Final = "LogicalRDD"
_PARTITIONING: Final = 2

_told = False


def as_if_grouped(frame: DataFrame, columns: Sequence[str], needed: Sequence[str]) -> DataFrame:
    """The rows of `frame` with at least the columns `needed`, which claims that equal `columns` are in one partition.

    What is grouped by these columns, and possibly more, is therefore grouped within each partition.
    """
    global _told
    try:
        return _claimed(frame, columns, needed)
    except Exception as error:
        if not _told:
            _told = True
            _log.warning(
                "Rows cannot be combined within partitions with this version of Spark (%s: %s). Results are right, but "
                "batches of aggregates exchange rows twice.",
                type(error).__name__, error,
            )  # fmt: skip
        return frame


def _claimed(frame: DataFrame, columns: Sequence[str], needed: Sequence[str]) -> DataFrame:
    from pyspark.sql import DataFrame

    spark = frame.sparkSession
    java = _classes(spark._jvm)
    plan = frame._jdf.queryExecution().logical()
    if plan.productPrefix() != _OVER_ROWS:  # a batch of foreachBatch is such a plan already
        frame = frame.select(*(quoted(name) for name in needed))
        rows = frame._jdf.queryExecution().toRdd()
        plan = spark._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False).queryExecution().logical()
    partitions = plan.rdd().getNumPartitions()
    if not partitions:
        return frame
    output, names = plan.output(), frame.columns
    attributes = java.to_seq([output.apply(names.index(name)) for name in columns])
    parts = plan.productIterator().toArray(java.any_tag)
    parts[_PARTITIONING] = java.hashed(attributes, partitions)
    return DataFrame(java.of_rows(spark._jsparkSession, plan.makeCopy(parts)), spark)


@functools.lru_cache(maxsize=1)
def _classes(jvm: Any) -> SimpleNamespace:
    """What is the same for all frames, once per JVM: every part of a name is a call."""
    return SimpleNamespace(
        to_seq=jvm.PythonUtils.toSeq,
        any_tag=jvm.scala.reflect.ClassTag.AnyRef(),
        hashed=jvm.org.apache.spark.sql.catalyst.plans.physical.HashPartitioning,
        of_rows=jvm.org.apache.spark.sql.classic.Dataset.ofRows,
    )
