"""q5: which auctions have the most bids, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.closing import TICK
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed


class Hottest(es.KeyedProcessFunction):
    """The auctions of a window with the largest count, when all of them have come."""

    most = es.value_state(int, default=0)
    auctions = es.list_state(int)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        most = self.most.value()
        if row.bids > most:
            self.most.update(row.bids)
            self.auctions.update([row.auction])
        elif row.bids == most:
            self.auctions.add(row.auction)
        ctx.timers.register_event_time("emit", row.window_end + TICK)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        for auction in self.auctions.get():
            yield timer.key, auction, self.most.value()
        self.most.clear()
        self.auctions.clear()


class Q5(Query):
    """Hot items: of every window of ten seconds, one every two seconds, the auctions with the most bids; all of them,
    if several have as many. Emitted once, when the window is over."""

    columns = ("auction", "dateTime")
    oracle = """
        WITH counted AS (
            SELECT to_timestamp(2 * (epoch_ms(dateTime) // 2000 + back)) AS window_end, auction, count(*) bids
            FROM bid, range(1, 6) slides(back) GROUP BY ALL
        )
        SELECT window_end, auction, bids FROM counted
        QUALIFY rank() OVER (PARTITION BY window_end ORDER BY bids DESC) = 1"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        counted = (
            pipeline.key_by("auction")
            .event_time("dateTime", LATENESS)
            .window(es.SlidingEventTimeWindows.of("10 seconds", "2 seconds"))
            .aggregate("count", bids=es.count())
        )
        schema = "window_end timestamp, auction bigint, bids bigint"
        return counted.key_by("window_end").event_time("window_end").process("hottest", Hottest(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        window = F.window("dateTime", "10 seconds", "2 seconds")
        counted = timed(bids(events)).groupBy(window, "auction").agg(F.count("*").alias("bids"))
        all_of = counted.groupBy("window").agg(
            F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("found")
        )
        one = all_of.select("window", "most", F.explode("found").alias("one")).where("one.bids = most")
        return one.selectExpr("window.end window_end", "one.auction auction", "one.bids bids")
