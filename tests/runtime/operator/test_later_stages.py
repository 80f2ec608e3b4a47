"""Stages that read another stage: the same rows give the same outputs, however they are cut and over how many slots."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.runtime.rows.times import MAX_TIME
from tests.effort import examples
from tests.runtime.local_stages import LocalStages

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ROWS = "key string, ts timestamp, value bigint"
STEPS = "key string, ts timestamp, what string, by string"


def at(seconds: int) -> datetime:
    """A moment."""
    return START + seconds * SECOND


class Steps(es.KeyedProcessFunction):
    """Puts out rows at once and by timers, at its own time, before it and after it; everything depends on the order."""

    history = es.value_state(int, default=0)

    def __init__(self, stage: int) -> None:
        self.stage = stage

    def _next(self, what: str) -> str:
        now = self.history.value() * 31 + sum(map(ord, what))
        self.history.update(now % 1_000_003)
        return f"{self.stage}{what}{self.history.value()}"

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        what = str(row[2])
        seed = sum(map(ord, what)) + self.stage
        key = f"k{seed % 3}"
        told = self._next(what[:3])
        if seed % 2:
            ctx.timers.register_event_time("soon", ctx.timestamp + seed % 3 * SECOND)
        if seed % 5 == 0:
            ctx.timers.register_event_time("before", ctx.timestamp - SECOND)
        if seed % 3:
            yield key, ctx.timestamp + seed % 4 * SECOND, told, ctx.key  # maybe of the future
            yield key, ctx.timestamp, told + "'", ctx.key

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        told = self._next(timer.name)
        yield f"k{len(told) % 2}", timer.time - timedelta(microseconds=1), told, ctx.key

    def process_late_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield f"k{len(row[2]) % 2}", ctx.timestamp, self._next("late"), ctx.key


class Totals(es.AggregateFunction[Any, int, int]):
    """How much the texts weigh, in an order that counts."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return (accumulator * 31 + sum(map(ord, str(value)))) % 1_000_003

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return (one + other) % 1_000_003


class Stamped(es.ProcessWindowFunction):
    """A row per window, stamped with its start, which is long ago when it is put out."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[Any]:
        yield f"k{elements[0] % 3}", ctx.window.start_time, f"{key}:{elements[0]}", key


def stepped(backend: Any, stages: int) -> es.Pipeline:
    """Stages that put out rows of every kind."""
    pipeline = es.Pipeline("job", backend, max_parallelism=8)
    for stage in range(stages):
        pipeline = pipeline.key_by("key").event_time("ts").process(f"stage {stage}", Steps(stage), STEPS)
    return pipeline.sink(lambda df, batch: None)


def windowed(backend: Any, stages: int) -> es.Pipeline:
    """Windows, then windows or steps over the windows, by their start."""
    windows = es.TumblingEventTimeWindows.of("3 seconds")
    pipeline = es.Pipeline("job", backend, max_parallelism=8).key_by("key").event_time("ts", "1 second")
    pipeline = pipeline.window(windows).aggregate("stage 0", Totals(), STEPS, function=Stamped())
    pipeline = pipeline.key_by("key").event_time("ts", "3 seconds").process("stage 1", Steps(1), STEPS)
    if stages == 3:
        sliding = es.SlidingEventTimeWindows.of("4 seconds", "2 seconds")
        over = pipeline.key_by("key").event_time("ts").window(sliding)
        pipeline = over.aggregate("stage 2", Totals(), STEPS, function=Stamped())
    return pipeline.sink(lambda df, batch: None)


def by_key(rows: list[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that every key put out, in their order."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row.by].append(tuple(row)[:3])
    return found


def result(stages: LocalStages, rows: list[Any], cuts: list[int], what: list[Any]) -> tuple[Any, int]:
    """What comes of the rows, cut there, and with that happening between the parts."""
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for (low, high), event in itertools.zip_longest(itertools.pairwise(bounds), what[: len(bounds) - 1]):
        if isinstance(event, int):
            stages.restart(event)
        stages.run(rows[low:high], tries=2 if event == "tried twice" else 1)
    stages.run([], end=MAX_TIME)
    last = max(name for name, _ in stages.outputs) if stages.outputs else "stage 0"
    return by_key(stages.outputs.get((last, "main"), [])), stages.late_rows


inputs = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(0, 9)), max_size=25)
cuts = st.lists(st.integers(0, 25), max_size=6)
happenings = st.lists(st.sampled_from([None, "tried twice", 1, 2, 3]), max_size=7)


def in_order(steps: list[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    """Rows, none of which is older than the one before."""
    times = itertools.accumulate(step for _, step, _ in steps)
    return [(key, at(time), value) for (key, _, value), time in zip(steps, times, strict=True)]


@pytest.mark.parametrize("make", [stepped, windowed])
@pytest.mark.parametrize("count", [2, 3])
@settings(max_examples=examples(40))
@given(steps=inputs, cuts=cuts, what=happenings, parallelism=st.sampled_from([1, 2, 3]))
def test_the_output_depends_on_the_rows_alone(
    make: Any, count: int, steps: list[Any], cuts: list[int], what: list[Any], parallelism: int
) -> None:
    """Catches: a later stage whose order, timers or late rows depend on the cut, on slots, or on a restore."""
    rows = in_order(steps)
    expected = result(LocalStages(make(es.MemoryStateBackend(), count), ROWS), rows, [], [])
    stages = LocalStages(make(es.MemoryStateBackend(), count), ROWS, parallelism)
    assert result(stages, rows, cuts, what) == expected
    assert all(stages.held(number) == 0 for number in range(1, count))
    stages.close()


@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_held_rows_are_in_checkpoints(kind: str, tmp_path: Path) -> None:
    """Catches: rows that wait in a slot's memory only; a backend that gives them back in another order."""
    made = 0

    def backend() -> Any:
        nonlocal made
        made += 1
        place = tmp_path / str(made)
        return es.FsStateBackend(place) if kind == "fs" else es.RocksDBStateBackend(place, memory="16 MiB")

    rows = in_order([("abcd"[n % 4], n % 3, n * 7 % 10) for n in range(40)])
    expected = result(LocalStages(stepped(es.MemoryStateBackend(), 3), ROWS), rows, [], [])
    stages = LocalStages(stepped(backend(), 3), ROWS, 2)
    what = [None, 3, "tried twice", 1, None, 2, "tried twice", 3]
    assert result(stages, rows, list(range(0, 40, 4)), what) == expected
    stages.close()
    half = LocalStages(stepped(backend(), 2), ROWS, 2)
    half.run(rows[:20])
    held = half.held(1)
    assert held, "the rows of a first batch, which has no watermark, wait"
    half.restart(3)
    half.run([])
    assert 0 < half.held(1) < held
    half.close()


