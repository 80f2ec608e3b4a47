"""What windows promise beyond the model: what they store, refuse, count, hand out and clean up."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.errors import RestoreRefusedError, StateDeclarationError, UserFunctionError
from emberstate.runtime.functions.function import declarations
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from emberstate.runtime.windows.merging_window_function import MERGING_CONTENTS
from emberstate.runtime.windows.process_window_function import ProcessWindowFunction
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.trigger import Trigger, TriggerContext, TriggerResult
from emberstate.runtime.windows.triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from emberstate.runtime.windows.window_function import FIRINGS, LATE_ROWS_DROPPED
from emberstate.runtime.windows.windowed_rows import window
from emberstate.state.descriptors import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from emberstate.state.states import AggregateFunction
from tests.raising import raising
from tests.runtime.windows.model import Rule, Shape
from tests.runtime.windows.world import Collect, Event, Show, World, function_of, join, micros


def rows_at(*times: int, key: str = "ann") -> list[Any]:
    """Rows of one key, with their time as value."""
    return [("row", key, time, time) for time in times]


def at(world: World, watermark: int, *times: int) -> list[Any]:
    """What a transaction at a watermark puts out."""
    world.watermark = watermark
    return world.transaction(rows_at(*times))[0]


SLIDING = SlidingEventTimeWindows.of(micros(60), micros(10))


# -- what is stored -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fold", ["reduce", "aggregate", "process"])
def test_overlapping_windows_store_a_row_once(fold: str) -> None:
    """Catches: state that grows with the number of windows a row is in, or with rows where a fold is given."""
    world = World.of(function_of(Shape("sliding", True, 60, 10), Rule("end"), 0, fold))

    at(world, 0, *[time for time in range(100, 160) for _ in range(3)])
    entries, timers = world.leftovers()

    assert entries == 6 + 1  # slices, and their index; six windows of each row would be 11
    assert timers == 11  # of the first window of each slice and the clean-up of its last; 160 is both


def test_a_row_in_a_thousand_windows_costs_two_timers() -> None:
    """Catches: work per row that grows with size / slide."""
    world = World.of(window(SlidingEventTimeWindows.of("1 hour", "1 second")).aggregate(Collect(), function=Show()))

    at(world, 0, 10**9)

    assert world.leftovers() == (2, 2)


@pytest.mark.parametrize(
    ("trigger", "entries"),
    [
        (CountTrigger(1000), 6 + 1 + 11),  # slices, index, a count per window
        (PurgingTrigger(CountTrigger(1000)), 11 + 11),  # purged one by one, windows cannot share
    ],
)
def test_windows_that_may_be_purged_do_not_share(trigger: Trigger, entries: int) -> None:
    """Catches: a purge of one window that empties its neighbours, and no sharing where nothing is purged."""
    world = World.of(window(SLIDING, trigger=trigger).aggregate(Collect(), function=Show()))

    at(world, 0, *range(100, 160))

    assert world.leftovers()[0] == entries


def test_namespaces_are_windows_in_files() -> None:
    """Catches: windows that are stored as something a later version cannot tell from anything else."""
    world = World.of(function_of(Shape("session", True, 5), Rule("count", 3), 2, "aggregate"))
    at(world, 0, 1, 2, 30)

    stored = {state.name: state for state in StateFileReader.of_bytes(world.file()).meta.states}

    for name in (MERGING_CONTENTS, "trigger-count"):
        assert stored[name].namespace.name == "TimeWindow"
    assert stored["window-set"].user_key.name == "TimeWindow"  # type: ignore[union-attr]


def test_all_states_are_declared_before_anything_runs() -> None:
    """Catches: a state that a restore does not know of, because the first row has not come yet."""
    cases: list[Any] = [
        (function_of(Shape("tumbling", True, 5), Rule("count", 3), 0, "reduce"), {"window-contents", "trigger-count"}),
        (function_of(Shape("session", True, 5), Rule("end"), 0, "reduce"), {MERGING_CONTENTS, "window-set"}),
        (
            function_of(Shape("sliding", True, 5, 2), Rule("end"), 0, "process"),
            {
                "window-contents of slices size=5 slide=2 offset=0",
                "window-slices size=5 slide=2 offset=0",
            },
        ),
        (window(GlobalWindows()).process(Counting(), Event), {"window-contents", "firings", "ever"}),
    ]
    for function, names in cases:
        assert {declared.descriptor.name for declared in declarations(function)} == names
        assert set(World.of(function).operator.backend.registered_states) == names


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((Shape("sliding", True, 60, 10), Rule("end")), (Shape("sliding", True, 60, 20), Rule("end"))),
        ((Shape("sliding", True, 60, 10), Rule("end")), (Shape("sliding", True, 60, 10), Rule("end", purging=True))),
        ((Shape("sliding", True, 60, 10), Rule("end", purging=True)), (Shape("sliding", True, 60, 10), Rule("end"))),
        ((Shape("tumbling", True, 60), Rule("end")), (Shape("session", True, 60), Rule("end"))),
    ],
)
def test_windows_stored_in_another_way_are_not_taken_for_these(before: Any, after: Any) -> None:
    """Catches: slices read as windows, or as slices of another grid: wrong results without a word."""
    world = World.of(function_of(before[0], before[1], 0, "aggregate"))
    at(world, 0, 30)

    with raising(RestoreRefusedError, "window"):
        world.moved(function_of(after[0], after[1], 0, "aggregate"))


def test_window_functions_can_be_sent() -> None:
    """Catches: a function with windows that cannot be shipped to a slot, or that shares state with its prototype."""
    for shape in (Shape("tumbling", True, 5), Shape("sliding", True, 5, 2), Shape("session", True, 5)):
        sent = pickle.loads(pickle.dumps(function_of(shape, Rule("end"), 1, "aggregate")))
        assert at(World.of(copy.deepcopy(sent)), 102, 100) == at(World.of(sent), 102, 100)
        assert sent.spec.assigner == function_of(shape, Rule("end"), 1, "reduce").spec.assigner


# -- late rows ----------------------------------------------------------------------------------------------


def test_late_rows_are_counted_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: late rows that vanish silently, or that fill the log."""
    world = World.of(window(TumblingEventTimeWindows.of(micros(10)), allowed_lateness=micros(5)).reduce(join, Event))
    world.operator.begin(processing_time=0, watermark=20)
    with caplog.at_level(logging.WARNING):
        for time in (1, 2, 4, 11, 12):
            world.operator.process("ann", Event(time, (time,)), time)
    result = world.operator.end()

    # Window 10 to 20 is over and takes rows until 25: it fires for each. Window 0 to 10 takes none.
    assert result.main == [(11, (11,)), (11, (11, 12))]
    assert result.counters == {LATE_ROWS_DROPPED: 3, FIRINGS: 2}
    assert len(caplog.records) == 1
    assert "late_rows_dropped" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    "shape", [Shape("tumbling", True, 10), Shape("sliding", True, 10, 5), Shape("session", True, 9)], ids=str
)
@pytest.mark.parametrize(("before", "after"), [(0, 30), (30, 0), (30, 70)])
def test_a_changed_lateness_leaves_nothing_behind(shape: Shape, before: int, after: int) -> None:
    """Catches: windows whose clean-up timers were set under another allowed lateness and that stay for ever."""
    world = World.of(function_of(shape, Rule("end"), before, "aggregate"))
    at(world, 100, 99, 101, 103)
    world = world.moved(function_of(shape, Rule("end"), after, "aggregate"))

    for watermark in range(100, 250, 5):
        at(world, watermark)

    assert world.leftovers() == (0, 0)


