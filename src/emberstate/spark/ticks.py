"""Ticks among the rows of a stream: what a heartbeat adds, and what is taken out again before anything is keyed.

Thread safety: the driver's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emberstate.errors import StateDeclarationError
from emberstate.state.durations import Duration, as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Marks the rows of a heartbeat.
TICK_COLUMN: Final = "__tick"


def with_ticks(frame: DataFrame, heartbeat: Duration) -> DataFrame:
    """A stream that has a batch at every heartbeat, data or not."""
    from pyspark.sql import functions as F

    from emberstate.spark.heartbeat import HEARTBEAT_FORMAT, HeartbeatSource

    milliseconds = as_duration(heartbeat, "heartbeat").total_seconds() * 1000
    if milliseconds < 100:
        raise StateDeclarationError(f"a heartbeat is at least 100 milliseconds, found {heartbeat!r}")
    spark = frame.sparkSession
    spark.dataSource.register(HeartbeatSource)
    ticks = spark.readStream.format(HEARTBEAT_FORMAT).option("milliseconds", str(int(milliseconds))).load()
    empty = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema.fields]
    return frame.withColumn(TICK_COLUMN, F.lit(False)).union(ticks.select(*empty, F.lit(True).alias(TICK_COLUMN)))


def without_ticks(frame: DataFrame) -> DataFrame:
    """The rows of a batch that are no ticks."""
    from pyspark.sql import functions as F

    if TICK_COLUMN not in frame.columns:
        return frame
    return frame.filter(~F.col(TICK_COLUMN)).drop(TICK_COLUMN)
