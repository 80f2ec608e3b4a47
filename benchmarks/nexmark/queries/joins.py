"""Joins that keep what has come for what may come: q3 and q20."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

import emberstate as es
from benchmarks.nexmark.model import AUCTION
from benchmarks.nexmark.queries.query import Query

_STATES = ("OR", "ID", "CA")
_CATEGORY = 10


class Seller(NamedTuple):
    """What is kept of a person."""

    name: str
    city: str
    state: str


class LocalItems(es.KeyedProcessFunction):
    """Auctions wait for their seller; once it is there they do not."""

    seller = es.value_state(Seller)
    waiting = es.list_state(int)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        if row.event_type == AUCTION:
            seller = self.seller.value()
            if seller is None:
                self.waiting.add(row.auction)
            else:
                yield *seller, row.auction
        else:
            seller = Seller(row.name, row.city, row.state)
            self.seller.update(seller)
            for auction in self.waiting.get():
                yield *seller, auction
            self.waiting.clear()


class Q3(Query):
    """Local item suggestion: auctions of category 10 with their sellers in OR, ID or CA; nothing is ever forgotten.

    A person comes once. Both kinds of event are one input, keyed by person and seller; what is filtered is filtered
    before the shuffle, by Spark, as in its own form, which joins two streams without a watermark."""

    at_end = "wait"
    oracle = """
        SELECT name, city, state, auction.id AS auction FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')"""

    def rows(self, events: DataFrame) -> DataFrame:
        wanted = f"person.state IN {_STATES} OR auction.category = {_CATEGORY}"
        return events.where(wanted).selectExpr(
            "coalesce(person.id, auction.seller) id", "event_type", "person.name name", "person.city city",
            "person.state state", "auction.id auction",
        )  # fmt: skip

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "name string, city string, state string, auction bigint"
        return pipeline.key_by("id").process("items", LocalItems(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        persons = events.where(f"person.state IN {_STATES}").selectExpr(
            "person.id id", "person.name name", "person.city city", "person.state state"
        )
        auctions = events.where(f"auction.category = {_CATEGORY}").selectExpr(
            "auction.seller seller", "auction.id auction"
        )
        return persons.join(auctions, persons.id == auctions.seller).select("name", "city", "state", "auction")


class Item(NamedTuple):
    """What is kept of an auction."""

    category: int
    item_name: str
    initial_bid: int
    reserve: int
    begins: datetime
    expires: datetime
    seller: int


class Offer(NamedTuple):
    """What is kept of a bid that came before its auction."""

    bidder: int
    price: int
    channel: str
    url: str
    time: datetime


class Expanded(es.KeyedProcessFunction):
    """Bids wait for their auction. What waits for one of another category is dropped when that comes."""

    item = es.value_state(Item)
    waiting = es.list_state(Offer)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        if row.event_type == AUCTION:
            item = Item(row.category, row.itemName, row.initialBid, row.reserve, row.dateTime, row.expires, row.seller)
            self.item.update(item)
            if item.category == _CATEGORY:
                for offer in self.waiting.get():
                    yield ctx.key, *offer, *item
            self.waiting.clear()
            return
        known = self.item.value()
        if known is None:
            self.waiting.add(Offer(row.bidder, row.price, row.channel, row.url, row.dateTime))
        elif known.category == _CATEGORY:
            yield ctx.key, row.bidder, row.price, row.channel, row.url, row.dateTime, *known


class Q20(Query):
    """Expand bid with auction: every bid on an auction of category 10, with the auction; nothing is ever forgotten.

    The columns are those of both but for `extra` and `description`. Auctions of all categories are read, so that bids
    on others need not wait for ever; in Spark's own form, which joins two streams without a watermark, they do."""

    at_end = "wait"
    oracle = """
        SELECT bid.auction, bidder, price, channel, url, bid.dateTime AS bidTime, category, itemName, initialBid,
               reserve, auction.dateTime AS begins, expires, seller
        FROM bid JOIN auction ON bid.auction = auction.id WHERE category = 10"""

    def rows(self, events: DataFrame) -> DataFrame:
        return events.where("event_type > 0").selectExpr(
            "coalesce(auction.id, bid.auction) id", "event_type", "bid.bidder bidder", "bid.price price",
            "bid.channel channel", "bid.url url", "dateTime", "auction.category category", "auction.itemName itemName",
            "auction.initialBid initialBid", "auction.reserve reserve", "auction.expires expires",
            "auction.seller seller",
        )  # fmt: skip

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = (
            "auction bigint, bidder bigint, price bigint, channel string, url string, bidTime timestamp, "
            "category bigint, itemName string, initialBid bigint, reserve bigint, begins timestamp, expires timestamp, "
            "seller bigint"
        )
        return pipeline.key_by("id").process("expanded", Expanded(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        offers = events.where("event_type = 2").selectExpr(
            "bid.auction auction", "bid.bidder bidder", "bid.price price", "bid.channel channel", "bid.url url",
            "bid.dateTime bidTime",
        )  # fmt: skip
        items = events.where(f"auction.category = {_CATEGORY}").selectExpr(
            "auction.id id", "auction.category category", "auction.itemName itemName", "auction.initialBid initialBid",
            "auction.reserve reserve", "auction.dateTime begins", "auction.expires expires", "auction.seller seller",
        )  # fmt: skip
        return offers.join(items, offers.auction == items.id).drop("id")
