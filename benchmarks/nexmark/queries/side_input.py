"""q13: a side input that every slot has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import emberstate as es
from benchmarks.nexmark.queries.query import Query, bids

_SIZE = 10_000


class WithSide(es.KeyedBroadcastProcessFunction):
    """Bids with what the side input says of their auction."""

    values = es.broadcast_state(int, str)

    def process_broadcast_element(self, row: Any, ctx: es.FunctionContext) -> None:
        self.values[row.key] = row.value

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        yield row.auction, row.bidder, row.price, row.dateTime, self.values[row.auction % _SIZE]


class Q13(Query):
    """Bounded side input: every bid with the value that a table of 10,000 rows has for `auction % 10000`.

    The table is a broadcast input, read as a stream whose one file comes with the first batch: broadcast rows come
    before keyed rows. Spark's own form is a broadcast join with a static table, and has no state."""

    at_end = "wait"
    oracle = "SELECT auction, bidder, price, dateTime, 'side-' || (auction % 10000) AS value FROM bid"
    side_name = "side"

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        schema = "auction bigint, bidder bigint, price bigint, dateTime timestamp, value string"
        return pipeline.key_by("auction").broadcast("side").process("joined", WithSide(), schema)

    def spark(self, events: DataFrame) -> DataFrame:
        keys = events.sparkSession.range(_SIZE)
        table = keys.select(F.col("id").alias("key"), F.concat(F.lit("side-"), "id").alias("value"))
        joined = bids(events).join(F.broadcast(table), F.expr(f"auction % {_SIZE} = key"))
        return joined.select("auction", "bidder", "price", "dateTime", "value")

    def side(self) -> pa.Table:
        keys = range(_SIZE)
        return pa.table({"key": pa.array(keys, pa.int64()), "value": [f"side-{key}" for key in keys]})
