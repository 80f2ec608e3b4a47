"""Partial rows as Spark makes them: what a plan does before its exchange, and that they stand for the same rows."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F

import emberstate as es
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.windows import window
from emberstate.spark.driver.combined_frame import CombinedFrame
from emberstate.spark.plan.stage import row_type_of_frame
from emberstate.spark.spark_session import plain_execution
from tests.spark.streams import START, at

pytestmark = pytest.mark.spark

SCHEMA = "key string, ts timestamp, value bigint, note string"
EPOCH = int(START.timestamp() * 1_000_000)


def rows(count: int = 400, seed: int = 1) -> list[tuple[Any, ...]]:
    """Rows of five keys, over forty minutes, in no order."""
    chosen = random.Random(seed)
    return [
        (f"k{chosen.randrange(5)}", at(chosen.randrange(2400)), chosen.randrange(100), f"note {n}")
        for n in range(count)
    ]


def combined(frame: Any, windows: Any = None, **aggregates: Any) -> CombinedFrame:
    spec = AggregateSpec.of(
        aggregates or {"n": es.count(), "total": es.sum("value")},
        row_type_of_frame(frame.schema, "the test"),
        ["key"],
        event_time="ts",
        window=windows,
    )
    return CombinedFrame(spec, None)


def plan_of(frame: Any) -> str:
    with plain_execution(frame.sparkSession):
        return str(frame._jdf.queryExecution().executedPlan().toString())


def test_rows_are_combined_by_hash_before_the_only_exchange(spark: Any) -> None:
    """Catches: rows that travel singly, or twice, or are sorted first; columns that nobody reads."""
    frame = spark.createDataFrame(rows(), SCHEMA).repartition(3)
    made = combined(
        frame,
        window(es.TumblingEventTimeWindows.of("1 minute"), late_output="late"),
        n=es.count(), total=es.sum("value"), least=es.min("value"), mean=es.mean("value"),
        first=es.first("value"), last=es.last("ts"),
    )  # fmt: skip
    with plain_execution(spark):
        plan = plan_of(made.of(frame, EPOCH).repartitionById(2, F.lit(0)))
    above, exchange, below = plan.partition("Exchange")
    assert "Aggregate" not in above and exchange
    assert "Exchange" not in below and "HashAggregate" in below
    assert "SortAggregate" not in plan and "ObjectHash" not in plan and "Sort " not in plan
    few = combined(frame)
    assert few.needed == ("key", "ts", "value")


@pytest.mark.parametrize(
    "assigner",
    [
        None,
        es.TumblingEventTimeWindows.of("7 minutes", "2 minutes"),
        es.SlidingEventTimeWindows.of("10 minutes", "4 minutes", "1 minute"),
        es.SlidingEventTimeWindows.of("2 minutes", "6 minutes"),
        es.EventTimeSessionWindows.with_gap("20 seconds"),
    ],
    ids=["running", "tumbling", "sliding", "with gaps between", "sessions"],
)
def test_partial_rows_stand_for_the_rows_of_their_pane(spark: Any, assigner: Any) -> None:
    """Catches: a row in the wrong pane or in two, rows of two panes or sessions as one, a late row among others."""
    given = rows()
    frame = spark.createDataFrame(given, SCHEMA).repartition(3)
    made = combined(frame, None if assigner is None else window(assigner))
    watermark = EPOCH + 60_000_000
    micros = [(key, int(ts.timestamp() * 1_000_000), value) for key, ts, value, _ in given]
    found: Counter[Any] = Counter()
    totals: Counter[Any] = Counter()
    late = 0
    for row in made.of(frame, watermark).collect():
        single = row["__time"].timestamp() * 1_000_000 < watermark
        late += single
        assert not single or row["__rows"] == 1
        assert row["n__count"] == row["__rows"]
        place = row["key"], *((row["__window_start"], row["__window_end"]) if assigner else ())
        found[place] += row["n__count"]
        totals[row["key"]] += row["total__sum__value"]
    assert late == sum(1 for _, time, _ in micros if time < watermark)
    assert totals == Counter({key: sum(v for k, _, v in micros if k == key) for key in totals})
    if assigner is None or made.spec.is_sessions:
        assert sum(found.values()) == len(given)
        for key, start, end in found if assigner else ():
            inside = sorted(time for k, time, _ in micros if k == key and start <= time <= end - 20_000_000)
            assert inside[0] == start and inside[-1] == end - 20_000_000
            assert all(after - before <= 20_000_000 for before, after in itertools.pairwise(inside))
        return
    panes = [(key, made.spec.pane(time)) for key, time, _ in micros]
    assert found == Counter((key, *((None, None) if pane is None else (pane.start, pane.end))) for key, pane in panes)


def test_first_and_last_are_those_of_the_partition(spark: Any) -> None:
    """Catches: of rows with equal times one that is neither the first nor the last that came."""
    times = {"a": 5, "b": 2, "c": 2, "d": 5, "e": 3}
    given = [("k", at(time), number, word) for number, (word, time) in enumerate(times.items(), 1)]
    frame = spark.createDataFrame(given, SCHEMA).coalesce(1)
    made = combined(frame, first=es.first("value"), last=es.last("value"), word=es.last("note"))
    [row] = made.of(frame, None).collect()
    assert (row["first__first__value"], row["last__last__value"]) == (2, 4)
    assert (row["word__last__note"], row["__rows"]) == ("d", 5)
    assert (row["first__first_time__value"], row["last__last_time__value"]) == (EPOCH + 2_000_000, EPOCH + 5_000_000)


def test_a_row_without_a_time_stays_one(spark: Any) -> None:
    """Catches: a null event time that vanishes in the greatest of its group, and is never rejected."""
    frame = spark.createDataFrame([("k", at(1), 1, ""), ("k", None, 2, "")], SCHEMA).coalesce(1)
    found = combined(frame).of(frame, None).collect()
    assert sorted((row["total__sum__value"], row["__time"] is None) for row in found) == [(1, False), (2, True)]
