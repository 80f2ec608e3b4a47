"""Event time: order of rows and timers, lateness, and that the cut into transactions does not matter."""

from __future__ import annotations

import heapq
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from emberstate.errors import LifecycleError, UserFunctionError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema, range_for_slot
from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.times import MAX_TIME, MIN_TIME
from emberstate.state.ttl.config import TtlConfig, TtlTime
from tests.raising import raising
from tests.runtime.support import SECOND, at, opened, transaction

pytestmark = pytest.mark.reliability(22)


class Scripted(KeyedProcessFunction):
    """Rows are scripts: (name, seconds) registers an event-time timer, in the past too; timers may do the same."""

    seen = value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.seen.update(self.seen.value() + 1)
        yield "row", ctx.key, ctx.timestamp_micros, ctx.watermark_micros, self.seen.value()
        for name, when, chained in row:
            ctx.timers.event.register(name if chained is None else f"{name}>{chained}", when)

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield "timer", ctx.key, timer.micros, timer.name, ctx.watermark_micros, ctx.timestamp_micros
        name, _, chained = timer.name.partition(">")
        if chained:
            ctx.timers.event.register(name, int(chained))


def model(rows: list[tuple[str, int, Any]], lag: int, last: int) -> list[Any]:
    """What one transaction over sorted rows puts out, then an advance to `last`; with a heap and dicts."""
    timers: list[tuple[int, str, str]] = []
    out: list[Any] = []
    seen: dict[str, int] = {}
    progress = MIN_TIME

    def register(when: int, key: str, name: str) -> None:
        if (when, key, name) not in timers:
            heapq.heappush(timers, (when, key, name))

    def advance(until: int) -> None:
        nonlocal progress
        while timers and timers[0][0] <= until:
            when, key, name = heapq.heappop(timers)
            progress = max(progress, when)
            out.append(("timer", key, when, name, progress, when))
            plain, _, chained = name.partition(">")
            if chained:
                register(int(chained), key, plain)
        progress = max(progress, until)

    for key, time, script in rows:
        advance(max(time - lag, progress))
        seen[key] = seen.get(key, 0) + 1
        out.append(("row", key, time, progress, seen[key]))
        for name, when, chained in script:
            register(when, key, name if chained is None else f"{name}>{chained}")
        advance(progress)
    advance(last)
    return out


SCRIPTS = st.lists(
    st.tuples(st.sampled_from("xy"), st.integers(0, 60), st.none() | st.integers(0, 60)), max_size=3
).map(tuple)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), SCRIPTS), max_size=25).map(
    lambda rows: sorted(rows, key=lambda row: row[1])
)


def cut(operator: KeyedOperator, rows: list[Any], cuts: list[int], lag: int, last: int) -> list[Any]:
    """The outputs of rows cut into transactions, each with the watermark that a driver would give it."""
    out: list[Any] = []
    highest = None
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        operator.begin(0, None if highest is None else highest - lag)
        for key, time, script in rows[start:stop]:
            operator.process(key, script, time)
        result = operator.end()
        assert result.late_rows == 0
        out += result.main
        if result.max_event_time is not None:
            highest = max(result.max_event_time, highest or result.max_event_time)
    operator.begin(0)
    operator.advance_watermark(last)
    return out + operator.end().main


@given(ROWS, st.integers(0, 10))
def test_order_of_rows_and_timers(rows: list[Any], lag: int) -> None:
    """Catches: a timer that fires too early or late, twice, never, or in another order than time, key, name."""
    operator = opened(Scripted(), out_of_orderness=f"{lag} microseconds")

    assert cut(operator, rows, [], lag, 100) == model(rows, lag, 100)
    operator.check_invariants()


@given(ROWS, st.integers(0, 10), st.lists(st.integers(0, 25), max_size=6))
def test_cuts_do_not_matter(rows: list[Any], lag: int, cuts: list[int]) -> None:
    """Catches: outputs of rows in order that depend on how many transactions they came in."""
    places = sorted(min(place, len(rows)) for place in cuts)
    operator = opened(Scripted(), out_of_orderness=f"{lag} microseconds")
    out = cut(operator, rows, places, lag, 100)
    expected = model(rows, lag, 100)

    for key in "abc":  # per key the order is the same; between keys it may differ where timers wait for a row
        assert [event for event in out if event[1] == key] == [event for event in expected if event[1] == key]


