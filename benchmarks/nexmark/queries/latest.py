"""Rows that are updated: q18, the last bid of a bidder on an auction, and q19, the ten dearest bids on an auction.

An update has a version, which no other update of its key has; the latest counts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import Query, bids

_TOP = 10


class Bid(NamedTuple):
    """A bid; the larger one is the later one."""

    dateTime: datetime
    price: int
    extra: str
    channel: str
    url: str


class Last(NamedTuple):
    """The last bid, and how many there were."""

    bids: int
    bid: Bid


class LastBid(es.KeyedProcessFunction):
    """Keeps the last bid, and emits it whenever bids have come."""

    last = es.value_state(Last)

    def process_batch(self, key: Any, rows: list[Bid], ctx: es.FunctionContext) -> Any:
        newest = max(rows)
        before = self.last.value()
        last = Last(len(rows), newest)
        if before is not None:
            last = Last(before.bids + len(rows), max(before.bid, newest))
        self.last.update(last)
        return *key, *last.bid, last.bids


class Q18(Query):
    """Last bid: of every bidder and auction the latest bid; of those of the same millisecond the dearest, of these the
    one with the largest `extra`. `bids`, the number of bids so far, is the version: state that was lost would show."""

    at_end = "wait"
    oracle = """
        SELECT bidder, auction, dateTime, price, extra, channel, url, count(*) OVER pair AS bids
        FROM bid WINDOW pair AS (PARTITION BY bidder, auction)
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC, extra DESC) = 1"""
    keys = ("bidder", "auction")
    version = "bids"
    mode = "update"

    def rows(self, events: DataFrame) -> DataFrame:
        return bids(events, "bid.extra extra", "bid.channel channel", "bid.url url")

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        columns = "dateTime timestamp, price bigint, extra string, channel string, url string, bids bigint"
        return pipeline.key_by("bidder", "auction").process(
            "last", LastBid(), f"bidder bigint, auction bigint, {columns}"
        )

    def spark(self, events: DataFrame) -> DataFrame:
        bid = F.max(F.struct("dateTime", "price", "extra", "channel", "url")).alias("bid")
        found = self.rows(events).groupBy("bidder", "auction").agg(bid, F.count("*").alias("bids"))
        return found.select("bidder", "auction", "bid.*", "bids")


class Ranked(NamedTuple):
    """A bid; the smaller one is the better one."""

    negative_price: int
    dateTime: datetime
    bidder: int


class Top(NamedTuple):
    """The best bids, and how often they have changed."""

    version: int
    best: list[Ranked]


class TopBids(es.KeyedProcessFunction):
    """Keeps the best ten bids, and emits the places that have changed."""

    top = es.value_state(Top)

    def process_batch(self, key: Any, rows: list[Any], ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        before = self.top.value() or Top(0, [])
        come = (Ranked(-row.price, row.dateTime, row.bidder) for row in rows)
        best = heapq.nsmallest(_TOP, [*before.best, *come])
        if best == before.best:
            return
        top = Top(before.version + 1, best)
        self.top.update(top)
        for place, ranked in enumerate(best):
            if place >= len(before.best) or before.best[place] != ranked:
                yield key, place + 1, -ranked.negative_price, ranked.dateTime, ranked.bidder, top.version


class Q19(Query):
    """Top ten bids: of every auction the ten dearest bids with their places; of equal ones the earlier, of these that
    of the smaller bidder. A place is emitted again when its bid changes; `version` counts the auction's changes."""

    at_end = "wait"
    oracle = """
        SELECT auction, place, price, dateTime, bidder FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) AS place FROM bid
        ) WHERE place <= 10"""
    keys = ("auction", "place")
    version = "version"
    not_in_spark = "no aggregate that keeps the largest ten; a list of all bids in one row of state would"

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "auction bigint, place int, price bigint, dateTime timestamp, bidder bigint, version bigint"
        return pipeline.key_by("auction").process("top", TopBids(), schema)
