"""A batch was committed and its sink failed: what comes next may be another program, location or thread."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import emberstate as es
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, read_savepoint
from emberstate.errors import RestoreRefusedError, UserFunctionError
from emberstate.spark.driver import outputs as output_frames
from tests.raising import raising
from tests.spark.pipeline_functions import TOTALS, Totals, events, totals
from tests.spark.streams import EVENTS, Kept, Stream, query_failing

pytestmark = pytest.mark.spark


class FailsOnce(Kept):
    """A sink that fails at a batch, before it has taken anything, and then never again."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch: int | None = batch

    def __call__(self, df: Any, batch: int) -> None:
        if batch == self.batch:
            self.batch = None
            raise OSError("the sink is full")
        super().__call__(df, batch)


def counted(stream: Stream, sink: Any, schema: str = TOTALS, function: Any = None) -> es.Pipeline:
    """Totals by key."""
    stage = stream.pipeline(parallelism=1).key_by("key").event_time("ts")
    return stage.process("totals", function or Totals(), schema).sink(sink)


def fails(stream: Stream, pipeline: es.Pipeline) -> str:
    """The error that ends a query."""
    with pytest.raises(StreamingQueryException) as caught:
        stream.drain(pipeline)
    return str(caught.value)


# -- state gone, query not ------------------------------------------------------------------------------------


def test_a_query_in_the_middle_that_finds_no_state_is_refused(stream: Stream, spark: Any, tmp_path: Path) -> None:
    """Catches: a mistyped or deleted location, or state in memory after a restart, that counts from zero in silence."""
    given, kept = events(30), Kept()
    stream.add(given[:10], given[10:20])
    stream.drain(counted(stream, kept))
    stream.add(given[20:])
    mistyped = tmp_path / "sate"

    def elsewhere(backend: Any) -> es.Pipeline:
        stage = es.Pipeline("job", backend, parallelism=1).key_by("key").event_time("ts")
        return stage.process("totals", Totals(), TOTALS).sink(kept)

    for backend in (es.FsStateBackend(mistyped), es.MemoryStateBackend()):
        pipeline = elsewhere(backend)
        with query_failing(pipeline, RestoreRefusedError, "mistyped", option="starting_empty_at", batch=2):
            stream.drain(pipeline)
    assert not (mistyped / "checkpoints").exists()
    with raising(RestoreRefusedError, option="starting_empty_at", batch=2):
        elsewhere(es.FsStateBackend(mistyped)).starting_empty_at(1)(spark.createDataFrame(given, EVENTS), 2)
    assert sorted(kept.rows) == sorted(totals(given[:20]))
    stream.drain(elsewhere(es.FsStateBackend(mistyped)).starting_empty_at(2))
    assert sorted(kept.deliveries[2][0]) == sorted(totals(given[20:]))


def test_a_query_in_the_middle_starts_from_a_savepoint_of_its_own_position_only(stream: Stream, tmp_path: Path) -> None:
    """Catches: a location deleted under a program that once began with a savepoint: all since then forgotten."""
    given, kept = events(40), Kept()
    stream.add(given[:10])
    first = counted(stream, kept)
    stream.drain(first)
    first.savepoint("early")
    stream.add(given[10:20])
    stream.drain(first)
    first.savepoint("late")
    stream.add(given[20:30])

    def start(savepoint: str, position: str) -> es.Pipeline:
        backend = es.FsStateBackend(tmp_path / "another state")
        stage = es.Pipeline("job", backend, parallelism=1).key_by("key").event_time("ts")
        pipeline = stage.process("totals", Totals(), TOTALS).sink(kept)
        return pipeline.from_savepoint(savepoint, source_position=position, location=stream.backend())

    storage = stream.backend().open_storage()
    early, late = (read_savepoint(storage, name).batch.source for name in ("early", "late"))  # type: ignore[union-attr]
    text = fails(stream, start("early", early))
    assert "RestoreRefusedError" in text and "the rows between" in text, text
    stream.drain(start("late", late))
    assert sorted(kept.rows) == sorted(totals(given[:30]))


# -- redelivery into a changed program ------------------------------------------------------------------------


