"""q7: the dearest bid, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed

#: So many bids of the highest price can be told from one that is lower.
_MOST = 16


class Highest(es.KeyedProcessFunction):
    """Of the dearest bids of a window, greatest first, those with the greatest price."""

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        highest = [bid for bid in row.best if bid.price == row.best[0].price]
        if len(highest) == _MOST:
            raise ValueError(f"{_MOST} bids or more have the highest price: _MOST must be larger")
        for bid in highest:
            yield bid.auction, bid.bidder, bid.price, bid.dateTime, row.window_end


class Q7(Query):
    """Highest bid: of every ten seconds the bids with the highest price; all of them, if several have it. A window has
    its start in it, not its end: a bid belongs to one window, unlike with SQL's BETWEEN."""

    oracle = """
        SELECT auction, bidder, price, dateTime,
               time_bucket(INTERVAL 10 SECOND, dateTime) + INTERVAL 10 SECOND AS window_end
        FROM bid QUALIFY rank() OVER (PARTITION BY window_end ORDER BY price DESC) = 1"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        best = (
            pipeline.event_time("dateTime", LATENESS)
            .window_all(es.TumblingEventTimeWindows.of("10 seconds"))
            .aggregate("best", best=es.top(_MOST, "auction", "bidder", "dateTime", by="price"))
        )
        schema = "auction bigint, bidder bigint, price bigint, dateTime timestamp, window_end timestamp"
        return best.key_by("window_end").process("highest", Highest(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        highest = timed(bids(events)).groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("highest"))
        in_window = "price = highest AND dateTime >= window.start AND dateTime < window.end"
        joined = timed(bids(events)).join(highest, F.expr(in_window))
        return joined.selectExpr("auction", "bidder", "price", "dateTime", "window.end window_end")
