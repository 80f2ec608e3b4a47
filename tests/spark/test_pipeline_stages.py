"""Pipelines of more than one part: windows, two stages, side outputs, late rows, second inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

import emberstate as es
from emberstate.errors import StateDeclarationError
from tests.raising import raising
from tests.spark.pipeline_functions import Event, events
from tests.spark.streams import EVENTS, START, Kept, Stream, at

pytestmark = pytest.mark.spark

MINUTE = timedelta(minutes=1)


class Amount(NamedTuple):
    """How many rows, and their sum."""

    rows: int
    total: int


class Adding(es.AggregateFunction[Any, Amount, Amount]):
    """Counts and adds."""

    def create_accumulator(self) -> Amount:
        return Amount(0, 0)

    def add(self, value: Any, accumulator: Amount) -> Amount:
        return Amount(accumulator.rows + 1, accumulator.total + value.value)

    def get_result(self, accumulator: Amount) -> Amount:
        return accumulator

    def merge(self, one: Amount, other: Amount) -> Amount:
        return Amount(one.rows + other.rows, one.total + other.total)


class WindowRow(es.ProcessWindowFunction):
    """A row per window."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[Any]:
        (amount,) = elements
        yield key, ctx.window.start_time, ctx.window.end_time - timedelta(microseconds=1), amount.rows, amount.total


WINDOWS = "key string, start timestamp, last timestamp, count bigint, total bigint"


def windows(given: list[Event]) -> list[Any]:
    """Tumbling windows of a minute."""
    found: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for key, ts, value in given:
        found[key, ts - (ts - START) % MINUTE].append(value)
    last = MINUTE - timedelta(microseconds=1)
    return sorted((key, start, start + last, len(values), sum(values)) for (key, start), values in found.items())


class Largest(es.KeyedProcessFunction):
    """Of the windows with the same start, whatever their key: how many, and their sum, once they are over."""

    totals = es.list_state(int)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.totals.add(row.total)
        ctx.timers.register_event_time("over", row.last + timedelta(microseconds=1))
        ctx.count("windows")
        if row.total > 9:
            ctx.output("large", (row.key, row.total))

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, len(list(self.totals.get())), sum(self.totals.get())
        self.totals.clear()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_windows_and_a_second_stage_over_them(stream: Stream, kind: str) -> None:
    """Catches: a stage that runs again under a later one; event time that runs ahead of the stage before."""
    given = events(300, keys=5)
    kept, large = Kept(), Kept()
    stage = stream.pipeline(kind).key_by("key").event_time("ts").window(es.TumblingEventTimeWindows.of("1 minute"))
    first = stage.aggregate("minutes", Adding(), WINDOWS, function=WindowRow())
    second = first.key_by("start").event_time("last").process(
        "all keys", Largest(), "start timestamp, windows bigint, total bigint",
        side_outputs={"large": "key string, total bigint"},
    )  # fmt: skip
    pipeline = second.sink(kept).side_sink("large", large)
    expected: dict[datetime, list[int]] = defaultdict(list)
    for _, start, _, _, total in windows(given):
        expected[start].append(total)
    rows = sorted((start, len(values), sum(values)) for start, values in expected.items())
    sides = sorted((key, total) for key, _, _, _, total in windows(given) if total > 9)
    progress = pipeline.run(stream.spark.createDataFrame(given, EVENTS), batches=3)
    assert sorted(kept.rows) == rows
    assert sorted(large.rows) == sides
    assert sum(one.rows_in for one in progress) == 300
    assert sum(one.counters.get("windows", 0) for one in progress) == len(windows(given))
    kept.deliveries.clear()
    large.deliveries.clear()
    stream.add(*(given[n : n + 100] for n in range(0, 300, 100)))
    stream.add([("end", given[-1][1].replace(year=2030), 0)], [])
    stream.drain(pipeline)
    assert [row for row in sorted(kept.rows) if row[0].year < 2030] == rows
    assert sorted(large.rows) == sides


def test_late_rows_go_to_their_own_sink(stream: Stream) -> None:
    """Catches: late rows that are lost, or change a result that is out already."""
    kept, late = Kept(), Kept()
    stage = stream.pipeline().key_by("key").event_time("ts", "5 seconds")
    rows = stage.window(es.TumblingEventTimeWindows.of("1 minute"), late_output="late")
    pipeline = rows.aggregate("minutes", Adding(), WINDOWS, function=WindowRow()).sink(kept).side_sink("late", late)
    stream.add([("a", at(0), 1), ("a", at(70), 2)], [("a", at(66), 3), ("a", at(10), 4)], [("b", at(200), 5)], [])
    stream.drain(pipeline)
    assert late.rows == [("a", at(10), 4)]
    last = MINUTE - timedelta(microseconds=1)
    assert sorted(kept.rows) == [("a", at(0), at(0) + last, 1, 1), ("a", at(60), at(60) + last, 2, 5)]
    assert pipeline.last_progress is not None


