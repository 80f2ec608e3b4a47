"""`WindowedStage`: rows in windows, on their way to becoming a stage of a pipeline.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from emberstate.runtime.windows import ProcessWindowFunction, WindowedRows
from emberstate.state.states import AggregateFunction

P = TypeVar("P")


@dataclasses.dataclass(frozen=True, slots=True)
class WindowedStage(Generic[P]):
    """What to make of the rows of a window: each method adds the stage and gives the pipeline."""

    rows: WindowedRows
    add: Callable[[str, Any, Any, Mapping[str, Any] | None], P]

    def reduce(
        self,
        name: str,
        reduce: Callable[[Any, Any], Any],
        row_type: Any,
        schema: Any,
        *,
        function: ProcessWindowFunction | None = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> P:
        """Fold the rows of a window by a function of two of them; see `WindowedRows.reduce`."""
        return self.add(name, self.rows.reduce(reduce, row_type, function=function), schema, side_outputs)

    def aggregate(
        self,
        name: str,
        aggregate: AggregateFunction[Any, Any, Any],
        schema: Any,
        *,
        accumulator_type: Any = None,
        function: ProcessWindowFunction | None = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> P:
        """Fold the rows of a window by an `AggregateFunction`; see `WindowedRows.aggregate`."""
        made = self.rows.aggregate(aggregate, accumulator_type, function=function)
        return self.add(name, made, schema, side_outputs)

    def process(
        self,
        name: str,
        function: ProcessWindowFunction,
        row_type: Any,
        schema: Any,
        *,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> P:
        """Keep all rows of a window for a function that wants to see them; see `WindowedRows.process`."""
        return self.add(name, self.rows.process(function, row_type), schema, side_outputs)