class Reordered(es.KeyedProcessFunction):
    """Gives (first, second) or (second, first)."""

    def __init__(self, turned: bool) -> None:
        self.turned = turned

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        pair = row.value, -row.value
        yield pair[::-1] if self.turned else pair


@pytest.mark.parametrize("through_driver", [True, False])
def test_another_schema_gets_the_batch_as_it_was(
    stream: Stream, through_driver: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: columns taken by their places, so that values are swapped in the delivery after a change."""
    if not through_driver:
        monkeypatch.setattr(output_frames, "DRIVER_BYTES", 0)
    sink, got = FailsOnce(0), []

    def named(df: Any, batch: int) -> None:
        sink(df, batch)
        got.append([row.asDict() for row in df.collect()])

    given = events(6)
    stream.add(given[:3])
    fails(stream, counted(stream, named, "first bigint, second bigint", Reordered(False)))
    stream.add(given[3:])
    with caplog.at_level(logging.WARNING, "emberstate.spark"):
        stream.drain(counted(stream, named, "second bigint, first bigint", Reordered(True)))
    assert [sorted(row["first"] for row in rows) for rows in got] == [
        sorted(value for _, _, value in part) for part in (given[:3], given[3:])
    ]
    assert all(row["second"] == -row["first"] for rows in got for row in rows), got
    assert [list(rows[0]) for rows in got] == [["first", "second"], ["second", "first"]]
    assert "batch 0 was run with other columns: main of totals" in caplog.text


def test_a_stage_more_is_refused_until_the_old_program_has_delivered(stream: Stream) -> None:
    """Catches: an empty frame for the sink of the new stage, and rows that reach none; a refusal that has taken the job
    over, so that the old program cannot go on."""
    given, sink = events(30), FailsOnce(1)
    stream.add(given[:10], given[10:20])
    old = counted(stream, sink)
    fails(stream, old)
    new = old.key_by("key").process("again", Echo(), TOTALS)
    text = fails(stream, new)
    for part in ("RestoreRefusedError", "['main of totals']", "['main of again']", "the old program"):
        assert part in text, text
    stream.drain(old)
    stream.add(given[20:])
    stream.drain(new)
    assert sorted(sink.rows) == sorted(totals(given))


class Echo(es.KeyedProcessFunction):
    """Gives what it gets."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield tuple(row)


def test_a_batch_of_an_earlier_version_goes_to_the_same_program_only(
    stream: Stream, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: an output whose schema nobody recorded given to other stages, or under other columns; or refused though
    nothing has changed."""
    given = spark.createDataFrame(events(10), EVENTS)
    sink = FailsOnce(0)
    monkeypatch.setattr("emberstate.spark.driver.batch_runner.recorded_stages", lambda row_types: ())
    known = {("totals", "main"): TOTAL_ROWS}
    monkeypatch.setattr("emberstate.spark.driver.batch_runner.sent_to_sinks", lambda stages: known)
    with raising(UserFunctionError, operator="totals", batch=0):
        counted(stream, sink)(given, 0)
    monkeypatch.undo()
    storage = stream.backend().open_storage()
    assert read_checkpoint(storage, max(checkpoint_numbers(storage))).stages == ()
    with raising(RestoreRefusedError, "old program", batch=0):
        counted(stream, sink).key_by("key").process("again", Echo(), TOTALS)(given, 0)
    with raising(RestoreRefusedError, "old program", batch=0):
        counted(stream, sink, "key string, total bigint, seen bigint, more int")(given, 0)
    assert sink.deliveries == {}
    counted(stream, sink)(given, 0)
    assert sorted(sink.rows) == sorted(totals(events(10)))


TOTAL_ROWS = es.RowType.of(TOTALS)


# -- Spark's own stateful operators ---------------------------------------------------------------------------


def _distinct(stream: Stream) -> Any:
    return stream.read().dropDuplicates(["key", "value"])


def _joined(stream: Stream) -> Any:
    other = stream.read().selectExpr("key as other", "value as again")
    rows = stream.read()
    return rows.join(other, (rows.key == other.other) & (rows.value == other.again)).select("key", "ts", "value")


@pytest.mark.parametrize(
    ("frame", "version"),
    [
        (_distinct, 1),
        pytest.param(_joined, 1, marks=pytest.mark.long),
        pytest.param(_distinct, 2, marks=pytest.mark.long),
    ],
)
def test_a_stateful_operator_of_spark_goes_on_after_a_redelivery(
    stream: Stream, spark: Any, frame: Callable[[Stream], Any], version: int
) -> None:
    """Catches: an input that is never evaluated when a batch comes again, so that Spark's own store lacks a version."""
    settings = {
        "spark.sql.streaming.stateStore.checkpointFormatVersion": str(version),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state."
            + ("RocksDBStateStoreProvider" if version == 2 else "HDFSBackedStateStoreProvider")
        ),
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        given = [(key, ts, n) for n, (key, ts, _) in enumerate(events(40))]
        stream.add(*(given[n : n + 10] for n in range(0, 40, 10)))
        sink = FailsOnce(1)

        def drain() -> None:
            writer = frame(stream).writeStream.foreachBatch(counted(stream, sink))
            writer = writer.option("checkpointLocation", stream.checkpoint).trigger(availableNow=True)
            writer.start().awaitTermination()

        with pytest.raises(StreamingQueryException):
            drain()
        drain()
    finally:
        for key in settings:
            spark.conf.unset(key)
    assert sink.batches == [0, 1, 2, 3]
    assert sorted(sink.rows) == sorted(totals(given))


def test_a_redelivery_without_such_an_operator_reads_no_input(stream: Stream) -> None:
    """Catches: a batch that cannot be delivered again since its source has deleted the rows."""
    given, sink = events(20), FailsOnce(1)
    stream.add(given[:10], given[10:])
    fails(stream, counted(stream, sink))
    for file in stream.input.glob("*.json"):
        file.write_text(json.dumps({"key": "other", "value": 0}), encoding="utf-8")
    stream.drain(counted(stream, sink))
    assert sorted(sink.rows) == sorted(totals(given))


# -- threads, and calls twice ---------------------------------------------------------------------------------


def in_thread(work: Callable[[], None]) -> None:
    """Run something in a plain thread, and raise what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def drain_through(stream: Stream, each: Callable[[Any, int], None], checkpoint: str) -> None:
    """Run a query with a function of the user's."""
    writer = stream.read().writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_pipeline_that_is_called_from_a_thread_knows_its_query(stream: Stream, tmp_path: Path) -> None:
    """Catches: a batch from a thread taken for one called by hand: a new query's rows dropped, old output delivered."""
    given, kept = events(30), Kept()
    pipeline = counted(stream, kept)

    def each(df: Any, batch: int) -> None:
        in_thread(lambda: pipeline(df, batch))

    stream.add(given[:15])
    drain_through(stream, each, stream.checkpoint)
    stream.add(given[15:])
    with query_failing(pipeline, RestoreRefusedError, option="query"):
        drain_through(stream, each, str(tmp_path / "another query"))
    drain_through(stream, each, stream.checkpoint)
    assert sorted(kept.rows) == sorted(totals(given))


def test_a_pipeline_that_is_called_twice_in_a_batch_is_refused(stream: Stream) -> None:
    """Catches: the second part of a batch dropped, and the first part's output delivered again in its place."""
    given, kept, sink = events(20), Kept(), FailsOnce(0)
    stream.add(given)

    def made_anew(df: Any, batch: int) -> None:
        counted(stream, kept)(df.filter("value % 2 = 0"), batch)
        counted(stream, kept)(df.filter("value % 2 = 1"), batch)

    def tried_again(df: Any, batch: int) -> None:
        pipeline = counted(stream, sink)
        try:
            pipeline(df, batch)
        except UserFunctionError:
            pipeline(df, batch)

    for _ in range(2):  # the first part comes again, the second is still refused
        with pytest.raises(StreamingQueryException, match=r"(?s)LifecycleError.*twice"):
            drain_through(stream, made_anew, stream.checkpoint)
    even = totals([row for row in given if row[2] % 2 == 0])
    assert sorted(kept.rows) == sorted(even)
    drain_through(stream, tried_again, stream.checkpoint)
    assert sorted(sink.rows) == sorted(even)
