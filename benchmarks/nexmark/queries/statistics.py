"""Statistics of a day: q15 of all bids, q16 by channel, q17 by auction. A row when the day is over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed

#: Prices below the first are of rank 1, below the second of rank 2, others of rank 3.
_LIMITS = (10_000, 1_000_000)
_RANKS = (f"price < {_LIMITS[0]}", f"price >= {_LIMITS[0]} AND price < {_LIMITS[1]}", f"price >= {_LIMITS[1]}")
_COUNTS = "total_{0} bigint, rank1_{0} bigint, rank2_{0} bigint, rank3_{0} bigint"
_SCHEMA = ", ".join(_COUNTS.format(what) for what in ("bids", "bidders", "auctions"))
_ORACLE = "".join(
    f", count({what}) AS total_{name}"
    + "".join(f", count({what}) FILTER ({rank}) AS rank{n}_{name}" for n, rank in enumerate(_RANKS, start=1))
    for name, what in (("bids", "*"), ("bidders", "DISTINCT bidder"), ("auctions", "DISTINCT auction"))
)  # fmt: skip
_DAY = "date_format(bid.dateTime, 'yyyy-MM-dd') day"


def rank_of(price: int) -> int:
    """0, 1 or 2."""
    return 0 if price < _LIMITS[0] else 1 if price < _LIMITS[1] else 2


class Statistics(es.KeyedProcessFunction):
    """Counts bids, and distinct bidders and auctions, over all ranks and by rank. The key's last column is the day.

    A map has the ranks in which a bidder has been seen, as bits; what is counted is counted at the end.
    """

    ranks = es.value_state(tuple[int, int, int], default=(0, 0, 0))
    latest = es.value_state(datetime)
    bidders = es.map_state(int, int)
    auctions = es.map_state(int, int)

    def process_batch(self, key: Any, rows: list[Any], ctx: es.FunctionContext) -> None:
        ranks = list(self.ranks.value())
        bidders: dict[int, int] = {}
        auctions: dict[int, int] = {}
        for row in rows:
            rank = rank_of(row.price)
            ranks[rank] += 1
            bidders[row.bidder] = bidders.get(row.bidder, 0) | 1 << rank
            auctions[row.auction] = auctions.get(row.auction, 0) | 1 << rank
        one, two, three = ranks
        self.ranks.update((one, two, three))
        for state, found in ((self.bidders, bidders), (self.auctions, auctions)):
            for number, bits in found.items():
                before = state.get(number, 0)
                if before | bits != before:
                    state.put(number, before | bits)
        latest, newest = self.latest.value(), max(row.dateTime for row in rows)
        if latest is None:
            midnight = newest.replace(hour=0, minute=0, second=0, microsecond=0)
            ctx.timers.register_event_time("end of day", midnight + timedelta(days=1))
        if latest is None or latest < newest:
            self.latest.update(newest)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        ranks, latest = self.ranks.value(), self.latest.value()
        counts = [sum(ranks), *ranks]
        for state in (self.bidders, self.auctions):
            bits = list(state.values())
            counts += [len(bits), *(sum(one >> rank & 1 for one in bits) for rank in range(3))]
            state.clear()
        self.ranks.clear()
        self.latest.clear()
        yield self.described(timer.key, latest) + tuple(counts)

    def described(self, key: Any, latest: datetime | None) -> tuple[Any, ...]:
        """The columns before the counts."""
        return (key,)


class ChannelStatistics(Statistics):
    """The same by channel, with the minute of the last bid."""

    def described(self, key: Any, latest: datetime | None) -> tuple[Any, ...]:
        assert latest is not None
        return *key, f"{latest:%H:%M}"


def _in_spark(keys: list[str], rows: DataFrame, *more: Column) -> DataFrame:
    """Spark has no exact count of distinct values in a stream; the size of a set is one."""
    counts = []
    for name, column in (("bids", None), ("bidders", "bidder"), ("auctions", "auction")):
        for prefix, rank in zip(("total", "rank1", "rank2", "rank3"), ("true", *_RANKS), strict=True):
            if column is None:
                counts.append(F.count_if(F.expr(rank)).alias(f"{prefix}_{name}"))
            else:
                values = F.size(F.collect_set(F.when(F.expr(rank), F.col(column))))
                counts.append(values.cast("bigint").alias(f"{prefix}_{name}"))
    return timed(rows).groupBy(F.window("dateTime", "1 day"), *keys).agg(*more, *counts).drop("window")


class Q15(Query):
    """Bidding statistics: per day (UTC), bids, distinct bidders and distinct auctions, each over all and by rank of
    price (below 10⁴, below 10⁶, others). A row when the day is over, not updated. All rows of a day have one key."""

    oracle = f"SELECT strftime(dateTime, '%Y-%m-%d') AS day {_ORACLE} FROM bid GROUP BY day"

    def rows(self, events: DataFrame) -> DataFrame:
        return bids(events, _DAY)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        keyed = pipeline.key_by("day").event_time("dateTime", LATENESS)
        return keyed.process("statistics", Statistics(), f"day string, {_SCHEMA}")

    def spark(self, events: DataFrame) -> DataFrame:
        return _in_spark(["day"], self.rows(events))


class Q16(Query):
    """Channel statistics: the same per channel and day, with the minute (HH:MM) of the last bid."""

    oracle = f"""SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, strftime(max(dateTime), '%H:%M') AS minute
        {_ORACLE} FROM bid GROUP BY channel, day"""

    def rows(self, events: DataFrame) -> DataFrame:
        return bids(events, "bid.channel channel", _DAY)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        keyed = pipeline.key_by("channel", "day").event_time("dateTime", LATENESS)
        schema = f"channel string, day string, minute string, {_SCHEMA}"
        return keyed.process("statistics", ChannelStatistics(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        minute = F.date_format(F.max("dateTime"), "HH:mm").alias("minute")
        return _in_spark(["channel", "day"], self.rows(events), minute)


class Prices(NamedTuple):
    """What is kept of the bids on an auction."""

    ranks: tuple[int, int, int]
    least: int
    most: int
    total: int


class PriceStatistics(es.AggregateFunction[Any, Prices, Prices]):
    """Counts by rank, least, most and total."""

    def create_accumulator(self) -> Prices:
        return Prices((0, 0, 0), 1 << 62, 0, 0)

    def add(self, value: Any, accumulator: Prices) -> Prices:
        price = value.price
        one, two, three = accumulator.ranks
        rank = rank_of(price)
        ranks = (one + 1, two, three) if rank == 0 else (one, two + 1, three) if rank == 1 else (one, two, three + 1)
        least, most, total = accumulator[1:]
        return Prices(ranks, min(least, price), max(most, price), total + price)

    def get_result(self, accumulator: Prices) -> Prices:
        return accumulator

    def merge(self, one: Prices, other: Prices) -> Prices:
        a, b, c = (mine + theirs for mine, theirs in zip(one.ranks, other.ranks, strict=True))
        return Prices((a, b, c), min(one.least, other.least), max(one.most, other.most), one.total + other.total)


class DayOfAuction(es.ProcessWindowFunction):
    """The row of an auction and a day."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        found, count = elements[0], sum(elements[0].ranks)
        day = f"{ctx.window.start_time.astimezone(UTC):%Y-%m-%d}"
        yield key, day, count, *found.ranks, found.least, found.most, found.total / count, found.total


