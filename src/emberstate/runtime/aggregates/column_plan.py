"""How the aggregates of a stage fold whole batches of partial rows in columns, and what their results are as columns.

What an aggregate does to one row is in `accumulators`. Numbers and booleans are folded by compiled loops that do the
same; anything else, such as decimals and texts, by `accumulators` itself, value by value. A stage with an aggregate
that is not in the record has no plan, and works row by row.

Thread safety: pure functions of immutable values, but for the columns that folds change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.errors import RowTypeError
from emberstate.heap.columns.folds import add_floats, add_ints, choose_by_time, keep_float, keep_int, keep_true
from emberstate.heap.columns.layout import Array, Column
from emberstate.runtime.aggregates.accumulators import Merge, Read, merger, overflow, reader
from emberstate.runtime.aggregates.declarations import (
    FLOATS,
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
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.rows.arrow_rows import arrow_type, read, write
from emberstate.runtime.rows.data_types import Column as PartialColumn
from emberstate.runtime.rows.data_types import DataType

_WIDE: Final = {
    **dict.fromkeys(INTEGERS, pa.int64()), **dict.fromkeys(FLOATS, pa.float64()), "boolean": pa.bool_()
}  # fmt: skip
#: Up to here a double holds every int, so a quotient of two is the exact one rounded.
_EXACT_INTS: Final = 2**53


class FoldError(Exception):
    """A sum that its type cannot hold: the error to raise, and at which row of the batch it came about."""

    def __init__(self, error: RowTypeError, row: int) -> None:
        super().__init__(error)
        self.error = error
        self.row = row


#: (columns of records, position of each partial row among them, partial rows)
Fold = Callable[[list[Column], Array, pa.RecordBatch], None]
#: columns of records -> a column of results
Result = Callable[[list[Column]], pa.Array]


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The folds of a stage, and the result of each aggregate."""

    folds: list[Fold]
    results: list[Result]


def column_plan(spec: AggregateSpec) -> ColumnPlan | None:
    """Return the plan of a stage, or None if one of its aggregates is not in the record."""
    folds: list[Fold] = []
    results: list[Result] = []
    at = 0
    for name, aggregate in spec.aggregates:
        if not aggregate.in_record:
            return None
        parts = aggregate.partial(name, spec.input)
        if _is_fast(aggregate, spec):
            folds += _folds(name, aggregate, spec, at, [part.name for part in parts])
            results.append(_result(aggregate, aggregate.result_type(spec.input), at))
        else:
            folds.append(_by_value(merger(name, aggregate, spec.input, 0), at, parts))
            read_result = reader(aggregate, spec.input, 0)
            results.append(_result_by_value(read_result, aggregate.result_type(spec.input), at, len(parts)))
        at += len(parts)
    return ColumnPlan(folds, results)


def _is_fast(aggregate: Aggregate, spec: AggregateSpec) -> bool:
    match aggregate:
        case Count() | AnyTrue():
            return True
        case Sum() | Mean() | Min() | Max():
            return type_of(spec.input, aggregate.column).kind in (*INTEGERS, *FLOATS)
        case First() | Last():
            return type_of(spec.input, aggregate.column).kind in _WIDE
    return False


def _folds(name: str, aggregate: Aggregate, spec: AggregateSpec, at: int, parts: list[str]) -> list[Fold]:
    match aggregate:
        case Count():
            return [_adding(None, name, at, parts[0], pa.int64())]
        case Sum() | Mean():
            wide = _WIDE[type_of(spec.input, aggregate.column).kind]
            sums = [_adding(aggregate, name, at, parts[0], wide)]
            return sums if isinstance(aggregate, Sum) else [*sums, _adding(None, name, at + 1, parts[1], pa.int64())]
        case Min() | Max():
            sign = 1 if isinstance(aggregate, Min) else -1
            return [_keeping(type_of(spec.input, aggregate.column), at, parts[0], sign)]
        case First() | Last():
            wide = _WIDE[type_of(spec.input, aggregate.column).kind]
            return [_choosing(at, parts, wide, 1 if isinstance(aggregate, First) else -1)]
    return [_any(at, parts[0])]


