"""A stage over the rows of another: the order in which it sees them, on Spark."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import emberstate as es
from tests.spark.streams import Kept, Stream, at

pytestmark = pytest.mark.spark

OPEN = timedelta(seconds=10)
Bid = tuple[str, datetime, int]


class Closing(es.KeyedProcessFunction):
    """Ten seconds after its first bid an auction is over: its seller, when, and the highest bid."""

    highest = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> None:
        if not self.highest.value():
            ctx.timers.register_event_time("over", row.ts + OPEN)
        self.highest.update(max(self.highest.value(), row.value))

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        yield f"seller {ctx.key[-1]}", timer.time, self.highest.value()
        self.highest.clear()


class LastThree(es.KeyedProcessFunction):
    """Of every seller the sum of the last three prices, whenever there is another."""

    prices = es.list_state(int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.prices.update([*self.prices.get(), row.price][-3:])
        yield row.seller, row.closed, sum(self.prices.get())


SOLD = "seller string, closed timestamp, price bigint"


def bids() -> list[Bid]:
    """Forty auctions, some of one seller closing at the same moment, in order of time."""
    found = [(f"a{n:02}", at(n // 8 + step), (n * 37 + step * 11) % 97 + 1) for n in range(40) for step in (0, 3)]
    return sorted(found, key=lambda bid: bid[1])


def sums(given: list[Bid]) -> dict[str, list[Any]]:
    """What must come of it, seller by seller; auctions that close at one moment in order of their keys."""
    first: dict[str, datetime] = {}
    highest: dict[str, int] = defaultdict(int)
    for auction, ts, value in given:
        first.setdefault(auction, ts)
        highest[auction] = max(highest[auction], value)
    last: dict[str, list[int]] = defaultdict(list)
    found: dict[str, list[Any]] = defaultdict(list)
    for auction in sorted(first, key=lambda one: (first[one], one)):
        seller = f"seller {auction[-1]}"
        last[seller].append(highest[auction])
        found[seller].append((first[auction] + OPEN, sum(last[seller][-3:])))
    return found


def of_sellers(rows: list[Any]) -> dict[str, list[Any]]:
    """The rows of every seller, in their order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for seller, closed, total in rows:
        if closed.year < 2030:
            found[seller].append((closed, total))
    return found


def auctions(stream: Stream, parallelism: int, kept: Kept, kind: str = "fs") -> es.Pipeline:
    """Both stages."""
    first = stream.pipeline(kind, parallelism=parallelism).key_by("key").event_time("ts")
    second = first.process("closing", Closing(), SOLD).key_by("seller").event_time("closed")
    return second.process("last three", LastThree(), "seller string, closed timestamp, total bigint").sink(kept)


@pytest.mark.long
@pytest.mark.parametrize(
    ("parts", "parallelism", "kind"), [(3, 2, "rocksdb"), (7, 3, "fs")]
)
def test_a_second_stage_does_not_depend_on_the_cut(stream: Stream, parts: int, parallelism: int, kind: str) -> None:
    """Catches: rows that reach a later stage before older ones; ties in the order of slots; a slot that lags behind."""
    given, kept, run = bids(), Kept(), Kept()
    pipeline = auctions(stream, parallelism, kept, kind)
    size = -(-len(given) // parts)
    stream.add(*(given[n : n + size] for n in range(0, len(given), size)))
    stream.add([("end0", at(0).replace(year=2030), 1)], [])
    stream.drain(pipeline)
    assert of_sellers(kept.rows) == sums(given)
    static = auctions(stream, 1, run).run(stream.spark.createDataFrame(given, stream.schema), batches=1)
    assert of_sellers(run.rows) == sums(given)
    assert sum(one.late_rows for one in static) == 0


@pytest.mark.long
def test_rows_stamped_too_old_are_named_once(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: rows of a window, stamped with its start, that are late in the next stage without a word."""
    kept, late = Kept(), Kept()
    windows = es.TumblingEventTimeWindows.of("1 minute")

    def minutes(allowed: str, **options: Any) -> es.Pipeline:
        first = stream.pipeline(parallelism=1).key_by("key").event_time("ts").window(windows)
        made = first.aggregate("minutes", Largest(), "key string, ts timestamp, value bigint", function=ByStart())
        second = made.key_by("key").event_time("ts", allowed)
        return second.process("sums", Summing(), "key string, total bigint", **options).sink(kept)

    given = [("a", at(0), 1), ("a", at(61), 2), ("b", at(62), 3), ("a", at(200), 4)]
    df = stream.spark.createDataFrame(given, stream.schema)
    caplog.set_level(logging.WARNING, "emberstate.spark")
    progress = minutes("1 minute").run(df, batches=3)
    assert sorted(kept.rows) == [("a", 1), ("a", 3), ("a", 7), ("b", 3)]
    assert sum(one.late_rows for one in progress) == 0
    assert "out_of_orderness" not in caplog.text
    kept.deliveries.clear()
    progress = minutes("59 seconds", late_output="late").side_sink("late", late).run(df, batches=3)
    assert (kept.rows, len(late.rows)) == ([], 4)
    assert sum(one.late_rows for one in progress) == 4
    assert {name: frame.count() for name, frame in progress.output.items()} == {"main": 0, "late": 4}
    assert caplog.text.count("out_of_orderness") == 1, caplog.text
    assert "'sums'" in caplog.text


class Largest(es.AggregateFunction[Any, int, int]):
    """The largest value."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return max(accumulator, int(value.value))

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return max(one, other)


class ByStart(es.ProcessWindowFunction):
    """A row per window, with the window's start."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[Any]:
        yield key, ctx.window.start_time, elements[0]


class Summing(es.KeyedProcessFunction):
    """Adds up."""

    total = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.total.update(self.total.value() + row.value)
        yield ctx.key, self.total.value()
