"""Change records: applying one to the old content gives the new content."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.state.changes import ABSENT, Op, apply_ops


@pytest.mark.parametrize(
    ("old", "ops", "new"),
    [
        (1, [(Op.REPLACED, 2)], 2),
        (ABSENT, [(Op.REPLACED, None)], None),
        (1, [(Op.CLEARED,)], ABSENT),
        (ABSENT, [(Op.APPENDED, [1])], [1]),
        ([1], [(Op.APPENDED, [2]), (Op.APPENDED, [3])], [1, 2, 3]),
        ([1], [(Op.CLEARED,), (Op.APPENDED, [2])], [2]),
        ({1: 1}, [(Op.CLEARED,), (Op.PUT, 2, 2)], {2: 2}),
        ({1: 1, 2: 2}, [(Op.REMOVED, 1), (Op.PUT, 2, None)], {2: None}),
        ({1: 1}, [], {1: 1}),
        (ABSENT, [(Op.PUT, 1, 1), (Op.PUT, 2, 2)], {1: 1, 2: 2}),
    ],
)
def test_apply(old: Any, ops: list[tuple[Any, ...]], new: Any) -> None:
    """Catches an operation out of order or misread, and old content that is changed by applying."""
    kept = old if old is ABSENT else repr(old)
    assert apply_ops(old, ops) == new
    assert (old if old is ABSENT else repr(old)) == kept
    stored = [(int(op), *operands) for op, *operands in ops]  # as a file gives them back
    assert apply_ops(old, stored) == new


def test_unknown_operations_are_refused() -> None:
    """Catches a damaged record, or one of a newer release, that is silently taken for something else."""
    with pytest.raises(ValueError):
        apply_ops({}, [(9, "x")])
    with pytest.raises(KeyError):
        apply_ops({}, [(Op.REMOVED, "x")])


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_operands_are_not_taken_over(parts: list[list[int]]) -> None:
    """Catches content that shares a list with the record: applying it twice would differ."""
    ops = [(Op.APPENDED, part) for part in parts]
    expected = [number for part in parts for number in part]
    for _ in range(2):
        assert apply_ops(ABSENT, ops) == (expected if parts else ABSENT)


def test_absent_is_falsy_and_one() -> None:
    """Catches ABSENT taken for content."""
    assert not ABSENT
    assert repr(ABSENT) == "ABSENT"
