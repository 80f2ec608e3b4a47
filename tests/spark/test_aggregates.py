"""Declared aggregates on Spark: their results beside Spark's own, in windows, over cuts, restarts and lost slots."""

from __future__ import annotations

import math
import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

import emberstate as es
from emberstate.errors import RowTypeError
from tests.raising import raising
from tests.spark.streams import EVENTS, Kept, Stream, at

pytestmark = pytest.mark.spark

TYPES = (
    "key string, ts timestamp, b tinyint, i int, n bigint, f float, d double, money decimal(12,2), wide decimal(38,4), "
    "yes boolean, word string, day date, bytes binary"
)
NAN = math.nan


def mixed() -> list[tuple[Any, ...]]:
    """Rows with nulls, NaN, both zeros and long numbers, of four keys; one has nulls only."""
    chosen = random.Random(7)

    def one(number: int) -> tuple[Any, ...]:
        def may(value: Any) -> Any:
            return None if chosen.random() < 0.2 else value

        return (
            f"k{number % 3}", at(number), may(number % 100), may(number), may(2**40 + number),
            may(chosen.choice([0.0, -0.0, 1.5, NAN])), may(chosen.choice([0.0, -0.0, -2.25, NAN, math.inf])),
            may(Decimal(number) / 4), may(Decimal(10) ** 28 + Decimal(number) / 8), may(number % 7 == 0),
            may(chosen.choice(["", "a", "é", "𝄞", "z"])), may(date(2026, 1, 1 + number % 28)),
            may(bytes([number % 256, 0])),
        )  # fmt: skip

    return [*(one(number) for number in range(90)), *(("nulls", at(number), *([None] * 11)) for number in (3, 70))]


