"""One contender of `spark_pipeline` or `aggregates`, in a process of its own: `python -m benchmarks.spark_contender
'<json>'`.

It runs all micro-batches of a prepared input through `foreachBatch`, writes the output of each as Parquet, and prints
one line of JSON: seconds per batch, and what it knows of their parts. A pipeline's output is written by
`es.sinks.parquet`, which takes over the files that its slots have stored, all others' by Spark. Spark has its default
settings but for the two cores and its state store, so rows travel to Python in Arrow batches of 10,000, and both sides
work at once.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row

import emberstate as es
from emberstate.spark import session

SCHEMA = "k bigint, tag string, x double"
COUNTED = "k bigint, n bigint"


class Key(NamedTuple):
    """What a running count needs of a row."""

    k: int


class Tagged(NamedTuple):
    """What a count per tag needs of a row."""

    k: int
    tag: str


class Counted(NamedTuple):
    """What both put out."""

    k: int
    n: int


class Count(es.KeyedProcessFunction[Key, int, Counted]):
    """A running count: one row per row."""

    n = es.value_state(int, default=0)

    def process_element(self, row: Key, ctx: es.FunctionContext) -> Counted:
        total = self.n.value() + 1
        self.n.update(total)
        return Counted(row.k, total)


class MapCount(es.KeyedProcessFunction[Tagged, int, Counted]):
    """A count per key and tag: one row per row."""

    tags = es.map_state(str, int)

    def process_element(self, row: Tagged, ctx: es.FunctionContext) -> Counted:
        total = self.tags.get(row.tag, 0) + 1
        self.tags.put(row.tag, total)
        return Counted(row.k, total)


class CountProcessor(StatefulProcessor):
    """The running count on Spark's own API."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self._n.get()
        total = (found[0] if found is not None else 0) + sum(1 for _ in rows)
        self._n.update((total,))
        yield Row(k=key[0], n=total)

    def close(self) -> None:
        pass


class MapCountProcessor(StatefulProcessor):
    """The count per key and tag on Spark's own API."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._tags = handle.getMapState("tags", "tag string", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        total = 0
        for row in rows:
            tag = (row.tag,)
            found = self._tags.getValue(tag) if self._tags.containsKey(tag) else None
            total = (found[0] if found is not None else 0) + 1
            self._tags.updateValue(tag, (total,))
        yield Row(k=key[0], n=total)

    def close(self) -> None:
        pass


def in_pandas(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The running count on the older API."""
    total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "n": [total]})


def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in, rows out."""
    yield from batches


class Contender:
    """A stream, and what is done with its output."""

    def __init__(self, spark: SparkSession, task: dict[str, Any]) -> None:
        self.spark = spark
        self.task = task
        self.out = Path(task["work"]) / "out"
        self.seconds: list[float] = []
        self.parts: list[dict[str, float]] = []

    def write(self, df: DataFrame, batch: int) -> None:
        """The output of a batch, as files."""
        df.write.mode("overwrite").parquet(str(self.out / str(batch)))

    def source(self) -> DataFrame:
        """The input, a file per batch."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(self.task["input"])

    def emberstate(self, function: es.KeyedProcessFunction[Any, int, Counted]) -> Any:
        """A pipeline with a function of typed rows."""
        return self._started(self._pipeline().process("count", function))

    def _pipeline(self) -> es.Pipeline:
        backend = es.FsStateBackend(Path(self.task["work"]) / "state")
        return es.Pipeline("bench", backend, parallelism=2).key_by("k")

    def _started(self, pipeline: es.Pipeline) -> Any:
        delivered = pipeline.sink(es.sinks.parquet(self.out))
        watched = delivered.listener(lambda progress: self.parts.append(dict(progress.seconds)))
        return watched.inputs(self.source()).writeStream.foreachBatch(watched)

    def declared(self) -> Any:
        """A pipeline with a declared aggregate."""
        return self._started(self._pipeline().aggregate("count", n=es.count()))

    def foreach_batch(self, make: Callable[[DataFrame], DataFrame]) -> Any:
        """Something done to every batch."""
        return self.source().writeStream.foreachBatch(lambda df, batch: self.write(make(df), batch))

    def stateful(self, df: DataFrame) -> Any:
        """A stateful query of Spark's own."""
        return df.writeStream.outputMode("update").foreachBatch(self.write)

    def writer(self) -> Any:
        """The contender by name."""
        rows = self.source()
        match self.task["contender"]:
            case "emberstate count":
                return self.emberstate(Count())
            case "declared count":
                return self.declared()
            case "emberstate map count":
                return self.emberstate(MapCount())
            case "mapInArrow with shuffle":
                return self.foreach_batch(lambda df: df.repartition(2, "k").mapInArrow(pass_through, SCHEMA))
            case "mapInArrow":
                return self.foreach_batch(lambda df: df.mapInArrow(pass_through, SCHEMA))
            case "groupBy count" | "groupBy count, default store":
                return self.stateful(rows.groupBy("k").count())
            case "groupBy map count":
                return self.stateful(rows.groupBy("k", "tag").count())
            case "transformWithState count":
                return self.stateful(self._transform(rows, CountProcessor()))
            case "transformWithState map count":
                return self.stateful(self._transform(rows, MapCountProcessor()))
            case "applyInPandasWithState count":
                grouped = rows.groupBy("k")
                return self.stateful(
                    grouped.applyInPandasWithState(in_pandas, COUNTED, "n bigint", "update", "NoTimeout")
                )
        raise ValueError(self.task["contender"])

    def _transform(self, rows: DataFrame, processor: StatefulProcessor) -> DataFrame:
        return rows.groupBy("k").transformWithState(processor, COUNTED, "Update", "None")

    def run(self) -> None:
        """All batches; a batch's time is the trigger's."""
        query = self.writer().option("checkpointLocation", str(Path(self.task["work"]) / "checkpoint")).start()
        batches, deadline = self.task["batches"], time.monotonic() + 3600
        while query.isActive and time.monotonic() < deadline:
            last = query.lastProgress
            if last is not None and last["batchId"] >= batches - 1:
                break
            time.sleep(0.05)
        query.processAllAvailable()
        self.seconds = [
            one["durationMs"]["triggerExecution"] / 1000
            for one in query.recentProgress
            if one["numInputRows"] and "addBatch" in one["durationMs"]
        ]
        query.stop()


def main() -> None:
    """Run what the argument says."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    task = json.loads(sys.argv[1])
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "3g",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    if not task["contender"].endswith("default store"):
        settings["spark.sql.streaming.stateStore.providerClass"] = (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        )
    spark = session("bench", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    contender = Contender(spark, task)
    contender.run()
    spark.stop()
    print(json.dumps({"seconds": contender.seconds, "parts": contender.parts}))


if __name__ == "__main__":
    main()
