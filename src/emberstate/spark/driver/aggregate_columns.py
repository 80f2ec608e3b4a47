"""The columns of a partial row for each declared aggregate, as SQL text: of one row, and of many.

`Aggregate.partial` says which columns there are; here is how Spark makes them. Where it can, Spark aggregates by hash:
that needs buffers of fixed width, so the moment of a row is one decimal of time and order, not a struct.

A sum that its type cannot hold raises in Spark with a text that `overflow_error` reads.

Thread safety: pure functions.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

from emberstate.errors import RowTypeError
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
    type_of,
)
from emberstate.runtime.rows.columns import quoted
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.sql_text import text_literal, type_text

#: What the text of an overflow begins with; JSON follows.
_OVERFLOW: Final = "emberstate: a sum is too large: "
#: More than the number of any row, so that time * _ORDERS + order sorts by both; 18 and 20 digits are a decimal's 38.
_ORDERS: Final = 10**20
#: So many rows of one batch cannot add up to more than the ten digits that Spark adds to a decimal's precision.
_SAFE_DIGITS: Final = 28


@dataclasses.dataclass(frozen=True, slots=True)
class RowColumns:
    """Where the rows of a group have their event time, in microseconds, and their order."""

    micros: str | None
    order: str


def single(name: str, aggregate: Aggregate, input: RowType, micros: str | None) -> list[str]:
    """The columns of a partial row that stands for one row with this event time."""
    match aggregate:
        case Count(None):
            made = ["1"]
        case Count(str(column)):
            made = [f"{quoted(column)} is not null"]
        case Mean(column):
            made = [quoted(column), f"{quoted(column)} is not null"]
        case Sum(column) | Min(column) | Max(column) | AnyTrue(column):
            made = [quoted(column)]
        case First(column) | Last(column):
            made = ["0" if micros is None else micros, quoted(column)]
        case Distinct(column) | Collect(column):
            made = [_array_of(quoted(column), quoted(column))]
        case Top():
            values = ", ".join(quoted(one) for one in aggregate.columns)
            made = [_array_of(f"struct({values})", quoted(aggregate.by))]
        case Fold():
            made = []
        case _:
            raise NotImplementedError(aggregate.title)
    columns = aggregate.partial(name, input)
    return [
        f"cast({one} as {type_text(column.type)}) as {quoted(column.name)}"
        for one, column in zip(made, columns, strict=True)
    ]


def combined(name: str, aggregate: Aggregate, input: RowType, rows: RowColumns, keys: Sequence[str]) -> list[str]:
    """The columns of a partial row that stands for all rows of a group."""
    match aggregate:
        case Count(None):
            made = ["count(1)"]
        case Count(str(column)):
            made = [f"count({quoted(column)})"]
        case Sum(column):
            made = [_total(name, column, input, keys)]
        case Mean(column):
            made = [_total(name, column, input, keys), f"count({quoted(column)})"]
        case Min(column):
            made = [f"min({quoted(column)})"]
        case Max(column):
            made = [f"max({quoted(column)})"]
        case AnyTrue(column):
            made = [f"bool_or({quoted(column)})"]
        case First(column):
            made = [_time("min", rows), f"min_by({quoted(column)}, {_moment(rows)})"]
        case Last(column):
            made = [_time("max", rows), f"max_by({quoted(column)}, {_moment(rows)})"]
        case Distinct(column):
            value = quoted(column)
            if type_of(input, column).kind in ("float", "double"):
                value = f"{value} + cast(0.0D as {type_of(input, column).name})"  # -0.0 becomes 0.0
            made = [f"collect_set({value})"]
        case _:
            raise NotImplementedError(aggregate.title)  # rows with such an aggregate are not combined
    names = [column.name for column in aggregate.partial(name, input)]
    return [f"{one} as {quoted(column)}" for one, column in zip(made, names, strict=True)]


def overflow_error(error: BaseException) -> RowTypeError | None:
    """What Spark's report of an overflow tells; None if it reports something else.

    >>> report = 'emberstate: a sum is too large: {"name": "x", "column": "c", "key": "1"} SQLSTATE: P0001'
    >>> found = overflow_error(ValueError(report))
    >>> found.field, found.column, found.key
    ('x', 'c', '1')
    """
    _, found, rest = str(error).partition(_OVERFLOW)
    if not found:
        return None
    place = json.JSONDecoder().raw_decode(rest)[0]
    return RowTypeError(
        f"aggregate {place['name']!r}: the sum of column {place['column']!r} over the rows of key {place['key']} in "
        f"one batch is more than its type holds. Cast the column to double, or to a wider decimal, before it is "
        f"aggregated.",
        column=place["column"],
        field=place["name"],
        key=place["key"],
    )


def _time(function: str, rows: RowColumns) -> str:
    return "cast(0 as bigint)" if rows.micros is None else f"{function}({rows.micros})"


def _moment(rows: RowColumns) -> str:
    """What rows are ordered by: time, then order."""
    if rows.micros is None:
        return rows.order
    time = f"cast({rows.micros} as decimal(18,0)) * {_ORDERS}BD"
    return f"cast({time} + cast({rows.order} as decimal(20,0)) as decimal(38,0))"


def _total(name: str, column: str, input: RowType, keys: Sequence[str]) -> str:
    """The sum of a column; raises in Spark, and never wraps, where its type cannot hold it."""
    type_, value = type_of(input, column), quoted(column)
    if type_.kind in ("float", "double"):
        return f"sum(cast({value} as double))"
    if type_.kind != "bigint" and (type_.kind != "decimal" or type_.precision <= _SAFE_DIGITS):
        return f"sum({value})"
    where = ", ".join(text_literal(part) for part in ("name", name, "column", column, "key"))
    key = f"concat_ws(', ', {', '.join(f'cast({quoted(one)} as string)' for one in keys)})"
    error = f"raise_error(concat({text_literal(_OVERFLOW)}, to_json(map({where}, {key}))))"
    total = f"try_sum({value})"
    return f"case when {total} is null and count({value}) > 0 then {error} else {total} end"


def _array_of(value: str, wanted: str) -> str:
    return f"case when {wanted} is not null then array({value}) else array() end"
