"""`KeyedStagePlan`: a keyed stage as declared, before the columns of its input are known; `spec` adds them. `StagePlan`
is one with a user's function.

Thread safety: immutable values.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.function import KeyedBroadcastProcessFunction, KeyedCoProcessFunction, ProcessFunction
from emberstate.runtime.functions.row_annotations import row_classes
from emberstate.runtime.operator.shaped_inputs import broadcast_shape, shaped_inputs
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.columns import RESERVED
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.records import is_record
from emberstate.runtime.rows.row import RowType
from emberstate.units import Duration

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NullKeys = Literal["refuse", "drop"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputPlan:
    """Key and event time of an input."""

    key_columns: tuple[str, ...]
    event_time: str | None = None
    zone: str | None = None
    null_keys: NullKeys = "refuse"
    #: The columns that rows have for the function, given by hand; None: as its annotations say, or all.
    columns: tuple[str, ...] | None = None
    #: Of a second input; None: that of the first.
    out_of_orderness: Duration | None = None
    idle_timeout: Duration | None = None

    def with_columns(self, row_type: RowType, where: str) -> KeyedInput:
        """The input with its columns; raises if one that it needs is missing."""
        for column in (*self.key_columns, *([self.event_time] if self.event_time is not None else [])):
            if column not in row_type.names:
                raise StateDeclarationError(
                    f"{where}: there is no column {column!r}; the input has {list(row_type.names)}. Name one of these "
                    f"in key_by and event_time, or select it before.",
                    column=column,
                )
        return KeyedInput(
            row_type,
            self.key_columns,
            event_time=self.event_time,
            zone=self.zone,
            out_of_orderness=self.out_of_orderness,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStagePlan(abc.ABC):
    """One keyed stage, whatever runs in it."""

    name: str
    input: InputPlan
    #: A second keyed input, with its name.
    second: tuple[str, InputPlan] | None = None
    #: The name of the input whose rows every slot gets.
    broadcast: str | None = None
    side_outputs: Mapping[str, RowType] = dataclasses.field(default_factory=dict)
    late_output: str | None = None
    out_of_orderness: Duration = "0 seconds"
    idle_timeout: Duration | None = None
    choices: RestoreChoices = NO_CHOICES

    @property
    def has_event_time(self) -> bool:
        """Whether the stage has event time."""
        return self.input.event_time is not None

    @property
    @abc.abstractmethod
    def has_output(self) -> bool:
        """Whether it emits rows that a next stage can read."""

    @property
    @abc.abstractmethod
    def declared_output(self) -> RowType | None:
        """The columns of its main output, if they are known before those of its input."""

    @abc.abstractmethod
    def row_types(self, input: RowType) -> dict[str, RowType]:
        """The columns of its outputs, by name. The late output has the input's columns unless declared."""

    @abc.abstractmethod
    def spec(
        self,
        first: RowType,
        others: Mapping[str, RowType],
        *,
        parallelism: int,
        max_parallelism: int,
    ) -> StageSpec:
        """The stage with the columns of its inputs; raises if they do not fit."""

    @abc.abstractmethod
    def of_held_rows(self, stage: StageSpec, input: RowType) -> StageSpec:
        """The stage where rows of `input` wait in the slots until the watermark has passed them."""

    def never_idle(self) -> Self:
        """The stage without idle timeouts."""
        second = self.second and (self.second[0], dataclasses.replace(self.second[1], idle_timeout=None))
        return dataclasses.replace(self, idle_timeout=None, second=second)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan(KeyedStagePlan):
    """A stage that runs a user's function."""

    function: ProcessFunction
    output: RowType | None = None

    def __post_init__(self) -> None:
        label = f"stage {self.name!r}"
        function = self.function
        if isinstance(function, type):
            raise StateDeclarationError(
                f"{label}: expected an instance, {function.__name__}(…), got the class",
                operator=self.name,
                expected="an instance",
                found=function.__qualname__,
            )
        if not isinstance(function, ProcessFunction):
            raise StateDeclarationError(
                f"{label}: expected a KeyedProcessFunction or the like, got {function!r}", operator=self.name
            )
        if isinstance(function, KeyedCoProcessFunction) != (self.second is not None):
            raise StateDeclarationError(
                f"{label}: {type(function).__qualname__} has {'two inputs' if self.second is None else 'one input'}: "
                f"connect(…) goes with a KeyedCoProcessFunction, and with no other",
                operator=self.name,
            )
        if isinstance(function, KeyedBroadcastProcessFunction) != (self.broadcast is not None):
            raise StateDeclarationError(
                f"{label}: broadcast(…) goes with a KeyedBroadcastProcessFunction, and with no other; got "
                f"{type(function).__qualname__}",
                operator=self.name,
            )
        row_classes(function)  # raises for an annotation that rows cannot come as

    @property
    def has_output(self) -> bool:
        """Whether it has a schema."""
        return self.output is not None

    @property
    def declared_output(self) -> RowType | None:
        """The schema."""
        return self.output

    def row_types(self, input: RowType) -> dict[str, RowType]:
        """The columns of its outputs, as declared."""
        types = {} if self.output is None else {MAIN: self.output}
        types.update(self.side_outputs)
        if self.late_output is not None:
            types.setdefault(self.late_output, input)
        return types

    def spec(
        self,
        first: RowType,
        others: Mapping[str, RowType],
        *,
        parallelism: int,
        max_parallelism: int,
    ) -> StageSpec:
        """The stage with the columns of its inputs; raises if they do not fit."""
        label = f"stage {self.name!r}"
        broadcast = None if self.broadcast is None else _named(others, self.broadcast, label)
        return StageSpec(
            name=self.name,
            function=self.function,
            # Late rows go to their output as they came.
            inputs=self._inputs(first, others, whole=self.late_output is not None),
            broadcast=broadcast,
            broadcast_shape=broadcast_shape(self.function, broadcast, label),
            output=self.output,
            side_outputs=self.side_outputs,
            late_output=self.late_output,
            out_of_orderness=self.out_of_orderness,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )

    def of_held_rows(self, stage: StageSpec, input: RowType) -> StageSpec:
        """The stage where rows wait in the slots: as they are, whatever the function gets of them."""
        return dataclasses.replace(stage, inputs=self._inputs(input, {}, whole=True))

    def _inputs(self, first: RowType, others: Mapping[str, RowType], *, whole: bool) -> tuple[KeyedInput, ...]:
        label = f"stage {self.name!r}"
        plans, inputs = [self.input], [self.input.with_columns(first, label)]
        if self.second is not None:
            name, plan = self.second
            plans.append(plan)
            inputs.append(plan.with_columns(_named(others, name, label), f"{label}, input {name!r}"))
        try:
            return shaped_inputs(self.function, inputs, [plan.columns for plan in plans], label, whole=whole)
        except StateDeclarationError as error:
            raise error.located(operator=self.name) from None


