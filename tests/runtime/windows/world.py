"""Windows under test: an operator that runs them, driven step by step, and the steps to try."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.restore.load import restore
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.operator.runner import TIMER_QUEUES
from emberstate.runtime.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from emberstate.runtime.windows.process_window_function import ProcessWindowFunction
from emberstate.runtime.windows.trigger import Trigger
from emberstate.runtime.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    PurgingTrigger,
)
from emberstate.runtime.windows.window_function import WindowFunction
from emberstate.runtime.windows.windowed_rows import window
from emberstate.state.states import AggregateFunction
from tests.runtime.windows.model import Firing, Rule, Shape, dynamic_gap

MAX_PARALLELISM = 8
LATE = "late"
#: How rows are folded: all by the same values, so that one expectation serves.
FOLDS = ("reduce", "aggregate", "process")


class Event(NamedTuple):
    """A row as state holds it: its value, and the values of all that were folded into it."""

    value: int
    folded: tuple[int, ...]


def join(one: Event, other: Event) -> Event:
    """A reduce function that loses nothing, so that a row too many or too few shows."""
    return Event(one.value, one.folded + other.folded)


class Collect(AggregateFunction[Event, list[int], list[int]]):
    """An aggregate whose accumulator changes in place, and whose result is that very object."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Event, accumulator: list[int]) -> list[int]:
        accumulator.append(value.value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        one.extend(other)
        return one


class Show(ProcessWindowFunction):
    """Puts out key, window, and the values of the window; then spoils what it was given."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
        if isinstance(elements[0], list):
            [values] = elements
        else:
            values = [value for event in elements for value in event.folded]
        found = getattr(ctx.window, "start", -1), ctx.window.end
        yield key, found, tuple(values)
        values.clear()
        elements.clear()


def micros(count: int) -> timedelta:
    """A duration."""
    return timedelta(microseconds=count)


def assigner_of(shape: Shape) -> WindowAssigner:
    """The assigner that a shape describes."""
    kind, event_time, size, slide, offset = shape
    if kind == "global":
        return GlobalWindows()
    if kind == "tumbling":
        tumbling = TumblingEventTimeWindows if event_time else TumblingProcessingTimeWindows
        return tumbling.of(micros(size), micros(offset))
    if kind == "sliding":
        sliding = SlidingEventTimeWindows if event_time else SlidingProcessingTimeWindows
        return sliding.of(micros(size), micros(slide), micros(offset))
    sessions = EventTimeSessionWindows if event_time else ProcessingTimeSessionWindows
    if kind == "session":
        return sessions.with_gap(micros(size))
    return sessions.with_dynamic_gap(lambda row: micros(dynamic_gap(row.value)))


def trigger_of(rule: Rule) -> Trigger | None:
    """The trigger that a rule describes; None is the assigner's own."""
    made: dict[str, Trigger] = {
        "event end": EventTimeTrigger(),
        "never": NeverTrigger(),
        "count": CountTrigger(max(rule.number, 1)),
        "continuous event": ContinuousEventTimeTrigger(micros(max(rule.number, 1))),
        "continuous processing": ContinuousProcessingTimeTrigger(micros(max(rule.number, 1))),
    }
    return made.get(rule.kind)


def function_of(shape: Shape, rule: Rule, lateness: int, fold: str) -> WindowFunction:
    """Windows as a function."""
    assigner = assigner_of(shape)
    trigger = trigger_of(rule)
    if rule.purging:
        trigger = PurgingTrigger(trigger or assigner.default_trigger())
    rows = window(
        assigner,
        trigger=trigger,
        allowed_lateness=micros(lateness if shape.event_time else 0),
        late_output=LATE if shape.event_time else None,
    )
    if fold == "reduce":
        return rows.reduce(join, Event, function=Show())
    if fold == "aggregate":
        return rows.aggregate(Collect(), function=Show())
    return rows.process(Show(), Event)


@dataclasses.dataclass
class World:
    """An operator, and the times it has been told."""

    function: WindowFunction
    operator: KeyedOperator
    watermark: int | None = None
    now: int = 0

    @staticmethod
    def of(
        function: WindowFunction, groups: KeyGroupRange | None = None, out_of_orderness: str = "1 hour"
    ) -> World:
        """An open operator. With the default, rows by themselves do not move the watermark."""
        backend = HeapKeyedStateBackend(
            KeySchema.from_python(str), max_parallelism=MAX_PARALLELISM, key_group_range=groups
        )
        operator = KeyedOperator(
            "windows", function, backend, side_outputs={LATE: None}, out_of_orderness=out_of_orderness
        )
        operator.open()
        return World(function, operator)

    def step(self, step: Step) -> tuple[list[Firing], list[int]]:
        """One step in a transaction of its own; what fired, and what was late."""
        match step:
            case ("watermark", by):
                self.watermark = (0 if self.watermark is None else self.watermark) + by
            case ("processing time", by):
                self.now += by
        return self.transaction([step] if step[0] == "row" else [])

    def transaction(self, rows: list[Any]) -> tuple[list[Firing], list[int]]:
        """Rows in one transaction."""
        self.operator.begin(processing_time=self.now, watermark=self.watermark)
        for _, key, time, value in rows:
            if self.owns(key):
                self.operator.process(key, Event(value, (value,)), time)
        result = self.operator.end()
        return result.main, [value for value, _ in result.outputs[LATE].rows]

    def owns(self, key: str) -> bool:
        """Whether a key belongs here."""
        context = self.operator.backend.context
        return context.grouper(key) in context.key_group_range

    def leftovers(self) -> tuple[int, int]:
        """How many entries and timers there are, all of them in order."""
        backend = self.operator.backend
        self.operator.check_invariants()
        timers = [
            backend.get_timer_queue(name, namespace_type=self.function.timer_namespace_type)
            for name in TIMER_QUEUES.values()
        ]
        return backend.number_of_entries(), sum(len(queue) for queue in timers)

    def file(self) -> bytes:
        """All state and timers as a state file."""
        backend = self.operator.backend
        with backend.snapshot() as snapshot:
            return b"".join(BaseWriter(backend, snapshot))

    def restored(self, function: WindowFunction, files: list[bytes], groups: KeyGroupRange) -> World:
        """Another operator that goes on from files."""
        other = World.of(function, groups)
        restore([StateFileReader.of_bytes(file) for file in files], other.operator.backend)
        other.watermark, other.now = self.watermark, self.now
        return other

    def moved(self, function: WindowFunction) -> World:
        """Another operator, with another function, that goes on with all that this one has."""
        return self.restored(function, [self.file()], self.operator.backend.context.key_group_range)


Step = tuple[str, Any] | tuple[str, Any, Any, Any]

_KEYS = st.sampled_from(["ann", "bob"])


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), _KEYS, st.integers(-12, 12)),
        st.tuples(st.just("row"), _KEYS, st.integers(-12, 12)),
        st.tuples(st.just("watermark"), st.integers(0, 8)),
        st.tuples(st.just("processing time"), st.integers(0, 8)),
    ),
    min_size=15,  # fewer rows seldom meet in a window
    max_size=40,
)