def test_a_row_without_event_time_is_refused() -> None:
    """Catches: rows put into the windows of 1970 because nobody declared an event time."""
    world = World.of(window(TumblingEventTimeWindows.of("1 hour")).reduce(join, Event))
    world.operator.begin(processing_time=0)

    with raising(UserFunctionError, option="event_time"):
        world.operator.process("ann", Event(1, (1,)))


# -- what comes out -----------------------------------------------------------------------------------------


class Total(AggregateFunction[Event, int, int]):
    """A sum; a plain number comes out."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + value.value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


def test_results_without_a_function_are_rows() -> None:
    """Catches: a number where a row is expected."""
    world = World.of(window(TumblingEventTimeWindows.of(micros(10))).aggregate(Total()))

    assert at(world, 0, 3, 4) == []
    assert at(world, 10) == [(7,)]


def test_rows_come_in_the_order_they_came() -> None:
    """Catches: a window function that sees its rows shuffled."""
    for shape in (Shape("tumbling", True, 100), Shape("session", True, 100), Shape("sliding", True, 100, 200)):
        world = World.of(function_of(shape, Rule("end"), 0, "process"))
        at(world, 0, 30, 10, 20, 50, 40)
        [(_, _, values)] = at(world, 1000)
        assert values == (30, 10, 20, 50, 40), shape


def test_sessions_that_merge_keep_their_rows_in_order_of_sessions() -> None:
    """Catches: a reduce that is not commutative and gets the later session first."""
    world = World.of(function_of(Shape("session", True, 10), Rule("end"), 0, "reduce"))

    at(world, 0, 40, 0, 20, 30, 10)

    assert at(world, 1000) == [("ann", (0, 50), (0, 20, 40, 30, 10))]


def test_rows_of_a_row_type_stand_in_windows() -> None:
    """Catches: the rows that the runtime makes of a DataFrame, which a window cannot keep."""
    row_type = RowType.of("card string, amount double")

    class Cards(ProcessWindowFunction):
        def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
            return [(row.card, row.amount, ctx.window.end_time) for row in elements]

    world = World.of(window(TumblingEventTimeWindows.of("1 second")).process(Cards(), row_type.row_class))
    world.operator.begin(processing_time=0, watermark=0)
    world.operator.process("ann", row_type.row("c-1", 2.5), 500)
    world.operator.end()
    again = world.moved(world.function)

    [(card, amount, end)] = at(again, 1_000_000)

    assert (card, amount, end.isoformat()) == ("c-1", 2.5, "1970-01-01T00:00:01+00:00")


class Counting(ProcessWindowFunction):
    """Counts the firings of a window, and of the key."""

    firings = ValueStateDescriptor("firings", int, default=0)
    ever = ValueStateDescriptor("ever", int, default=0)
    window_states = (firings,)
    global_states = (ever,)

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
        mine, ever = ctx.window_state(self.firings), ctx.global_state(self.ever)
        mine.update(mine.value() + 1)
        ever.update(ever.value() + 1)
        yield ctx.window.start, mine.value(), ever.value()


@pytest.mark.parametrize(
    "assigner", [TumblingEventTimeWindows.of(micros(10)), SlidingEventTimeWindows.of(micros(10), micros(5))]
)
@pytest.mark.parametrize("trigger", [None, CountTrigger(1)])
def test_states_of_a_window_go_with_it(assigner: WindowAssigner, trigger: Trigger | None) -> None:
    """Catches: a user's per-window state that leaks, or that one window shares with another."""
    world = World.of(window(assigner, trigger=trigger, allowed_lateness=micros(7)).process(Counting(), Event))

    out = at(world, 0, 1, 2, 22) + at(world, 15, 3, 12) + at(world, 16, 4)
    for watermark in (20, 40, 60):
        out += at(world, watermark)

    by_window: dict[int, list[int]] = {}
    for start, firings, _ in out:
        by_window.setdefault(start, []).append(firings)
    assert all(firings == list(range(1, len(firings) + 1)) for firings in by_window.values())
    assert any(len(firings) > 1 for firings in by_window.values())
    assert [ever for _, _, ever in out] == list(range(1, len(out) + 1))
    assert world.leftovers() == (1, 0)  # the key's own


