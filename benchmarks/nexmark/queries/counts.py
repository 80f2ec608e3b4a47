"""How many bids a bidder makes: q11 by session, q12 by the clock."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import LATENESS, Query, bids, timed


class Q11(Query):
    """User sessions: bids of a bidder between which there are no more than ten seconds; the session ends ten seconds
    after its last bid. Bids exactly ten seconds apart are one session, as in Flink."""

    columns = ("bidder", "dateTime")
    oracle = """
        WITH marked AS (
            SELECT bidder, dateTime,
                   coalesce(dateTime - lag(dateTime) OVER by_time > INTERVAL 10 SECOND, TRUE) AS begins
            FROM bid WINDOW by_time AS (PARTITION BY bidder ORDER BY dateTime)
        ), numbered AS (
            SELECT bidder, dateTime, sum(begins::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
            FROM marked
        )
        SELECT bidder, min(dateTime) AS window_start, max(dateTime) + INTERVAL 10 SECOND AS window_end, count(*) AS bids
        FROM numbered GROUP BY bidder, session"""

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return (
            pipeline.key_by("bidder")
            .event_time("dateTime", LATENESS)
            .window(es.EventTimeSessionWindows.with_gap("10 seconds"))
            .aggregate("sessions", bids=es.count())
        )

    def spark(self, events: DataFrame) -> DataFrame:
        grouped = timed(bids(events)).groupBy(F.session_window("dateTime", "10 seconds"), "bidder")
        found = grouped.agg(F.count("*").alias("bids"))
        return found.selectExpr("bidder", "session_window.start window_start", "session_window.end window_end", "bids")


class Q12(Query):
    """Processing-time windows: bids of a bidder in ten seconds by the clock.

    The clock is part of the test: every batch is four seconds after the one before (`job.BatchClock`), and at the end a
    day passes. The stage has an event time only because a stream without one has no batch at its end. Spark's own form
    has the machine's clock, so its rows are not compared."""

    columns = ("bidder", "dateTime")
    oracle = """
        SELECT bidder, time_bucket(INTERVAL 10 SECOND, TIMESTAMPTZ '2015-07-15 23:59:20+00' + batch * INTERVAL 4 SECOND)
               AS window_start, count(*) bids
        FROM bid GROUP BY ALL"""
    mode = "update"
    spark_is_exact = False

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        return (
            pipeline.key_by("bidder")
            .event_time("dateTime", LATENESS)
            .window(es.TumblingProcessingTimeWindows.of("10 seconds"))
            .aggregate("counts", bids=es.count())
        )

    def spark(self, events: DataFrame) -> DataFrame:
        now = bids(events).withColumn("now", F.current_timestamp())
        found = now.groupBy(F.window("now", "10 seconds"), "bidder").agg(F.count("*").alias("bids"))
        return found.selectExpr("bidder", "window.start window_start", "bids")
