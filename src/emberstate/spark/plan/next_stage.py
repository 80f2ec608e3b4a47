"""`NextStage`: what `key_by`, `event_time`, `connect` and `broadcast` have declared of a pipeline's next stage.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.operator.shaped_inputs import main_output
from emberstate.spark.plan.aggregate_stage import AggregateStagePlan
from emberstate.spark.plan.stage import InputPlan, NullKeys, StagePlan, as_columns, as_row_type
from emberstate.units import Duration, as_duration

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from emberstate.runtime.rows.row import RowType
    from emberstate.runtime.windows.windowed_rows import WindowedRows

    Schema = RowType | str | StructType | type[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class NextStage:
    """The declarations so far. Each method returns the declarations with one more."""

    input: InputPlan | None = None
    out_of_orderness: Duration = "0 seconds"
    idle_timeout: Duration | None = None
    second: tuple[str, InputPlan] | None = None
    broadcast: str | None = None

    @property
    def has_key(self) -> bool:
        """Whether `key_by` was declared."""
        return self.input is not None and bool(self.input.key_columns)

    def keyed_by(self, columns: tuple[str, ...], null_keys: NullKeys) -> NextStage:
        """Key its rows by these columns."""
        if null_keys not in ("refuse", "drop"):
            raise StateDeclarationError(f"null_keys: expected 'refuse' or 'drop', got {null_keys!r}")
        time = None if self.input is None else self.input.event_time
        zone = None if self.input is None else self.input.zone
        input = InputPlan(key_columns=as_columns(columns), event_time=time, zone=zone, null_keys=null_keys)
        return dataclasses.replace(self, input=input)

    def timed_by(
        self, column: str, out_of_orderness: Duration, zone: str | None, idle_timeout: Duration | None
    ) -> NextStage:
        """Take event time from this column."""
        _check_durations(out_of_orderness, idle_timeout)
        input = InputPlan(key_columns=()) if self.input is None else self.input
        input = dataclasses.replace(input, event_time=column, zone=zone)
        return dataclasses.replace(self, input=input, out_of_orderness=out_of_orderness, idle_timeout=idle_timeout)

    def connected(
        self,
        name: str,
        columns: tuple[str, ...],
        *,
        event_time: str | None,
        out_of_orderness: Duration | None,
        zone: str | None,
        idle_timeout: Duration | None,
        input_columns: Sequence[str] | None,
    ) -> NextStage:
        """Add a second keyed input."""
        self._check_other(name)
        if not self.has_key:
            raise StateDeclarationError("connect comes after key_by")
        assert self.input is not None
        _check_durations(out_of_orderness, idle_timeout)
        plan = InputPlan(
            key_columns=as_columns(columns),
            event_time=event_time,
            zone=zone,
            null_keys=self.input.null_keys,
            out_of_orderness=out_of_orderness,
            idle_timeout=idle_timeout,
            columns=_names(input_columns, f"input {name!r}"),
        )
        return dataclasses.replace(self, second=(name, plan))

    def with_broadcast(self, name: str) -> NextStage:
        """Add an input whose rows every slot gets."""
        self._check_other(name)
        return dataclasses.replace(self, broadcast=name)

    def _check_other(self, name: Any) -> None:
        if self.second is not None or self.broadcast is not None:
            raise StateDeclarationError(f"input {name!r}: the stage has a second input already")
        if not isinstance(name, str) or not name.isidentifier():
            raise StateDeclarationError(f"the name of an input is an identifier such as rules, got {name!r}")

    def stage(
        self,
        name: str,
        function: ProcessFunction,
        schema: Schema | None,
        side_outputs: Mapping[str, Schema],
        late_output: str | None,
        columns: Sequence[str] | None,
    ) -> StagePlan:
        """The stage, complete."""
        if not self.has_key:
            what = f"stage {name!r} has no key: write key_by(…) before process(…)"
            raise StateDeclarationError(what, operator=name, option="key_by")
        assert self.input is not None
        if self.second is not None and (self.second[1].event_time is None) != (self.input.event_time is None):
            raise StateDeclarationError(
                f"stage {name!r}: either both inputs have an event time, or none", operator=name
            )
        sides = {side: as_row_type(given, f"side output {side!r}") for side, given in side_outputs.items()}
        return StagePlan(
            name=name,
            function=function,
            input=dataclasses.replace(self.input, columns=_names(columns, f"stage {name!r}")),
            second=self.second,
            broadcast=self.broadcast,
            output=_output(function, as_row_type(schema, f"stage {name!r}"), name),
            side_outputs={side: given for side, given in sides.items() if given is not None},
            late_output=late_output,
            out_of_orderness=self.out_of_orderness,
            idle_timeout=self.idle_timeout,
        )

    def aggregate_stage(
        self,
        name: str,
        aggregates: Mapping[str, Any],
        *,
        window: WindowedRows | None,
        emit: Any,
    ) -> AggregateStagePlan:
        """The stage, complete, with declared aggregates instead of a function."""
        if self.second is not None or self.broadcast is not None:
            raise StateDeclarationError(
                f"stage {name!r}: aggregates have one input; connect(…) and broadcast(…) go with functions",
                operator=name,
            )
        return AggregateStagePlan(
            name=name,
            input=self.input or InputPlan(key_columns=()),
            aggregates=aggregates,
            window=window,
            emit=emit,
            late_output=None if window is None else window.late_output,
            out_of_orderness=self.out_of_orderness,
            idle_timeout=self.idle_timeout,
        )


def _names(columns: Sequence[str] | None, where: str) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
        raise StateDeclarationError(
            f'{where}: columns takes names of columns, as in columns=["card", "amount"]; got {columns!r:.200}',
            option="columns",
            found=columns,
        )
    return tuple(columns)


def _output(function: Any, given: RowType | None, stage: str) -> RowType | None:
    if not isinstance(function, ProcessFunction):
        return given  # StagePlan refuses it
    try:
        return main_output(function, given, f"stage {stage!r}")
    except StateDeclarationError as error:
        raise error.located(operator=stage) from None


def _check_durations(out_of_orderness: Duration | None, idle_timeout: Duration | None) -> None:
    if out_of_orderness is not None:
        as_duration(out_of_orderness, "out_of_orderness")
    if idle_timeout is not None:
        as_duration(idle_timeout, "idle_timeout")