def test_a_state_that_is_not_declared_is_refused() -> None:
    """Catches: a state that works until the first restart, which does not know it."""

    class Careless(ProcessWindowFunction):
        def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
            ctx.window_state(ValueStateDescriptor("mine", int))

    world = World.of(window(GlobalWindows(), trigger=CountTrigger(1)).process(Careless(), Event))

    with raising(UserFunctionError, state="mine", option="window_states"):
        at(world, 0, 1)


def test_side_outputs_and_counters_of_a_window_function() -> None:
    """Catches: a window function that is cut off from what other functions have."""

    class Sides(ProcessWindowFunction):
        def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
            ctx.output("late", (len(elements), ctx.watermark))
            ctx.count("seen", len(elements))

    world = World.of(window(TumblingEventTimeWindows.of(micros(10))).process(Sides(), Event))
    at(world, 0, 1, 2)
    world.operator.begin(processing_time=0, watermark=10)
    result = world.operator.end()

    [(count, watermark)] = result.outputs["late"].rows
    assert (count, watermark.isoformat()) == (2, "1970-01-01T00:00:00.000010+00:00")
    assert result.counters == {FIRINGS: 1, "seen": 2}


def test_a_function_that_raises_changes_nothing() -> None:
    """Catches: half a firing that survives the roll-back."""

    class Fails(ProcessWindowFunction):
        def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
            raise ValueError("no")

    world = World.of(window(TumblingEventTimeWindows.of(micros(10))).process(Fails(), Event))
    at(world, 0, 1)
    before = world.file()
    with world.operator.snapshot() as snapshot:
        with pytest.raises(UserFunctionError) as caught:
            world.operator.begin(processing_time=0, watermark=10)
        world.operator.roll_back(snapshot)

    assert type(caught.value.__cause__) is ValueError
    assert world.file() == before


# -- triggers and assigners of one's own --------------------------------------------------------------------


