"""`process_arrow` on Spark: slots killed between batches, another parallelism and backend, state as a table."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import emberstate as es
from emberstate.errors import StateDeclarationError
from emberstate.rocksdb.local_directory import reclaim
from emberstate.spark import register_tables
from tests.raising import raising
from tests.spark.pipeline_functions import events
from tests.spark.streams import Kept, Stream

pytestmark = pytest.mark.spark


class Sums(es.KeyedProcessFunction):
    """Sum and count of each key, once per batch."""

    total = es.column_state(int, default=0)
    n = es.column_state(int, default=0)

    def __init__(self, pids: Path | None = None) -> None:
        self.pids = pids  # where a slot leaves its process id

    def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> pa.RecordBatch:
        assert batch.schema.names == ["value"]
        self.total.add_at(keys.handles, batch.column("value"))
        self.n.add_at(keys.handles, 1)
        if self.pids is not None:
            (self.pids / str(os.getpid())).touch()
        names, keyed = ["key", "total", "n"], keys.distinct
        return pa.record_batch([keys.column("key"), self.total.get_many(keyed), self.n.get_many(keyed)], names)


@pytest.mark.long
def test_sums_through_kills_and_rescaling(stream: Stream, tmp_path: Path) -> None:
    """Catches: columns that a killed slot, another number of slots or another backend loses; state that Spark reads
    as something else."""
    pids = tmp_path / "pids"
    pids.mkdir()
    given, kept = events(240), Kept()
    for number, (parallelism, kind) in enumerate([(2, "fs"), (3, "rocksdb"), (1, "fs")]):
        part = given[number * 80 : (number + 1) * 80]
        stream.add(part[:40], part[40:])
        stage = stream.pipeline(kind, parallelism=parallelism).key_by("key")
        pipeline = stage.process("sums", Sums(pids), "key string, total bigint, n int", columns=["value"])

        def kill(df: Any, batch: int) -> None:
            kept(df, batch)
            for pid in pids.iterdir():
                pid.unlink()
                os.kill(int(pid.name), signal.SIGKILL)

        stream.drain(pipeline.sink(kill))
    model: dict[str, tuple[int, int]] = {}
    for key, _, value in given:
        total, n = model.get(key, (0, 0))
        model[key] = (total + value, n + 1)
    assert {key: (total, n) for key, total, n in kept.rows} == model
    reclaim(Path(os.environ["TMPDIR"]))  # what killed slots left there
    register_tables(stream.spark)
    stored = stream.spark.read.format("emberstate").option("state", "total").load(str(stream.root / "state"))
    assert {row["key"]: row["value"] for row in stored.collect()} == {key: total for key, (total, _) in model.items()}


def test_a_stage_that_holds_rows_is_refused(stream: Stream) -> None:
    """Catches: rows without origins for a stage that orders rows by them."""
    df = stream.spark.createDataFrame([], stream.schema)
    first = stream.pipeline("memory").key_by("key").event_time("ts")
    first = first.process("sums", Sums(), "key string, ts timestamp, n int").key_by("key").event_time("ts")
    with raising(StateDeclarationError, operator="sums", option="process_arrow"):
        first.process("again", Sums(), "key string, total bigint, n int").sink(Kept()).run(df)
