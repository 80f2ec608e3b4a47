"""`WindowedStage`: the rows of a pipeline in windows, before the function that handles them is known.

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
    """Rows in windows: the result of `Pipeline.window`. Each method adds the stage and returns the pipeline.

    >>> import emberstate as es
    >>> sums = (
    ...     es.Pipeline("sums", es.MemoryStateBackend())
    ...     .key_by("card")
    ...     .event_time("ts", "10 seconds")
    ...     .window(es.TumblingEventTimeWindows.of("1 hour"))
    ...     .reduce(
    ...         "hourly",
    ...         lambda one, other: other._replace(amount=one.amount + other.amount),
    ...         row_type=es.RowType.of("card string, ts timestamp, amount double"),
    ...         schema="card string, ts timestamp, amount double",
    ...     )
    ... )
    """

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
        """Add a stage that reduces the rows of a window to one, by a function of two rows.

        Args:
            name: The name of the stage; its state is stored under it.
            reduce: Returns one row for two; a window stores the row so far.
            row_type: The type of the stored row: a `RowType`, or a Python type.
            schema: The columns of the output: those of the row, or of what `function` yields.
            function: Gets the key, the window and the row when the window fires; without it, the row is the output.
            side_outputs: The columns of further outputs, by name.
        """
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
        """Add a stage that folds the rows of a window into an accumulator, by an `AggregateFunction`.

        Args:
            name: The name of the stage; its state is stored under it.
            aggregate: Folds rows into an accumulator; its result is the output.
            schema: The columns of the output.
            accumulator_type: The type of the accumulator; by default that of the declaration
                `AggregateFunction[…, accumulator, …]`.
            function: Gets the key, the window and the result when the window fires, and yields the output.
            side_outputs: The columns of further outputs, by name.
        """
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
        """Add a stage that stores all rows of a window, and passes them to `function` when the window fires.

        `row_type` is the type of the stored rows, `schema` the columns of what the function yields. Where `reduce` or
        `aggregate` will do, they store less.
        """
        return self.add(name, self.rows.process(function, row_type), schema, side_outputs)