def _adding(aggregate: Sum | Mean | None, name: str, at: int, part: str, wide: pa.DataType) -> Fold:
    add: Any = add_ints if wide == pa.int64() else add_floats

    def fold(columns: list[Column], positions: Array, batch: pa.RecordBatch) -> None:
        added, nulls = _numbers(batch, part, wide)
        values, empty = _target(columns[at])
        failed = add(values, empty, positions, added, nulls)
        if failed >= 0:
            assert aggregate is not None  # there are not so many rows
            total = int(values[positions[failed]]) + int(added[failed])
            raise FoldError(overflow(name, aggregate, total, "bigint", "decimal(38,0) or double"), failed)

    return fold


def _keeping(type_: DataType, at: int, part: str, sign: int) -> Fold:
    wide = _WIDE[type_.kind]
    keep: Any = keep_int if wide == pa.int64() else keep_float

    def fold(columns: list[Column], positions: Array, batch: pa.RecordBatch) -> None:
        keep(*_target(columns[at]), positions, *_numbers(batch, part, wide), sign)

    return fold


def _any(at: int, part: str) -> Fold:
    def fold(columns: list[Column], positions: Array, batch: pa.RecordBatch) -> None:
        keep_true(*_target(columns[at]), positions, *_numbers(batch, part, pa.bool_()))

    return fold


def _choosing(at: int, parts: list[str], wide: pa.DataType, sign: int) -> Fold:
    def fold(columns: list[Column], positions: Array, batch: pa.RecordBatch) -> None:
        times = _numbers(batch, parts[0], pa.int64())
        chosen = choose_by_time(*_target(columns[at]), positions, *times, sign)
        won = np.flatnonzero(chosen >= 0)
        added, nulls = _numbers(batch, parts[1], wide)
        values, empty = _target(columns[at + 1])
        values[won] = added[chosen[won]]
        empty[won] = nulls[chosen[won]]

    return fold


def _by_value(merge: Merge, at: int, parts: Sequence[PartialColumn]) -> Fold:
    def fold(columns: list[Column], positions: Array, batch: pa.RecordBatch) -> None:
        targets = columns[at : at + len(parts)]
        kept = [target.objects() for target in targets]
        given = [read(batch.column(part.name), part.type) for part in parts]
        for row, position in enumerate(positions.tolist()):
            values = [column[position] for column in kept]
            try:
                merge(values, [column[row] for column in given])
            except RowTypeError as error:
                raise FoldError(error, row) from None
            for column, value in zip(kept, values, strict=True):
                column[position] = value
        for target, objects in zip(targets, kept, strict=True):
            target.fill(objects)

    return fold


def _result_by_value(read_result: Read, type_: DataType, at: int, parts: int) -> Result:
    def result(columns: list[Column]) -> pa.Array:
        objects = [column.objects() for column in columns[at : at + parts]]
        return write([read_result(values) for values in zip(*objects, strict=True)], type_)

    return result


def _numbers(batch: pa.RecordBatch, name: str, wide: pa.DataType) -> tuple[Array, Array]:
    """The values of a column of partial rows, and where they are null."""
    column = batch.column(name).cast(wide)
    nulls = np.zeros(len(column), np.bool_)
    if column.null_count:
        nulls = np.ascontiguousarray(column.is_null().to_numpy(zero_copy_only=False))
        column = column.fill_null(False if wide == pa.bool_() else 0)
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False)), nulls


def _target(column: Column) -> tuple[Array, Array]:
    return column.values, np.zeros(len(column.values), np.bool_) if column.nulls is None else column.nulls


def _result(aggregate: Aggregate, type_: DataType, at: int) -> Result:
    if isinstance(aggregate, Mean):
        return lambda columns: _means(columns[at], columns[at + 1])
    if isinstance(aggregate, First | Last):
        at += 1
    kind = arrow_type(type_)
    return lambda columns: pa.array(columns[at].values, mask=columns[at].nulls).cast(kind)


def _means(sums: Column, counts: Column) -> pa.Array:
    nothing = counts.values == 0
    divisors = np.where(nothing, 1, counts.values)
    means = sums.values / divisors
    if sums.values.dtype == np.int64:
        # Python divides ints of any size exactly and rounds once; NumPy would round the sum first.
        for row in np.flatnonzero((sums.values > _EXACT_INTS) | (sums.values < -_EXACT_INTS)).tolist():
            means[row] = int(sums.values[row]) / int(divisors[row])
    return pa.array(means, mask=nothing)
