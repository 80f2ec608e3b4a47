"""`AggregateSpec`: a stage of declared aggregates as a whole, and the row types that follow from it.

A partial row has, in this order,

1. the key's columns, as the input has them; a stage without a key has `ALL` instead, which is 0,
2. the columns of each aggregate (`declarations`),
3. `ROWS`: how many input rows it stands for,
4. with event time, `TIME`: the time at which the operator handles it. That is the greatest time of its rows, except
   for sessions: theirs is the least, because a session that they extend must not close before they came; their
   greatest is in `LATEST`,
5. if `has_panes`, `PANE_START` and `PANE_END` in microseconds: the piece of time that its rows are in. A tumbling
   window; a slice of sliding windows that overlap; the session of these rows. Null if the rows are in no window,
6. if `has_whole`, `WHOLE`: the input row. Null if it stands for several.

With `whole_rows` a partial row is one input row, and has the columns of 1, 3, `TIME` and `WHOLE` alone; the function
makes the others of it. Rows that wait in slots are stored so: that must not depend on what is aggregated.

Rows that are late at the batch's watermark, and all rows unless `is_combinable`, are partial rows one by one.

Immutable and picklable; any thread.
"""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Iterable, Mapping
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.aggregates.declarations import Aggregate, Fold
from emberstate.runtime.aggregates.emission import Emit, checked_emit
from emberstate.runtime.rows.columns import (
    ALL_COLUMN,
    LATEST_COLUMN,
    PANE_COLUMNS,
    ROWS_COLUMN,
    TIME_COLUMN,
    WHOLE_COLUMN,
)
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.windows.assigners import (
    GlobalWindows,
    SessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    SlidingWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.windowed_rows import WindowedRows

ALL: Final = ALL_COLUMN
ROWS: Final = ROWS_COLUMN
TIME: Final = TIME_COLUMN
LATEST: Final = LATEST_COLUMN
PANE_START, PANE_END = PANE_COLUMNS
WHOLE: Final = WHOLE_COLUMN

#: The columns of the output that say which window a row is of.
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

_OURS: Final = (
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    GlobalWindows,
)
_BIGINT: Final = DataType("bigint")
_TIMESTAMP: Final = DataType("timestamp")


@dataclasses.dataclass(frozen=True, slots=True)
class AggregateSpec:
    """Aggregates by name, over rows of `input`. `of` makes one and checks it."""

    aggregates: tuple[tuple[str, Aggregate], ...]
    input: RowType
    key_columns: tuple[str, ...]
    event_time: str | None
    window: WindowedRows | None
    emit: Emit
    #: Rows come one by one, as they are, and the function makes partial rows of them.
    whole_rows: bool = False

    @classmethod
    def of(
        cls,
        aggregates: Mapping[str, Aggregate],
        input: RowType | str,
        key_columns: Iterable[str],
        *,
        event_time: str | None = None,
        window: WindowedRows | None = None,
        emit: Any = None,
    ) -> AggregateSpec:
        """Check the declaration of a stage.

        >>> from emberstate.runtime.aggregates.names import count, mean
        >>> spec = AggregateSpec.of({"n": count(), "x": mean("amount")}, "card string, amount int", ["card"])
        >>> spec.output.schema
        'card string, n bigint not null, x double'
        >>> spec.partial.schema
        'card string, n__count bigint not null, x__mean_sum__amount bigint, x__mean_count__amount bigint ...'
        """
        check_aggregates(aggregates)
        made = cls(
            tuple(aggregates.items()),
            RowType.of(input),
            tuple(key_columns),
            event_time,
            window,
            checked_emit(emit, window is not None),
        )
        made._check()
        if emit is not None and window is not None and window.trigger != window.assigner.default_trigger():
            raise StateDeclarationError(
                f"emit={emit!r} and the trigger {window.trigger!r} both say when windows emit: leave out one of them",
                option="emit",
                found=repr(window.trigger),
            )
        return made

    def _check(self) -> None:
        for part in (self._partial_columns(), self._output_columns()):
            names = [column.name.lower() for column in part]  # Spark does not tell n from N
            twice = next((column.name for column in part if names.count(column.name.lower()) > 1), None)
            if twice is not None:
                raise StateDeclarationError(
                    f"an aggregate and a key column, the window or another aggregate both have a column {twice!r}, in "
                    f"upper or lower case: give the aggregate another name",
                    column=twice,
                )
        window = self.window
        if window is not None and window.assigner.is_event_time and self.event_time is None:
            raise StateDeclarationError(
                f"{type(window.assigner).__name__} need an event time: declare which column it is, or use windows "
                f"of processing time",
                option="event_time",
            )

    # -- row types ------------------------------------------------------------------------------------------

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of partial rows; never empty."""
        return self.key_columns or (ALL,)

    @property
    def partial(self) -> RowType:
        """The columns of partial rows."""
        return RowType(self._partial_columns())

    @property
    def output(self) -> RowType:
        """The columns of the result: key, window, aggregates."""
        return RowType(self._output_columns())

    @property
    def record(self) -> tuple[Column, ...]:
        """The columns in which the aggregates `in_record` accumulate; none if there are no such."""
        return tuple(
            column for name, one in self.aggregates if one.in_record for column in one.partial(name, self.input)
        )

    def _key_columns(self) -> list[Column]:
        if not self.key_columns:
            return [Column(ALL, DataType("int"), nullable=False)]
        return [self.input.columns[self.input.position(name)] for name in self.key_columns]

    def with_whole_rows(self, whole_rows: bool) -> AggregateSpec:
        """The same stage, with or without `whole_rows`."""
        return dataclasses.replace(self, whole_rows=whole_rows)

    def _partial_columns(self) -> list[Column]:
        found = self._key_columns()
        whole = Column(WHOLE, DataType("struct", (), self.input.columns))
        if self.whole_rows:
            times = [] if self.event_time is None else [Column(TIME, _TIMESTAMP)]
            return [*found, Column(ROWS, _BIGINT, nullable=False), *times, whole]
        for name, aggregate in self.aggregates:
            found += aggregate.partial(name, self.input)
        found.append(Column(ROWS, _BIGINT, nullable=False))
        if self.event_time is not None:
            found.append(Column(TIME, _TIMESTAMP))
            if self.is_sessions:
                found.append(Column(LATEST, _TIMESTAMP))
        if self.has_panes:
            found += [Column(PANE_START, _BIGINT), Column(PANE_END, _BIGINT)]
        if self.has_whole:
            found.append(whole)
        return found

    def _output_columns(self) -> list[Column]:
        found = self._key_columns() if self.key_columns else []
        if self.window is not None and self.window.assigner.window_type is TimeWindow:
            found += [Column(WINDOW_START, _TIMESTAMP), Column(WINDOW_END, _TIMESTAMP)]
        for name, aggregate in self.aggregates:
            nullable = aggregate.title not in ("count", "distinct")
            found.append(Column(name, aggregate.result_type(self.input), nullable))
        return found

    # -- how rows become partial rows -----------------------------------------------------------------------

    @property
    def is_combinable(self) -> bool:
        """Whether rows of one key and pane may become one partial row."""
        if self.whole_rows or any(isinstance(aggregate, Fold) for _, aggregate in self.aggregates):
            return False
        if self.window is None:
            return True
        assigner = self.window.assigner
        return self.window.trigger == assigner.default_trigger() and _is_ours(assigner)

    @property
    def is_sessions(self) -> bool:
        """Whether its windows are sessions of event time, with one gap."""
        return self.has_panes and self.window is not None and isinstance(self.window.assigner, SessionWindows)

    @property
    def has_panes(self) -> bool:
        """Whether a row's event time alone says which windows it is in."""
        return self.window is not None and self.window.assigner.is_event_time and _is_ours(self.window.assigner)

    @property
    def has_whole(self) -> bool:
        """Whether partial rows carry the input row, for the late output or because rows come one by one."""
        return not self.is_combinable or (self.window is not None and self.window.late_output is not None)

    def pane(self, time: int) -> TimeWindow | None:
        """The piece of time that a row of this time is in, if `has_panes`; None if it is in no window."""
        assert self.window is not None and self.has_panes
        assigner = self.window.assigner
        grid = assigner.grid() if isinstance(assigner, SlidingWindows) else None
        if grid is not None:
            return grid.slice_of(time)
        found = assigner.assign(None, time)
        return found[0] if found else None


def _is_ours(assigner: WindowAssigner) -> bool:
    """Whether an assigner looks at the time alone, and not at the row."""
    if isinstance(assigner, SessionWindows):
        return assigner.fixed_gap is not None
    return type(assigner) in _OURS


def check_aggregates(aggregates: Mapping[str, Aggregate]) -> None:
    """Raise if these are no aggregates by name, whatever their input."""
    if not aggregates:
        what = "a stage of aggregates has at least one, such as n=es.count()"
        raise StateDeclarationError(what, option="aggregates")
    for name, aggregate in aggregates.items():
        _check_name(name)
        if not isinstance(aggregate, Aggregate):
            raise StateDeclarationError(
                f"{name}={aggregate!r:.100} is no aggregate: write es.count(), es.sum({name!r}) or the like",
                option=name,
                expected="an aggregate",
                found=repr(aggregate),
            )


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise StateDeclarationError(
            f"{name!r} is no name for an aggregate: use a Python identifier without two underscores in front",
            option="aggregates",
            found=name,
        )
