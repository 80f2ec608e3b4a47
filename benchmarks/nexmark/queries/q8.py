"""q8: persons that are new and sell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.model import AUCTION
from benchmarks.nexmark.queries.query import LATENESS, Query, timed


class Seen(NamedTuple):
    """What has been seen of a person in a window."""

    name: str | None
    sells: bool


class Newcomer(es.AggregateFunction[Any, Seen, Seen]):
    """Whether a person has come, and whether it sells."""

    def create_accumulator(self) -> Seen:
        return Seen(None, False)

    def add(self, value: Any, accumulator: Seen) -> Seen:
        if value.event_type == AUCTION:
            return accumulator if accumulator.sells else Seen(accumulator.name, True)
        return Seen(value.name, accumulator.sells)

    def get_result(self, accumulator: Seen) -> Seen:
        return accumulator

    def merge(self, one: Seen, other: Seen) -> Seen:
        return Seen(one.name if other.name is None else other.name, one.sells or other.sells)


class IfBoth(es.ProcessWindowFunction):
    """A row for a person that has come and sells."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        if elements[0].name is not None and elements[0].sells:
            yield key, elements[0].name, ctx.window.start_time


class Q8(Query):
    """Monitor new users: persons that came and had an auction in the same ten seconds; a row per person, however many
    auctions. Both kinds of event are one input, in Spark's own form too, where one aggregate is cheaper than a join."""

    oracle = """
        SELECT DISTINCT person.id, name, time_bucket(INTERVAL 10 SECOND, person.dateTime) AS windowStart
        FROM person JOIN auction ON person.id = seller
            AND time_bucket(INTERVAL 10 SECOND, person.dateTime) = time_bucket(INTERVAL 10 SECOND, auction.dateTime)"""

    def rows(self, events: DataFrame) -> DataFrame:
        return events.where("event_type < 2").selectExpr(
            "coalesce(person.id, auction.seller) id", "event_type", "person.name name", "dateTime"
        )

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return (
            pipeline.key_by("id")
            .event_time("dateTime", LATENESS)
            .window(es.TumblingEventTimeWindows.of("10 seconds"))
            .aggregate("new", Newcomer(), "id bigint, name string, windowStart timestamp", function=IfBoth())
        )

    def spark(self, events: DataFrame) -> DataFrame:
        grouped = timed(self.rows(events)).groupBy(F.window("dateTime", "10 seconds"), "id")
        seen = grouped.agg(F.max("name").alias("name"), F.max("event_type").alias("last"))
        both = seen.where(f"name IS NOT NULL AND last = {AUCTION}")
        return both.selectExpr("id", "name", "window.start windowStart")
