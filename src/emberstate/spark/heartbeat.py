"""`Ticks`: batches of a stream without data, on the driver's side: heartbeats, and the batch that closes windows at the
end of what is available now.

Spark decides when there is a batch, and numbers it; a source that advances (`heartbeat_source`) makes it start one. A
query has that source from its first start or never: Spark rejects a query with another number of sources.

Thread safety: the driver's thread, then that of the query's batches.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from emberstate.checkpoint.manifest.model import Batch
from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.spark.driver.watermark import leaves_time
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.units import Duration, as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AtEnd = Literal["wait", "close"]

_log = logging.getLogger("emberstate.spark")

_NO_SOURCE: Final = (
    "was started without, and Spark lets no query change its number of sources. Start a query with a new checkpoint "
    "from a savepoint of the job"
)


class Ticks:
    """The ticks of one run of a query."""

    def __init__(
        self, plan: PipelinePlan, spark: SparkSession, heartbeat: Duration | None, available_now: bool, at_end: AtEnd
    ) -> None:
        """The files of the ticks are in Spark's own temporary directory, which Spark deletes."""
        from emberstate.spark.heartbeat_source import UNASKED

        self.heartbeat = heartbeat is not None
        self._plan = plan
        self._available_now = available_now
        self._closes = at_end == "close"
        self._milliseconds = 0 if heartbeat is None else _milliseconds(heartbeat)
        self._wanted = Path(spark.sparkContext._temp_dir) / f"emberstate-tick-{uuid.uuid4()}"
        self._unasked = self._wanted.with_suffix(UNASKED)

    def added_to(self, frame: DataFrame) -> DataFrame:
        """The stream, with the source of ticks, which has no rows."""
        from pyspark.sql import functions as F

        from emberstate.spark.heartbeat_source import HEARTBEAT_FORMAT, HeartbeatSource

        spark = frame.sparkSession
        if self._available_now:
            self._unasked.touch()
        spark.dataSource.register(HeartbeatSource)
        source = spark.readStream.format(HEARTBEAT_FORMAT).option("milliseconds", str(self._milliseconds))
        ticks = source.option("wanted", str(self._wanted)).load()
        return frame.union(
            ticks.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema.fields))
        )

    def follow(self, last: Batch | None) -> None:
        """Ask for one more batch at the end of what is available, or for none, by the last committed batch."""
        if not self._available_now:
            return
        if last is not None and not last.ended and (self._closes or leaves_time(self._plan, last)):
            self._wanted.touch()
        else:
            self._wanted.unlink(missing_ok=True)

    @contextlib.contextmanager
    def cleared_on_failure(self) -> Iterator[None]:
        """Delete the files if a batch fails: no batch follows."""
        try:
            yield
        except BaseException:
            self._wanted.unlink(missing_ok=True)
            self._unasked.unlink(missing_ok=True)
            raise

    def end_input(self, source: str, last: Batch | None) -> bool:
        """Whether the input ends with the batch of this source position: only the ticks have advanced."""
        return self._closes and last is not None and json.loads(source)[:-1] == json.loads(last.source)[:-1]

    def check_source(self) -> None:
        """In a batch, before it begins: raise or warn if Spark will not ask for one more batch."""
        if not self._unasked.exists():
            return
        self._unasked.unlink()
        told = (
            "a source of this stream does not support availableNow, so Spark reads all of it in a single batch, and "
            "no batch follows to close windows in"
        )
        if self._closes:
            raise LifecycleError(f"at_end='close' is not possible: {told}. The batch was not begun.")
        _log.warning("Windows that the last rows would close stay open until there is more data: %s", told)


def ticks_of(
    plan: PipelinePlan,
    spark: SparkSession,
    checkpoint: str,
    heartbeat: Duration | None,
    trigger: Any,
    at_end: AtEnd,
) -> Ticks | None:
    """The ticks of a query; None if it needs none.

    Raises:
        StateDeclarationError: heartbeat or at_end is not possible with this query.
    """
    from emberstate.spark.heartbeat_source import CAN_CLOSE

    available_now = bool((trigger or {}).get("availableNow"))
    if at_end not in ("wait", "close"):
        raise StateDeclarationError(
            f"at_end: expected 'wait' or 'close', got {at_end!r}", option="at_end", found=at_end
        )
    timed = plan.event_time_stage is not None
    if at_end == "close" and not (available_now and timed and CAN_CLOSE):
        raise StateDeclarationError(
            "at_end='close' closes windows in event time when all that is available has been read: it goes with "
            "event_time(…) and trigger={'availableNow': True}, from Spark 4.2 on",
            option="at_end",
            found=at_end,
        )
    ticks = Ticks(plan, spark, heartbeat, available_now, at_end)
    closing = available_now and timed and CAN_CLOSE
    there = _has_ticks(spark, checkpoint)
    if there is not False:
        return ticks if there or heartbeat is not None or closing else None
    if heartbeat is not None or at_end == "close":
        asked = "at_end='close'" if heartbeat is None else "heartbeat"
        raise StateDeclarationError(
            f"{asked} needs a source of ticks, and the query at {checkpoint} {_NO_SOURCE}.",
            path=checkpoint,
            option="at_end" if heartbeat is None else "heartbeat",
        )
    if closing:
        _log.warning(
            "Windows that the last rows would close stay open until there is more data: that needs a source of ticks, "
            "and the query at %s %s.", checkpoint, _NO_SOURCE,
        )  # fmt: skip
    return None


def _milliseconds(heartbeat: Duration) -> int:
    milliseconds = as_duration(heartbeat, "heartbeat").total_seconds() * 1000
    if milliseconds < 100:
        what = f"heartbeat: expected at least 100 milliseconds, got {heartbeat!r}"
        raise StateDeclarationError(what, option="heartbeat")
    return int(milliseconds)


def _has_ticks(spark: SparkSession, checkpoint: str) -> bool | None:
    """Whether the query of a checkpoint location has the source of ticks; None if it has no batch yet."""
    jvm: Any = spark._jvm
    folder = jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    files = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(folder):
        return None
    names = [status.getPath().getName() for status in files.listStatus(folder)]
    batches = [int(name) for name in names if name.isdigit()]
    if not batches:
        return None
    stream = files.open(jvm.org.apache.hadoop.fs.Path(folder, str(max(batches))))
    try:
        text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return any(line.startswith('{"beat"') for line in text.splitlines())
