"""Nothing goes wrong: what comes out of a stream is what a batch computation gives, however it is cut."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from tests.spark.pipeline_functions import BURSTS, TOTALS, Bursts, Totals, bursts, events, totals
from tests.spark.streams import EVENTS, Kept, Stream

pytestmark = pytest.mark.spark


def add_up(pipeline: es.Pipeline, kept: Kept) -> es.Pipeline:
    """Totals by key, in order of time."""
    return pipeline.key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(kept)


@pytest.mark.parametrize("kind", ["fs", "rocksdb", "memory"])
def test_a_stream_gives_what_plain_python_gives(stream: Stream, kind: str) -> None:
    """Catches: rows lost, doubled or given to the wrong key's state, with any backend."""
    given = events(400)
    kept = Kept()
    stream.add(*(given[n : n + 100] for n in range(0, 400, 100)))
    query = stream.start(add_up(stream.pipeline(kind), kept))
    query.processAllAvailable()
    query.stop()
    assert sorted(kept.rows) == sorted(totals(given))
    assert kept.batches == [0, 1, 2, 3]


def test_foreach_batch_and_no_event_time(stream: Stream) -> None:
    """Catches: a pipeline that works only through its own start(); a stage that needs event time."""
    given = events(100)
    kept = Kept()
    pipeline = stream.pipeline().key_by("key").process("totals", Totals(), TOTALS).sink(kept)
    stream.add(given[:50], [], given[50:])
    writer = stream.read().writeStream.foreachBatch(pipeline).option("checkpointLocation", stream.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    last = {key: total for key, total, _ in sorted(kept.rows, key=lambda row: row[1])}
    assert last == {key: total for key, total, _ in sorted(totals(given), key=lambda row: row[1])}
    assert len(kept.rows) == 100
    assert pipeline.last_progress is not None and pipeline.last_progress.batch == 2


@pytest.mark.long
def test_input_in_order_gives_the_same_however_it_is_cut(spark: Any, tmp_path: Path) -> None:
    """Catches: timers that fire early, late or in another order because of where batches end, in a stream or a run."""
    given = events(300)
    found: dict[str, list[Any]] = {}

    def keep(name: str, run: Callable[[Stream, es.Pipeline], Any], parallelism: int) -> None:
        folder = tmp_path / name
        folder.mkdir()
        kept, place = Kept(), Stream(spark, folder)
        pipeline = place.pipeline(parallelism=parallelism).key_by("key").event_time("ts")
        run(place, pipeline.process("bursts", Bursts(), BURSTS).sink(kept))
        found[name] = sorted(kept.rows)

    def in_batches(count: int) -> Callable[[Stream, es.Pipeline], Any]:
        def run(place: Stream, pipeline: es.Pipeline) -> None:
            size = len(given) / count
            place.add(*(given[round(n * size) : round((n + 1) * size)] for n in range(count)))
            place.add([("end", given[-1][1].replace(year=2030), 0)], [])  # what ends all bursts but its own
            place.drain(pipeline)

        return run

    def static(**options: Any) -> Callable[[Stream, es.Pipeline], Any]:
        def run(place: Stream, pipeline: es.Pipeline) -> None:
            place.add(given)
            progress = pipeline.run(place.static(), **options)
            assert len(progress) == options.get("batches", 1)
            del progress
            assert not (place.root / "state").exists(), "a run touches the stream's checkpoints"
            assert [path.name for path in place.root.iterdir()] == ["input"], "a run leaves its scratch place behind"

        return run

    keep("run", static(), 2)
    keep("run in 3", static(batches=3), 3)
    for count, parallelism in ((1, 1), (7, 3), (50, 2)):
        keep(f"{count} batches", in_batches(count), parallelism)
    for name, rows in found.items():
        assert rows == bursts(given), name


def test_a_dataframe_without_rows_runs(spark: Any, stream: Stream) -> None:
    """Catches: an empty input that no slot hears of; a sink that is not called, or gets a frame without columns."""
    kept = Kept()
    seen = []

    def sink(df: Any, batch: int) -> None:
        seen.append(df.columns)
        kept(df, batch)

    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(sink)
    (progress,) = pipeline.run(spark.createDataFrame([], EVENTS))
    assert (kept.deliveries, seen) == ({0: [[]]}, [["key", "total", "seen"]])
    assert (progress.rows_in, dict(progress.rows_out), sum(progress.slots.values())) == (0, {}, 2)
    (progress,) = pipeline.run(spark.createDataFrame(events(3), EVENTS).limit(0))  # no task would run of itself
    assert sum(progress.slots.values()) == 2
    kept.deliveries.clear()
    stream.add([], [])
    stream.drain(pipeline)
    assert kept.rows == []


def test_runs_in_one_session_at_the_same_time(spark: Any, tmp_path: Path) -> None:
    """Catches: settings of the session that one run puts back under another, or leaves changed."""
    found: dict[int, list[Any]] = {}

    def run(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        kept, place = Kept(), Stream(spark, folder)
        add_up(place.pipeline(parallelism=1), kept).run(spark.createDataFrame(given[number], EVENTS))
        found[number] = sorted(kept.rows)

    given = [events(40, seed) if seed else [] for seed in range(3)]
    before = spark.conf.get("spark.sql.adaptive.enabled")
    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: sorted(totals(rows)) for number, rows in enumerate(given)}
    assert spark.conf.get("spark.sql.adaptive.enabled") == before


def test_a_sink_may_read_its_rows_as_often_as_it_likes(stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a keyed stage that runs again whenever the sink looks at its output."""
    given = events(60)
    found = []

    def sink(df: Any, batch: int) -> None:
        df.orderBy("total").show()
        once = sorted(tuple(row) for row in df.collect())
        assert once == sorted(tuple(row) for row in df.orderBy("key").collect())
        assert df.count() == len(once) == df.groupBy("key").count().selectExpr("sum(count)").first()[0]
        found.extend(once)

    stream.add(given[:30], given[30:])
    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(sink)
    stream.drain(pipeline)
    assert sorted(found) == sorted(totals(given))
    assert "total" in capsys.readouterr().out


def test_large_outputs_are_read_by_tasks(spark: Any, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an output that goes through files coming back in another form than a small one; rows lost by it."""
    monkeypatch.setattr("emberstate.spark.driver.outputs.DRIVER_BYTES", 0)
    given = events(3000, keys=1000)
    kept = Kept()
    frame = spark.createDataFrame(given, EVENTS)
    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(kept)
    pipeline.run(frame)
    assert sorted(kept.rows) == sorted(totals(given))