@pytest.mark.reliability(10)
def test_every_aggregate_results_in_what_spark_does(stream: Stream) -> None:
    """Catches: a sum, type, null, NaN, zero or order that differs from Spark's own, over batches and partitions."""
    frame = stream.spark.createDataFrame(mixed(), TYPES).repartition(3)
    numbers = ("b", "i", "n", "f", "d", "money", "wide")
    ordered = (*numbers, "yes", "word", "day", "bytes")
    declared: dict[str, Any] = {"rows": es.count(), "any_yes": es.any("yes")}
    own: dict[str, Any] = {"rows": F.count(F.lit(1)), "any_yes": F.bool_or("yes")}
    rest = F.struct(*ordered)
    for name in numbers:
        declared |= {f"sum_{name}": es.sum(name), f"mean_{name}": es.mean(name)}
        own |= {f"sum_{name}": F.sum(name), f"mean_{name}": F.avg(name)}
    for name in ordered:
        declared |= {f"count_{name}": es.count(name), f"min_{name}": es.min(name), f"max_{name}": es.max(name)}
        own |= {f"count_{name}": F.count(name), f"min_{name}": F.min(name), f"max_{name}": F.max(name)}
        declared |= {f"first_{name}": es.first(name), f"last_{name}": es.last(name), f"n_{name}": es.distinct(name)}
        own |= {
            f"first_{name}": F.min_by(rest, "ts").getField(name),
            f"last_{name}": F.max_by(rest, "ts").getField(name),
            f"n_{name}": F.count_distinct(name),
        }
    kept: dict[str, Any] = {}
    schemas = []

    def keep(df: Any, batch: int) -> None:
        schemas.append({field.name: field.dataType.simpleString() for field in df.schema.fields})
        kept.update({row["key"]: row.asDict() for row in df.collect()})

    keyed = stream.pipeline().key_by("key").event_time("ts")
    keyed.aggregate("all", **declared).sink(keep).run(frame, batches=2)
    expected = frame.groupBy("key").agg(*(column.alias(name) for name, column in own.items()))
    assert schemas[0] == {field.name: field.dataType.simpleString() for field in expected.schema.fields}
    assert {key: shown(row) for key, row in kept.items()} == {
        row["key"]: shown(row.asDict()) for row in expected.collect()
    }


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Values that compare: NaN as itself, sums of doubles as far as their order allows."""

    def fixed(name: str, value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else round(value, 9) + 0.0
        return bytes(value) if isinstance(value, bytearray) else value

    return {name: fixed(name, value) for name, value in row.items()}


def test_a_sum_that_is_too_large_is_an_error(stream: Stream) -> None:
    """Catches: a sum that wraps around, in Spark or in a slot; an error that does not say whose sum it is."""
    half = 2**62
    schema = "key string, value bigint"
    stage = stream.pipeline().key_by("key").aggregate("totals", total=es.sum("value")).sink(Kept())
    together = stream.spark.createDataFrame([("a", half), ("a", half)], schema).coalesce(1)
    with raising(RowTypeError, operator="totals", field="total", column="value", key="a"):
        stage.run(together)
    apart = stream.spark.createDataFrame([("a", half), ("a", half)], schema).repartition(2)
    with pytest.raises(Exception, match=r"(?s)'total'.*'value'"):
        stage.run(apart)


@pytest.mark.long
def test_null_keys_and_times(stream: Stream) -> None:
    """Catches: rows without a key that are counted as one because Spark combined them; a row without a time that is
    lost among others."""
    rows = [("a", at(1), 1), (None, at(1), 2), (None, at(2), 3), ("a", at(3), 4)]
    frame = stream.spark.createDataFrame(rows, EVENTS).coalesce(1)
    kept = Kept()
    keyed = stream.pipeline().key_by("key", null_keys="drop").event_time("ts")
    (progress,) = keyed.aggregate("totals", total=es.sum("value")).sink(kept).run(frame)
    assert kept.rows == [("a", 5)]
    assert (progress.null_keys, progress.rows_in) == (2, 2)
    timeless = stream.spark.createDataFrame([("a", at(1), 1), ("a", None, 2)], EVENTS).coalesce(1)
    with raising(RowTypeError, operator="totals"):
        keyed.aggregate("totals", total=es.sum("value")).sink(Kept()).run(timeless)


Row = tuple[str, datetime, int]


def events(count: int, seed: int = 3) -> list[Row]:
    """Rows of some keys in order of time, with pauses."""
    chosen, time = random.Random(seed), 0.0
    found = []
    for _ in range(count):
        time += chosen.choice([0, 1, 1, 2, 9])
        found.append((f"k{chosen.randrange(4)}", at(time), chosen.randrange(1000)))
    return found


def model(given: list[Row], assigner: Any, keyed: bool) -> list[tuple[Any, ...]]:
    """Count, sum, first and last of every window, by a look at all rows at once."""
    windows: dict[Any, list[Row]] = defaultdict(list)
    for row in given:
        time = round(row[1].timestamp() * 1_000_000)
        for window in assigner.assign(row, time):
            windows[row[0] if keyed else "", window.start, window.end].append(row)
    if assigner.is_merging:
        windows = merged(windows)
    found = []
    for (key, start, end), rows in windows.items():
        values = [row[2] for row in rows]
        bounds = (datetime.fromtimestamp(bound / 1_000_000, at(0).tzinfo) for bound in (start, end))
        result = len(values), sum(values), max(values), sum(values) / len(values)
        found.append((*([key] if keyed else []), *bounds, *result))
    return sorted(found)


def merged(windows: dict[Any, list[Row]]) -> dict[Any, list[Row]]:
    """Sessions. One that a row only touches has closed: event time is at its end when the row comes."""
    found: dict[Any, list[Row]] = {}
    last: Any = None
    for place in sorted(windows):
        if last is not None and place[0] == last[0] and place[1] < last[2]:
            rows = found.pop(last)
            last = (last[0], last[1], max(last[2], place[2]))
            found[last] = rows + windows[place]
        else:
            last = place
            found[last] = windows[place]
    return found


RESULTS: dict[str, Any] = {
    "n": es.count(), "total": es.sum("value"), "most": es.max("value"), "mean": es.mean("value")
}  # fmt: skip


@pytest.mark.long
@pytest.mark.reliability(10)
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
@pytest.mark.parametrize(
    "assigner",
    [
        es.TumblingEventTimeWindows.of("10 seconds", "3 seconds"),
        es.SlidingEventTimeWindows.of("30 seconds", "12 seconds"),
        es.SlidingEventTimeWindows.of("5 seconds", "20 seconds"),
        es.EventTimeSessionWindows.with_gap("4 seconds"),
    ],
    ids=["tumbling", "sliding", "apart", "sessions"],
)
def test_windows_over_any_cut_and_parallelism(stream: Stream, assigner: Any, kind: str) -> None:
    """Catches: rows lost or counted twice between Spark's groups, slots and batches; a session closed too early."""
    given = events(400)
    for parallelism, batches, keyed in ((1, 1, True), (3, 4, True), (2, 3, False)):
        kept = Kept()
        pipeline = stream.pipeline(kind, parallelism=parallelism)
        frame = stream.spark.createDataFrame(given, EVENTS).repartition(parallelism + 1)
        if keyed:
            windowed = pipeline.key_by("key").event_time("ts").window(assigner).aggregate("w", **RESULTS)
        else:
            windowed = pipeline.event_time("ts").window_all(assigner).aggregate("w", **RESULTS)
        progress = windowed.sink(kept).run(frame, batches=batches)
        assert sorted(kept.rows) == model(given, assigner, keyed), (parallelism, batches, keyed)
        assert sum(one.rows_in for one in progress) == len(given)