class Late(Steps):
    """Its rows are stamped as a window's start would be."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield row.key, ctx.timestamp - 5 * SECOND, str(row[2]), ctx.key


@pytest.mark.parametrize(("allowed", "late"), [("5 seconds", 0), ("4999999 microseconds", 6)])
def test_what_is_late_depends_on_its_stamp_alone(allowed: str, late: int) -> None:
    """Catches: rows stamped older than event time that are late in some batches only."""
    rows = in_order([("a", 1, n) for n in range(6)])
    for size in (1, 2, 3, 6):
        first = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").event_time("ts").process("0", Late(0), STEPS)
        second = first.key_by("key").event_time("ts", allowed)
        pipeline = second.process("1", counting(), "n bigint", late_output="late").sink(lambda df, batch: None)
        stages = LocalStages(pipeline, ROWS)
        for start in range(0, 6, size):
            stages.run(rows[start : start + size])
        stages.run([], end=MAX_TIME)
        assert stages.late_rows == late == len(stages.outputs.get(("1", "late"), []))
        stages.close()


def counting() -> es.KeyedProcessFunction:
    """A function that counts."""

    class Counting(es.KeyedProcessFunction):
        """Counts."""

        seen = es.value_state(int, default=0)

        def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
            self.seen.update(self.seen.value() + 1)
            yield (self.seen.value(),)

    return Counting()


class PassedOn(es.KeyedProcessFunction):
    """Puts every row out at once; and one by a timer, when the next second has begun."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        if ctx.operator_name == "0":
            ctx.timers.register_event_time("second", ctx.timestamp + SECOND)
        yield row.key, row.ts, row.value

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, timer.time - timedelta(microseconds=1), -1


def test_the_delay_is_one_batch() -> None:
    """Catches: rows that wait for longer than the watermark needs to pass them, or a batch more with every stage."""
    pipeline = es.Pipeline("job", es.MemoryStateBackend())
    for name in "012":
        pipeline = pipeline.key_by("key").event_time("ts").process(name, PassedOn(), ROWS)
    stages = LocalStages(pipeline.sink(lambda df, batch: None), ROWS, 2)
    for batch in range(4):
        stages.run([("ab"[n % 2], at(batch * 10 + n), batch) for n in range(10)])
        for name in "12":
            told = [row.value for row in stages.outputs.get((name, "main"), [])]
            assert [told.count(earlier) for earlier in range(batch)] == [10] * (batch - 1) + [9] * (batch > 0)
            # Timers up to the watermark fire before the rows of the batch, and what they give is handled with them.
            assert told.count(-1) == max(0, batch * 10 - 1)
    stages.close()
