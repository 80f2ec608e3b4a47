"""Sinks that are objects: what a pipeline gives them, when, and what happens to what they raise."""

from __future__ import annotations

import os
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import SinkError, StateDeclarationError
from emberstate.runtime.rows.arrow_rows import rows_of as arrow_rows
from emberstate.sinks import Delivery, Part, Start
from emberstate.spark.driver import outputs
from tests.raising import raising
from tests.spark.pipeline_functions import TOTALS, Totals, events, totals
from tests.spark.streams import Kept, Stream, query_failing, rows_of

pytestmark = pytest.mark.spark


class Taken(es.sinks.Sink):
    """Reads every delivery in three ways, and keeps it."""

    promise = "at-least-once: a test"

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.deliveries: list[tuple[Delivery, list[Any], list[Any], set[int]]] = []
        self.refuses = False
        self.fails = 0

    def check(self, start: Start) -> None:
        self.starts.append(start)
        if self.refuses:
            raise SinkError("the target is closed; open it", option="path", found="closed")

    def deliver(self, delivery: Delivery) -> None:
        if self.fails:
            self.fails -= 1
            raise SinkError("the target was closed", option="path", found="closed")
        by_task = delivery.in_tasks(_read)
        rows = [row for found, _ in by_task for row in found]
        assert sorted(rows) == sorted(rows_of(delivery.frame()))
        assert len(rows) == delivery.rows
        self.deliveries.append((delivery, rows, [part.number for part in delivery.parts], {pid for _, pid in by_task}))

    def __repr__(self) -> str:
        return "taken()"


def _read(part: Part) -> tuple[list[Any], int]:
    return [tuple(row) for batch in part.batches() for row in arrow_rows(batch, part.row_type)], os.getpid()


def counted(stream: Stream, *sinks: Any, kind: str = "fs") -> es.Pipeline:
    """Totals by key."""
    stage = stream.pipeline(kind, parallelism=2).key_by("key").event_time("ts")
    return stage.process("totals", Totals(), TOTALS).sink(*sinks)


@pytest.mark.parametrize("kind", ["fs", "memory"])
def test_a_sink_gets_the_stored_parts(stream: Stream, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Catches: a sink of several that is left out; a run whose output has fewer rows than its sinks got; parts, tasks
    and DataFrame that differ; a batch that comes again under another identity; two runs that cannot be told apart; rows
    of tasks that the driver's process reads."""
    given, taken, kept, memory = events(70), Taken(), Kept(), es.sinks.memory()
    stream.add(given[:30], given[30:60])
    pipeline = counted(stream, taken, kept, memory, kind=kind)
    assert repr(pipeline).endswith(
        "sinks={'main': ['taken(): at-least-once: a test', 'Kept: at-least-once', "
        "'memory(): exactly-once, as long as the process lives']})"
    )
    stream.drain(pipeline)
    assert [one.before for one in taken.starts] == [None]
    found = [row for _, rows, _, _ in taken.deliveries for row in rows]
    assert sorted(found) == sorted(totals(given[:60])) == sorted(kept.rows) == sorted(map(tuple, memory.rows))
    first, second = (delivery for delivery, *_ in taken.deliveries)
    assert first.origin == second.origin
    assert (first.batch, second.batch) == (0, 1)
    assert first.origin.job == "job"
    assert (first.origin.stage, first.origin.output) == ("totals", "main")
    assert all(pids == {os.getpid()} for *_, pids in taken.deliveries), "small outputs need no job of Spark's"

    if kind == "fs":
        # The second sink failed, so all sinks get the batch again, from tasks this time.
        stream.add(given[60:])
        monkeypatch.setattr(outputs, "DRIVER_BYTES", -1)
        failing = Taken()
        failing.fails = 1
        again = counted(stream, taken, failing, memory)
        with query_failing(again, SinkError, "sink 'taken\\(\\)'", operator="totals", batch=2, found="closed"):
            stream.drain(again)
        stream.drain(counted(stream, taken, failing, memory))
        *_, once, twice = taken.deliveries
        assert once[0].origin == twice[0].origin == first.origin
        assert (once[0].batch, once[1:3]) == (twice[0].batch, twice[1:3])
        assert os.getpid() not in once[3] | twice[3]
        assert sorted(map(tuple, memory.rows)) == sorted(totals(given))
        assert taken.starts[-1].before == first.origin

    other = Taken()
    result = counted(stream, other, kind=kind).run(stream.static(), batches=2)
    assert other.deliveries[0][0].origin != first.origin
    rows = [row for _, found, _, _ in other.deliveries for row in found]
    assert len(result) == 2 and sorted(rows_of(result.output)) == sorted(rows)


def test_a_target_that_cannot_be_delivered_to_is_refused_at_the_start(stream: Stream) -> None:
    """Catches: a mistake in a sink that shows after the first batch is committed; a sink without a promise."""
    stream.add(events(5))
    taken = Taken()
    taken.refuses = True
    pipeline = counted(stream, taken)
    with raising(SinkError, option="path", found="closed"):
        stream.start(pipeline)
    with raising(SinkError, option="path", found="closed"):
        pipeline.run(stream.static())
    with query_failing(pipeline, SinkError, option="path", found="closed"):
        stream.drain(pipeline)
    assert not (stream.root / "state").exists(), "nothing was written"
    taken.promise = "always"
    with raising(StateDeclarationError, option="promise", found="always"):
        counted(stream, taken)
    with raising(StateDeclarationError, option="rows", found=0):
        es.sinks.console(rows=0)
