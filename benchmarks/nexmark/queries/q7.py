"""q7: the dearest bid, window by window."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed

#: So many bids of the highest price can be told from one that is lower.
_MOST = 16


class Q7(Query):
    """Highest bid: of every ten seconds the bids with the highest price; all of them, if several have it. A window has
    its start in it, not its end: a bid belongs to one window, unlike with SQL's BETWEEN."""

    oracle = """
        SELECT auction, bidder, price, dateTime,
               time_bucket(INTERVAL 10 SECOND, dateTime) + INTERVAL 10 SECOND AS window_end
        FROM bid QUALIFY rank() OVER (PARTITION BY window_end ORDER BY price DESC) = 1"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return (
            pipeline.event_time("dateTime", LATENESS)
            .window_all(es.TumblingEventTimeWindows.of("10 seconds"))
            .aggregate("best", best=es.top(_MOST, "auction", "bidder", "dateTime", by="price"))
        )

    def result(self, output: DataFrame) -> DataFrame:
        dearest = F.expr("filter(best, bid -> bid.price = best[0].price)")
        too_few = F.raise_error(f"{_MOST} bids or more have the highest price: _MOST must be larger")
        highest = F.when(F.size(dearest) < _MOST, dearest).otherwise(too_few)
        bid = output.select(F.explode(highest).alias("bid"), "window_end")
        return bid.select("bid.auction", "bid.bidder", "bid.price", "bid.dateTime", "window_end")

    def spark(self, events: DataFrame) -> DataFrame:
        highest = timed(bids(events)).groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("highest"))
        in_window = "price = highest AND dateTime >= window.start AND dateTime < window.end"
        joined = timed(bids(events)).join(highest, F.expr(in_window))
        return joined.selectExpr("auction", "bidder", "price", "dateTime", "window.end window_end")
