"""A driver that delivers to a folder and two tables, and is killed: `python -m tests.integration.tables_driver ROOT
PARALLELISM [POINT BATCH]`.

It runs the job over the input below ROOT until all of it is through, or until it comes to the point in the batch. All
sinks work in Spark's tasks, however small the output.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import emberstate as es
from emberstate.sinks import DeltaSink, IcebergSink
from emberstate.spark.driver import outputs
from tests.integration.test_iceberg import catalogue_of
from tests.spark.pipeline_functions import TOTALS, Totals
from tests.spark.spark_session import local_session
from tests.spark.streams import Stream

#: The points of a batch, in order: after this method of this sink.
POINTS = {
    "its files are in the Delta table": (DeltaSink, "_add"),
    "its files are in the Iceberg table": (IcebergSink, "_add"),
    "all have it": (IcebergSink, "deliver"),
}


def main(root: Path, parallelism: int, point: str, batch: int) -> None:
    """Run the job."""
    outputs.DRIVER_BYTES = -1  # type: ignore[misc]
    if point:
        kind, method = POINTS[point]
        work = getattr(kind, method)

        def work_and_die(self: Any, delivery: Any, *rest: Any) -> Any:
            done = work(self, delivery, *rest)
            if delivery.batch == batch:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        setattr(kind, method, work_and_die)
    spark = local_session("tables", Path(os.environ["TMPDIR"]))
    stream = Stream(spark, root)
    pipeline = es.Pipeline("tables", es.FsStateBackend(root / "state"), parallelism=parallelism).key_by("key")
    pipeline = pipeline.event_time("ts").process("totals", Totals(), TOTALS)
    pipeline = pipeline.sink(
        es.sinks.parquet(root / "folder"),
        es.sinks.delta(root / "delta"),
        es.sinks.iceberg("test", "shop.totals", properties=catalogue_of(root / "iceberg")),
    )
    stream.finish(pipeline)
    print("read by Spark:", spark.read.parquet(str(root / "folder")).count())  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *((sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", -1)))
