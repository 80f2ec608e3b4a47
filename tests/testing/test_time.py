"""Clocks and watermarks of a harness: injected, and as a job has them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import LifecycleError, StateDeclarationError, StateTypeError, UserFunctionError
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.testing import START, Harness
from tests.raising import raising
from tests.testing.support import at, pay, totals


def test_the_watermark_comes_from_earlier_transactions() -> None:
    """Catches: lateness judged by rows of the same batch, or without the out-of-orderness."""
    with totals(late_output="late") as harness:
        assert harness.watermark is None
        harness.process_batch([pay("a", 1, 100), pay("a", 1, 0)])
        assert harness.watermark == at(90)
        harness.process(pay("b", 1, 90), pay("b", 1, 89))

        assert harness.late_rows == harness.late_rows_dropped == 1
        assert harness.side_output("late") == [("b", "s", 1.0, at(89))]
        assert harness.state("total", "b") == 1.0


def test_timers_fire_before_the_row_that_passes_them() -> None:
    """Catches: timers that wait for the end of the batch, or fire before the row can be out of order."""
    with totals() as harness:
        made = harness.process_batch([pay("a", 1, 0), pay("b", 1, 69), pay("b", 1, 70), pay("b", 1, 71)])

    assert [(row.card, row.what) for row in made] == [("a", "sum"), ("b", "sum"), ("a", "quiet"), *[("b", "sum")] * 2]


def test_advance_watermark(state_backend: StateBackend) -> None:
    """Catches: timers at the watermark that do not fire, or later ones that do; a watermark that goes back."""
    with totals(state_backend=state_backend, parallelism=2) as harness:
        harness.process(pay("a", 1, 0), pay("b", 2, 10))
        assert harness.advance_watermark(at(59)) == []
        assert harness.advance_watermark(at(60)) == [("a", "quiet", 1.0)]
        with raising(LifecycleError, expected=at(60), found=at(59)):
            harness.advance_watermark(at(59))
        assert (harness.watermark, harness.timers_fired) == (at(60), 1)
        assert [(timer.key, timer.time) for timer in harness.timers()] == [("b", at(70))]
        harness.process(pay("c", 1, 59))

        assert harness.late_rows == 1
        with raising(StateTypeError, option="to"):
            harness.advance_watermark(datetime(2026, 3, 1))


def test_close_input_fires_everything() -> None:
    """Catches: timers of a batch job that never fire."""
    with totals() as harness:
        harness.process(pay("a", 1, 0), pay("b", 2, 1e6))
        assert harness.close_input() == [("b", "quiet", 2.0)]
        assert (harness.timers(), harness.keys("total")) == ([], [])


class Polls(es.KeyedProcessFunction):
    """Says the time every minute of processing time, three times."""

    left = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.left.update(3)
        ctx.timers.register_processing_time("poll", ctx.processing_time + timedelta(minutes=1))

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield timer.key, timer.time, ctx.processing_time
        if timer.key == "bad":
            raise ValueError("bad key")
        self.left.update(self.left.value() - 1)
        if self.left.value():
            ctx.timers.register_processing_time("poll", timer.time + timedelta(minutes=1))


def polls(**options: Any) -> Harness:
    """A harness around `Polls`."""
    return Harness(Polls(), schema="k string", key="k", output="k string, due timestamp, now timestamp", **options)


def test_processing_time_is_injected(state_backend: StateBackend) -> None:
    """Catches: a clock of the machine somewhere, or timers that see another time than their transaction's."""
    minute = timedelta(minutes=1)
    with polls(state_backend=state_backend) as harness:
        harness.process(("a",))
        assert harness.processing_time == START
        assert harness.advance_processing_time("59 seconds") == []
        assert harness.advance_processing_time(timedelta(seconds=1)) == [("a", START + minute, START + minute)]
        late = START + 10 * minute
        assert harness.advance_processing_time(late) == [
            ("a", START + 2 * minute, late),
            ("a", START + 3 * minute, late),
        ]
        assert harness.timers() == []
        with raising(StateDeclarationError, option="to"):
            harness.advance_processing_time(5)  # type: ignore[arg-type]


def test_a_failed_advance_leaves_the_clock() -> None:
    """Catches: a clock that has moved although nothing happened at that time."""
    with polls() as harness:
        harness.process(("bad",))
        with raising(UserFunctionError, key="bad"):
            harness.advance_processing_time("1 hour")

        assert harness.processing_time == START
        assert [timer.domain for timer in harness.timers("bad")] == [TimeDomain.PROCESSING]