class Q17(Query):
    """Auction statistics: per auction and day (UTC), bids over all and by rank (as in q15), the lowest, highest and
    average price, and their sum. A row when the day is over. The average is a double: the quotient of two exact
    integers."""

    columns = ("auction", "price", "dateTime")
    oracle = f"""
        SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*) AS total_bids,
               {", ".join(f"count(*) FILTER ({rank}) AS rank{n}_bids" for n, rank in enumerate(_RANKS, start=1))},
               min(price) AS least, max(price) AS most, CAST(sum(price) AS DOUBLE) / count(*) AS average,
               sum(price) AS total
        FROM bid GROUP BY auction, day"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = (
            f"auction bigint, day string, {_COUNTS.format('bids')}, least bigint, most bigint, average double, "
            "total bigint"
        )
        return (
            pipeline.key_by("auction")
            .event_time("dateTime", LATENESS)
            .window(es.TumblingEventTimeWindows.of("1 day"))
            .aggregate("statistics", PriceStatistics(), schema, function=DayOfAuction())
        )

    def spark(self, events: DataFrame) -> DataFrame:
        grouped = timed(bids(events)).groupBy("auction", F.window("dateTime", "1 day"))
        counted = [F.count_if(F.expr(rank)).alias(f"rank{n}_bids") for n, rank in enumerate(_RANKS, start=1)]
        prices = [F.min("price").alias("least"), F.max("price").alias("most"), F.sum("price").alias("total")]
        found = grouped.agg(F.count("*").alias("total_bids"), *counted, *prices)
        return found.selectExpr(
            "auction", "date_format(window.start, 'yyyy-MM-dd') day", "total_bids", "rank1_bids", "rank2_bids",
            "rank3_bids", "least", "most", "CAST(total AS double) / total_bids average", "total",
        )  # fmt: skip
