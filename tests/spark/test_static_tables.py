"""A static table that is joined with a stream before the pipeline: all ways in which Spark joins, and redelivery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import functions as F

import emberstate as es
from emberstate.errors import StateDeclarationError
from tests.raising import raising
from tests.spark.pipeline_functions import events
from tests.spark.streams import EVENTS, Kept, Stream
from tests.spark.test_two_inputs import waiting

pytestmark = pytest.mark.spark

NAMED = "key string, name string, total bigint"


class Named(es.KeyedProcessFunction):
    """The running total of a key, with the name that the table has for it."""

    total = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.total.update(self.total.value() + row.value)
        yield row.key, row.name, self.total.value()


def expected(given: list[Any]) -> list[tuple[str, str, int]]:
    totals: dict[str, int] = {}
    found = []
    for key, _, value in given:
        totals[key] = totals.get(key, 0) + value
        found.append((key, f"name of {key}", totals[key]))
    return sorted(found)


@pytest.mark.long
@pytest.mark.parametrize("how", ["broadcast", "merge", "shuffle_hash"])
def test_a_static_table_is_joined(stream: Stream, how: str) -> None:
    """Catches: rows lost, doubled or out of order by a join before the pipeline; a redelivery that joins again."""
    given = events(60)
    stream.add(*(given[n : n + 20] for n in range(0, 60, 20)))
    folder = str(stream.root / "names")
    names = [(key, f"name of {key}") for key in sorted({row[0] for row in given})]
    stream.spark.createDataFrame(names, "key string, name string").write.parquet(folder)
    table = stream.spark.read.parquet(folder).hint(how)
    kept, failures = Kept(), [1]

    def sink(df: Any, batch: int) -> None:
        kept(df, batch)
        if batch in failures:
            failures.remove(batch)
            raise RuntimeError("once")

    def drain(parallelism: int) -> None:
        pipeline = stream.pipeline(parallelism=parallelism).key_by("key").event_time("ts")
        writer = stream.read().join(table, "key", "left").writeStream.option("checkpointLocation", stream.checkpoint)
        made = pipeline.process("named", Named(), NAMED).sink(sink)
        writer.foreachBatch(made).trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="once"):
        drain(2)
    drain(3)

    assert sorted(kept.rows) == expected(given)
    assert {batch: len(times) for batch, times in kept.deliveries.items()} == {0: 1, 1: 2, 2: 1}


def test_what_spark_cannot_run_is_refused(stream: Stream) -> None:
    """Catches: a static second input, or a join whose table would decide, refused in words about Spark's plan."""
    table = stream.spark.createDataFrame([], EVENTS)
    two = waiting(stream, Kept())
    with raising(StateDeclarationError, option="payments", found="a static DataFrame"):
        two.start(stream.read(), checkpoint=stream.checkpoint, inputs={"payments": table})
    names = stream.spark.createDataFrame([("a", "x")], "key string, name string")
    one = stream.pipeline().key_by("key").process("named", Named(), NAMED).sink(Kept())
    with raising(StateDeclarationError, "'left'", option="df"):
        one.start(names.join(stream.read(), "key", "left"), checkpoint=stream.checkpoint)
    with raising(StateDeclarationError, option="df"):
        one.start(stream.read().join(F.broadcast(names), "key", "full"), checkpoint=stream.checkpoint)