@given(ROWS, st.integers(1, 5))
def test_parallelism_does_not_matter(rows: list[Any], slots: int) -> None:
    """Catches: outputs of a key that depend on which other keys are in its slot."""
    schema = KeySchema.from_python(str)
    expected = model(rows, 3, 100)
    for slot in range(slots):
        owned = range_for_slot(128, slots, slot)
        mine = [row for row in rows if schema.key_group(row[0], 128) in owned]
        backend = HeapKeyedStateBackend(schema, key_group_range=owned)
        operator = KeyedOperator("op", Scripted(), backend, out_of_orderness="3 microseconds")
        operator.open()
        out = cut(operator, mine, [len(mine) // 2], 3, 100)
        for key in {row[0] for row in mine}:
            assert [event for event in out if event[1] == key] == [event for event in expected if event[1] == key]


class Recorder(KeyedProcessFunction):
    """Says what happens; registers what the row names."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        for domain, name, seconds in row:
            register = ctx.timers.register_event_time if domain == "event" else ctx.timers.register_processing_time
            yield name, register(name, at(seconds))

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield timer.domain, timer.name, timer.time, ctx.timestamp, ctx.watermark, ctx.processing_time


def test_both_times() -> None:
    """Catches: a processing-time timer that fires by event time, or says the wrong times."""
    operator = opened(Recorder())
    rows = [("a", [("event", "e", 5), ("processing", "p", 3)], 1)]

    assert transaction(operator, rows, processing_time=2 * SECOND).main == [("e", True), ("p", True)]
    assert transaction(operator, processing_time=3 * SECOND - 1).main == []
    assert transaction(operator, processing_time=3 * SECOND, watermark=5 * SECOND).main == [
        (TimeDomain.EVENT, "e", at(5), at(5), at(5), at(3)),
        (TimeDomain.PROCESSING, "p", at(3), None, at(5), at(3)),
    ]
    assert transaction(operator, processing_time=9 * SECOND, watermark=9 * SECOND).timers_fired == 0


def test_registered_twice_is_one() -> None:
    """Catches: two firings of one timer."""
    operator = opened(Recorder())
    out = transaction(operator, [("a", [("event", "e", 5), ("event", "e", 5), ("event", "f", 5)], 1)]).main

    assert out == [("e", True), ("e", False), ("f", True)]
    assert transaction(operator, watermark=9 * SECOND).timers_fired == 2


def test_a_processing_time_already_passed_fires_after_the_row() -> None:
    """Catches: a timer for now that waits for the next transaction."""
    operator = opened(Recorder())
    out = transaction(operator, [("a", [("processing", "p", 1)])], processing_time=SECOND).main

    assert [event[:2] for event in out] == [("p", True), (TimeDomain.PROCESSING, "p")]


def test_clock_set_back() -> None:
    """Catches: a clock that was set back an hour firing twice what had fired, or refusing to go on."""
    operator = opened(Recorder())
    transaction(operator, [("a", [("processing", "p", 10)])], processing_time=3600 * SECOND + 5 * SECOND)
    before = operator.statistics().timers_fired
    transaction(operator, processing_time=5 * SECOND)
    transaction(operator, [("a", [("processing", "q", 7)])], processing_time=6 * SECOND)
    result = transaction(operator, processing_time=3600 * SECOND)

    assert before == 1
    assert [event[1] for event in result.main] == ["q"]


class Lister(KeyedProcessFunction):
    """Lists and deletes timers."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.timers.register_event_time("b", at(9))
        ctx.timers.register_event_time("a", at(9))
        ctx.timers.register_event_time("a", at(3))
        ctx.timers.register_processing_time("p", at(4))
        yield "event", [(timer.name, timer.time) for timer in ctx.timers.list_event_time()]
        yield "processing", [(timer.name, timer.time) for timer in ctx.timers.list_processing_time()]
        yield "deleted", ctx.timers.delete_event_time("a", at(9)), ctx.timers.delete_event_time("a", at(9))
        yield "deleted", ctx.timers.delete_processing_time("p", at(4))
        yield "event", [(timer.name, timer.time) for timer in ctx.timers.list_event_time()]

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield timer.name, timer.time


def test_list_and_delete() -> None:
    """Catches: a list in another order than that of firing, and a deleted timer that fires."""
    operator = opened(Lister())

    assert transaction(operator, [("k", None)]).main == [
        ("event", [("a", at(3)), ("a", at(9)), ("b", at(9))]),
        ("processing", [("p", at(4))]),
        ("deleted", True, False),
        ("deleted", True),
        ("event", [("a", at(3)), ("b", at(9))]),
    ]
    assert transaction(operator, watermark=MAX_TIME, processing_time=9 * SECOND).main == [("a", at(3)), ("b", at(9))]


def test_watermark_must_not_go_back() -> None:
    """Catches: timers that fired already being taken for the future again."""
    operator = opened(Recorder())
    transaction(operator, watermark=10)
    with raising(LifecycleError, "go back", operator=operator.name):
        operator.begin(0, 9)
    operator.begin(0, 10)
    with raising(LifecycleError, "go back", operator=operator.name):
        operator.advance_watermark(9)


def test_roll_back_brings_timers_and_watermark_back() -> None:
    """Catches: timers that a failed attempt fired and that a rerun does not fire again."""
    operator = opened(Recorder())
    transaction(operator, [("a", [("event", "e", 5)], 1)])
    with operator.snapshot() as point:
        first = transaction(operator, [("b", [("event", "f", 7)], 8)], watermark=6 * SECOND).main
        operator.roll_back(point)
    assert operator.watermark == MIN_TIME
    again = transaction(operator, [("b", [("event", "f", 7)], 8)], watermark=6 * SECOND).main

    assert operator.watermark == 6 * SECOND
    assert first == again
    assert [event[1] for event in again] == ["e", True, "f"]  # f, for a time that has passed, at once


class Endless(KeyedProcessFunction):
    """Registers its timer again for the same time."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.timers.register_event_time("x", at(1))

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        ctx.timers.register_event_time("x", timer.time)


def test_a_timer_that_registers_itself_is_refused() -> None:
    """Catches: a slot that hangs in a loop which no timeout of the function's own can end."""
    operator = opened(Endless())
    operator.begin(0)
    with raising(UserFunctionError, operator=operator.name, key="a"):
        operator.process("a", None, 5 * SECOND)


class Late(KeyedProcessFunction):
    """Counts rows."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        return row, "in time"


class TakesLate(Late):
    """Handles late rows itself."""

    def process_late_element(self, row: Any, ctx: Any) -> Any:
        return row, f"late by {(ctx.watermark - ctx.timestamp).total_seconds()}"


def test_late_rows() -> None:
    """Catches: a row at the watermark taken for late, and late rows that vanish without a count."""
    rows = [("a", 1, 9.0), ("a", 2, 10.0), ("b", 3, 0.0)]
    result = transaction(opened(Late()), rows, watermark=10 * SECOND)
    assert (result.main, result.rows, result.late_rows, result.late_rows_dropped) == ([(2, "in time")], 3, 2, 2)

    result = transaction(opened(TakesLate()), rows, watermark=10 * SECOND)
    assert result.main == [(1, "late by 1.0"), (2, "in time"), (3, "late by 10.0")]
    assert (result.late_rows, result.late_rows_dropped) == (2, 0)

    result = transaction(opened(Late(), late_output="too late"), [("a", (1,), 9.0)], watermark=10 * SECOND)
    assert (result.outputs["too late"].rows, result.late_rows_dropped) == ([(1,)], 1)


def test_lateness_is_judged_by_the_watermark_told() -> None:
    """Catches: a row called late because another of the same transaction was ahead of it."""
    operator = opened(Late())
    result = transaction(operator, [("a", 1, 50.0), ("a", 2, 10.0)], watermark=10 * SECOND)

    assert (result.late_rows, result.max_event_time) == (0, 50 * SECOND)


class EventTtl(KeyedProcessFunction):
    """State that lives for ten seconds of event time."""

    seen = map_state(str, int, ttl=TtlConfig("10 seconds", time=TtlTime.EVENT))

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.seen[row] = 1
        yield sorted(self.seen), 0


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2)])
def test_event_time_to_live_follows_rows(cuts: tuple[int, ...]) -> None:
    """Catches: event time to live that stands still within a transaction, so that the cut would matter."""
    rows = [("k", "a", 0.0), ("k", "b", 9.0), ("k", "c", 10.0)]
    operator = opened(EventTtl())
    out: list[Any] = []
    watermark = None
    for start, stop in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        result = transaction(operator, rows[start:stop], watermark=watermark)
        out += result.main
        watermark = result.max_event_time

    assert [names for names, _ in out] == [["a"], ["a", "b"], ["b", "c"]]
