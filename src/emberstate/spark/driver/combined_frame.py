"""Partial rows of declared aggregates, made by Spark's own operators before rows travel to the slots.

Rows of one key and pane in one partition of the input become one partial row, by a hash aggregation over the columns
that the aggregates read (`runtime.aggregates.spec` has the columns of a partial row). These stay single:

- rows that are late at the batch's watermark, since the slot decides about each of them, and rows without a time,
  which it rejects: a group of their own by the id of the row;
- all rows, where the order of single ones counts over several partitions (`collect`, `top`), where they are seen as
  they are (a user's function or trigger), and where they wait in the slot for an earlier stage.

The pane of a session is a cell of time as wide as its gap: rows in one cell are less than the gap apart, so they are
in one session, from the first of them to a gap after the last. The slots merge sessions that touch, as they do of rows.

Thread safety: pure functions; the driver's thread.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from emberstate.runtime.aggregates.declarations import Collect, First, Last, Top
from emberstate.runtime.aggregates.spec import ALL, LATEST, PANE_END, PANE_START, ROWS, TIME, WHOLE, AggregateSpec
from emberstate.runtime.rows.columns import (
    GREATEST_COLUMN,
    LEAST_COLUMN,
    MICROS_COLUMN,
    ORDER_COLUMN,
    ORIGIN_COLUMN,
    PANE_COLUMN,
    REACHED_COLUMN,
    SINGLE_COLUMN,
    quoted,
)
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.windows.assigners import SessionWindows, SlidingWindows, TumblingWindows
from emberstate.spark.driver.aggregate_columns import RowColumns, combined, single
from emberstate.spark.driver.input_partitions import as_if_grouped
from emberstate.spark.driver.java_parts import grouped, selected
from emberstate.spark.driver.keyed_frame import narrowed
from emberstate.spark.driver.sql_text import event_micros
from emberstate.spark.plan.aggregate_stage import AggregateStagePlan
from emberstate.spark.plan.pipeline import PipelinePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclasses.dataclass(frozen=True, slots=True)
class CombinedFrame:
    """How the rows of a stage of aggregates become partial rows, batch by batch."""

    spec: AggregateSpec
    #: The zone of a TIMESTAMP_NTZ event time.
    zone: str | None

    @property
    def are_combined(self) -> bool:
        """Whether a partial row may stand for several rows."""
        ordered = any(isinstance(aggregate, Collect | Top) for _, aggregate in self.spec.aggregates)
        return self.spec.is_combinable and not ordered

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of the input that partial rows are made of."""
        spec = self.spec
        if spec.has_whole:
            return spec.input.names
        read = {*spec.key_columns, *(column for _, aggregate in spec.aggregates for column in aggregate.columns)}
        return tuple(name for name in spec.input.names if name in read or name == spec.event_time)

    def of(self, frame: DataFrame, watermark: int | None) -> DataFrame:
        """The partial rows of a batch that starts at this watermark, and their order within equal times."""
        return self._combined(frame, watermark) if self.are_combined else self._single(frame)

    # -- rows one by one ------------------------------------------------------------------------------------

    def _single(self, frame: DataFrame) -> DataFrame:
        spec = self.spec
        micros = None if spec.event_time is None else event_micros(quoted(spec.event_time), self.zone)
        aggregates = () if spec.whole_rows else spec.aggregates
        of_aggregates = [column for name, one in aggregates for column in single(name, one, spec.input, micros)]
        made = [*self._keys(), *of_aggregates, f"1L as {ROWS}"]
        if micros is not None and spec.whole_rows:
            made.append(f"timestamp_micros({micros}) as {TIME}")
        elif micros is not None:
            made += self._times(micros, micros)
            if spec.has_panes:
                made += self._panes(self._pane(micros), micros, micros)
        if spec.has_whole:
            made.append(f"{self._whole()} as {WHOLE}")
        if spec.whole_rows:  # rows of an earlier stage
            made += [name for name in (ORIGIN_COLUMN, REACHED_COLUMN) if name in frame.columns]
        return selected(frame, [*made, f"monotonically_increasing_id() as {ORDER_COLUMN}"])

    # -- rows combined --------------------------------------------------------------------------------------

    def _combined(self, frame: DataFrame, watermark: int | None) -> DataFrame:
        spec = self.spec
        if spec.key_columns:
            rows, by = self._rows(as_if_grouped(frame, spec.key_columns, self.needed), watermark)
        else:  # the column of the one key comes with the others
            rows, by = self._rows(frame, watermark)
            rows = as_if_grouped(rows, spec.keys, rows.columns)
        has_time = spec.event_time is not None
        columns = RowColumns(MICROS_COLUMN if has_time else None, ORDER_COLUMN)
        made = [
            column for name, one in spec.aggregates for column in combined(name, one, spec.input, columns, spec.keys)
        ]
        made.append(f"count(1) as {ROWS}")
        if has_time:
            made += [f"min({MICROS_COLUMN}) as {LEAST_COLUMN}", f"max({MICROS_COLUMN}) as {GREATEST_COLUMN}"]
        partial = grouped(rows, [quoted(name) for name in by], made)
        later = {TIME, LATEST, PANE_START, PANE_END, WHOLE}
        found = [quoted(name) for name in spec.partial.names if name not in later]
        if has_time:
            found += self._times(LEAST_COLUMN, GREATEST_COLUMN)
        if spec.has_panes:
            found += self._panes(PANE_COLUMN, LEAST_COLUMN, GREATEST_COLUMN)
        if spec.has_whole:
            found.append(WHOLE)
        order = "monotonically_increasing_id()"
        if SINGLE_COLUMN in by:
            order = f"coalesce({SINGLE_COLUMN}, {order})"
        return selected(partial, [*found, f"{order} as {ORDER_COLUMN}"])

    def _rows(self, frame: DataFrame, watermark: int | None) -> tuple[DataFrame, list[str]]:
        """The rows with the columns that are needed, and those by which they are grouped."""
        spec = self.spec
        by = list(spec.keys)
        read = [name for name in spec.input.names if name in self._read and name not in spec.key_columns]
        columns = [*self._keys(), *(quoted(name) for name in read)]
        if any(isinstance(aggregate, First | Last) for _, aggregate in spec.aggregates):
            columns.append(f"monotonically_increasing_id() as {ORDER_COLUMN}")
        if spec.event_time is None:
            return selected(frame, columns), by
        time = event_micros(quoted(spec.event_time), self.zone)
        rows = selected(frame, [*(quoted(name) for name in self.needed), f"{time} as {MICROS_COLUMN}"])
        columns.append(MICROS_COLUMN)
        if spec.has_panes:
            columns.append(f"{self._pane(MICROS_COLUMN)} as {PANE_COLUMN}")
            by.append(PANE_COLUMN)
        late = f"{MICROS_COLUMN} is null"
        if watermark is not None:
            late = f"({late} or {MICROS_COLUMN} < {watermark}L)"
        columns.append(f"case when {late} then monotonically_increasing_id() end as {SINGLE_COLUMN}")
        by.append(SINGLE_COLUMN)
        if spec.has_whole:  # as a grouping column, null but for single rows: as an aggregate, all rows would be sorted
            columns.append(f"case when {late} then {self._whole()} end as {WHOLE}")
            by.append(WHOLE)
        return rows.selectExpr(*columns), by

    @property
    def _read(self) -> set[str]:
        return {column for _, aggregate in self.spec.aggregates for column in aggregate.columns}

    # -- columns of both ------------------------------------------------------------------------------------

    def _keys(self) -> list[str]:
        return [quoted(name) for name in self.spec.key_columns] or [f"0 as {ALL}"]

    def _times(self, least: str, greatest: str) -> list[str]:
        if self.spec.is_sessions:
            return [f"timestamp_micros({least}) as {TIME}", f"timestamp_micros({greatest}) as {LATEST}"]
        return [f"timestamp_micros({greatest}) as {TIME}"]

    def _whole(self) -> str:
        return f"struct({', '.join(quoted(name) for name in self.spec.input.names)})"

    def _pane(self, micros: str) -> str:
        """What rows of one pane have in common: its start, or the cell of a session."""
        width, offset = self._grid
        return f"({micros} - pmod({micros} - {offset}L, {width}L))"

    @property
    def _grid(self) -> tuple[int, int]:
        """How wide panes are, and where one starts, in microseconds."""
        assert self.spec.window is not None
        assigner = self.spec.window.assigner
        if isinstance(assigner, SlidingWindows):
            return math.gcd(assigner.size, assigner.slide), assigner.offset
        if isinstance(assigner, SessionWindows):
            assert assigner.fixed_gap is not None  # only such sessions have panes
            return assigner.fixed_gap, 0
        assert isinstance(assigner, TumblingWindows)
        return assigner.size, assigner.offset

    def _panes(self, pane: str, least: str, greatest: str) -> list[str]:
        """Start and end of a pane."""
        assert self.spec.window is not None
        assigner, (width, _) = self.spec.window.assigner, self._grid
        if isinstance(assigner, SessionWindows):
            return [f"{least} as {PANE_START}", f"{greatest} + {width}L as {PANE_END}"]
        if isinstance(assigner, SlidingWindows) and assigner.grid() is None:
            start = f"({pane} - pmod({pane} - {assigner.offset}L, {assigner.slide}L))"
            inside = f"{pane} - {start} < {assigner.size}L"  # not between windows
            return [
                f"case when {inside} then {start} end as {PANE_START}",
                f"case when {inside} then {start} + {assigner.size}L end as {PANE_END}",
            ]
        return [f"{pane} as {PANE_START}", f"{pane} + {width}L as {PANE_END}"]


def needed_columns(frame: DataFrame, plan: PipelinePlan, row_type: RowType) -> DataFrame:
    """The columns of a pipeline's only input that its first stage reads, so that the source reads no others.

    Spark cannot find this out: in foreachBatch a batch is a frame whose columns are decided.
    """
    stage = plan.stages[0]
    if not isinstance(stage, AggregateStagePlan):
        spec = stage.spec(row_type, {}, parallelism=1, max_parallelism=plan.max_parallelism)
        return narrowed(frame, spec.inputs[0])
    needed = combined_frame(stage, row_type, follows=False).needed
    return frame if len(needed) == len(row_type.names) else frame.select(*(quoted(name) for name in needed))


def combined_frame(stage: AggregateStagePlan, input: RowType, *, follows: bool) -> CombinedFrame:
    """The partial rows of a stage over rows of `input`."""
    return CombinedFrame(stage.aggregate_spec(input).with_whole_rows(follows), stage.input.zone)
