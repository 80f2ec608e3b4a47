"""Event time with two inputs: the one that is behind says how late it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.testing import Harness
from tests.effort import examples

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS = "key string, ts timestamp, value bigint"


def at(seconds: int) -> datetime:
    """A moment."""
    return START + timedelta(seconds=seconds)


class Told(es.KeyedCoProcessFunction):
    """Tells what comes, and of a timer two seconds after every row of the first input."""

    def process_element1(self, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.timers.register_event_time("after", row.ts + timedelta(seconds=2))
        yield f"one {row.value}", ctx.key

    def process_element2(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield f"two {row.value}", ctx.key

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        yield f"timer {int((timer.time - START).total_seconds())}", ctx.key


class Joined(es.KeyedCoProcessFunction):
    """What both inputs have in windows of five seconds, told when they are over."""

    rows = es.map_state(int, list[int])

    def _take(self, row: Any, ctx: Any, sign: int) -> None:
        start = int((row.ts - START).total_seconds()) // 5 * 5
        self.rows[start] = sorted([*self.rows.get(start, []), sign * (row.value + 1)])
        ctx.timers.register_event_time("over", at(start + 5))

    def process_element1(self, row: Any, ctx: Any) -> None:
        self._take(row, ctx, 1)

    def process_element2(self, row: Any, ctx: Any) -> None:
        self._take(row, ctx, -1)

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        start = int((timer.time - START).total_seconds()) - 5
        yield f"{start}: {self.rows.pop(start)}", ctx.key


def harness(function: Any, *, lag: str | None = None, **options: Any) -> Harness:
    """Two inputs alike."""
    second = KeyedInput(ROWS, ["key"], event_time="ts", out_of_orderness=lag)
    given = {"schema": ROWS, "key": "key", "event_time": "ts", "output": "what string, key string"}
    return Harness(function, second=second, **given, **options)  # type: ignore[arg-type]


def test_a_slower_input_is_not_late() -> None:
    """Catches: a watermark that is the latest time of any input, so that the rows of the other are dropped."""
    with harness(Told()) as job:
        job.process(("a", at(0), 0), ("a", at(100), 1))
        assert not job.watermark, "the second input has had no row, and may begin anywhere"
        assert [row.what for row in job.process2(("a", at(10), 2), ("a", at(12), 3))] == ["two 2", "timer 2", "two 3"]
        assert (job.watermark, job.late_rows) == (at(12), 0)
        job.crash()
        job.process2(("a", at(11), 4))
        assert (job.watermark, job.late_rows) == (at(12), 1)


def test_among_rows_too_the_one_behind_counts() -> None:
    """Catches: timers of a batch that the rows of one input fire before the other is there."""
    with harness(Told(), lag="3 seconds") as job:
        rows = [("a", at(0), 0), ("a", at(20), 1)]
        second = [("a", at(4), 2), ("a", at(5), 3), ("a", at(30), 4)]
        out = [row.what for row in job.process_batch(rows, second=second)]
        # At 20 the second input, three seconds out of order, has come to 2; at 30 the first has come to 20.
        assert out == ["one 0", "two 2", "two 3", "timer 2", "one 1", "two 4"]
        assert job.watermark == at(20)


pace = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 9)), max_size=15)


@settings(max_examples=examples(60))
@given(
    first=pace,
    second=pace,
    cuts=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8),
    parallelism=st.sampled_from([1, 2, 3]),
    rescaled=st.sampled_from([1, 2, 3]),
)
def test_timers_see_all_that_is_before_them(
    first: list[Any], second: list[Any], cuts: list[tuple[int, int]], parallelism: int, rescaled: int
) -> None:
    """Catches: inputs in order, each at its own pace, whose rows are late or come after the timer they belong to."""
    rows: list[list[Any]] = []
    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for sign, steps in ((1, first), (-1, second)):
        now, made = 0, []
        for key, step, value in steps:
            now += step
            made.append((key, at(now), value))
            expected[key, now // 5 * 5].append(sign * (value + 1))
        rows.append(made)
    with harness(Joined(), parallelism=parallelism) as job:
        for number, (one, two) in enumerate(cuts):
            job.process_batch(rows[0][:one], second=rows[1][:two])
            rows = [rows[0][one:], rows[1][two:]]
            if number == 2:
                job.restore(parallelism=rescaled)
        job.process_batch(rows[0], second=rows[1])
        job.close_input()
        told = sorted((row.key, row.what) for row in job.output)
        assert told == sorted((key, f"{start}: {sorted(values)}") for (key, start), values in expected.items())
        assert job.late_rows == 0