class Bell(Trigger):
    """Fires for every row, and tells what it is asked."""

    can_merge = True
    may_purge = False
    told: list[Any]

    def __init__(self, answer: TriggerResult = TriggerResult.FIRE) -> None:
        self.answer = answer

    def __deepcopy__(self, memo: Any) -> Bell:
        return self  # so that the test sees what is told

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        self.told.append(("element", timestamp, window))
        return self.answer

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        self.told.append(("merge", window))

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        self.told.append(("clear", window))


def test_what_a_trigger_is_told_when_windows_merge() -> None:
    """Catches: states and timers of windows that are no more, because their trigger was not told."""
    bell = Bell()
    bell.told = []
    world = World.of(window(EventTimeSessionWindows.with_gap(micros(10)), trigger=bell).reduce(join, Event))

    at(world, 0, 0, 15, 7)
    at(world, 25)

    first, second, whole = TimeWindow(0, 10), TimeWindow(15, 25), TimeWindow(0, 25)
    assert bell.told == [
        ("element", 0, first),
        ("element", 15, second),
        ("merge", whole),
        ("clear", first),
        ("clear", second),
        ("element", 7, whole),
        ("clear", whole),
    ]


def test_a_trigger_that_purges_against_its_word() -> None:
    """Catches: rows of other windows that disappear because one was purged."""
    bell = Bell(TriggerResult.PURGE)
    bell.told = []
    world = World.of(window(SLIDING, trigger=bell).reduce(join, Event))

    with raising(UserFunctionError, option="may_purge"):
        at(world, 0, 1)


class Keeping(Bell):
    """Keeps a list of times for each window, and gives it over when windows merge."""

    kept = ListStateDescriptor("kept", int)
    total = ValueStateDescriptor("total", int)
    states = (kept, total)

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        ctx.get_partitioned_state(self.kept).add(timestamp)
        self.told.append(ctx.get_partitioned_state(self.kept).get())
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        ctx.merge_partitioned_state(self.kept)
        if self.answer is TriggerResult.PURGE:
            ctx.merge_partitioned_state(self.total)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self.kept).clear()


def test_states_of_a_trigger_merge() -> None:
    """Catches: what a trigger remembers, lost with the windows that became one."""
    keeping = Keeping()
    keeping.told = []
    world = World.of(window(EventTimeSessionWindows.with_gap(micros(10)), trigger=keeping).reduce(join, Event))

    at(world, 0, 0, 15, 7)

    assert keeping.told == [[0], [15], [0, 15, 7]]
    at(world, 100)
    assert world.leftovers() == (0, 0)


def test_a_value_state_of_a_trigger_cannot_merge() -> None:
    """Catches: one of two values picked silently."""
    keeping = Keeping(TriggerResult.PURGE)
    keeping.told = []
    world = World.of(window(EventTimeSessionWindows.with_gap(micros(10)), trigger=keeping).reduce(join, Event))

    with raising(UserFunctionError, state="total", found="value"):
        at(world, 0, 0, 15, 7)


def test_windows_of_your_own() -> None:
    """Catches: an assigner interface that only serves the assigners that come with it."""

    class Mornings(WindowAssigner):
        is_event_time = True

        def assign(self, row: Any, time: int) -> Sequence[Any]:
            day = time - time % 24
            return [TimeWindow(day, day + 12)] if time % 24 < 12 else []

        def default_trigger(self) -> Trigger:
            return EventTimeTrigger()

    world = World.of(window(Mornings(), late_output="late").aggregate(Collect(), function=Show()))

    assert at(world, 0, 1, 13, 11, 25) == []
    assert at(world, 36) == [("ann", (0, 12), (1, 11)), ("ann", (24, 36), (25,))]
    assert world.transaction(rows_at(13, 1))[1] == [1]  # in no window is not the same as late


# -- the end of the input -----------------------------------------------------------------------------------


def test_a_global_window_can_fire_at_the_end_of_the_input() -> None:
    """Catches: a bounded input whose result never comes."""
    world = World.of(window(GlobalWindows(), trigger=EventTimeTrigger()).aggregate(Collect(), function=Show()))

    assert at(world, 0, 5, 3) == []
    assert at(world, MAX_TIME) == [("ann", (-1, MAX_TIME), (5, 3))]


def test_a_continuous_trigger_ends_with_the_input() -> None:
    """Catches: a run that never comes back, firing every minute until the end of time."""
    trigger = ContinuousEventTimeTrigger(micros(10))
    world = World.of(window(GlobalWindows(), trigger=trigger).aggregate(Collect(), function=Show()))

    at(world, 0, 5, 3)

    assert at(world, MAX_TIME) == [("ann", (-1, MAX_TIME), (5, 3))] * 2  # at 10, and at the end


