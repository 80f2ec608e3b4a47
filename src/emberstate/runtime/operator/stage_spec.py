"""`StageSpec`: one keyed stage as a program declares it: a function with its inputs and outputs. The harness runs one;
Spark sends it to the stage's slots.

Thread safety: immutable. An operator that it makes belongs to one thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from emberstate.checkpoint.files.bindings import bindings_of
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.errors import StateDeclarationError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.function import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    ProcessFunction,
)
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.operator.slot import broadcast_operator_name
from emberstate.runtime.rows.columns import with_origins
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.row_shape import RowShape
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.units import Duration


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One keyed stage. A job has one or several."""

    name: str
    function: ProcessFunction
    inputs: tuple[KeyedInput, ...]
    broadcast: RowType | None
    output: RowType | None
    side_outputs: Mapping[str, RowType]
    late_output: str | None
    out_of_orderness: Duration
    parallelism: int
    max_parallelism: int
    #: Its rows come from another stage, and wait until the watermark has passed them (`held_rows`).
    follows: bool = False
    #: Its main output goes to a stage that `follows`.
    followed: bool = False
    #: The rows of both inputs come in one order of event time.
    inputs_in_step: bool = False
    #: The watermark comes from another stage, though no input has an event time.
    follows_event_time: bool = False
    #: What broadcast rows come as; None: `Row`s.
    broadcast_shape: RowShape | None = None

    def __post_init__(self) -> None:
        expected = 2 if isinstance(self.function, KeyedCoProcessFunction) else 1
        if len(self.inputs) != expected:
            raise StateDeclarationError(
                f"{type(self.function).__qualname__} has {expected} keyed input(s), declared are {len(self.inputs)}: "
                f"give second=KeyedInput(schema, key_columns) to a KeyedCoProcessFunction, and to no other",
                operator=self.name,
                option="second",
                expected=expected,
                found=len(self.inputs),
            )
        if self.has_broadcast != (self.broadcast is not None):
            raise StateDeclarationError(
                f"{type(self.function).__qualname__} {'takes' if self.has_broadcast else 'does not take'} broadcast "
                f"rows: give broadcast=schema to a KeyedBroadcastProcessFunction, and to no other",
                operator=self.name,
                option="broadcast",
            )
        schemas = [_key_schema(input) for input in self.inputs]
        if len(set(schemas)) > 1:
            what = f"the two inputs have keys of different types: {schemas[0]} and {schemas[1]}"
            types = [schema.type_names for schema in schemas]
            raise StateDeclarationError(what, operator=self.name, expected=types[0], found=types[1])

    @property
    def key_schema(self) -> KeySchema:
        """The types of the key's columns."""
        return _key_schema(self.inputs[0])

    @property
    def has_broadcast(self) -> bool:
        """Whether the function has broadcast state."""
        return isinstance(self.function, KeyedBroadcastProcessFunction)

    @property
    def handed_on(self) -> RowType | None:
        """The columns of the main output as the next stage gets it."""
        return with_origins(self.output) if self.followed and self.output is not None else self.output

    @property
    def row_types(self) -> dict[str, RowType]:
        """The outputs that rows can go to, by name."""
        types = {} if self.output is None else {MAIN: self.output}
        types.update(self.side_outputs)
        if self.late_output is not None:
            types.setdefault(self.late_output, self.inputs[0].row_type)
        return types

    def make_operator(self, backend: KeyedStateBackend) -> KeyedOperator:
        """The operator around a backend, not open yet."""
        return KeyedOperator(
            self.name,
            self.function,
            backend,
            inputs=self.inputs,
            broadcast_row_type=self.broadcast,
            broadcast_shape=self.broadcast_shape,
            output=self.output,
            side_outputs=self.side_outputs,
            late_output=self.late_output,
            out_of_orderness=self.out_of_orderness,
            follows=self.follows,
            followed=self.followed,
            inputs_in_step=self.inputs_in_step,
            follows_event_time=self.follows_event_time,
        )

    def open_template(self) -> KeyedOperator:
        """An open operator that never gets a row: what it has registered is what the function declares."""
        operator = self.make_operator(HeapKeyedStateBackend(self.key_schema, max_parallelism=self.max_parallelism))
        operator.open()
        return operator

    def operator_specs(self, template: KeyedOperator, choices: RestoreChoices = NO_CHOICES) -> list[OperatorSpec]:
        """The operators as a coordinator knows them: the function's own and, if it has any, its broadcast state."""
        specs = [
            OperatorSpec(
                name=self.name,
                key_schema=self.key_schema,
                parallelism=self.parallelism,
                max_parallelism=self.max_parallelism,
                declared=bindings_of(template.backend),
                choices=choices,
            )
        ]
        side = template.broadcast_backend
        if side is not None:
            specs.append(
                OperatorSpec(
                    name=broadcast_operator_name(self.name),
                    key_schema=side.context.key_schema,
                    max_parallelism=side.context.max_parallelism,
                    declared=bindings_of(side),
                )
            )
        return specs


def _key_schema(input: KeyedInput) -> KeySchema:
    row_type = input.row_type
    return KeySchema([row_type.columns[row_type.position(name)].type.name for name in input.key_columns])
