"""A driver that delivers to a topic and to a table of PostgreSQL, and is killed: `python -m
tests.integration.kafka.servers_driver ROOT PARALLELISM TOPIC SERVERS DSN [SINK BATCH]`.

It runs the job over the input below ROOT until all of it is through, or until this sink has delivered this batch. Both
sinks work in Spark's tasks, however small the output.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import emberstate as es
from emberstate.sinks import KafkaSink, PostgresSink
from emberstate.spark.driver import outputs
from tests.spark.pipeline_functions import TOTALS, Totals
from tests.spark.spark_session import local_session
from tests.spark.streams import Stream

SINKS = {"kafka": KafkaSink, "postgres": PostgresSink}


def die_after(kind: Any, batch: int) -> None:
    """Let the process be killed when a sink of a kind has delivered a batch."""
    deliver = kind.deliver

    def deliver_and_die(self: Any, delivery: Any) -> None:
        deliver(self, delivery)
        if delivery.batch == batch:
            os.kill(os.getpid(), signal.SIGKILL)

    kind.deliver = deliver_and_die


def main(root: Path, parallelism: int, topic: str, servers: str, dsn: str) -> None:
    """Run the job."""
    outputs.DRIVER_BYTES = -1  # type: ignore[misc]
    spark = local_session("servers", Path(os.environ["TMPDIR"]))
    pipeline = es.Pipeline("servers", es.FsStateBackend(root / "state"), parallelism=parallelism).key_by("key")
    pipeline = pipeline.event_time("ts").process("totals", Totals(), TOTALS)
    pipeline = pipeline.sink(es.sinks.kafka(topic, servers=servers, key="key"), es.sinks.postgres(dsn, "totals"))
    Stream(spark, root).finish(pipeline)
    spark.stop()


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[5:]:
        die_after(SINKS[given[5]], int(given[6]))
    main(Path(given[0]), int(given[1]), *given[2:5])