@pytest.mark.long
def test_late_rows_and_restarts(stream: Stream) -> None:
    """Catches: a late row that joins others or comes out in another form; a batch that is counted twice when it is sent
    again; results that depend on the number of slots."""
    kept, late = Kept(), Kept()

    def job(parallelism: int) -> es.Pipeline:
        windowed = stream.pipeline(parallelism=parallelism).key_by("key").event_time("ts").window(
            es.TumblingEventTimeWindows.of("10 seconds"), allowed_lateness="5 seconds", late_output="late"
        )  # fmt: skip
        return windowed.aggregate("w", n=es.count(), total=es.sum("value"), last=es.last("value")).sink(kept).side_sink(
            "late", late
        )  # fmt: skip

    def batch(pipeline: es.Pipeline, number: int, rows: list[Any]) -> es.Progress:
        pipeline(stream.spark.createDataFrame(rows, EVENTS).repartition(2), number)
        assert pipeline.last_progress is not None
        return pipeline.last_progress

    first = job(2)
    assert batch(first, 0, [("a", at(1), 1), ("a", at(2), 2), ("b", at(3), 3), ("a", at(11), 4)]).rows_in == 4
    late_ones = [("a", at(5), 6), ("a", at(4), 5), ("b", at(-9), 7), ("b", at(-9), 8)]
    progress = batch(first, 1, [*late_ones, ("a", at(12), 9)])
    assert (progress.rows_in, progress.late_rows) == (5, 4)
    second = job(3)
    again = batch(second, 1, [("a", at(12), 9)])  # what is delivered again is what was stored
    assert again.redelivered
    batch(second, 2, [("a", at(40), 10)])
    start, end = at(0), at(10)
    closed = [("a", start, end, 2, 3, 2), ("b", start, end, 1, 3, 3)]  # the second at the latest in the next batch
    refired = ("a", start, end, 4, 14, 6)
    assert sorted(kept.rows) == sorted([*closed, refired, ("a", at(10), at(20), 2, 13, 9)])
    assert sorted(late.rows) == [("b", at(-9), 7), ("b", at(-9), 8)]


class Loudest(es.KeyedProcessFunction):
    """The greatest count so far."""

    most = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        if row.n > self.most.value():
            self.most.update(row.n)
            yield row.window_end, row.n


@pytest.mark.long
def test_stages_before_and_after(stream: Stream) -> None:
    """Catches: a stage that does not get the derived columns; aggregates of a stage's rows that are not its input's."""
    given = [(key, at(second), 1) for second in range(60) for key in ("a", "b", "b", "c")[: 1 + second % 4]]
    kept = Kept()
    (
        stream.pipeline()
        .key_by("key").event_time("ts")
        .window(es.TumblingEventTimeWindows.of("10 seconds")).aggregate("n", n=es.count())
        .key_by("window_end").event_time("window_end").process("loudest", Loudest(), "over timestamp, n bigint")
        .key_by("over").event_time("over").aggregate("again", rows=es.count(), most=es.max("n"), notes=es.collect("n"))
        .sink(kept)
        .run(stream.spark.createDataFrame(given, EVENTS).repartition(2), batches=2)
    )  # fmt: skip
    last = {row[0]: row[2] for row in kept.rows}
    expected = {
        at(end): max(
            sum(1 for key, ts, _ in given if key == one and at(end - 10) <= ts < at(end)) for one in ("a", "b", "c")
        )
        for end in range(10, 70, 10)
    }
    assert last == expected


@pytest.mark.long
@pytest.mark.reliability(15)
def test_lost_slots(stream: Stream, slots: Any) -> None:
    """Catches: aggregates lost or doubled when a slot is killed between batches."""
    given = events(600, seed=5)
    kept = Kept()
    keyed = stream.pipeline().key_by("key").event_time("ts")
    query = stream.start(keyed.aggregate("totals", **RESULTS, last=es.last("value")).sink(kept))
    for number in range(6):
        stream.add(given[number * 100 : (number + 1) * 100])
        query.processAllAvailable()
        for pid in slots()[: 1 + number % 2]:
            os.kill(pid, signal.SIGKILL)
    query.stop()
    found = {row[0]: row[1:] for row in kept.rows}
    for key, result in found.items():
        values = [value for one, _, value in given if one == key]
        latest = max(ts for one, ts, _ in given if one == key)
        last = [value for one, ts, value in given if one == key and ts == latest][-1]
        assert result == (len(values), sum(values), max(values), sum(values) / len(values), last), key
