"""The frame of a keyed stage: every row with its key group, in the partition of its slot, in order of event time.

Partition i holds exactly the rows of slot i, with adaptive execution off, so a task's partition id is its slot. With
event time, rows are sorted by it within the slot, and rows of the same time keep their order in one input partition: a
task that runs again sees them in the same order. Rows that another stage emitted keep that order alone; the slot holds
them until the watermark has passed their time.

Two inputs come in one DataFrame (`tagged`), so that it is evaluated once: column `__input` has the input of a row, and
the rows are structs in `__row0` and `__row1`. Rows of a broadcast input go to every slot, before all others, as
structs in column `__broadcast`.

Thread safety: pure functions; the driver's thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.columns import (
    BROADCAST_COLUMN,
    INPUT_COLUMN,
    KEY_GROUP_COLUMN,
    MICROS_COLUMN,
    ORDER_COLUMN,
    RESERVED,
    ROW_COLUMNS,
    SLOT_COLUMN,
    quoted,
)
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.sql_text import event_micros, key_group_text, slot_text
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.plan.stage import row_type_of_frame
from emberstate.spark.slot.task import ANSWER_SCHEMA, SlotShim
from emberstate.spark.spark_session import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def input_row_types(plan: PipelinePlan, df: DataFrame) -> tuple[RowType, dict[str, RowType]]:
    """The columns of a pipeline's first input, and of the other one by name, if `tagged` has joined them."""
    name, where = plan.other_input, f"pipeline {plan.name!r}"
    if name is None:
        return row_type_of_frame(df.schema, where), {}
    if df.columns != [INPUT_COLUMN, *ROW_COLUMNS]:
        raise StateDeclarationError(
            f"{where} has a second input {name!r}: give foreachBatch the DataFrame that pipeline.inputs(df, {name}=…) "
            f"makes; got columns {df.columns}"
        )
    types: list[Any] = [df.schema[column].dataType for column in ROW_COLUMNS]
    return row_type_of_frame(types[0], where), {name: row_type_of_frame(types[1], f"input {name!r}")}


