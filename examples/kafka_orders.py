"""Kafka: orders come as JSON from a topic; every customer's running total goes out.

The key of a record is the customer, a header has the region, and its timestamp is the event time. Without arguments it
shows what the function does with a few orders. With the address of a broker, a topic and a folder it runs on Spark,
until it is stopped, and goes on where it was when it is started again:

    python examples/kafka_orders.py localhost:9092 orders /tmp/orders
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import emberstate as es
from emberstate.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "order bigint, amount double"
ORDERS = f"customer string, region string, timestamp timestamp, {ORDER}"
TOTALS = "customer string, orders bigint, total double, latest timestamp"


class Totals(es.KeyedProcessFunction):
    """The number of a customer's orders and their sum, after every order."""

    orders = es.value_state(int, default=0)
    total = es.value_state(float, default=0.0)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[Any]:
        self.orders.update(self.orders.value() + 1)
        self.total.update(self.total.value() + row.amount)
        yield row.customer, self.orders.value(), self.total.value(), row.timestamp


def orders(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    """The stream of orders, from the beginning of the topic; at most 10000 in a batch."""
    usual = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10000", "includeHeaders": "true"}
    source = {"kafka.bootstrap.servers": servers, "subscribe": topic, **usual, **options}
    return decoded(spark.readStream.format("kafka").options(**source).load())


def decoded(records: DataFrame) -> DataFrame:
    """Records of Kafka as orders. A value that is no JSON fails the batch: it would be an order of nulls otherwise."""
    from pyspark.sql import functions as F

    return records.select(
        F.col("key").cast("string").alias("customer"),
        F.expr("cast(get(filter(headers, one -> one.key = 'region'), 0).value as string)").alias("region"),
        "timestamp",
        F.from_json(F.col("value").cast("string"), ORDER, {"mode": "FAILFAST"}).alias("value"),
    ).select("customer", "region", "timestamp", "value.*")


def pipeline(backend: Any, **options: Any) -> es.Pipeline:
    """The job, without a sink."""
    named = es.Pipeline("kafka-orders", backend, **options)
    return named.key_by("customer").event_time("timestamp", "10 seconds").process("totals", Totals(), schema=TOTALS)


def main(arguments: list[str]) -> None:
    """Run on Kafka, or show the function alone."""
    if arguments:
        from emberstate.spark import session

        servers, topic, folder = arguments
        spark = session("kafka-orders", master="local[2]", packages=["kafka"])
        job = pipeline(es.FsStateBackend(f"{folder}/state")).sink(lambda df, batch: df.show())
        job.start(orders(spark, servers, topic), checkpoint=f"{folder}/offsets").awaitTermination()
        return
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    with Harness(Totals(), schema=ORDERS, key="customer", event_time="timestamp", output=TOTALS) as harness:
        harness.process(("ann", "north", noon, 1, 9.5), ("bob", "south", noon, 2, 20.0), ("ann", "north", noon, 3, 1.5))
        for row in harness.output:
            print(f"{row.customer}: {row.orders} orders, {row.total} in all")


if __name__ == "__main__":
    main(sys.argv[1:])
