"""One query over one stream of files, as a pipeline or in Spark's own operators: a file per batch, then the end.

What a job leaves is below its folder: `out/<batch>` has the rows of a batch. A job that is started again on the same
folder goes on where it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import emberstate as es
from benchmarks.nexmark import model
from benchmarks.nexmark.queries.query import Query
from emberstate.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORES = "org.apache.spark.sql.execution.streaming.state."
#: Spark's state stores, by the name that results have.
SPARK_STORES = {
    "spark": f"{_STORES}HDFSBackedStateStoreProvider",
    "spark-rocksdb": f"{_STORES}RocksDBStateStoreProvider",
}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_SECONDS_PER_BATCH = 4


class BatchClock:
    """A clock by which every batch is four seconds after the one before, and a day has passed when files have ended.

    It counts the batches that Spark has noted as done, so it goes on after a restart. Any thread.
    """

    def __init__(self, checkpoint: Path, files: int) -> None:
        self._commits = checkpoint / "commits"
        self._files = files

    def now_micros(self) -> int:
        """The time of the batch that is next."""
        done = sum(path.name.isdigit() for path in self._commits.iterdir()) if self._commits.is_dir() else 0
        since = timedelta(days=1) if done >= self._files else timedelta(seconds=_SECONDS_PER_BATCH * done)
        return round((model.START + since).timestamp() * 1e6)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds of every batch with events, by Spark's progress."""

    seconds: list[float]


@dataclasses.dataclass(frozen=True)
class Job:
    """A query, its input and its folder.

    Attributes:
        after_batch: Called by the sink with the number of the batch, after its rows are written.
    """

    spark: SparkSession
    query: Query
    files: Path
    folder: Path
    parallelism: int = 2
    after_batch: Callable[[int], None] = lambda batch: None

    @property
    def output(self) -> Path:
        """The rows."""
        return self.folder / "out"

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def emberstate(self) -> Measured:
        """Run it as a pipeline, until all events are through and all windows are closed."""
        clock = BatchClock(self._checkpoint, len(list(self.files.glob("*.parquet"))))
        backend = es.FsStateBackend(self.folder / "state")
        pipeline = es.Pipeline(
            self.query.name, backend, parallelism=self.parallelism, slot_idle="30 seconds", clock=clock
        )
        pipeline = self.query.build(pipeline).sink(lambda frame, batch: self._write(self.query.result(frame), batch))
        inputs = {self.query.side_name: self._side()} if self.query.side_name else None
        query = pipeline.start(
            self.query.rows(self._events()), inputs=inputs, checkpoint=str(self._checkpoint),
            trigger={"availableNow": True}, at_end=self.query.at_end,
        )  # fmt: skip
        query.awaitTermination()
        return self._measured(query)

    def in_spark(self, store: str) -> Measured:
        """Run it in Spark's own operators, with one of `SPARK_STORES`. Its last windows stay open."""
        self.spark.conf.set(_PROVIDER, SPARK_STORES[store])
        try:
            writer = self.query.spark(self._events()).writeStream.outputMode(self.query.mode)
            writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True)
            query = writer.foreachBatch(self._write).start()
            query.awaitTermination()
        finally:
            self.spark.conf.unset(_PROVIDER)
        return self._measured(query)

    def _events(self) -> DataFrame:
        reader = self.spark.readStream.schema(model.SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.files))

    def _side(self) -> DataFrame:
        folder = self.folder / "side"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            pq.write_table(self.query.side(), folder / "side.parquet")
        return self.spark.readStream.schema("key bigint, value string").parquet(str(folder))

    def _write(self, frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(self.output / str(batch)))
        self.after_batch(batch)

    def _measured(self, query: Any) -> Measured:
        return Measured([
            progress["durationMs"]["triggerExecution"] / 1000
            for progress in query.recentProgress
            if progress["numInputRows"] and "addBatch" in progress["durationMs"]
        ])  # fmt: skip


def local_session(cores: int = 2) -> SparkSession:
    """A session in which tasks are retried, and times are UTC."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
        "spark.python.authenticate.socketTimeout": "10min",  # a busy machine starts Python slowly
        "spark.driver.memory": "3g",
    }
    spark = session("nexmark", master=f"local[{cores},4]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
