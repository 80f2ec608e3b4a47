"""Declared aggregates in windows against windows that keep the rows, over any cut of the input into batches."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.windowed_rows import WindowedRows
from tests.effort import examples
from tests.runtime.aggregates.oracle import AGGREGATES, SCHEMA, Combiner, Event, comparable, events, expected

LATE = "late"


def micros(count: int) -> timedelta:
    """A duration."""
    return timedelta(microseconds=count)


@st.composite
def windows(draw: st.DrawFn, kind: str, lateness: int) -> WindowedRows:
    """Windows of event time."""
    size, slide = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    assigner: Any
    if kind == "session":
        assigner = es.EventTimeSessionWindows.with_gap(micros(size))
    elif kind == "dynamic":
        assigner = es.EventTimeSessionWindows.with_dynamic_gap(_gap)
    elif kind == "tumbling":
        assigner = es.TumblingEventTimeWindows.of(micros(size), micros(draw(st.integers(1 - size, size - 1))))
    else:
        assigner = es.SlidingEventTimeWindows.of(micros(size), micros(slide), micros(draw(st.integers(0, slide - 1))))
    return es.window(assigner, allowed_lateness=micros(lateness), late_output=LATE)


def _gap(row: Any) -> timedelta:
    return micros((row.amount or 0) % 7 + 1)


class Rows(es.ProcessWindowFunction):
    """Emits the window's rows, aggregated by the oracle."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
        yield (key, ctx.window.start_time, ctx.window.end_time, *expected(elements))


class Run:
    """An operator, driven batch by batch."""

    def __init__(self, function: Any, lag: int) -> None:
        self.operator = KeyedOperator(
            "windows",
            function,
            HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=8),
            side_outputs={LATE: None},
            out_of_orderness=micros(lag),
        )
        self.operator.open()

    def batch(self, rows: list[tuple[str, int, Any]], watermark: int | None) -> tuple[list[Any], list[Any]]:
        """The results and the late rows of a batch, whose rows are (key, time, row)."""
        self.operator.begin(processing_time=0, watermark=watermark)
        for key, time, row in rows:
            self.operator.process(key, row, time)
        result = self.operator.end()
        return result.main, result.outputs[LATE].rows

    def entries(self) -> int:
        """How many entries there are, all in order."""
        self.operator.check_invariants()
        return self.operator.backend.number_of_entries()


def cut(draw: st.DrawFn, found: list[Event]) -> list[list[Event]]:
    """The rows in batches, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(found)), max_size=6)))
    return [found[start:end] for start, end in zip([0, *places], [*places, len(found)], strict=True)]


@pytest.mark.parametrize(
    ("kind", "are_combined"),
    [
        ("tumbling", True),
        ("sliding", True),
        ("session", True),
        ("sliding", False),
        ("session", False),
        ("dynamic", False),
    ],
)
@pytest.mark.parametrize("lateness", [0, 9])
@given(data=st.data())
@settings(max_examples=examples(40))
def test_declared_windows_equal_windows_of_rows(kind: str, lateness: int, are_combined: bool, data: Any) -> None:
    """Catches: a partial row in another window than its rows, merged twice or not at all, or that closes a session

    too soon; an accumulator that merges wrongly; a late row that is lost, taken or emitted otherwise; state left over.
    """
    rows = data.draw(windows(kind, lateness))
    lag = data.draw(st.integers(0, 20))
    found = data.draw(events())
    spec = AggregateSpec.of(AGGREGATES, SCHEMA, ["key"], event_time="ts", window=rows)
    combiner = Combiner(spec)
    declared = Run(aggregate_function(spec), lag)
    by_rows = Run(rows.process(Rows(), Event), lag)
    got, wanted, watermark = [], [], -(2**63)
    late: list[list[Any]] = [[], []]
    for batch in [*cut(data.draw, found), []]:
        in_order = sorted(batch, key=lambda event: event.ts)
        partials = combiner.combined(batch, watermark) if are_combined else combiner.single(batch)
        outputs, too_late = declared.batch(partials, watermark)
        got += outputs
        late[0] += too_late
        outputs, too_late = by_rows.batch([(e.key, e.ts, e) for e in in_order], watermark)
        wanted += outputs
        late[1] += [Event(*event).row() for event in too_late]
        watermark = max([watermark, *(event.ts - lag for event in batch)])
    for world, into in ((declared, got), (by_rows, wanted)):
        into += world.batch([], MAX_TIME)[0]
        assert world.entries() == 0
    assert Counter(late[0]) == Counter(late[1])
    if lateness == 0:
        assert sorted(map(_shown, got)) == sorted(map(_shown, wanted))
    else:
        _check_refired(got, wanted)


def _shown(row: tuple[Any, ...]) -> str:
    return repr((*row[:3], comparable(row[3:])))


def _check_refired(got: list[Any], wanted: list[Any]) -> None:
    """Late rows of one batch may fire a window once where they fire it one by one: what is emitted last is the same,

    unless the window became part of a longer session before that.
    """
    assert {_shown(row) for row in got} <= {_shown(row) for row in wanted}
    last, wanted_last = ({row[:3]: _shown(row) for row in rows} for rows in (got, wanted))
    for window, shown in wanted_last.items():
        key, start, end = window
        longer = [w for w in wanted_last if w != window and w[0] == key and w[1] <= start and w[2] >= end]
        assert last.get(window) == shown or longer


@pytest.mark.parametrize("emit", ["changed", es.every(micros(7))], ids=["changed", "every"])
@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
@given(data=st.data())
@settings(max_examples=examples(20))
def test_what_is_emitted_early_ends_in_what_closes(kind: str, emit: Any, data: Any) -> None:
    """Catches: a change that is never emitted, a window that emits twice in a batch or after it closed; state left."""
    rows = data.draw(windows(kind, 0))
    lag = data.draw(st.integers(0, 20))
    found = data.draw(events())
    runs, emitted = [], []
    for one in (None, emit):
        spec = AggregateSpec.of(AGGREGATES, SCHEMA, ["key"], event_time="ts", window=rows, emit=one)
        runs.append((Run(aggregate_function(spec), lag), Combiner(spec)))
    watermark = -(2**63)
    for batch in [*cut(data.draw, found), [], None]:
        at = MAX_TIME if batch is None else watermark
        outputs = [run.batch(combiner.combined(batch or [], at), at)[0] for run, combiner in runs]
        emitted.append(outputs)
        if emit == "changed":
            places = [row[:3] for row in outputs[1]]
            assert len(set(places)) == len(places)
            assert batch or not outputs[1]
        watermark = max([watermark, *(event.ts - lag for event in batch or ())])
    closed, early = ({row[:3]: _shown(row) for outputs in emitted for row in outputs[n]} for n in (0, 1))
    assert closed.items() <= early.items()
    assert kind == "session" or closed == early
    assert [run.entries() for run, _ in runs] == [0, 0]