def test_after_a_failure_other_rows_come_at_another_time() -> None:
    """Catches: the intent of a batch that failed, whose processing time the next one would get."""
    with polls() as harness:
        harness.process(("bad",))
        with pytest.raises(UserFunctionError):
            harness.advance_processing_time("1 minute")
        harness.advance_processing_time("30 seconds")
        harness.process(("a",))

        assert [timer.time for timer in harness.timers("a")] == [START + timedelta(seconds=90)]


@pytest.mark.reliability(22)
def test_a_clock_that_is_set_back() -> None:
    """Catches: a timer that fires twice, or is lost, when the clock steps back behind it."""
    with polls() as harness:
        harness.process(("a",))
        assert len(harness.advance_processing_time("1 minute")) == 1
        assert harness.advance_processing_time(START - timedelta(hours=1)) == []
        assert harness.advance_processing_time(START + timedelta(minutes=1)) == []
        assert len(harness.advance_processing_time("1 minute")) == 1


class Many(es.KeyedProcessFunction):
    """Registers the timers that a row asks for, and says when they fire."""

    def process_element(self, row: Any, ctx: Any) -> None:
        for second in row.seconds:
            ctx.timers.register_event_time(row.name, at(second))
            ctx.timers.register_event_time(row.name, at(second))  # one and the same

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield timer.time, timer.key, timer.name


ROWS = [(f"k{number % 7}", f"n{number % 3}", [number % 5, 3, 40 + number % 2]) for number in range(20)]
EXPECTED = sorted({(at(second), key, name) for key, name, seconds in ROWS for second in seconds})


@pytest.mark.reliability(22)
@pytest.mark.parametrize("path", [(1, 1), (1, 3), (3, 1), (2, 5), (5, 2, 4)], ids=str)
def test_timers_fire_once_in_order_through_restores(path: tuple[int, ...], state_backend: StateBackend) -> None:
    """Catches: timers lost or fired twice by a restore at another parallelism, or fired in another order."""
    options: dict[str, Any] = {"schema": "k string, name string, seconds array<int>", "key": "k"}
    options["follows_event_time"] = True
    out = "t timestamp, k string, name string"
    with Harness(Many(), output=out, parallelism=path[0], state_backend=state_backend, **options) as harness:
        harness.process_batch(ROWS)
        assert [(timer.time, timer.key, timer.name) for timer in harness.timers()] == EXPECTED
        steps: list[list[Any]] = []
        for step, parallelism in enumerate(path, start=1):
            harness.restore(parallelism=parallelism)
            steps.append(harness.advance_watermark(at(2 * step)))
            harness.crash()
        steps.append(harness.close_input())

        for fired, slots in zip(steps, (*path, path[-1]), strict=True):
            # Of one slot in order; of several, each slot's rows are, one slot after the other.
            assert slots > 1 or fired == sorted(fired)
        assert sorted(row for fired in steps for row in fired) == EXPECTED
        assert (harness.timers(), harness.timers_fired) == ([], len(EXPECTED))


@pytest.mark.reliability(22)
def test_order_of_timers_is_by_time_and_key(state_backend: StateBackend) -> None:
    """Catches: an order that depends on when timers were registered, or on a restore in between."""
    options: dict[str, Any] = {"schema": "k string, name string, seconds array<int>", "key": "k"}
    options["follows_event_time"] = True
    for rows in (ROWS, ROWS[::-1]):
        with Harness(Many(), output="t timestamp, k string, name string", **options) as harness:
            harness.process(*rows)
            harness.restore()
            assert harness.close_input() == EXPECTED


def test_an_event_time_timer_needs_an_event_time() -> None:
    """Catches: timers that are registered, kept for ever and never fire, since nothing has an event time."""
    options: dict[str, Any] = {"schema": "k string, name string, seconds array<int>", "key": "k"}
    out = "t timestamp, k string, name string"
    with Harness(Many(), output=out, **options) as harness:
        with raising(es.errors.UserFunctionError, option="event_time") as caught:
            harness.process(("a", "n", [1]))
        assert isinstance(caught.value.__cause__, es.errors.StateDeclarationError)
        assert harness.timers() == []
    with Harness(Many(), output=out, follows_event_time=True, **options) as harness:
        harness.process(("a", "n", [1]))
        assert harness.advance_watermark(at(1)) == [(at(1), "a", "n")]
