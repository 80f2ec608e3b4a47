"""The names that users write: `es.count()` to `es.fold()`, and `es.every()`. Several shadow a builtin on purpose.

>>> import emberstate as es
>>> es.sum("amount")
Sum(column='amount')
>>> es.top(3, "shop", by="amount")
Top(n=3, of=('shop',), by='amount')
"""

from __future__ import annotations

from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.runtime.aggregates.declarations import (
    Aggregate,
    AnyTrue,
    Collect,
    Count,
    Distinct,
    First,
    Fold,
    Last,
    Max,
    Mean,
    Min,
    Sum,
    Top,
)
from emberstate.runtime.aggregates.emission import Every
from emberstate.runtime.rows.data_types import DataType, parse_type
from emberstate.state.states import AggregateFunction
from emberstate.units import Duration


def count(column: str | None = None) -> Aggregate:
    """How many rows there are, or how many values of `column` that are not null: a bigint."""
    return Count(column)


def sum(column: str) -> Aggregate:
    """The sum of a column's values, nulls left out; null if there are none.

    Integers sum to bigint, float and double to double, decimal(p,s) to decimal(p+10,s). A sum that its type cannot
    hold is an error; it never wraps around.
    """
    return Sum(column)


def mean(column: str) -> Aggregate:
    """The mean of a column's values, nulls left out: a double, or decimal(p+4,s+4) of decimal(p,s)."""
    return Mean(column)


def min(column: str) -> Aggregate:
    """The least of a column's values, nulls left out. NaN is greater than any other number."""
    return Min(column)


def max(column: str) -> Aggregate:
    """The greatest of a column's values, nulls left out. NaN is greater than any other number."""
    return Max(column)


def first(column: str) -> Aggregate:
    """The value in the earliest row, null if it is null there; without event time, in the row that came first."""
    return First(column)


def last(column: str) -> Aggregate:
    """The value in the latest row, null if it is null there; without event time, in the row that came last."""
    return Last(column)


def any(column: str) -> Aggregate:
    """Whether a boolean column is true in any row, nulls left out; null if all are null."""
    return AnyTrue(column)


def distinct(column: str) -> Aggregate:
    """How many different values a column has, nulls left out. All of them are stored."""
    return Distinct(column)


def top(n: int, *columns: str, by: str) -> Aggregate:
    """Columns of the `n` rows that have the greatest `by`, greatest first; of equal ones, the earlier first.

    An array of structs of the columns, the last of them `by` unless it was named before. Rows without a `by` are left
    out.
    """
    return Top(n, columns, by)


def collect(column: str) -> Aggregate:
    """A column's values, nulls left out, as an array. All of them are stored."""
    return Collect(column)


def fold(
    function: AggregateFunction[Any, Any, Any], *, result: str | DataType, accumulator_type: Any = None
) -> Aggregate:
    """An `AggregateFunction` of your own, with the type of its result, such as "double".

    It gets the input's rows one by one, which costs the stage its combining of rows before they travel.
    """
    if not isinstance(function, AggregateFunction):
        raise StateDeclarationError(
            f"fold() needs an AggregateFunction, got {function!r:.100}", option="function", found=repr(function)
        )
    return Fold(function, result if isinstance(result, DataType) else parse_type(result), accumulator_type)


def every(interval: Duration) -> Every:
    """For `emit=`: emit what has changed once per interval, and when a window closes.

    In event time if the windows are of event time, else in processing time.
    """
    return Every.of(interval)