def _named(others: Mapping[str, RowType], name: str, label: str) -> RowType:
    if name not in others:
        raise StateDeclarationError(
            f"{label}: expected input {name!r}, got {sorted(others)}: pass inputs={{{name!r}: dataframe}}, or give "
            f"foreachBatch the DataFrame of pipeline.inputs(df, {name}=…)",
            option="inputs",
            expected=name,
            found=sorted(others),
        )
    return others[name]


def row_type_of_frame(schema: StructType, where: str) -> RowType:
    """The row type of a DataFrame's columns; raises if a function cannot get one of them."""
    pairs: list[tuple[str, str]] = []
    for field in schema.fields:
        if field.name.lower() in RESERVED:  # Spark ignores case
            raise StateDeclarationError(
                f"{where}: column name {field.name!r} is reserved; rename the column", column=field.name
            )
        pairs.append((field.name, field.dataType.simpleString()))
    try:
        return RowType.of(pairs)
    except StateDeclarationError:
        for name, type_ in pairs:
            try:
                RowType.of([(name, type_)])
            except StateDeclarationError as error:
                raise StateDeclarationError(
                    f"{where}: column {name!r} is {type_}, which a function cannot get ({error}). Cast it, or select "
                    f"the columns that are needed.",
                    column=name,
                    found=type_,
                ) from None
        raise


def as_row_type(schema: RowType | str | StructType | type[Any] | None, where: str) -> RowType | None:
    """The row type of a schema as users give it: a string such as "card string, n int", a StructType, a RowType, or a
    dataclass, NamedTuple or `msgspec.Struct`."""
    if schema is None or isinstance(schema, RowType | str) or is_record(schema):
        return None if schema is None else RowType.of(schema)  # type: ignore[arg-type]
    return row_type_of_frame(schema, where)  # type: ignore[arg-type]


def as_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of key columns: at least one, each once."""
    flat = columns[0] if len(columns) == 1 and not isinstance(columns[0], str) else columns
    names = tuple(flat)
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        what = f"key_by takes the names of columns, each once; got {names!r:.200}"
        raise StateDeclarationError(what, option="key_by", found=names)
    return names
