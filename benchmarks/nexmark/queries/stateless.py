"""Queries without state: what a row costs on its way through a slot and back."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import Query, bids

_EURO = Decimal("0.908")
_CHEAP, _DEAR = 1_000_000, 50_000_000


class PassOn(es.KeyedProcessFunction):
    """Every row as it is."""

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Any:
        return row.auction, row.bidder, row.price, row.dateTime


class Q0(Query):
    """Pass through: every bid with auction, bidder, price and time. Keyed by auction, so rows are shuffled."""

    at_end = "wait"
    oracle = "SELECT auction, bidder, price, dateTime FROM bid"

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "auction bigint, bidder bigint, price bigint, dateTime timestamp"
        return pipeline.key_by("auction").process("bids", PassOn(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        return bids(events)


class InEuro(es.KeyedProcessFunction):
    """Every bid with its price in another currency."""

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Any:
        return row.auction, row.bidder, row.price * _EURO, row.dateTime


class Q1(Query):
    """Currency conversion: price · 0.908 as a decimal with three places, which is exact."""

    at_end = "wait"
    oracle = "SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)) price, dateTime FROM bid"

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "auction bigint, bidder bigint, price decimal(23, 3), dateTime timestamp"
        return pipeline.key_by("auction").process("euro", InEuro(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        return bids(events).withColumn("price", (F.col("price") * F.lit(_EURO)).cast("decimal(23, 3)"))


class Chosen(es.KeyedProcessFunction):
    """Bids on some auctions."""

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Any:
        return (row.auction, row.price) if row.auction % 123 == 0 else None


class Q2(Query):
    """Selection: bids on auctions whose id is a multiple of 123. The function filters; Spark's optimiser could not
    have done it before the shuffle."""

    at_end = "wait"
    columns = ("auction", "price")
    oracle = "SELECT auction, price FROM bid WHERE auction % 123 = 0"

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return pipeline.key_by("auction").process("chosen", Chosen(), "auction bigint, price bigint")

    def spark(self, events: DataFrame) -> DataFrame:
        return bids(events).where("auction % 123 = 0").select("auction", "price")


class Calculated(es.KeyedProcessFunction):
    """Bids in a range of prices, with what is computed of them."""

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        price, hour = row.price * _EURO, row.dateTime.hour
        if _CHEAP < price < _DEAR:
            kind = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
            yield row.auction, row.bidder, price, kind, row.dateTime, row.extra, row.extra.count("c")


class Q14(Query):
    """Calculation: bids of more than 10⁶ and less than 5·10⁷ after conversion, with the time of day (by the hour in
    UTC: 8 to 18 day, 20 to 6 night, else other) and the number of letters c in `extra`."""

    at_end = "wait"
    oracle = """
        SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)) price,
               CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'day'
                    WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'night' ELSE 'other' END kind,
               dateTime, extra, length(regexp_replace(extra, '[^c]', '', 'g')) c_count
        FROM bid WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000"""

    def rows(self, events: DataFrame) -> DataFrame:
        return bids(events, "bid.extra extra")

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "auction bigint, bidder bigint, price decimal(23, 3), kind string, dateTime timestamp, extra string"
        return pipeline.key_by("auction").process("calculated", Calculated(), f"{schema}, c_count bigint")

    def spark(self, events: DataFrame) -> DataFrame:
        hour = F.hour("dateTime")
        kind = F.when(hour.between(8, 18), "day").when((hour <= 6) | (hour >= 20), "night").otherwise("other")
        made = self.rows(events).withColumn("price", (F.col("price") * F.lit(_EURO)).cast("decimal(23, 3)"))
        made = made.where(f"price > {_CHEAP} AND price < {_DEAR}").withColumn("kind", kind)
        count = "CAST(length(regexp_replace(extra, '[^c]', '')) AS bigint) c_count"
        return made.selectExpr("auction", "bidder", "price", "kind", "dateTime", "extra", count)
