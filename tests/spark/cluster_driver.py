"""A Spark driver in a process of its own: `python -m tests.spark.cluster_driver`. It is told what to do, a line each.

A process of its own, so that it can be killed, and so that tests in local mode, which share a session with the rest of
the process that runs them, are left alone.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.spark import SETTINGS, missing_settings, session
from emberstate.spark.driver import anchor
from emberstate.spark.driver.anchor import executor_ids
from tests.spark.cluster_functions import INPUT, RANKS, TALLIES, HeldRows, HoldingBackend, Rank, Tally


class Driver:
    """What a driver can be told. Every method's result goes back as JSON."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._pipeline: es.Pipeline | None = None
        self._query: Any = None

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def session(self, master: str, settings: dict[str, str]) -> str:
        """Start a session."""
        if self._spark is not None:
            self._spark.stop()
        self._spark = session("cluster tests", master=master, settings=settings)
        self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark.sparkContext.applicationId

    def bare_session(self, master: str, settings: dict[str, str]) -> None:
        """Start a session as one does who has not read our documentation."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        self.spark.stop()
        for key in SETTINGS:  # the JVM has them from the first session
            jvm.java.lang.System.clearProperty(key)
        builder = SparkSession.builder.master(master)
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()

    def missing_settings(self) -> list[str]:
        return missing_settings(self.spark)

    def executors(self) -> list[str]:
        return sorted(executor_ids(self.spark))

    def query(self, root: str, parallelism: int, stages: int, backend_kind: str) -> None:
        """Start the stream of a job, whose files are all below a directory."""
        folder = Path(root)
        rows = self.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(str(folder / "input"))
        backend: StateBackend = HoldingBackend(folder / "state", folder / "points")
        if backend_kind == "rocksdb":
            backend = es.RocksDBStateBackend(folder / "state", memory="16 MiB")
        pipeline = es.Pipeline(folder.name, backend, parallelism=parallelism, max_parallelism=16)
        pipeline = pipeline.key_by("key").event_time("ts").process("tally", Tally(), schema=TALLIES)
        if stages == 2:
            pipeline = pipeline.key_by("team").event_time("ts").process("rank", Rank(), schema=RANKS)
        schema = TALLIES if stages == 1 else RANKS

        def sink(frame: DataFrame, batch: int) -> None:
            delivered = frame.mapInArrow(HeldRows(folder / "points" / "sink"), schema).toArrow().to_pylist()
            delivered.sort(key=lambda row: row["ts"])
            _write(folder / "output", batch, json.dumps(delivered, default=str))

        def listener(progress: es.Progress) -> None:
            with (folder / "progress").open("a", encoding="utf-8") as file:
                file.write(json.dumps(progress.as_dict()) + "\n")

        self._pipeline = pipeline.sink(sink).listener(listener)
        self._query = self._pipeline.start(rows, checkpoint=str(folder / "offsets"))

    def placement(self) -> dict[int, str]:
        """Where the slots are to be."""
        assert self._pipeline is not None and self._pipeline._runner.batches is not None
        return self._pipeline._runner.batches.stages.anchor.placement

    def failure(self) -> str | None:
        """Why the query has ended."""
        return None if self._query is None or self._query.exception() is None else str(self._query.exception())

    def keyed_plans(self) -> list[str]:
        """The physical plans of all keyed stages that ran."""
        store = self.spark._jsparkSession.sharedState().statusStore()
        found = store.executionsList()
        plans = [found.apply(number).physicalPlanDescription() for number in range(found.size())]
        return [plan for plan in plans if "MapInArrow" in plan and "__key_group" in plan]

    def stop_query(self) -> None:
        self._query.stop()

    def run_without_rows(self) -> int:
        """A static run of no rows at all; how often the sink was called."""
        batches: list[int] = []
        _pipeline().sink(lambda df, batch: batches.append(batch)).run(self.spark.createDataFrame([], INPUT))
        return len(batches)

    def run_without_anchor(self) -> tuple[list[int], list[str]]:
        """A static run with a Spark that has no anchors; what was counted, and warnings."""
        seen: list[int] = []
        said: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("emberstate.spark").addHandler(handler)
        frame = self.spark.range(3).selectExpr(
            "'k' key", "id value", "timestamp_millis(id) ts", "'' command"
        )
        works = anchor.located_slots
        anchor.located_slots = _other_spark
        try:
            _pipeline().sink(lambda df, batch: seen.extend(row.seen for row in df.collect())).run(frame, batches=2)
        finally:
            anchor.located_slots = works
            logging.getLogger("emberstate.spark").removeHandler(handler)
        return seen, said

    def quit(self) -> None:
        if self._spark is not None:
            self._spark.stop()


def _pipeline() -> es.Pipeline:
    state = Path(os.environ["TMPDIR"]) / "run"
    pipeline = es.Pipeline("run", es.FsStateBackend(state), parallelism=2, max_parallelism=16)
    return pipeline.key_by("key").event_time("ts").process("tally", Tally(), schema=TALLIES)


def _other_spark(spark: SparkSession, locations: list[str]) -> DataFrame:
    raise TypeError("makeCopy does not exist in the JVM")


def _write(folder: Path, batch: int, text: str) -> None:
    """Keep what was delivered; if that was done before, it must have been the same."""
    file = folder / f"{batch}.json"
    if file.exists() and file.read_text(encoding="utf-8") != text:
        (folder / f"{batch}.differs").write_text(text, encoding="utf-8")
    temporary = folder / f".{batch}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def main() -> None:
    """Do what comes on stdin."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("emberstate").setLevel(logging.INFO)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark prints to stdout
    driver = Driver()
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        try:
            reply = {"result": getattr(driver, name)(**command)}
        except Exception:
            reply = {"error": traceback.format_exc()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if name == "quit":
            return


if __name__ == "__main__":
    main()
