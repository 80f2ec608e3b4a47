"""Streams without data: time goes on with the heartbeat. The clock is set by hand, the heart beats by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import emberstate as es
from emberstate.clock import ManualClock
from emberstate.errors import StateDeclarationError
from tests.raising import raising
from tests.spark.pipeline_functions import BURSTS, TOTALS, Bursts, Totals, events, totals
from tests.spark.streams import Kept, Stream, at, wait_in

pytestmark = pytest.mark.spark

BEAT = "200 milliseconds"


class Reminders(es.KeyedProcessFunction):
    """Remembers a key for a minute, and tells of it after ten seconds."""

    seen: Any = es.value_state(int, default=0, ttl=timedelta(minutes=1))

    def process_element(self, row: Any, ctx: Any) -> None:
        self.seen.update(self.seen.value() + 1)
        ctx.timers.register_processing_time("remind", ctx.processing_time + timedelta(seconds=10))

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        yield ctx.key, self.seen.value()


def micros(seconds: float) -> int:
    """A moment, as clocks have it."""
    return round(at(seconds).timestamp() * 1_000_000)


@pytest.mark.long
@pytest.mark.reliability(22)
def test_timers_fire_and_state_expires_on_an_idle_stream(stream: Stream) -> None:
    """Catches: processing time that stands still without rows; rows of a heartbeat that reach the function."""
    clock, kept, progress = ManualClock(micros(0)), Kept(), list[es.Progress]()
    stage = stream.pipeline(clock=clock).key_by("key").process("remind", Reminders(), "key string, seen bigint")
    stream.add([("a", at(0), 1), ("b", at(0), 1), ("a", at(1), 1)])
    query = stream.start(stage.sink(kept).listener(progress.append), heartbeat=BEAT)
    wait_in(query, lambda: sum(one.rows_in for one in progress) == 3, "the rows")
    beats = len(progress)
    wait_in(query, lambda: len(progress) >= beats + 2, "two heartbeats")
    assert kept.rows == [] and progress[-1].state_entries > 0
    clock.set(micros(10))
    wait_in(query, lambda: kept.rows, "the timers")
    clock.set(micros(120))
    wait_in(query, lambda: progress[-1].state_entries == 0, "an end of what has expired")
    query.stop()
    assert sorted(kept.rows) == [("a", 2), ("b", 1)]
    assert sum(one.rows_in for one in progress) == 3
    assert [one.batch for one in progress] == list(range(len(progress)))


@pytest.mark.long
def test_event_time_goes_on_after_the_idle_timeout(stream: Stream) -> None:
    """Catches: event time that moves on an idle stream unasked, or does not though asked."""
    clock, kept, progress = ManualClock(micros(0)), Kept(), list[es.Progress]()
    stage = stream.pipeline(clock=clock).key_by("key").event_time("ts", idle_timeout="30 seconds")
    pipeline = stage.process("bursts", Bursts(), BURSTS).sink(kept).listener(progress.append)
    stream.add([("a", at(0), 1), ("a", at(1), 2)])
    query = stream.start(pipeline, heartbeat=BEAT)
    wait_in(query, lambda: sum(one.rows_in for one in progress) == 2, "the rows")
    clock.set(micros(29))
    beats = len(progress)
    wait_in(query, lambda: len(progress) >= beats + 3, "heartbeats")
    assert kept.rows == [] and progress[-1].watermark == at(1)
    clock.set(micros(30))
    wait_in(query, lambda: kept.rows, "the end of the burst")
    query.stop()
    assert kept.rows == [("a", at(0), at(1), 3)]


@pytest.mark.long
def test_an_idle_watermark_goes_on_after_a_restart(stream: Stream) -> None:
    """Catches: a restart after which event time stands still for as long as the stream was idle before."""
    clock = ManualClock(micros(0))

    def run_until(seconds: float, watermark: float) -> None:
        progress = list[es.Progress]()
        stage = stream.pipeline(clock=clock).key_by("key").event_time("ts", idle_timeout="30 seconds")
        pipeline = stage.process("totals", Totals(), TOTALS).sink(Kept()).listener(progress.append)
        query = stream.start(pipeline, heartbeat=BEAT)
        wait_in(query, lambda: progress, "a batch")
        clock.set(micros(seconds))
        wait_in(query, lambda: progress[-1].watermark == at(watermark), f"the watermark {watermark}")
        query.stop()

    stream.add([("a", at(0), 1)])
    run_until(3000, 3000)
    run_until(3010, 3010)


@pytest.mark.long
def test_a_heartbeat_beside_data_changes_nothing(stream: Stream) -> None:
    """Catches: rows that a heartbeat's batch loses or doubles, with a restart in between."""
    given = events(120)
    kept = Kept()
    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(kept)
    for part in (given[:60], given[60:]):
        query = stream.start(pipeline, heartbeat=BEAT)
        so_far = len(kept.rows)
        for number in range(0, 60, 20):
            stream.add(part[number : number + 20])
        wait_in(query, lambda: len(kept.rows) >= so_far + 60, "the rows")  # noqa: B023
        query.stop()
    assert sorted(kept.rows) == sorted(totals(given))


def test_without_a_heartbeat_waiting_timers_are_told_of(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: processing-time timers that silently wait for data; a heartbeat that is none."""
    stage = stream.pipeline().key_by("key").process("remind", Reminders(), "key string, seen bigint").sink(Kept())
    stream.add([("a", at(0), 1)], [("b", at(0), 1)])
    with caplog.at_level(logging.WARNING, "emberstate.spark"):
        stream.drain(stage)
    assert len([line for line in caplog.messages if "heartbeat" in line]) == 1, caplog.messages
    with raising(StateDeclarationError, option="heartbeat"):
        stream.start(stage, heartbeat="1 millisecond")
    with pytest.raises(StateDeclarationError, match="streaming"):
        stage.start(stream.static(), checkpoint=stream.checkpoint)
    with pytest.raises(StateDeclarationError, match="static"):
        stage.run(stream.read())