def test_a_pause_of_the_job_is_not_made_up_for() -> None:
    """Catches: thousands of equal results after a job was down for a night."""
    world = World.of(function_of(Shape("global", False), Rule("continuous processing", 10), 0, "aggregate"))
    at(world, 0, 5)

    world.now = 1_000_003
    assert len(at(world, 0)) == 1
    world.now = 1_000_010
    assert len(at(world, 0)) == 1


# -- what is refused ----------------------------------------------------------------------------------------


class NoMerge(NeverTrigger):
    """A trigger that does not merge."""

    can_merge = False


class Untyped(Total):
    """Its accumulator's type is not said where it can be read."""

    __orig_bases__ = ()


class Loose(AggregateFunction):  # type: ignore[type-arg]
    """Nothing is said of its types."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: Any) -> int:
        return 0

    def get_result(self, accumulator: Any) -> int:
        return 0

    def merge(self, one: Any, other: Any) -> int:
        return 0


HOURS = TumblingEventTimeWindows.of("1 hour")
BAD: list[tuple[Any, str]] = [
    (lambda: window("1 hour"), "assigner"),  # type: ignore[arg-type]
    (lambda: window(HOURS, trigger="count"), "trigger"),  # type: ignore[arg-type]
    (lambda: window(HOURS, allowed_lateness=5), "allowed_lateness"),  # type: ignore[arg-type]
    (lambda: window(HOURS, allowed_lateness=timedelta(-1)), "allowed_lateness"),
    (lambda: window(EventTimeSessionWindows.with_gap("1 hour"), trigger=NoMerge()), "can_merge"),
    (lambda: window(TumblingProcessingTimeWindows.of("1 hour"), allowed_lateness="1 hour"), "allowed_lateness"),
    (lambda: window(GlobalWindows(), late_output="late"), "late_output"),
    (lambda: window(HOURS).process(None, Event), "function"),  # type: ignore[arg-type]
    (lambda: window(HOURS).reduce(join, Event, function=print), "function"),  # type: ignore[arg-type]
    (lambda: window(HOURS).reduce(None, Event), "function"),  # type: ignore[arg-type]
    (lambda: window(HOURS).aggregate(Loose()), "accumulator_type"),
    (
        lambda: window(EventTimeSessionWindows.with_gap("1 hour")).process(Counting(), Event),
        "window_states",
    ),
    (lambda: CountTrigger(0), "count"),
    (lambda: PurgingTrigger(CountTrigger), "trigger"),  # type: ignore[arg-type]
    (lambda: ContinuousEventTimeTrigger("0 seconds"), "interval"),
]


@pytest.mark.parametrize(("make", "option"), BAD)
def test_declarations_that_cannot_work(make: Any, option: str) -> None:
    """Catches: a mistake that shows only when the first rows are in."""
    with raising(StateDeclarationError, option=option):
        make()


def test_the_accumulator_type_is_read_or_given() -> None:
    """Catches: an accumulator stored as another type than the one that was declared."""
    assert window(HOURS).aggregate(Total()).spec.contents.codec.type is int
    assert window(HOURS).aggregate(Untyped()).spec.contents.codec.type is int
    assert window(HOURS).aggregate(Loose(), tuple[int, int]).spec.contents.codec.type == tuple[int, int]


@pytest.mark.parametrize("fold", ["reduce", "process"])
def test_rows_of_another_type_are_refused_where_they_come_in(fold: str) -> None:
    """Catches: a wrong row that is found out hours later, when state is written."""
    world = World.of(function_of(Shape("tumbling", True, 10), Rule("end"), 0, fold))
    world.operator.begin(processing_time=0, watermark=0)

    with raising(UserFunctionError, "Event", key="ann", field="$"):
        world.operator.process("ann", ("not an event",), 5)


def test_defaults_do_not_depend_on_how_the_trigger_is_spelled() -> None:
    """Catches: two ways to say the same that store differently, so that a restart cannot read its state."""
    for assigner, trigger in (
        (SLIDING, EventTimeTrigger()),
        (SlidingProcessingTimeWindows.of("1 hour", "1 minute"), ProcessingTimeTrigger()),
    ):
        said = window(assigner, trigger=trigger).aggregate(Total())
        default = window(assigner).aggregate(Total())
        assert type(said) is type(default)
        assert said.spec.contents.name == default.spec.contents.name


def test_reducing_descriptor_is_the_users_function() -> None:
    """Catches: a window that folds with something else than the function it was given."""
    contents = window(HOURS).reduce(join, Event).spec.contents
    assert isinstance(contents, ReducingStateDescriptor)
    assert contents.function is join