@st.composite
def steps(draw: st.DrawFn, watermark: int = 0) -> list[Step]:
    """Advances of both times, and rows around the watermark with values that are never the same twice."""
    found: list[Step] = []
    for number, step in enumerate(draw(_STEPS)):
        match step:
            case ("row", key, int(by)):
                found.append(("row", key, watermark + by, number))
            case (str(time), int(by)):
                found.append((time, by))
                watermark += by if time == "watermark" else 0
    return found


@st.composite
def shapes(draw: st.DrawFn, kind: str, event_time: bool) -> Shape:
    """Windows of a kind; sliding ones overlap, tile, or leave gaps."""
    size = draw(st.integers(1, 16))
    slide = draw(st.integers(1, 16))
    period = size if kind == "tumbling" else slide
    return Shape(kind, event_time, size, slide, draw(st.integers(1 - period, period - 1)))


def rule_kinds(kind: str, event_time: bool) -> list[str]:
    """The kinds of triggers that make sense for windows."""
    kinds = ["end", "never", "count", "continuous processing"]
    return [*kinds, "event end", "continuous event"] if event_time or kind == "global" else kinds


def rules(kind: str) -> st.SearchStrategy[Rule]:
    """Triggers of a kind; purging ones are one in four, for they make windows store on their own."""
    return st.builds(Rule, st.just(kind), st.integers(1, 6), st.sampled_from([False, False, False, True]))
