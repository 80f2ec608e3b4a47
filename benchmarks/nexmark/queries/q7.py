"""q7: the dearest bid, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.closing import TICK
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed


class Bid(NamedTuple):
    """What is kept of a bid."""

    bidder: int
    dateTime: datetime


class Best(NamedTuple):
    """The largest price, and all bids of it."""

    price: int
    bids: list[Bid]


class Dearest(es.AggregateFunction[Any, Best, Best]):
    """The dearest bids on an auction."""

    def create_accumulator(self) -> Best:
        return Best(-1, [])

    def add(self, value: Any, accumulator: Best) -> Best:
        if value.price < accumulator.price:
            return accumulator
        return self.merge(accumulator, Best(value.price, [Bid(value.bidder, value.dateTime)]))

    def get_result(self, accumulator: Best) -> Best:
        return accumulator

    def merge(self, one: Best, other: Best) -> Best:
        if one.price == other.price:
            return Best(one.price, [*one.bids, *other.bids])
        return max(one, other, key=lambda best: best.price)


class EachBid(es.ProcessWindowFunction):
    """A row for each of them."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        for bid in elements[0].bids:
            yield key, bid.bidder, elements[0].price, bid.dateTime, ctx.window.end_time


class Winner(NamedTuple):
    """A bid that is the dearest of its auction."""

    auction: int
    bidder: int
    price: int
    dateTime: datetime


class Highest(es.KeyedProcessFunction):
    """The dearest of a window, when all of them have come."""

    found = es.list_state(Winner)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        found = list(self.found.get())
        winner = Winner(row.auction, row.bidder, row.price, row.dateTime)
        if not found or found[0].price < row.price:
            self.found.update([winner])
        elif found[0].price == row.price:
            self.found.add(winner)
        ctx.timers.register_event_time("emit", row.windowEnd + TICK)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        for winner in self.found.get():
            yield *winner, timer.key
        self.found.clear()


class Q7(Query):
    """Highest bid: of every ten seconds the bids with the highest price; all of them, if several have it. A window has
    its start in it, not its end: a bid belongs to one window, unlike with SQL's BETWEEN. First the highest of every
    auction, then of all."""

    oracle = """
        SELECT auction, bidder, price, dateTime,
               time_bucket(INTERVAL 10 SECOND, dateTime) + INTERVAL 10 SECOND AS windowEnd
        FROM bid QUALIFY rank() OVER (PARTITION BY windowEnd ORDER BY price DESC) = 1"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "auction bigint, bidder bigint, price bigint, dateTime timestamp, windowEnd timestamp"
        dearest = (
            pipeline.key_by("auction")
            .event_time("dateTime", LATENESS)
            .window(es.TumblingEventTimeWindows.of("10 seconds"))
            .aggregate("dearest", Dearest(), schema, function=EachBid())
        )
        return dearest.key_by("windowEnd").event_time("windowEnd").process("highest", Highest(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        highest = timed(bids(events)).groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("highest"))
        in_window = "price = highest AND dateTime >= window.start AND dateTime < window.end"
        joined = timed(bids(events)).join(highest, F.expr(in_window))
        return joined.selectExpr("auction", "bidder", "price", "dateTime", "window.end windowEnd")
