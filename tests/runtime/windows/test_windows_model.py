"""Every kind of window against the brute-force model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.keygroups import range_for_slot
from tests.effort import examples
from tests.runtime.windows.model import Model
from tests.runtime.windows.world import FOLDS, MAX_PARALLELISM, World, function_of, rule_kinds, rules, shapes, steps

KINDS = [
    (kind, event_time)
    for kind in ("tumbling", "sliding", "session", "dynamic")
    for event_time in (True, False)
] + [("global", False)]
TRIGGERED = [(*which, rule) for which in KINDS for rule in rule_kinds(*which)]
FAR = 10_000


def advance(model: Model, step: Any, world: World) -> None:
    """Do in the model what a step does; the world says which times it stands for."""
    match step:
        case ("row", key, time, value):
            model.row(key, time, value)
        case ("watermark", _):
            assert world.watermark is not None
            model.to_watermark(world.watermark)
        case ("processing time", _):
            model.to_processing_time(world.now)


def sorted_firings(fired: Any) -> list[Any]:
    """Firings of one step, to compare: their order within it is not the model's business, nor that of values."""
    return sorted((key, bounds, tuple(sorted(values))) for key, bounds, values in fired)


@pytest.mark.parametrize(("kind", "event_time", "trigger"), TRIGGERED)
@given(data=st.data())
@settings(max_examples=examples(25))
def test_windows_against_the_model(kind: str, event_time: bool, trigger: str, data: st.DataObject) -> None:
    """Catches: a window that fires at another time, with other rows, twice or never; a late row that is lost or

    taken; any state or timer left when all windows are gone.
    """
    shape = data.draw(shapes(kind, event_time))
    rule = data.draw(rules(trigger))
    lateness = data.draw(st.integers(0, 10))
    fold = data.draw(st.sampled_from(FOLDS))
    model = Model(shape, rule, lateness)
    world = World.of(function_of(shape, rule, lateness, fold))

    for step in [*data.draw(steps()), ("watermark", FAR), ("processing time", FAR)]:
        model.fired, model.late = [], []
        fired, late = world.step(step)
        advance(model, step, world)
        assert sorted_firings(fired) == sorted_firings(model.fired), step
        assert late == model.late, step

    leftovers = world.leftovers()
    assert kind == "global" or leftovers == (0, 0)


@pytest.mark.parametrize(("kind", "event_time"), KINDS)
@given(data=st.data())
@settings(max_examples=examples(10))
def test_restored_and_rescaled_in_the_middle(kind: str, event_time: bool, data: st.DataObject) -> None:
    """Catches: something of a window, its trigger or its timers that is not in the checkpoint, or that goes to

    another slot than its key; a layout that cannot be written.
    """
    shape = data.draw(shapes(kind, event_time))
    rule = data.draw(st.sampled_from(rule_kinds(kind, event_time)).flatmap(rules))
    lateness = data.draw(st.integers(0, 10))
    fold = data.draw(st.sampled_from(FOLDS))
    parallelism = data.draw(st.integers(1, 3))
    model = Model(shape, rule, lateness)

    def make() -> Any:
        return function_of(shape, rule, lateness, fold)

    def run(worlds: list[World], todo: list[Any]) -> None:
        for step in todo:
            model.fired, model.late = [], []
            results = [world.step(step) for world in worlds]
            advance(model, step, worlds[0])
            assert sorted_firings(f for fired, _ in results for f in fired) == sorted_firings(model.fired), step
            assert [value for _, late in results for value in late] == model.late, step

    whole = World.of(make())
    run([whole], data.draw(steps()))
    ranges = [range_for_slot(MAX_PARALLELISM, parallelism, slot) for slot in range(parallelism)]
    slots = [whole.restored(make(), [whole.file()], groups) for groups in ranges]
    run(slots, data.draw(steps(whole.watermark or 0)))
    files = [slot.file() for slot in slots]
    again = slots[0].restored(make(), files, range_for_slot(MAX_PARALLELISM, 1, 0))
    run([again], [*data.draw(steps(slots[0].watermark or 0)), ("watermark", FAR), ("processing time", FAR)])

    leftovers = again.leftovers()
    assert kind == "global" or leftovers == (0, 0)


@pytest.mark.parametrize(("kind", "event_time"), KINDS)
@given(data=st.data())
@settings(max_examples=examples(10))
def test_rolled_back_steps_leave_no_trace(kind: str, event_time: bool, data: st.DataObject) -> None:
    """Catches: a window function that remembers something outside its states: a failed attempt would change the

    next one.
    """
    shape = data.draw(shapes(kind, event_time))
    rule = data.draw(st.sampled_from(rule_kinds(kind, event_time)).flatmap(rules))
    lateness = data.draw(st.integers(0, 10))
    fold = data.draw(st.sampled_from(FOLDS))
    model = Model(shape, rule, lateness)
    world = World.of(function_of(shape, rule, lateness, fold))

    for step in [*data.draw(steps()), ("watermark", FAR), ("processing time", FAR)]:
        if data.draw(st.integers(0, 7)) == 0:
            around = world.watermark or 0
            with world.operator.snapshot() as snapshot:
                world.transaction([("row", "ann", around + by, 1000 + by) for by in range(-4, 8, 3)])
                world.operator.roll_back(snapshot)
        model.fired, model.late = [], []
        fired, late = world.step(step)
        advance(model, step, world)
        assert sorted_firings(fired) == sorted_firings(model.fired), step
        assert late == model.late, step
