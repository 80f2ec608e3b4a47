"""Auctions that close, with the bid that wins; and q9, which is no more than that.

Bids may come before their auction, by the rules of the generator and by disorder. A bid whose auction is not known
waits until event time has passed it: an auction that comes later began later, and then the bid does not count. So
nothing is kept of auctions that are closed, nor of bids that come after.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

import emberstate as es
from benchmarks.nexmark.model import AUCTION
from benchmarks.nexmark.queries.query import LATENESS, Query

#: The least difference between two times. What an event of time t still changes is decided one tick later: a timer for
#: t fires before the rows of t.
TICK = timedelta(milliseconds=1)

CLOSED = (
    "auction bigint, seller bigint, category bigint, closed timestamp, bidder bigint, price bigint, bidTime timestamp"
)


class Open(NamedTuple):
    """An auction that is not over."""

    begins: datetime
    expires: datetime
    seller: int
    category: int
    reserve: int


class Offer(NamedTuple):
    """A bid; the smaller one wins."""

    negative_price: int
    time: datetime
    bidder: int


class ClosedAuctions(es.KeyedProcessFunction):
    """Emits an auction that had bids, with the best one, a tick after it has expired.

    The best is the dearest; of equal ones the earliest; of these the one of the smallest bidder.
    """

    auction = es.value_state(Open)
    best = es.value_state(Offer)
    early = es.list_state(Offer)
    early_until = es.value_state(datetime)

    def counts(self, auction: Open, offer: Offer) -> bool:
        """Whether a bid is in time, by the rule of SQL: between the begin and the end, both included."""
        return auction.begins <= offer.time <= auction.expires

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        if row.event_type == AUCTION:
            auction = Open(row.dateTime, row.expires, row.seller, row.category, row.reserve)
            self.auction.update(auction)
            ctx.timers.register_event_time("close", row.expires + TICK)
            for offer in self.early.get():
                self._offer(auction, offer)
            self.early.clear()
            self.early_until.clear()
            return
        offer = Offer(-row.price, row.dateTime, row.bidder)
        known = self.auction.value()
        if known is not None:
            self._offer(known, offer)
            return
        until = self.early_until.value()
        if until is None:
            ctx.timers.register_event_time("forget", row.dateTime + TICK)
        if until is None or until < row.dateTime:
            self.early_until.update(row.dateTime)
        self.early.add(offer)

    def _offer(self, auction: Open, offer: Offer) -> None:
        best = self.best.value()
        if self.counts(auction, offer) and (best is None or offer < best):
            self.best.update(offer)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        if timer.name == "forget":
            until = self.early_until.value()
            if until is not None and until >= timer.time:
                ctx.timers.register_event_time("forget", until + TICK)
            else:
                self.early.clear()
                self.early_until.clear()
            return
        auction, best = self.auction.value(), self.best.value()
        self.auction.clear()
        self.best.clear()
        if auction is not None and best is not None:
            yield (timer.key, auction.seller, auction.category, timer.time,
                   best.bidder, -best.negative_price, best.time)  # fmt: skip


def auctions_and_bids(events: DataFrame) -> DataFrame:
    """Both as one input, keyed by `id`."""
    return events.where("event_type > 0").selectExpr(
        "coalesce(auction.id, bid.auction) id", "event_type", "bid.bidder bidder", "bid.price price", "dateTime",
        "auction.expires expires", "auction.seller seller", "auction.category category", "auction.reserve reserve",
    )  # fmt: skip


def closed_auctions(pipeline: es.Pipeline, function: ClosedAuctions) -> es.Pipeline:
    """The stage."""
    return pipeline.key_by("id").event_time("dateTime", LATENESS).process("closed", function, CLOSED)


class Q9(Query):
    """Winning bids, by the rule of SQL: of an auction's bids between its begin and its end, both included, the dearest
    one, whatever the reserve; of equal ones the earliest, of these the smallest bidder's. Emitted once, when the
    auction is over, not updated; `closed` is a millisecond after `expires`."""

    oracle = """
        SELECT id AS auction, seller, category, expires + INTERVAL 1 MILLISECOND AS closed, bidder, price,
               bid.dateTime AS bidTime
        FROM auction JOIN bid ON auction.id = bid.auction AND bid.dateTime BETWEEN auction.dateTime AND expires
        QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid.dateTime, bidder) = 1"""
    not_in_spark = "an aggregate over a join that ends at a time in the row, not at a window's"

    def rows(self, events: DataFrame) -> DataFrame:
        return auctions_and_bids(events)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return closed_auctions(pipeline, ClosedAuctions())
