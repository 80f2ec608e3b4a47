"""`WindowedStage`: the rows of a pipeline in windows, before it is known what becomes of them. `AllWindowedStage`: the
same of rows without a key.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, overload

from emberstate.errors import StateDeclarationError
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.emission import Emit
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
    add_aggregates: Callable[[str, Mapping[str, Aggregate], Emit | None], P]

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

    @overload
    def aggregate(self, name: str, *, emit: Emit | None = None, **aggregates: Aggregate) -> P: ...

    @overload
    def aggregate(
        self,
        name: str,
        aggregate: AggregateFunction[Any, Any, Any],
        schema: Any,
        *,
        accumulator_type: Any = None,
        function: ProcessWindowFunction | None = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> P: ...

    def aggregate(
        self,
        name: str,
        aggregate: Any = None,
        schema: Any = None,
        *,
        accumulator_type: Any = None,
        function: Any = None,
        side_outputs: Any = None,
        emit: Any = None,
        **aggregates: Any,
    ) -> P:
        """Add a stage with aggregates of the rows of a window: declared ones, or an `AggregateFunction` of your own.

        Declared, such as `aggregate("hourly", n=es.count(), total=es.sum("amount"))`: the output has the key's columns,
        `window_start`, `window_end` and a column per aggregate, and Spark combines rows before they travel.

        Args:
            name: The name of the stage; its state is stored under it.
            emit: When windows are emitted: "closed", the default; "changed", once per batch in which they changed; or
                `es.every("1 minute")`, early and when they close.
            aggregates: The aggregates, by the names of their columns.
            aggregate: Instead of declared ones: folds rows into an accumulator; its result is the output.
            schema: The columns of the output of `aggregate`.
            accumulator_type: The type of its accumulator; by default that of the declaration
                `AggregateFunction[…, accumulator, …]`.
            function: Gets the key, the window and the result when the window fires, and yields the output.
            side_outputs: The columns of further outputs, by name.
        """
        options = {
            "aggregate": aggregate,
            "schema": schema,
            "accumulator_type": accumulator_type,
            "function": function,
            "side_outputs": side_outputs,
        }
        if aggregate is None:
            _check_declared(name, aggregates, options)
            return self.add_aggregates(name, aggregates, emit)
        if aggregates or emit is not None:
            raise StateDeclarationError(
                f"stage {name!r}: an AggregateFunction goes with no declared aggregates and no emit; got "
                f"{sorted(aggregates) or f'emit={emit!r}'}. Among declared ones it is x=es.fold(function, result=…)",
                operator=name,
                option="aggregate",
            )
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


@dataclasses.dataclass(frozen=True, slots=True)
class AllWindowedStage(Generic[P]):
    """Rows without a key in windows: the result of `Pipeline.window_all`. `aggregate` adds the stage.

    >>> import emberstate as es
    >>> hourly = (
    ...     es.Pipeline("all", es.MemoryStateBackend())
    ...     .event_time("ts", "10 seconds")
    ...     .window_all(es.TumblingEventTimeWindows.of("1 hour"))
    ...     .aggregate("hourly", n=es.count(), highest=es.max("amount"))
    ... )
    """

    add_aggregates: Callable[[str, Mapping[str, Aggregate], Emit | None], P]

    def aggregate(self, name: str, /, *, emit: Emit | None = None, **aggregates: Aggregate) -> P:
        """Add a stage with aggregates of all rows of a window; as `WindowedStage.aggregate` with declared ones.

        All of them go to one slot. Spark combines rows before, so that slot gets few.
        """
        return self.add_aggregates(name, aggregates, emit)


def _check_declared(name: str, aggregates: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise StateDeclarationError(
            f"stage {name!r}: {given[0]} goes with an AggregateFunction, as in aggregate(name, function, schema). "
            f"Declared aggregates need none, and none of them may be called so",
            operator=name,
            option=given[0],
        )
    if not aggregates:
        raise StateDeclarationError(
            f"stage {name!r} has no aggregate: write aggregate(name, n=es.count(), …), or aggregate(name, function, "
            f"schema) with an AggregateFunction",
            operator=name,
            option="aggregates",
        )
