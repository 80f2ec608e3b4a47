"""Averages over auctions that have closed: q4 by category, q6 by seller."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

import emberstate as es
from benchmarks.nexmark.queries.closing import TICK, ClosedAuctions, Offer, Open, auctions_and_bids, closed_auctions
from benchmarks.nexmark.queries.query import Query

_LAST = 10


class CategoryAverage(es.KeyedProcessFunction):
    """The average so far, whenever auctions have closed; one row for all that close in the same millisecond."""

    count = es.value_state(int, default=0)
    total = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        self.count.update(self.count.value() + 1)
        self.total.update(self.total.value() + row.price)
        ctx.timers.register_event_time("emit", row.closed + TICK)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        yield timer.key, timer.time - TICK, self.count.value(), self.total.value() / self.count.value()


class Q4(Query):
    """Average price for a category: of the winning bids (the rule of q9) of the auctions that have closed so far.

    SQL updates an auction's price with every bid; here it counts once, when the auction is over, and the average of a
    category is emitted at every moment at which auctions of it have closed. All rows are compared, not the last ones
    alone. The average is a double: the quotient of two exact integers."""

    oracle = """
        WITH final AS (
            SELECT id, category, expires + INTERVAL 1 MILLISECOND AS closed, max(price) price
            FROM auction JOIN bid ON auction.id = bid.auction AND bid.dateTime BETWEEN auction.dateTime AND expires
            GROUP BY ALL
        )
        SELECT DISTINCT category, closed, count(*) OVER so_far AS auctions,
               CAST(sum(price) OVER so_far AS DOUBLE) / count(*) OVER so_far AS average
        FROM final WINDOW so_far AS (PARTITION BY category ORDER BY closed RANGE UNBOUNDED PRECEDING)"""
    not_in_spark = "an aggregate of an aggregate over a join, without windows"

    def rows(self, events: DataFrame) -> DataFrame:
        return auctions_and_bids(events)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        closed = closed_auctions(pipeline, ClosedAuctions())
        schema = "category bigint, closed timestamp, auctions bigint, average double"
        return closed.key_by("category").event_time("closed").process("average", CategoryAverage(), schema)


class SoldAuctions(ClosedAuctions):
    """By the rule of Beam: the reserve must be reached, and the end does not count."""

    def counts(self, auction: Open, offer: Offer) -> bool:
        return auction.begins <= offer.time < auction.expires and -offer.negative_price >= auction.reserve


class Sale(NamedTuple):
    """An auction that was sold."""

    closed: datetime
    auction: int
    price: int


class SellerAverage(es.KeyedProcessFunction):
    """The average of the last ten sales, for every sale; those of the same millisecond in order of their auctions."""

    pending = es.list_state(Sale)
    prices = es.list_state(int)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        self.pending.add(Sale(row.closed, row.auction, row.price))
        ctx.timers.register_event_time("emit", row.closed + TICK)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        prices = list(self.prices.get())
        for sale in sorted(self.pending.get()):
            prices = [*prices, sale.price][-_LAST:]
            yield timer.key, sale.auction, sale.closed, sum(prices) / len(prices)
        self.pending.clear()
        self.prices.update(prices)


class Q6(Query):
    """Average selling price by seller: of its last ten sold auctions, for every auction that is sold.

    By the rules of Beam: ten, not eleven; a bid must reach the reserve and come before the end. The average is a
    double: the quotient of two exact integers."""

    oracle = """
        WITH sold AS (
            SELECT seller, id, expires + INTERVAL 1 MILLISECOND AS closed, max(price) price
            FROM auction JOIN bid ON auction.id = bid.auction
                AND bid.dateTime >= auction.dateTime AND bid.dateTime < expires AND price >= reserve
            GROUP BY ALL
        )
        SELECT seller, id AS auction, closed, CAST(sum(price) OVER last AS DOUBLE) / count(*) OVER last AS average
        FROM sold WINDOW last AS (PARTITION BY seller ORDER BY closed, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"""
    not_in_spark = "the last rows of a key"

    def rows(self, events: DataFrame) -> DataFrame:
        return auctions_and_bids(events)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        sold = closed_auctions(pipeline, SoldAuctions())
        schema = "seller bigint, auction bigint, closed timestamp, average double"
        return sold.key_by("seller").event_time("closed").process("average", SellerAverage(), schema)
