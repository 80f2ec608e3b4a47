"""q5: which auctions have the most bids, window by window."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed


class Q5(Query):
    """Hot items: of every window of ten seconds, one every two seconds, the auctions with the most bids; all of them,
    if several have as many. Emitted once, when the window is over. A window closes for all auctions in one batch, so
    the most is found among the rows of a batch."""

    columns = ("auction", "dateTime")
    oracle = """
        WITH counted AS (
            SELECT to_timestamp(2 * (epoch_ms(dateTime) // 2000 + back)) AS window_end, auction, count(*) bids
            FROM bid, range(1, 6) slides(back) GROUP BY ALL
        )
        SELECT window_end, auction, bids FROM counted
        QUALIFY rank() OVER (PARTITION BY window_end ORDER BY bids DESC) = 1"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return (
            pipeline.key_by("auction")
            .event_time("dateTime", LATENESS)
            .window(es.SlidingEventTimeWindows.of("10 seconds", "2 seconds"))
            .aggregate("count", bids=es.count())
        )

    def result(self, output: DataFrame) -> DataFrame:
        most = F.max("bids").over(Window.partitionBy("window_end"))
        return output.withColumn("most", most).where("bids = most").select("window_end", "auction", "bids")

    def spark(self, events: DataFrame) -> DataFrame:
        window = F.window("dateTime", "10 seconds", "2 seconds")
        counted = timed(bids(events)).groupBy(window, "auction").agg(F.count("*").alias("bids"))
        all_of = counted.groupBy("window").agg(
            F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("found")
        )
        one = all_of.select("window", "most", F.explode("found").alias("one")).where("one.bids = most")
        return one.selectExpr("window.end window_end", "one.auction auction", "one.bids bids")
