"""`AggregateStagePlan`: a stage of declared aggregates. The columns of its output follow from those of its input.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.emission import checked_emit
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.spec import TIME, AggregateSpec, check_aggregates
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.windows.windowed_rows import WindowedRows
from emberstate.spark.plan.stage import KeyedStagePlan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AggregateStagePlan(KeyedStagePlan):
    """Aggregates by name, of all rows of a key, or of those in a window."""

    aggregates: Mapping[str, Aggregate]
    window: WindowedRows | None = None
    emit: Any = None

    def __post_init__(self) -> None:
        try:
            check_aggregates(self.aggregates)
            checked_emit(self.emit, self.window is not None)
        except StateDeclarationError as error:
            raise error.reworded(f"stage {self.name!r}: {error}").located(operator=self.name) from None

    @property
    def has_output(self) -> bool:
        """Always."""
        return True

    @property
    def declared_output(self) -> RowType | None:
        """None: it follows from the input."""
        return None

    def aggregate_spec(self, input: RowType) -> AggregateSpec:
        """The aggregates with the columns of their input; raises if they do not fit."""
        self.input.with_columns(input, f"stage {self.name!r}")
        try:
            return AggregateSpec.of(
                self.aggregates,
                input,
                self.input.key_columns,
                event_time=self.input.event_time,
                window=self.window,
                emit=self.emit,
            )
        except StateDeclarationError as error:
            raise error.reworded(f"stage {self.name!r}: {error}").located(operator=self.name) from None

    def row_types(self, input: RowType) -> dict[str, RowType]:
        """Key, window and aggregates; the late output has the input's columns."""
        late = {} if self.late_output is None else {self.late_output: input}
        return {MAIN: self.aggregate_spec(input).output, **late}

    def spec(
        self,
        first: RowType,
        others: Mapping[str, RowType],
        *,
        parallelism: int,
        max_parallelism: int,
    ) -> StageSpec:
        """The stage, whose slots get partial rows."""
        spec = self.aggregate_spec(first)
        return StageSpec(
            name=self.name,
            function=aggregate_function(spec),
            inputs=(_input(spec),),
            broadcast=None,
            output=spec.output,
            side_outputs={} if self.late_output is None else {self.late_output: first},
            late_output=self.late_output,
            out_of_orderness=self.out_of_orderness,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )

    def of_held_rows(self, stage: StageSpec, input: RowType) -> StageSpec:
        """The stage where rows wait in the slots: as they are, whatever is aggregated."""
        spec = self.aggregate_spec(input).with_whole_rows(True)
        return dataclasses.replace(stage, function=aggregate_function(spec), inputs=(_input(spec),))


def _input(spec: AggregateSpec) -> KeyedInput:
    return KeyedInput(spec.partial, spec.keys, event_time=None if spec.event_time is None else TIME)
