"""The folds against plain Python, position after position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.heap.columns import folds
from tests.effort import examples

INT = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5))
FLOAT = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]))


def columns(values: list[Any], dtype: Any) -> tuple[Any, Any]:
    """Values and nulls."""
    return np.array([0 if v is None else v for v in values], dtype), np.array([v is None for v in values], np.bool_)


def same(one: Any, other: Any) -> bool:
    """Equal, NaN to NaN too."""
    return bool(one == other or (one != one and other != other))


def above(one: float, other: float) -> bool:
    """Whether one is greater, NaN being the greatest."""
    return one > other or (one != one and other == other)


def folded(count: int, items: list[tuple[int, Any]], step: Any) -> list[Any]:
    """Fold the values that are not None, in order."""
    found: list[Any] = [None] * count
    for position, value in items:
        if value is not None:
            found[position] = value if found[position] is None else step(found[position], value)
    return found


def objects(values: Any, nulls: Any) -> list[Any]:
    """A column as Python values."""
    return [None if null else value for value, null in zip(values.tolist(), nulls.tolist(), strict=True)]


@settings(max_examples=examples(200), deadline=None)
@given(items=st.lists(st.tuples(st.integers(0, 3), INT), max_size=30))
def test_ints(items: list[tuple[int, Any]]) -> None:
    """Catches: a sum that wraps around, a null that counts as 0, an extreme that takes the wrong side."""
    positions = np.array([position for position, _ in items], np.int64)
    added = columns([value for _, value in items], np.int64)
    for sign, step in ((1, min), (-1, max)):
        target = columns([None] * 4, np.int64)
        assert folds.keep_int(*target, positions, *added, sign) == -1
        assert objects(*target) == folded(4, items, step)
    target = columns([None] * 4, np.int64)
    failed = folds.add_ints(*target, positions, *added)
    if failed >= 0:
        before = folded(4, items[:failed], lambda a, b: a + b)[items[failed][0]]
        assert not -(2**63) <= before + items[failed][1] < 2**63
        items = items[:failed]
    assert objects(*target) == folded(4, items, lambda a, b: a + b)


@settings(max_examples=examples(200), deadline=None)
@given(items=st.lists(st.tuples(st.integers(0, 3), FLOAT), max_size=30))
def test_floats(items: list[tuple[int, Any]]) -> None:
    """Catches: another order of addition, NaN that is less than a number or that is lost."""
    positions = np.array([position for position, _ in items], np.int64)
    added = columns([value for _, value in items], np.float64)
    steps = {1: lambda a, b: b if above(a, b) else a, -1: lambda a, b: b if above(b, a) else a}
    for sign, step in steps.items():
        target = columns([None] * 4, np.float64)
        folds.keep_float(*target, positions, *added, sign)
        assert all(map(same, objects(*target), folded(4, items, step)))
    target = columns([None] * 4, np.float64)
    folds.add_floats(*target, positions, *added)
    assert all(map(same, objects(*target), folded(4, items, lambda a, b: a + b)))


@settings(max_examples=examples(100), deadline=None)
@given(items=st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.booleans())), max_size=20))
def test_flags(items: list[tuple[int, Any]]) -> None:
    """Catches: `any` that forgets a true, or that makes nothing of a false."""
    target = columns([None] * 4, np.bool_)
    positions = np.array([position for position, _ in items], np.int64)
    folds.keep_true(*target, positions, *columns([value for _, value in items], np.bool_))
    assert objects(*target) == folded(4, items, lambda a, b: a or b)


@settings(max_examples=examples(100), deadline=None)
@given(items=st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 4))), max_size=20))
def test_times(items: list[tuple[int, Any]]) -> None:
    """Catches: of equal times, `first` that takes the newer, or `last` that keeps the older."""
    positions = np.array([position for position, _ in items], np.int64)
    for sign in (1, -1):
        target = columns([None] * 4, np.int64)
        chosen = folds.choose_by_time(*target, positions, *columns([v for _, v in items], np.int64), sign)
        for position in range(4):
            mine = [(value, i) for i, (at, value) in enumerate(items) if at == position and value is not None]
            wanted = (min(mine) if sign > 0 else max(mine))[1] if mine else -1
            assert chosen[position] == wanted


@pytest.mark.parametrize("rows", [[], [3], [3, 3, 0, 5, 0, 3]])
def test_distinct_rows(rows: list[int]) -> None:
    """Catches: positions that are another row's, and a scratch array that keeps something."""
    scratch = np.full(8, -1, np.int64)
    distinct, positions = folds.distinct_rows(np.array(rows, np.int64), scratch)
    assert distinct.tolist() == list(dict.fromkeys(rows))
    assert [distinct[position] for position in positions] == rows
    assert (scratch == -1).all()
