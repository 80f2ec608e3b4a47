"""The columns of a partial row for each declared aggregate, as Spark's expressions: of one row, and of many.

`Aggregate.partial` says which columns there are; here is how Spark makes them. Where it can, Spark aggregates by hash:
that needs buffers of fixed width, so the moment of a row is one decimal of time and order, not a struct.

A sum that its type cannot hold raises in Spark with a text that `overflow_error` reads.

Thread safety: pure functions.
"""

from __future__ import annotations

import dataclasses
import decimal
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What the text of an overflow begins with; JSON follows.
_OVERFLOW: Final = "emberstate: a sum is too large: "
#: More than the number of any row, so that time * _ORDERS + order sorts by both; 18 and 20 digits are a decimal's 38.
_ORDERS: Final = decimal.Decimal(10**20)
#: So many rows of one batch cannot add up to more than the ten digits that Spark adds to a decimal's precision.
_SAFE_DIGITS: Final = 28


@dataclasses.dataclass(frozen=True, slots=True)
class RowColumns:
    """Where the rows of a group have their event time, in microseconds, and their order."""

    micros: str | None
    order: str


def single(name: str, aggregate: Aggregate, input: RowType, micros: Column | None) -> list[Column]:
    """The columns of a partial row that stands for one row with this event time."""
    from pyspark.sql import functions as F

    types = [column.type.name for column in aggregate.partial(name, input)]
    match aggregate:
        case Count(None):
            made = [F.lit(1)]
        case Count(str(column)):
            made = [F.col(quoted(column)).isNotNull()]
        case Mean(column):
            value = F.col(quoted(column))
            made = [value, value.isNotNull()]
        case Sum(column) | Min(column) | Max(column) | AnyTrue(column):
            made = [F.col(quoted(column))]
        case First(column) | Last(column):
            made = [F.lit(0) if micros is None else micros, F.col(quoted(column))]
        case Distinct(column) | Collect(column):
            made = [_array_of(F.col(quoted(column)), F.col(quoted(column)).isNotNull())]
        case Top():
            made = [_array_of(_struct(aggregate), F.col(quoted(aggregate.by)).isNotNull())]
        case Fold():
            made = []
        case _:
            raise NotImplementedError(aggregate.title)
    names = [column.name for column in aggregate.partial(name, input)]
    return [one.cast(type_).alias(column) for one, type_, column in zip(made, types, names, strict=True)]


def combined(name: str, aggregate: Aggregate, input: RowType, rows: RowColumns, keys: Sequence[str]) -> list[Column]:
    """The columns of a partial row that stands for all rows of a group."""
    from pyspark.sql import functions as F

    match aggregate:
        case Count(None):
            made = [F.count(F.lit(1))]
        case Count(str(column)):
            made = [F.count(quoted(column))]
        case Sum(column):
            made = [_total(name, column, input, keys)]
        case Mean(column):
            made = [_total(name, column, input, keys), F.count(quoted(column))]
        case Min(column):
            made = [F.min(quoted(column))]
        case Max(column):
            made = [F.max(quoted(column))]
        case AnyTrue(column):
            made = [F.bool_or(quoted(column))]
        case First(column):
            time = F.lit(0).cast("bigint") if rows.micros is None else F.min(rows.micros)
            made = [time, F.min_by(quoted(column), _moment(rows))]
        case Last(column):
            time = F.lit(0).cast("bigint") if rows.micros is None else F.max(rows.micros)
            made = [time, F.max_by(quoted(column), _moment(rows))]
        case Distinct(column):
            value = F.col(quoted(column))
            if type_of(input, column).kind in ("float", "double"):
                value = value + F.lit(0.0).cast(type_of(input, column).name)  # -0.0 becomes 0.0
            made = [F.collect_set(value)]
        case _:
            raise NotImplementedError(aggregate.title)  # rows with such an aggregate are not combined
    names = [column.name for column in aggregate.partial(name, input)]
    return [one.alias(column) for one, column in zip(made, names, strict=True)]


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


def _moment(rows: RowColumns) -> Column:
    """What rows are ordered by: time, then order."""
    from pyspark.sql import functions as F

    if rows.micros is None:
        return F.col(rows.order)
    time = F.col(rows.micros).cast("decimal(18,0)") * F.lit(_ORDERS)
    return (time + F.col(rows.order).cast("decimal(20,0)")).cast("decimal(38,0)")


def _total(name: str, column: str, input: RowType, keys: Sequence[str]) -> Column:
    """The sum of a column; raises in Spark, and never wraps, where its type cannot hold it."""
    from pyspark.sql import functions as F

    type_, value = type_of(input, column), F.col(quoted(column))
    if type_.kind in ("float", "double"):
        return F.sum(value.cast("double"))
    if type_.kind != "bigint" and (type_.kind != "decimal" or type_.precision <= _SAFE_DIGITS):
        return F.sum(value)
    total = F.try_sum(value)
    where = [F.lit(part) for part in ("name", name, "column", column, "key")]
    key = F.concat_ws(", ", *(F.col(quoted(one)).cast("string") for one in keys))
    text = F.concat(F.lit(_OVERFLOW), F.to_json(F.create_map(*where, key)))
    return F.when(total.isNull() & (F.count(value) > 0), F.raise_error(text)).otherwise(total)


def _array_of(value: Column, wanted: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(wanted, F.array(value)).otherwise(F.array())


def _struct(aggregate: Top) -> Column:
    from pyspark.sql import functions as F

    return F.struct(*(F.col(quoted(name)) for name in aggregate.columns))
