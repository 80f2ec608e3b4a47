"""q8: persons that are new and sell."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.model import AUCTION
from benchmarks.nexmark.queries.query import LATENESS, Query, timed


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
            .aggregate("new", person=es.max("name"), last=es.max("event_type"))
        )

    def result(self, output: DataFrame) -> DataFrame:
        both = output.where(f"person IS NOT NULL AND last = {AUCTION}")
        return both.selectExpr("id", "person name", "window_start windowStart")

    def spark(self, events: DataFrame) -> DataFrame:
        grouped = timed(self.rows(events)).groupBy(F.window("dateTime", "10 seconds"), "id")
        seen = grouped.agg(F.max("name").alias("name"), F.max("event_type").alias("last"))
        both = seen.where(f"person IS NOT NULL AND last = {AUCTION}")
        return both.selectExpr("id", "name", "window.start windowStart")
