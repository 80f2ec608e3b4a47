"""Statistics of a day: q15 of all bids, q16 by channel, q17 by auction. A row when the day is over."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed

#: The ranks of prices.
_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
_DAY = es.TumblingEventTimeWindows.of("1 day")
_WINDOW = "date_trunc('day', dateTime) AS window_start, date_trunc('day', dateTime) + INTERVAL 1 DAY AS window_end"
_ORACLE = "".join(
    f", count({what}) AS total_{name}"
    + "".join(f", count({what}) FILTER ({condition}) AS {rank}_{name}" for rank, condition in _RANKS.items())
    for name, what in (("bids", "*"), ("bidders", "DISTINCT bidder"), ("auctions", "DISTINCT auction"))
)
#: A bidder and an auction in columns of their own for each rank, null in the others.
_BY_RANK = tuple(
    f"CASE WHEN {condition} THEN {what} END {rank}_{what}"
    for rank, condition in _RANKS.items()
    for what in ("bidder", "auction")
)


def _counts() -> dict[str, Any]:
    """Bids, and distinct bidders and auctions, over all and by rank."""
    counts: dict[str, Any] = {
        "total_bids": es.count(),
        **{f"{rank}_bids": es.count(f"{rank}_bidder") for rank in _RANKS},
    }
    for what in ("bidder", "auction"):
        counts[f"total_{what}s"] = es.distinct(what)
        counts |= {f"{rank}_{what}s": es.distinct(f"{rank}_{what}") for rank in _RANKS}
    return counts


def _in_spark(keys: list[str], rows: DataFrame, *more: Column) -> DataFrame:
    """Spark has no exact count of distinct values in a stream; the size of a set is one."""
    counts = [F.count("*").alias("total_bids"), *(F.count(f"{rank}_bidder").alias(f"{rank}_bids") for rank in _RANKS)]
    for what in ("bidder", "auction"):
        columns = {"total": what, **{rank: f"{rank}_{what}" for rank in _RANKS}}
        counts += [F.size(F.collect_set(column)).cast("bigint").alias(f"{rank}_{what}s")
                   for rank, column in columns.items()]  # fmt: skip
    found = timed(rows).groupBy(F.window("dateTime", "1 day"), *keys).agg(*more, *counts)
    return found.selectExpr("window.start window_start", "window.end window_end", "*").drop("window")


class Q15(Query):
    """Bidding statistics: per day (UTC), bids, distinct bidders and distinct auctions, each over all and by rank of
    price (below 10⁴, below 10⁶, others). A row when the day is over, not updated."""

    oracle = f"SELECT {_WINDOW} {_ORACLE} FROM bid GROUP BY window_start, window_end"

    def rows(self, events: DataFrame) -> DataFrame:
        return bids(events).selectExpr("bidder", "auction", "dateTime", *_BY_RANK)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return pipeline.event_time("dateTime", LATENESS).window_all(_DAY).aggregate("statistics", **_counts())

    def spark(self, events: DataFrame) -> DataFrame:
        return _in_spark([], self.rows(events))


class Q16(Query):
    """Channel statistics: the same per channel and day, with the minute (HH:MM) of the last bid."""

    oracle = f"""SELECT channel, {_WINDOW}, strftime(max(dateTime), '%H:%M') AS minute {_ORACLE}
        FROM bid GROUP BY channel, window_start, window_end"""

    def rows(self, events: DataFrame) -> DataFrame:
        columns = ("channel", "bidder", "auction", "dateTime", "date_format(dateTime, 'HH:mm') minute")
        return bids(events, "bid.channel channel").selectExpr(*columns, *_BY_RANK)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        days = pipeline.key_by("channel").event_time("dateTime", LATENESS).window(_DAY)
        return days.aggregate("statistics", minute=es.max("minute"), **_counts())

    def spark(self, events: DataFrame) -> DataFrame:
        return _in_spark(["channel"], self.rows(events), F.max("minute").alias("minute"))


class Q17(Query):
    """Auction statistics: per auction and day (UTC), bids over all and by rank (as in q15), the lowest, highest and
    average price, and their sum. A row when the day is over. The average is a double: the quotient of two exact
    integers."""

    oracle = f"""
        SELECT auction, {_WINDOW}, count(*) AS total_bids,
               {", ".join(f"count(*) FILTER ({condition}) AS {rank}_bids" for rank, condition in _RANKS.items())},
               min(price) AS least, max(price) AS most, CAST(sum(price) AS DOUBLE) / count(*) AS average,
               sum(price) AS total
        FROM bid GROUP BY auction, window_start, window_end"""

    def rows(self, events: DataFrame) -> DataFrame:
        ranks = (f"CASE WHEN {condition} THEN 1 END {rank}" for rank, condition in _RANKS.items())
        return bids(events).selectExpr("auction", "price", "dateTime", *ranks)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        days = pipeline.key_by("auction").event_time("dateTime", LATENESS).window(_DAY)
        counts: dict[str, Any] = {f"{rank}_bids": es.count(rank) for rank in _RANKS}
        return days.aggregate(
            "statistics", total_bids=es.count(), **counts, least=es.min("price"), most=es.max("price"),
            average=es.mean("price"), total=es.sum("price"),
        )  # fmt: skip

    def spark(self, events: DataFrame) -> DataFrame:
        grouped = timed(self.rows(events)).groupBy("auction", F.window("dateTime", "1 day"))
        counts = [F.count(rank).alias(f"{rank}_bids") for rank in _RANKS]
        prices = [F.min("price").alias("least"), F.max("price").alias("most"), F.sum("price").alias("total")]
        found = grouped.agg(F.count("*").alias("total_bids"), *counts, *prices)
        average = "CAST(total AS double) / total_bids average"
        return found.selectExpr("window.start window_start", "window.end window_end", "*", average).drop("window")
