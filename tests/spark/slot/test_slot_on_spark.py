"""Slots below a real Spark: who their ancestors are, that they stay between tasks, and that they go with Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from emberstate.spark.slot.client import run_in_slot
from emberstate.spark.slot.messages import SlotAnswer, SlotRequest
from emberstate.spark.slot.process_watch import parent_of
from tests.spark.slot import slot_functions
from tests.spark.slot.slot_job import Job, Rows, Sums
from tests.spark.slot.slot_world import World, open_world, slot_pids, wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of the test's own."""
    with open_world(tmp_path) as world:
        yield world


def run(spark: SparkSession, job: Job, rows: Rows) -> tuple[SlotAnswer, dict[str, int], list[int]]:
    """A transaction whose task is Spark's; its answer, what it put out, and the worker's ancestors."""
    transaction = job.begin()
    slot_id, program, request = job.slot_id, job.program, job.request(transaction).to_bytes()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches)
        found = run_in_slot(
            slot_id, SlotRequest.from_bytes(request), lambda: program, iter([first, *batches]), first.schema
        )
        worker = os.getpid()
        pids = [worker, os.getppid(), parent_of(os.getppid())]
        yield pa.record_batch({"answer": [found.to_bytes()], "pids": [pids]})

    frame = spark.createDataFrame(rows, "key string, value bigint, command string").coalesce(1)
    (row,) = frame.mapInArrow(task, "answer binary, pids array<bigint>").collect()
    answer = SlotAnswer.from_bytes(bytes(row.answer))
    return answer, job.commit(transaction, answer), row.pids


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_slots_live_between_tasks_and_end_with_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a slot that is not found by the next task, dies with its worker, or outlives Spark."""
    pytest.importorskip("pyspark")
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:  # with other settings, and others need it
        name = f"{__file__}::test_slots_live_between_tasks_and_end_with_spark"
        command = [sys.executable, "-m", "pytest", "-m", "long", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        return
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.worker.reuse": "false",  # a new worker for every task
    }
    builder = SparkSession.builder.master("local[2]").appName("emberstate-slots-test")
    for name, value in settings.items():
        builder = builder.config(name, value)
    cloudpickle.register_pickle_by_value(slot_functions)  # type: ignore[no-untyped-call]
    spark = builder.getOrCreate()
    try:
        job, sums = world.job("rocksdb"), Sums()
        seen = []
        for number in range(3):
            rows: Rows = [("a", 1, ""), ("b", number, "")]
            answer, found, pids = run(spark, job, rows)
            assert found == sums.add(rows)
            assert answer.start == ("promoted" if number else "restored")
            seen.append((pids, world.pid(job)))
        workers, daemons, executors = zip(*(pids for pids, _ in seen), strict=True)
        assert len(set(workers)) == 3 and len(set(daemons)) == len(set(executors)) == 1
        slot = seen[0][1]
        assert {pid for _, pid in seen} == {slot}, "it outlives its worker"
        assert os.getpgid(slot) == os.getpgid(daemons[0]) != os.getpgid(0), "Spark ends the daemon's group"
        assert b"java" in Path(f"/proc/{executors[0]}/comm").read_bytes()
    finally:
        cloudpickle.unregister_pickle_by_value(slot_functions)  # type: ignore[no-untyped-call]
        spark.stop()
    wait_for_end(slot)
    assert slot_pids(job.name) == []
