"""A driver that reads Kafka and is killed: `python -m tests.integration.kafka.killed_driver ROOT SERVERS TOPIC SLOTS
[POINT BATCH]`.

It runs `examples/kafka_orders.py` over a topic until all of it is through, or until it comes to a point in a batch,
where it kills itself. What its sink gets is written below ROOT, one file per delivery.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from examples.kafka_orders import orders, pipeline
from tools.jars import connector_jars

import emberstate as es
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from tests.spark.spark_session import local_session
from tests.spark.streams import rows_of


def main(root: Path, servers: str, topic: str, slots: int, point: str, batch: int) -> None:
    """Run the job."""

    def reach(here: str, number: int) -> None:
        if (here, number) == (point, batch):
            os.kill(os.getpid(), signal.SIGKILL)

    commit = CheckpointCoordinator.commit

    def commit_or_die(self: CheckpointCoordinator, transaction: Any, *rest: Any) -> Any:
        reach("prepared", transaction.batch.id)
        manifest = commit(self, transaction, *rest)
        reach("committed", transaction.batch.id)
        return manifest

    CheckpointCoordinator.commit = commit_or_die  # type: ignore[method-assign, assignment]
    out = root / "output of kafka"
    out.mkdir(exist_ok=True)

    def sink(df: Any, number: int) -> None:
        rows = [list(row) for row in rows_of(df)]
        hidden = out / f".{number}-{os.getpid()}"
        hidden.write_text(json.dumps([number, rows], default=str), encoding="utf-8")
        hidden.rename(out / f"{number}-{os.getpid()}.json")
        reach("in the sink", number)

    jars = ",".join(map(str, connector_jars()))
    spark = local_session("killed driver", Path(os.environ["TMPDIR"]), **{"spark.jars": jars})
    stream = orders(spark, servers, topic, maxOffsetsPerTrigger="20")
    job = pipeline(es.FsStateBackend(root / "state"), parallelism=slots).sink(sink)
    job.start(stream, checkpoint=str(root / "query"), trigger={"availableNow": True}).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, folder, servers, topic, slots, *rest = sys.argv
    point, batch = rest or ("", "-1")
    main(Path(folder), servers, topic, int(slots), point, int(batch))
