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
from emberstate.spark.driver.keyed_frame import event_micros, narrowed
from emberstate.spark.plan.aggregate_stage import AggregateStagePlan
from emberstate.spark.plan.pipeline import PipelinePlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
        from pyspark.sql import functions as F

        spec = self.spec
        micros = None if spec.event_time is None else event_micros(F.col(quoted(spec.event_time)), self.zone)
        aggregates = () if spec.whole_rows else spec.aggregates
        of_aggregates = [column for name, one in aggregates for column in single(name, one, spec.input, micros)]
        made = [*self._keys(), *of_aggregates, F.lit(1).cast("bigint").alias(ROWS)]
        if micros is not None and spec.whole_rows:
            made.append(F.timestamp_micros(micros).alias(TIME))
        elif micros is not None:
            made += self._times(micros, micros)
            if spec.has_panes:
                made += self._panes(self._pane(micros), micros, micros)
        if spec.has_whole:
            made.append(self._whole().alias(WHOLE))
        handed_on = [name for name in (ORIGIN_COLUMN, REACHED_COLUMN) if name in frame.columns]
        return frame.select(*made, *handed_on, F.monotonically_increasing_id().alias(ORDER_COLUMN))

    # -- rows combined --------------------------------------------------------------------------------------

    def _combined(self, frame: DataFrame, watermark: int | None) -> DataFrame:
        from pyspark.sql import functions as F

        spec = self.spec
        if spec.key_columns:
            rows, grouped = self._rows(as_if_grouped(frame, spec.key_columns, self.needed), watermark)
        else:  # the column of the one key comes with the others
            rows, grouped = self._rows(frame, watermark)
            rows = as_if_grouped(rows, spec.keys, rows.columns)
        groups = rows.groupBy(*(quoted(name) for name in grouped))
        has_time = spec.event_time is not None
        columns = RowColumns(MICROS_COLUMN if has_time else None, ORDER_COLUMN)
        of_aggregates = [
            column for name, one in spec.aggregates for column in combined(name, one, spec.input, columns, spec.keys)
        ]
        made = [*of_aggregates, F.count(F.lit(1)).alias(ROWS)]
        if has_time:
            made += [F.min(MICROS_COLUMN).alias(LEAST_COLUMN), F.max(MICROS_COLUMN).alias(GREATEST_COLUMN)]
        partial = groups.agg(*made)
        least, greatest = F.col(LEAST_COLUMN), F.col(GREATEST_COLUMN)
        found = [F.col(quoted(name)) for name in spec.partial.names if name in partial.columns and name != WHOLE]
        if has_time:
            found += self._times(least, greatest)
        if spec.has_panes:
            found += self._panes(F.col(PANE_COLUMN), least, greatest)
        if spec.has_whole:
            found.append(F.col(WHOLE))
        order = F.monotonically_increasing_id()
        if SINGLE_COLUMN in grouped:
            order = F.coalesce(F.col(SINGLE_COLUMN), order)
        return partial.select(*found, order.alias(ORDER_COLUMN))

    def _rows(self, frame: DataFrame, watermark: int | None) -> tuple[DataFrame, list[str]]:
        """The rows with the columns that are needed, and those by which they are grouped."""
        from pyspark.sql import functions as F

        spec = self.spec
        grouped = list(spec.keys)
        read = [name for name in spec.input.names if name in self._read and name not in spec.key_columns]
        columns = [*self._keys(), *(F.col(quoted(name)) for name in read)]
        if any(isinstance(aggregate, First | Last) for _, aggregate in spec.aggregates):
            columns.append(F.monotonically_increasing_id().alias(ORDER_COLUMN))
        if spec.event_time is None:
            return frame.select(*columns), grouped
        time = event_micros(F.col(quoted(spec.event_time)), self.zone)
        rows = frame.select(*(quoted(name) for name in self.needed), time.alias(MICROS_COLUMN))
        micros = F.col(MICROS_COLUMN)
        columns.append(micros)
        if spec.has_panes:
            columns.append(self._pane(micros).alias(PANE_COLUMN))
            grouped.append(PANE_COLUMN)
        late = micros.isNull() if watermark is None else micros.isNull() | (micros < F.lit(watermark))
        columns.append(F.when(late, F.monotonically_increasing_id()).alias(SINGLE_COLUMN))
        grouped.append(SINGLE_COLUMN)
        if spec.has_whole:  # as a grouping column, null but for single rows: as an aggregate, all rows would be sorted
            columns.append(F.when(late, self._whole()).alias(WHOLE))
            grouped.append(WHOLE)
        return rows.select(*columns), grouped

    @property
    def _read(self) -> set[str]:
        return {column for _, aggregate in self.spec.aggregates for column in aggregate.columns}

    # -- columns of both ------------------------------------------------------------------------------------

    def _keys(self) -> list[Column]:
        from pyspark.sql import functions as F

        if not self.spec.key_columns:
            return [F.lit(0).alias(ALL)]
        return [F.col(quoted(name)) for name in self.spec.key_columns]

    def _times(self, least: Column, greatest: Column) -> list[Column]:
        from pyspark.sql import functions as F

        if self.spec.is_sessions:
            return [F.timestamp_micros(least).alias(TIME), F.timestamp_micros(greatest).alias(LATEST)]
        return [F.timestamp_micros(greatest).alias(TIME)]

    def _whole(self) -> Column:
        from pyspark.sql import functions as F

        return F.struct(*(F.col(quoted(name)) for name in self.spec.input.names))

    def _pane(self, micros: Column) -> Column:
        """What rows of one pane have in common: its start, or the cell of a session."""
        from pyspark.sql import functions as F

        width, offset = self._grid
        return micros - F.pmod(micros - F.lit(offset), F.lit(width))

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

    def _panes(self, pane: Column, least: Column, greatest: Column) -> list[Column]:
        """Start and end of a pane."""
        from pyspark.sql import functions as F

        assert self.spec.window is not None
        assigner, (width, _) = self.spec.window.assigner, self._grid
        if isinstance(assigner, SessionWindows):
            return [least.alias(PANE_START), (greatest + F.lit(width)).alias(PANE_END)]
        if isinstance(assigner, SlidingWindows) and assigner.grid() is None:
            start = pane - F.pmod(pane - F.lit(assigner.offset), F.lit(assigner.slide))
            inside = pane - start < F.lit(assigner.size)  # not between windows
            end = start + F.lit(assigner.size)
            return [F.when(inside, start).alias(PANE_START), F.when(inside, end).alias(PANE_END)]
        return [pane.alias(PANE_START), (pane + F.lit(width)).alias(PANE_END)]


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