class Matching(es.KeyedCoProcessFunction):
    """Orders and payments of one key: tells of every payment what was ordered before it and not paid."""

    orders = es.list_state(int)

    def process_element1(self, row: Any, ctx: Any) -> None:
        self.orders.add(row.value)

    def process_element2(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield row.who, row.paid, sum(self.orders.get())
        self.orders.clear()


def test_two_inputs_share_the_state_of_a_key(stream: Stream) -> None:
    """Catches: rows of two inputs that reach different slots, or come in another order than their times."""
    spark = stream.spark
    orders = events(120, keys=7)
    payments = [(key, ts + timedelta(microseconds=500_000), 100 + n) for n, (key, ts, _) in enumerate(events(60, 2, 7))]
    expected, open_orders = [], Counter[str]()
    for key, _, value, paid in sorted(
        [(key, ts, value, None) for key, ts, value in orders] + [(k, ts, 0, p) for k, ts, p in payments],
        key=lambda row: row[1],
    ):
        if paid is None:
            open_orders[key] += value
        else:
            expected.append((key, paid, open_orders.pop(key, 0)))
    first = spark.createDataFrame(orders, EVENTS)
    second = spark.createDataFrame(payments, "who string, when timestamp, paid bigint")
    for batches in (1, 4):
        kept = Kept()
        stage = stream.pipeline().key_by("key").event_time("ts").connect("payments", "who", event_time="when")
        pipeline = stage.process("match", Matching(), "key string, paid bigint, ordered bigint").sink(kept)
        pipeline.run(first, inputs={"payments": second}, batches=batches)
        assert sorted(kept.rows) == sorted(expected)
    with raising(StateDeclarationError, "payments"):
        pipeline.run(first)
    with raising(StateDeclarationError, operator="match", expected=("string",), found=("bigint",)):
        pipeline.run(first, inputs={"payments": second.selectExpr("cast(paid as int) who", "when", "paid")})
    kept.deliveries.clear()
    stream.add(orders)
    other = Stream(spark, _folder(stream, "payments"), "who string, when timestamp, paid bigint")
    other.add(payments)
    query = stream.start(pipeline, inputs={"payments": other.read()}, trigger={"availableNow": True})
    query.awaitTermination()
    assert sorted(kept.rows) == sorted(expected)


class Rules(es.KeyedBroadcastProcessFunction):
    """Multiplies by a factor that can change."""

    factors = es.broadcast_state(str, int)
    total = es.value_state(int, default=0)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        self.factors[row.name] = row.factor

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.total.update(self.total.value() + row.value * self.factors.get("all", 1))
        yield row.key, self.total.value()


def test_every_slot_gets_the_broadcast_rows(stream: Stream, slots: Any) -> None:
    """Catches: a rule that reaches some slots, or comes after the rows of its batch, or is lost with a slot."""
    spark, kept = stream.spark, Kept()
    rules = "name string, factor int"
    given = events(60)
    expected, sums = [], Counter[str]()
    stage = stream.pipeline(parallelism=3).key_by("key").event_time("ts").broadcast("rules")
    pipeline = stage.process("rules", Rules(), "key string, total bigint").sink(kept)
    for batch, factor in enumerate([10, None, 3]):
        part = given[batch * 20 : (batch + 1) * 20]
        present = factor or 10
        for key, _, value in part:
            sums[key] += value * present
            expected.append((key, sums[key]))
        told = spark.createDataFrame([] if factor is None else [("all", factor)], rules)
        pipeline(pipeline.inputs(spark.createDataFrame(part, EVENTS), rules=told), batch)
    assert sorted(kept.rows) == sorted(expected)
    other = Kept()
    stage = stream.pipeline(parallelism=1).key_by("key").event_time("ts").broadcast("rules")
    again = stage.process("rules", Rules(), "key string, total bigint").sink(other)
    again(again.inputs(spark.createDataFrame([("k1", at(9000), 1)], EVENTS), rules=told.limit(0)), 3)
    assert other.rows == [("k1", sums["k1"] + 3)]


def _folder(stream: Stream, name: str) -> Any:
    folder = stream.root / name
    folder.mkdir()
    return folder
