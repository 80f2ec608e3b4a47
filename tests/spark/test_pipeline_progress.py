"""What a pipeline says of itself: the last batch, a listener, one line in the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import UserFunctionError
from tests.spark.pipeline_functions import TOTALS, Totals, events, totals
from tests.spark.streams import Kept, Stream, at, query_failing

pytestmark = pytest.mark.spark

PARTS = {"total", "spark", "transport", "user", "snapshot", "state", "delta", "output", "commit", "sink", "background"}


def test_what_is_said_of_a_batch_is_true(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: counts that are not those of the batch; a listener's error that fails it; a batch without its line."""
    given = [*events(40), ("k1", at(0), 1)]
    kept, heard = Kept(), list[es.Progress]()

    def broken(progress: Any) -> None:
        raise ZeroDivisionError("a listener")

    stage = stream.pipeline().key_by("key").event_time("ts", "1 second")
    pipeline = stage.process("totals", Totals(), TOTALS).sink(kept).listener(broken).listener(heard.append)
    assert pipeline.last_progress is None
    stream.add(given[:20], given[20:])
    with caplog.at_level(logging.INFO, "emberstate.spark"):
        stream.drain(pipeline)
    assert pipeline.last_progress is heard[-1]
    first, second = heard
    assert (first.pipeline, first.batch, second.batch) == ("job", 0, 1)
    assert second.checkpoint == first.checkpoint + 1 and not second.redelivered
    assert (first.rows_in, dict(first.rows_out), first.late_rows) == (20, {"main": 20}, 0)
    assert (second.rows_in, dict(second.rows_out)) == (21, {"main": 20})
    assert (second.late_rows, second.late_rows_dropped, second.null_keys) == (1, 1, 0)
    assert (dict(first.slots), dict(second.slots)) == (
        {"hot": 0, "rolled back": 0, "restored": 2},
        {"hot": 2, "rolled back": 0, "restored": 0},
    )
    assert first.watermark is None
    assert second.watermark == given[19][1] - (at(1) - at(0))
    keys = len({key for key, _, _ in given})
    assert second.state_entries >= keys
    assert second.state_bytes >= first.state_bytes > 0 and second.delta_bytes > 0
    for one in heard:
        assert one.seconds.keys() == PARTS and all(value >= 0 for value in one.seconds.values())
        json.dumps(one.as_dict())
    lines = [line for line in caplog.messages if line.startswith("job: batch")]
    assert lines == [str(first), str(second)] and not any("\n" in line for line in lines)
    assert "rows in 21, late 1" in lines[1]
    assert len([line for line in caplog.messages if "listener" in line]) == 2
    assert sorted(kept.rows) == sorted(totals(given[:40]))


@pytest.mark.parametrize("kind", [pytest.param("fs", marks=pytest.mark.long), "rocksdb"])
def test_entries_are_those_of_the_slots(stream: Stream, kind: str) -> None:
    """Catches: a number of entries that is always 0 on RocksDB, or that does not follow restores and new keys."""
    given = events(60)
    for batch, parallelism in enumerate([2, 2, 3]):
        part = given[: (batch + 1) * 20]
        stage = stream.pipeline(kind, parallelism=parallelism).key_by("key")
        pipeline = stage.process("totals", Totals(), TOTALS).sink(lambda df, batch: None)
        pipeline(stream.spark.createDataFrame(part[batch * 20 :], "key string, ts timestamp, value bigint"), batch)
        assert pipeline.last_progress is not None
        assert pipeline.last_progress.state_entries == 2 * len({key for key, _, _ in part})  # a total and a map each


def test_a_batch_that_is_delivered_again_says_so(spark: Any, stream: Stream) -> None:
    """Catches: a batch that is run again because its sink failed; progress that counts it twice."""
    given = events(20)
    kept = Kept()
    failures = [RuntimeError("the sink")]

    def sink(df: Any, batch: int) -> None:
        kept(df, batch)
        if failures:
            raise failures.pop()

    stream.add(given)
    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(sink)
    with query_failing(pipeline, UserFunctionError, operator="totals", batch=0):
        stream.drain(pipeline)
    stream.drain(pipeline)
    assert {batch: len(times) for batch, times in kept.deliveries.items()} == {0: 2}
    assert sorted(kept.rows) == sorted(totals(given))
    progress = pipeline.last_progress
    assert progress is not None and progress.redelivered and "delivered again" in str(progress)
    assert (progress.rows_in, dict(progress.rows_out), sum(progress.slots.values())) == (0, {"main": 20}, 0)
