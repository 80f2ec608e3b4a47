"""Rows of a test for a stage of declared aggregates: each becomes one partial row, as Spark would make it.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.partials import PartialRows
from emberstate.runtime.aggregates.spec import TIME, AggregateSpec
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.arrow_rows import rows_of
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.testing.input_batches import record_batch


@dataclasses.dataclass(frozen=True, slots=True)
class AggregatedInput:
    """The declaration of a stage, and what its input becomes."""

    spec: AggregateSpec
    #: The zone of a TIMESTAMP_NTZ event time.
    zone: str | None

    @property
    def partial(self) -> KeyedInput:
        """The input of the stage's operator: partial rows."""
        return KeyedInput(self.spec.partial, self.spec.keys, event_time=TIME if self.spec.event_time else None)

    def of(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The partial rows of rows."""
        spec = self.spec
        batch = record_batch(rows, spec.input, "a row")
        times = KeyedInput(spec.input, (), event_time=spec.event_time, zone=self.zone).times(batch)
        moments: Sequence[int | None] = [None] * len(rows) if times is None else times.tolist()
        partials = PartialRows(spec)
        return [partials.of(row, time) for row, time in zip(rows_of(batch, spec.input), moments, strict=True)]

    def with_aggregates(self, aggregates: Mapping[str, Aggregate]) -> AggregatedInput:
        """The same stage with other aggregates."""
        spec = self.spec
        changed = AggregateSpec.of(
            aggregates, spec.input, spec.key_columns, event_time=spec.event_time, window=spec.window
        )
        return AggregatedInput(dataclasses.replace(changed, emit=spec.emit), self.zone)

    def stage(self, stage: StageSpec) -> StageSpec:
        """The stage with the function, input and output of these aggregates."""
        function = aggregate_function(self.spec)
        return dataclasses.replace(stage, function=function, inputs=(self.partial,), output=self.spec.output)
