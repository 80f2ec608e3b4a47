"""How each aggregate merges two accumulators, and what its result is: functions of the values of a record.

An accumulator is one or two values, at position `at` of a record's: those of the aggregate's partial columns. `merger`
returns a function that merges other values into the list that it is given; the list has the older ones.

Thread safety: pure functions.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from emberstate.errors import RowTypeError
from emberstate.runtime.aggregates.declarations import (
    INTEGERS,
    Aggregate,
    AnyTrue,
    Count,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
    type_of,
)
from emberstate.runtime.rows.data_types import DataType
from emberstate.runtime.rows.row import RowType

Values = Sequence[Any]
Merge = Callable[[list[Any], Values], None]
Read = Callable[[Values], Any]

#: More digits than the sum of two decimals has, so that adding rounds nothing.
_EXACT: Final = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_UP, Emin=-999, Emax=999)
_LEAST_BIGINT: Final = -(2**63)


def merger(name: str, aggregate: Aggregate, input: RowType, at: int) -> Merge:
    """Return how values of the aggregate at `at` are merged; `name` is for errors."""
    match aggregate:
        case Count():
            return _adding_counts(at)
        case Sum():
            return _adding(name, aggregate, type_of(input, aggregate.column), at)
        case Mean():
            add, count = _adding(name, aggregate, type_of(input, aggregate.column), at), _adding_counts(at + 1)

            def mean(values: list[Any], other: Values) -> None:
                add(values, other)
                count(values, other)

            return mean
        case Min() | Max():
            return _choosing(greater_of(type_of(input, aggregate.column)), isinstance(aggregate, Max), at)
        case First() | Last():
            return _by_time(isinstance(aggregate, Last), at)
        case AnyTrue():
            return _any(at)
    raise AssertionError(f"{aggregate!r} has no accumulator in a record")


def reader(aggregate: Aggregate, input: RowType, at: int) -> Read:
    """Return how the result is read from the values at `at`."""
    if isinstance(aggregate, Mean):
        return _mean(aggregate.result_type(input), at)
    if isinstance(aggregate, First | Last):
        at += 1
    return lambda values: values[at]


def greater_of(type_: DataType) -> Callable[[Any, Any], bool]:
    """Whether one value is greater than another, by Spark's order: NaN is the greatest number."""
    if type_.kind in ("float", "double"):
        return lambda one, other: other == other and (one > other or math.isnan(one))
    return lambda one, other: one > other


def _adding_counts(at: int) -> Merge:
    def merge(values: list[Any], other: Values) -> None:
        values[at] += other[at]

    return merge


def _adding(name: str, aggregate: Sum | Mean, type_: DataType, at: int) -> Merge:
    """Sums, each of a type of numbers; null is nothing."""
    if type_.kind in INTEGERS:

        def checked(total: Any) -> Any:
            if not _LEAST_BIGINT <= total < -_LEAST_BIGINT:
                raise overflow(name, aggregate, total, "bigint", "decimal(38,0) or double")
            return total

        return _summing(lambda one, other: checked(one + other), at)
    if type_.kind == "decimal":
        digits = min(38, type_.precision + 10)
        bound = decimal.Decimal(10) ** (digits - type_.scale)

        def add(one: Any, other: Any) -> Any:
            total = _EXACT.add(one, other)
            if not -bound < total < bound:
                raise overflow(name, aggregate, total, f"decimal({digits},{type_.scale})", "double")
            return total

        return _summing(add, at)
    return _summing(lambda one, other: one + other, at)


def _summing(add: Callable[[Any, Any], Any], at: int) -> Merge:
    def merge(values: list[Any], other: Values) -> None:
        new = other[at]
        if new is not None:
            old = values[at]
            values[at] = new if old is None else add(old, new)

    return merge


def overflow(name: str, aggregate: Sum | Mean, total: Any, type_: str, wider: str) -> RowTypeError:
    """The error of a sum that its type cannot hold."""
    return RowTypeError(
        f"aggregate {name!r}: the sum of column {aggregate.column!r} is {total}, more than a {type_} holds. Cast the "
        f"column to {wider} before it is aggregated.",
        column=aggregate.column,
        field=name,
        expected=type_,
        found=total,
    )


def _choosing(greater: Callable[[Any, Any], bool], greatest: bool, at: int) -> Merge:
    def merge(values: list[Any], other: Values) -> None:
        new = other[at]
        if new is None:
            return
        old = values[at]
        if old is None or (greater(new, old) if greatest else greater(old, new)):
            values[at] = new

    return merge


def _by_time(latest: bool, at: int) -> Merge:
    """The value beside the greatest or least time; of equal times, the last takes the newer, the first the older."""

    def merge(values: list[Any], other: Values) -> None:
        new = other[at]
        if new is None:
            return
        old = values[at]
        if old is None or (new >= old if latest else new < old):
            values[at], values[at + 1] = new, other[at + 1]

    return merge


def _any(at: int) -> Merge:
    def merge(values: list[Any], other: Values) -> None:
        new = other[at]
        if new is not None:
            values[at] = bool(values[at]) or new

    return merge


def _mean(type_: DataType, at: int) -> Read:
    if type_.kind != "decimal":
        return lambda values: values[at] / values[at + 1] if values[at + 1] else None
    unit = decimal.Decimal(1).scaleb(-type_.scale)

    def read(values: Values) -> Any:
        count = values[at + 1]
        return _EXACT.quantize(_EXACT.divide(values[at], decimal.Decimal(count)), unit) if count else None

    return read
