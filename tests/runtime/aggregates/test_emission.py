"""When a stage of aggregates emits: changed keys and windows once per batch, closed windows, early results."""

from __future__ import annotations

from typing import Any

import pytest

import emberstate as es
from emberstate.testing import Harness
from tests.testing.support import BACKENDS, at

SCHEMA = "k string, ts timestamp, v int"
COUNT = {"n": es.count(), "values": es.distinct("v")}
MINUTES = es.TumblingEventTimeWindows.of("1 minute")


def seconds(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows with their window as seconds after the tests' noon."""
    return [(row.k, (row.window_start - at(0)).seconds, (row.window_end - at(0)).seconds, row.n) for row in rows]


def made(**options: Any) -> Harness:
    """A harness whose rows have a key and an event time."""
    return Harness.of_aggregates(COUNT, schema=SCHEMA, key="k", event_time="ts", **options)


def test_a_running_key_emits_once_per_batch() -> None:
    """Catches: a row per input row, a key that did not change, a late row that does not count."""
    with made() as harness:
        rows = [("ann", at(9), 1), ("bob", at(8), 1), ("ann", at(7), 2)]
        assert sorted(map(tuple, harness.process_batch(rows))) == [("ann", 2, 2), ("bob", 1, 1)]
        assert harness.process_batch([]) == []
        assert list(map(tuple, harness.process(("ann", at(1), 2)))) == [("ann", 3, 2)]
        assert (harness.late_rows, harness.late_rows_dropped) == (1, 0)


def test_a_running_key_emits_at_intervals() -> None:
    """Catches: a timer per row, a firing without a change, one that is lost in a restart."""
    with made(emit=es.every("1 minute")) as harness:
        for value in range(3):
            assert harness.process(("ann", at(value), value)) == []
            harness.advance_processing_time("10 seconds")
        harness.crash()
        assert list(map(tuple, harness.advance_processing_time("30 seconds"))) == [("ann", 3, 3)]
        assert harness.advance_processing_time("5 minutes") == []
        assert harness.process(("ann", at(9), 0)) == []
        assert list(map(tuple, harness.advance_processing_time("1 minute"))) == [("ann", 4, 3)]


def test_closed_windows_and_late_rows() -> None:
    """Catches: a window that emits before it closes, one late row at a time, or not before its clean-up."""
    with made(window=es.window(MINUTES, allowed_lateness="1 minute", late_output="late")) as harness:
        assert harness.process_batch([("ann", at(1), 1), ("ann", at(59), 1)]) == []
        assert seconds(harness.process(("ann", at(70), 1))) == [("ann", 0, 60, 2)]
        assert seconds(harness.process_batch([("ann", at(2), 2), ("ann", at(3), 3)])) == [("ann", 0, 60, 4)]
        # Two late rows, and a row that moves event time past the clean-up of their window: it emits before that.
        rows = [("ann", at(4), 4), ("bob", at(5), 1), ("ann", at(200), 1)]
        assert sorted(seconds(harness.process_batch(rows))) == [
            ("ann", 0, 60, 5), ("ann", 60, 120, 1), ("bob", 0, 60, 1),
        ]  # fmt: skip
        harness.process(("ann", at(6), 1))
        assert [row.ts for row in harness.side_output("late")] == [at(6)]
        assert harness.counters == {"window_firings": 5}


def test_changed_windows_emit_once_per_batch() -> None:
    """Catches: a changed window that emits per row or again at its end; one that closes unseen in its batch."""
    with made(window=es.window(MINUTES), emit="changed") as harness:
        assert seconds(harness.process_batch([("ann", at(1), 1), ("ann", at(2), 1)])) == [("ann", 0, 60, 2)]
        assert seconds(harness.process_batch([("ann", at(3), 1), ("bob", at(61), 1)])) == [
            ("ann", 0, 60, 3), ("bob", 60, 120, 1),
        ]  # fmt: skip
        assert harness.process_batch([]) == []
        assert seconds(harness.process_batch([("ann", at(70), 1), ("bob", at(130), 1)])) == [
            ("ann", 60, 120, 1), ("bob", 120, 180, 1),
        ]  # fmt: skip


def test_changed_sessions_emit_what_they_became() -> None:
    """Catches: a session that has become part of another and emits beside it."""
    sessions = es.window(es.EventTimeSessionWindows.with_gap("10 seconds"))
    with made(window=sessions, emit="changed", out_of_orderness="1 hour") as harness:
        rows = [("ann", at(1), 1), ("ann", at(21), 2), ("ann", at(11), 3)]
        assert seconds(harness.process_batch(rows)) == [("ann", 1, 31, 3)]


@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_early_results(kind: str, tmp_path: Any) -> None:
    """Catches: an early firing without a change, one that a restart forgets, a window that does not emit at its end."""
    window = es.window(es.TumblingEventTimeWindows.of("10 minutes"))
    with made(window=window, emit=es.every("1 minute"), state_backend=BACKENDS[kind](tmp_path)) as harness:
        harness.process_batch([("ann", at(1), 1), ("ann", at(2), 1)])
        harness.crash()
        assert seconds(harness.advance_watermark(at(60))) == [("ann", 0, 600, 2)]
        assert harness.advance_watermark(at(300)) == []
        harness.process(("ann", at(310), 1))
        assert seconds(harness.advance_watermark(at(360))) == [("ann", 0, 600, 3)]
        assert seconds(harness.advance_watermark(at(600))) == [("ann", 0, 600, 3)]


def test_windows_of_processing_time() -> None:
    """Catches: windows that look at event time, or that take a batch apart."""
    window = es.window(es.TumblingProcessingTimeWindows.of("1 minute"))
    with made(window=window) as harness:
        harness.process_batch([("ann", at(1), 1), ("ann", at(500), 1)])
        [row] = harness.advance_processing_time("1 minute")
        assert (row.n, row.window_end - row.window_start) == (2, at(60) - at(0))


def test_all_rows_of_a_key_in_one_window() -> None:
    """Catches: a global window that never emits, or has bounds."""
    with made(window=es.window(es.GlobalWindows()), emit="changed") as harness:
        harness.process_batch([("ann", at(1), 1), ("ann", at(2), 1)])
        assert list(map(tuple, harness.process(("ann", at(3), 4)))) == [("ann", 3, 2)]


def test_a_trigger_of_the_users_sees_single_rows() -> None:
    """Catches: a trigger that counts batches, sees partial rows, or fires when the batch ends."""

    class AtNine(es.CountTrigger):
        def on_element(self, row: Any, timestamp: int, window: Any, ctx: Any) -> es.TriggerResult:
            return es.TriggerResult.FIRE_AND_PURGE if row.v == 9 else es.TriggerResult.CONTINUE

    with made(window=es.window(es.GlobalWindows(), trigger=es.PurgingTrigger(AtNine(1)))) as harness:
        rows = [("ann", at(n), v) for n, v in enumerate([1, 9, 2, 3, 9, 4])]
        assert list(map(tuple, harness.process_batch(rows))) == [("ann", 2, 2), ("ann", 3, 3)]


def test_no_key_is_one_key() -> None:
    """Catches: a stage without a key whose output has the hidden one."""
    with Harness.of_aggregates(COUNT, schema=SCHEMA, event_time="ts", window=es.window(MINUTES)) as harness:
        [row] = harness.process_batch([("ann", at(1), 1), ("bob", at(2), 1), ("bob", at(61), 1)])
        assert row.as_dict() == {"window_start": at(0), "window_end": at(60), "n": 2, "values": 1}


def test_several_key_columns() -> None:
    """Catches: a key of several columns that is emitted as one."""
    with Harness.of_aggregates(COUNT, schema=SCHEMA, key=["k", "v"], event_time="ts") as harness:
        assert list(map(tuple, harness.process_batch([("ann", at(1), 7)]))) == [("ann", 7, 1, 1)]


class Span(es.AggregateFunction[Any, list[int], int]):
    """The greatest value less the least."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value.v)
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return max(accumulator) - min(accumulator)

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        one.extend(other)
        return one


@pytest.mark.parametrize(
    "window",
    [
        es.window(es.EventTimeSessionWindows.with_gap("10 seconds")),
        es.window(es.SlidingEventTimeWindows.of("1 hour", "20 minutes")),
    ],
)
def test_a_function_of_the_users(window: Any) -> None:
    """Catches: a fold that does not merge with its window, or gets partial rows."""
    aggregates = {"n": es.count(), "span": es.fold(Span(), result="int")}
    with Harness.of_aggregates(
        aggregates, schema=SCHEMA, key="k", event_time="ts", window=window, out_of_orderness="1 hour"
    ) as harness:
        harness.process(("ann", at(3000), 5), ("ann", at(3018), 9), ("ann", at(3019), 1))
        harness.process(("ann", at(3009), 0))
        harness.close_input()
        assert {(row.n, row.span) for row in harness.output} == {(4, 9)}


def test_a_failed_batch_leaves_nothing_to_emit() -> None:
    """Catches: a key of a failed attempt that emits with the next batch; a half-merged row."""
    with Harness.of_aggregates({"total": es.sum("v")}, schema="k string, v bigint", key="k") as harness:
        harness.process(("ann", 2**63 - 1))
        with pytest.raises(es.EmberstateError):
            harness.process_batch([("bob", 1), ("ann", 1)])
        assert list(map(tuple, harness.process_batch([("cat", 1)]))) == [("cat", 1)]
        harness.check_invariants()
        assert harness.keys("aggregates") == ["ann", "cat"]
