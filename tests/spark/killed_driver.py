"""A driver that is killed: `python -m tests.spark.killed_driver ROOT [POINT BATCH [JOB]]`.

It runs the jobs "fs" and "rocksdb", or the job "closing", over the input below ROOT until all of it is through; or
until JOB comes to a point in a batch, where the driver kills itself, or waits for others to end it. What sinks get is
written below ROOT, one file per delivery.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import emberstate as es
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from tests.spark.closing_job import two_stages
from tests.spark.pipeline_functions import MARKED, Event, Marked, totals
from tests.spark.spark_session import local_session
from tests.spark.streams import Stream, rows_of

#: In the order in which a batch comes to them.
POINTS = ("begun", "prepared", "committed", "in the sink", "delivered")
#: Where it waits, when it has delivered the batch.
HELD = "held"


def main(root: Path, point: str, batch: int, target: str) -> None:
    """Run the jobs."""

    def reach(here: str, job: str, number: int) -> None:
        if (here, job, number) == (point, target, batch):
            os.kill(os.getpid(), signal.SIGKILL)
        if (HELD, here, job, number) == (point, "delivered", target, batch):
            threading.Event().wait()

    begin, commit = CheckpointCoordinator.begin, CheckpointCoordinator.commit

    def begin_or_die(self: CheckpointCoordinator, number: int, **rest: Any) -> Any:
        begun = begin(self, number, **rest)
        reach("begun", self.latest.job, number)
        return begun

    def commit_or_die(self: CheckpointCoordinator, transaction: Any, *rest: Any) -> Any:
        reach("prepared", self.latest.job, transaction.batch.id)
        manifest = commit(self, transaction, *rest)
        reach("committed", self.latest.job, transaction.batch.id)
        return manifest

    CheckpointCoordinator.begin = begin_or_die  # type: ignore[method-assign, assignment]
    CheckpointCoordinator.commit = commit_or_die  # type: ignore[method-assign, assignment]
    spark = local_session("killed driver", Path(os.environ["TMPDIR"]))
    queries = [start(spark, root, job, reach) for job in (["closing"] if target == "closing" else ["fs", "rocksdb"])]
    for query in queries:
        query.awaitTermination()
    spark.stop()


def start(spark: Any, root: Path, job: str, reach: Any) -> Any:
    """Start one of the jobs."""
    stream = Stream(spark, root)
    state, out = root / f"state of {job}", root / f"output of {job}"
    out.mkdir(exist_ok=True)
    backend = es.RocksDBStateBackend(state, memory="16 MiB") if job == "rocksdb" else es.FsStateBackend(state)

    def sink(df: Any, batch: int) -> None:
        rows = [list(row) for row in rows_of(df)]
        hidden = out / f".{batch}-{os.getpid()}"
        hidden.write_text(json.dumps([batch, rows], default=str), encoding="utf-8")
        hidden.rename(out / f"{batch}-{os.getpid()}.json")
        reach("in the sink", job, batch)

    pipeline = es.Pipeline(job, backend, parallelism=2)
    if job == "closing":
        pipeline = two_stages(pipeline, sink)
    else:
        pipeline = pipeline.key_by("key").event_time("ts").process("totals", Marked(), MARKED).sink(sink)
    pipeline = pipeline.listener(lambda progress: reach("delivered", job, progress.batch))
    return pipeline.start(stream.read(), checkpoint=str(root / f"query of {job}"), trigger={"availableNow": True})


def deliveries(root: Path, job: str) -> dict[int, list[list[Any]]]:
    """What the sinks of a job got, by batch."""
    found: dict[int, list[list[Any]]] = {}
    for path in sorted((root / f"output of {job}").glob("*.json")):
        batch, rows = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(batch, []).append(rows)
    return found


def check(root: Path, job: str, given: list[Event]) -> None:
    """Compare what a job's sinks got with what is right."""
    batches = deliveries(root, job)
    assert sorted(batches) == list(range(len(batches))), f"job {job}: batches {sorted(batches)}"
    for batch, times in batches.items():
        assert all(rows == times[0] for rows in times), f"job {job}: batch {batch} was not delivered the same again"
    rows = [tuple(row) for batch in sorted(batches) for row in batches[batch][0]]
    assert sorted(row[:3] for row in rows) == sorted(totals(given)), f"job {job}: other rows than expected"
    assert len({row[3] for row in rows}) == len(rows), f"job {job}: a row came out twice"


if __name__ == "__main__":
    _, folder, point, batch, target = [*sys.argv, *["", "-1", "fs"][len(sys.argv) - 2 :]]
    main(Path(folder), point, int(batch), target)
