"""Rows in order give the same output, in the same order, however they are cut into transactions and slots."""

from __future__ import annotations

import random
from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema, range_for_slot
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.assigners import TumblingProcessingTimeWindows
from emberstate.runtime.windows.window_function import WindowFunction
from emberstate.runtime.windows.windowed_rows import window
from tests.runtime.windows.model import Rule, Shape
from tests.runtime.windows.world import FOLDS, MAX_PARALLELISM, World, function_of

SHAPES = [
    Shape("tumbling", True, 50, offset=-20),
    Shape("sliding", True, 60, 20),
    Shape("sliding", True, 50, 20),
    Shape("sliding", True, 10, 30),
    Shape("session", True, 15),
    Shape("dynamic", True),
    Shape("global", False),
]
RULES = [Rule("end"), Rule("count", 3), Rule("count", 2, purging=True), Rule("continuous event", 20)]
KEYS = ["ann", "bob", "eve", "joe", "kim"]


def in_order(seed: int) -> list[Any]:
    """300 rows in order of time, some of the same time."""
    rng = random.Random(seed)
    time = 0
    rows = []
    for number in range(300):
        time += rng.choice([0, 0, 1, 1, 2, 5, 30])
        rows.append(("row", rng.choice(KEYS), time, number))
    return rows


def run(function: WindowFunction, rows: list[Any], batches: int, lag: int, slots: int = 1) -> list[list[Any]]:
    """The output of each slot, from this many transactions; the watermark as the driver of slots computes it."""
    worlds = [
        World.of(function, range_for_slot(MAX_PARALLELISM, slots, slot), f"{lag} microseconds")
        for slot in range(slots)
    ]
    out: list[list[Any]] = [[] for _ in worlds]
    size = -(-len(rows) // batches)
    for start in range(0, len(rows), size):
        for world, found in zip(worlds, out, strict=True):
            world.watermark = rows[start - 1][2] - lag if start else None
            found += world.transaction(rows[start : start + size])[0]
    for world, found in zip(worlds, out, strict=True):
        world.watermark = MAX_TIME
        found += world.transaction([])[0]
    return out


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_same_output_from_any_cut(shape: Shape, rule: Rule) -> None:
    """Catches: a result that depends on where a micro-batch happens to end, or on how many slots there are."""
    rows = in_order(seed=len(shape.kind) + rule.number)
    for lag, fold, lateness in ((0, FOLDS[0], 4), (7, FOLDS[2], 0), (0, FOLDS[1], 0)):
        function = function_of(shape, rule, lateness=lateness, fold=fold)

        [whole] = run(function, rows, 1, lag)

        assert whole or (shape.kind, rule.kind) == ("global", "end")  # never fires by itself
        assert run(function, rows, 7, lag) == [whole]
        assert run(function, rows, 50, lag) == [whole]
        for slot, found in enumerate(run(function, rows, 7, lag, slots=3)):
            keys = {row[0] for row in found}
            assert found == [row for row in whole if row[0] in keys], slot


def test_a_window_opens_again_when_the_clock_is_set_back() -> None:
    """Catches: a window of processing time that waits for a timer which has fired and was thought to be set still."""
    firsts = window(TumblingProcessingTimeWindows.of("10 microseconds")).reduce(lambda one, _: one, tuple[str])
    operator = KeyedOperator("firsts", firsts, HeapKeyedStateBackend(KeySchema.from_python(str)))
    operator.open()
    found = []
    for now in (1, 12, 3, 15):
        operator.begin(processing_time=now)
        if now < 10:
            operator.process("ann", ("ann",))
        found.append(operator.end().main)
    assert found == [[], [("ann",)], [], [("ann",)]]
