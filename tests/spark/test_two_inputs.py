"""Two inputs, each at its own pace, on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import emberstate as es
from tests.spark.streams import EVENTS, Kept, Stream, at

pytestmark = pytest.mark.spark


class Waiting(es.KeyedCoProcessFunction):
    """An order waits ten seconds for its payment."""

    orders = es.list_state(int)

    def process_element1(self, row: Any, ctx: Any) -> None:
        self.orders.add(row.value)
        ctx.timers.register_event_time("over", row.ts + timedelta(seconds=10))

    def process_element2(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, f"paid {row.value} of {sum(self.orders.get())}"
        self.orders.clear()

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        if self.orders.get():
            yield ctx.key, f"unpaid {sum(self.orders.get())}"
            self.orders.clear()


def waiting(stream: Stream, kept: Kept, parallelism: int = 2) -> es.Pipeline:
    """Orders and payments."""
    first = stream.pipeline(parallelism=parallelism).key_by("key").event_time("ts")
    both = first.connect("payments", "key", event_time="ts", out_of_orderness="1 second")
    return both.process("wait", Waiting(), "key string, what string").sink(kept)


@pytest.mark.long
def test_the_input_that_is_behind_holds_the_watermark(stream: Stream) -> None:
    """Catches: a slower topic whose rows are late; nobody saying which input keeps windows open."""
    spark, kept = stream.spark, Kept()
    pipeline = waiting(stream, kept)
    parts = [
        ([("a", at(0), 5), ("b", at(100), 7)], [("a", at(2), 1)]),
        ([("b", at(110), 1)], [("a", at(9), 4), ("b", at(12), 1)]),
        ([], [("b", at(200), 9)]),
        ([("a", at(300), 1)], []),
    ]
    held = []
    for batch, (orders, payments) in enumerate(parts):
        told = spark.createDataFrame(payments, EVENTS)
        pipeline(pipeline.inputs(spark.createDataFrame(orders, EVENTS), payments=told), batch)
        assert pipeline.last_progress is not None
        assert pipeline.last_progress.late_rows == 0
        held.append((pipeline.last_progress.watermark, pipeline.last_progress.watermark_held_by))
    assert held == [(None, "payments"), (at(1), "payments"), (at(11), "first"), (at(110), "payments")]
    assert sorted(kept.rows) == [("a", "paid 1 of 5"), ("a", "paid 4 of 0"), ("b", "paid 1 of 7"), ("b", "paid 9 of 1")]


@pytest.mark.long
def test_a_run_sees_both_inputs_in_step(stream: Stream) -> None:
    """Catches: a run whose timers wait for rows of the other input, though all of both are there."""
    orders = [(f"k{n % 5}", at(n * 7), n) for n in range(40)]
    payments = [(f"k{n % 5}", at(n * 7 + 3 + n % 4 * 4), 1) for n in range(0, 40, 3)]
    found = []
    for batches, parallelism in ((1, 1), (1, 3), (4, 2)):
        kept = Kept()
        first, second = (stream.spark.createDataFrame(rows, EVENTS) for rows in (orders, payments))
        waiting(stream, kept, parallelism).run(first, inputs={"payments": second}, batches=batches)
        found.append(sorted(kept.rows))
    assert found[0] == found[1] == found[2]
    assert any("unpaid" in what for _, what in found[0])