def only_needed(plan: PipelinePlan, first: DataFrame, second: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Two inputs, each with the columns that its rows need; a broadcast input has all."""
    row_types = [row_type_of_frame(frame.schema, f"pipeline {plan.name!r}") for frame in (first, second)]
    others = {} if plan.other_input is None else {plan.other_input: row_types[1]}
    spec = plan.stages[0].spec(row_types[0], others, parallelism=1, max_parallelism=plan.max_parallelism)
    frames = [narrowed(frame, input) for frame, input in zip((first, second), spec.inputs, strict=False)]
    return frames[0], frames[1] if len(frames) > 1 else second


def narrowed(frame: DataFrame, input: KeyedInput) -> DataFrame:
    """The columns that rows of a function need, and those that the library has added."""
    columns = frame.columns
    kept = _needed(columns, input)
    return frame if len(kept) == len(columns) else frame.select(*(quoted(name) for name in kept))


def _needed(columns: Sequence[str], input: KeyedInput) -> list[str]:
    if input.shape is None:
        return list(columns)
    return [name for name in columns if name in input.row_type.names or name in RESERVED]


def tagged(first: DataFrame, second: DataFrame) -> DataFrame:
    """Two inputs in one DataFrame."""
    from pyspark.sql import functions as F

    parts = []
    for number, frame in enumerate((first, second)):
        row = F.struct(*(F.col(quoted(name)) for name in frame.columns))
        empty = F.lit(None).cast((second, first)[number].schema)
        rows = [row, empty] if number == 0 else [empty, row]
        parts.append(
            frame.select(
                F.lit(number).alias(INPUT_COLUMN),
                *(value.alias(name) for value, name in zip(rows, ROW_COLUMNS, strict=True)),
            )
        )
    return parts[0].unionByName(parts[1])


@dataclasses.dataclass(frozen=True, slots=True)
class _Texts:
    """The steps of a stage's plan, as SQL text."""

    made: list[str]  # the columns with which rows travel
    slot: str
    order: list[str]  # names of columns; broadcast rows have the higher number of an input, and come first
    given: list[str]  # the columns that slots get
    names: list[str]  # their names

    @property
    def has_more(self) -> bool:
        """Whether rows travel with columns that slots do not get."""
        return bool(self.order) or self.slot == SLOT_COLUMN


def _texts(stage: StageSpec, columns: Sequence[str], fields: Sequence[str], has_anchor: bool) -> _Texts:
    """The plan for rows with these columns; `fields` are those of the rows of the first of two inputs."""
    order: list[str] = [INPUT_COLUMN] if stage.has_broadcast else []
    if stage.follows:
        order.append(ORDER_COLUMN)
    elif stage.inputs[0].event_time is not None:
        order += [MICROS_COLUMN, ORDER_COLUMN]
    elif order:
        order.append(ORDER_COLUMN)
    kept = [name for name in columns if name != ORDER_COLUMN]  # partial rows have one
    if len(stage.inputs) == 1 and not stage.has_broadcast:
        kept = _needed(kept, stage.inputs[0])
    key_group = _by_input(stage, _key_group)
    made = ["*"] if kept == list(columns) else [quoted(name) for name in kept]
    made.append(f"{key_group} as {KEY_GROUP_COLUMN}")
    if MICROS_COLUMN in order:
        made.append(f"{_by_input(stage, _time)} as {MICROS_COLUMN}")
    if order:
        made.append(ORDER_COLUMN if ORDER_COLUMN in columns else f"monotonically_increasing_id() as {ORDER_COLUMN}")
    slot = slot_text(KEY_GROUP_COLUMN, stage.parallelism, stage.max_parallelism)
    if stage.has_broadcast or has_anchor:
        inlined = slot_text(key_group, stage.parallelism, stage.max_parallelism)
        if stage.has_broadcast:
            inlined = f"explode(if({_IS_BROADCAST}, sequence(0, {stage.parallelism - 1}), array({inlined})))"
        made.append(f"{inlined} as {SLOT_COLUMN}")
        slot = SLOT_COLUMN
    if not stage.has_broadcast:
        names = [*kept, KEY_GROUP_COLUMN]
        return _Texts(made, slot, order, [quoted(name) for name in names], names)
    rules = f"if({_IS_BROADCAST}, {ROW_COLUMNS[1]}, null) as {BROADCAST_COLUMN}"
    given = [f"{ROW_COLUMNS[0]}.*", KEY_GROUP_COLUMN, rules]
    return _Texts(made, slot, order, given, [*fields, KEY_GROUP_COLUMN, BROADCAST_COLUMN])


class KeyedFrame:
    """Makes the rows of one stage as its slots get them, batch by batch.

    The parts of the plan are made once and kept in the JVM, so a batch takes one call for each step.
    """

    def __init__(self, frame: DataFrame, stage: StageSpec) -> None:
        """`frame` has the columns of all batches to come."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        spark = frame.sparkSession
        schema = frame.schema
        rows: Any = schema[ROW_COLUMNS[0]].dataType if stage.has_broadcast else schema
        texts = _texts(stage, schema.names, rows.names, has_anchor=not is_local(spark))
        jvm: Any = spark._jvm
        to_seq = jvm.PythonUtils.toSeq
        self._parallelism = stage.parallelism
        self._made = to_seq(texts.made)
        self._slot = F.expr(texts.slot)._jc
        by = [F.col(name).desc() if name == INPUT_COLUMN else F.col(name).asc() for name in texts.order]
        self._sorted = to_seq([one._jc for one in by]) if by else None
        self._given = to_seq(texts.given) if texts.has_more else None
        self._arguments = to_seq([F.col(quoted(name))._jc for name in texts.names])
        self._answers = StructType.fromDDL(ANSWER_SCHEMA)

    def of(self, frame: DataFrame, anchor: DataFrame | None) -> DataFrame:
        """The rows as the slots get them.

        `anchor` has a row per slot; the join with it ties tasks to the executors of their slots (`Anchor`).
        """
        from pyspark.sql import DataFrame

        spark = frame.sparkSession
        rows = frame._jdf.selectExpr(self._made).repartitionById(self._parallelism, self._slot)
        if anchor is not None:
            rows = DataFrame(rows, spark).join(anchor.hint("shuffle_hash"), SLOT_COLUMN, "inner")._jdf
        if self._sorted is not None:
            rows = rows.sortWithinPartitions(self._sorted)
        if self._given is not None:
            rows = rows.selectExpr(self._given)
        return DataFrame(rows, spark)

    def answers(self, frame: DataFrame, anchor: DataFrame | None, shim: SlotShim) -> DataFrame:
        """The slots' answers: `mapInArrow` of the rows, which itself would ask Spark for the columns every time."""
        from pyspark.sql import DataFrame
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        function = UserDefinedFunction(shim, self._answers, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column = function._judf.apply(self._arguments)
        return DataFrame(self.of(frame, anchor)._jdf.mapInArrow(column, False, None), frame.sparkSession)


_IS_BROADCAST: Final = f"{INPUT_COLUMN} = 1"


def _by_input(stage: StageSpec, make: Callable[[StageSpec, KeyedInput, str], str]) -> str:
    """A column that depends on the row's input; null for a broadcast row."""
    if len(stage.inputs) == 1 and not stage.has_broadcast:
        return make(stage, stage.inputs[0], "")
    first = make(stage, stage.inputs[0], f"{ROW_COLUMNS[0]}.")
    second = "null" if stage.has_broadcast else make(stage, stage.inputs[1], f"{ROW_COLUMNS[1]}.")
    return f"if({INPUT_COLUMN} = 0, {first}, {second})"


def _key_group(stage: StageSpec, input: KeyedInput, prefix: str) -> str:
    columns = [prefix + quoted(name) for name in input.key_columns]
    return key_group_text(columns, stage.key_schema, stage.max_parallelism)


def _time(stage: StageSpec, input: KeyedInput, prefix: str) -> str:
    assert input.event_time is not None
    return event_micros(prefix + quoted(input.event_time), input.zone)
