"""Partial rows made without Spark: one for each input row. What Spark makes of a row equals it, column by column.

Thread safety: immutable; pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.runtime.aggregates.declarations import (
    Aggregate,
    Collect,
    Count,
    Distinct,
    First,
    Fold,
    Last,
    Mean,
    Top,
)
from emberstate.runtime.aggregates.spec import WHOLE, AggregateSpec
from emberstate.runtime.rows.row import Row, RowType, struct_rows
from emberstate.runtime.rows.times import from_micros

_Part = Callable[[Any, int], tuple[Any, ...]]


class PartialRows:
    """Makes partial rows of input rows.

    >>> from emberstate.runtime.aggregates.names import count, mean
    >>> spec = AggregateSpec.of({"n": count(), "x": mean("amount")}, "card string, amount int", ["card"])
    >>> PartialRows(spec).of(("ann", 5), None)
    Row(card='ann', n__count=1, x__mean_sum__amount=5, x__mean_count__amount=1, __rows=1)
    """

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._row_class = spec.partial.row_class
        self._whole = spec.input.row_class
        self._keys = [spec.input.position(name) for name in spec.key_columns]
        self._parts = [_part(aggregate, spec.input) for _, aggregate in spec.aggregates]
        self._times = 0 if spec.event_time is None else 2 if spec.is_sessions else 1
        self._has_panes = spec.has_panes
        self._has_whole = spec.has_whole

    def of(self, row: tuple[Any, ...], time: int | None) -> Row:
        """The partial row of a row at `time`, in microseconds; without event time, None."""
        values: list[Any] = [row[position] for position in self._keys] or [0]
        for part in self._parts:
            values += part(row, 0 if time is None else time)
        values.append(1)
        if self._times:
            assert time is not None
            values += [from_micros(time)] * self._times
            if self._has_panes:
                pane = self._spec.pane(time)
                values += [None, None] if pane is None else [pane.start, pane.end]
        if self._has_whole:
            values.append(self._whole(*row))
        return self._row_class(*values)


def partial_maker(spec: AggregateSpec) -> Callable[[Any, int | None], Row] | None:
    """How a row of a stage with `whole_rows` becomes a partial row, by its time; None for other stages."""
    if not spec.whole_rows:
        return None
    make, whole = PartialRows(spec.with_whole_rows(False)).of, spec.partial.position(WHOLE)
    return lambda row, time: make(row[whole], time)


def _part(aggregate: Aggregate, input: RowType) -> _Part:
    """The values of an aggregate's partial columns."""
    positions = [input.position(name) for name in aggregate.columns]
    match aggregate:
        case Count(None):
            return lambda row, time: (1,)
        case Fold():
            return lambda row, time: ()
        case Top():
            item = struct_rows(aggregate.result_type(input).items[0]).row_class
            by = input.position(aggregate.by)
            return lambda row, time: ([] if row[by] is None else [item(*(row[at] for at in positions))],)
    [at] = positions
    match aggregate:
        case Count():
            return lambda row, time: (int(row[at] is not None),)
        case Mean():
            return lambda row, time: (row[at], int(row[at] is not None))
        case First() | Last():
            return lambda row, time: (time, row[at])
        case Distinct() | Collect():
            return lambda row, time: ([] if row[at] is None else [row[at]],)
    return lambda row, time: (row[at],)
