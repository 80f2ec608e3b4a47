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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema
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
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.plan.stage import row_type_of_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
    if input.shape is None:
        return frame
    kept = [name for name in frame.columns if name in input.row_type.names or name in RESERVED]
    return frame if len(kept) == len(frame.columns) else frame.select(*(quoted(name) for name in kept))


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


def keyed_frame(frame: DataFrame, stage: StageSpec, anchor: DataFrame | None) -> DataFrame:
    """The rows as the slots get them.

    `anchor` has a row per slot; the join with it ties tasks to the executors of their slots (`Anchor`).
    """
    from pyspark.sql import functions as F

    order: list[str] = []
    if stage.has_broadcast:
        order.append(INPUT_COLUMN)
    elif len(stage.inputs) == 1:
        frame = narrowed(frame, stage.inputs[0])
    keyed = frame.withColumn(KEY_GROUP_COLUMN, _by_input(stage, _key_group))
    has_order = ORDER_COLUMN in frame.columns  # partial rows have one
    if stage.follows:
        order.append(ORDER_COLUMN)
    elif stage.inputs[0].event_time is not None:
        keyed = keyed.withColumn(MICROS_COLUMN, _by_input(stage, _time))
        order += [MICROS_COLUMN, ORDER_COLUMN]
    elif order:
        order.append(ORDER_COLUMN)
    if order and not has_order:
        keyed = keyed.withColumn(ORDER_COLUMN, F.monotonically_increasing_id())
    elif has_order and not order:
        keyed = keyed.drop(ORDER_COLUMN)
    slot = F.expr(f"cast({KEY_GROUP_COLUMN} * {stage.parallelism} div {stage.max_parallelism} as int)")
    if stage.has_broadcast:
        everywhere = F.sequence(F.lit(0), F.lit(stage.parallelism - 1))
        slot = F.explode(F.when(_is_broadcast(), everywhere).otherwise(F.array(slot)))
    placed = keyed.withColumn(SLOT_COLUMN, slot).repartitionById(stage.parallelism, F.col(SLOT_COLUMN))
    if anchor is not None:
        placed = placed.join(anchor.hint("shuffle_hash"), SLOT_COLUMN, "inner")
    if order:
        descending = [name != INPUT_COLUMN for name in order]  # broadcast rows have the higher number and come first
        placed = placed.sortWithinPartitions(*order, ascending=descending)
    if not stage.has_broadcast:
        return placed.drop(SLOT_COLUMN, MICROS_COLUMN, ORDER_COLUMN)
    rules = F.when(_is_broadcast(), F.col(ROW_COLUMNS[1])).alias(BROADCAST_COLUMN)
    return placed.select(f"{ROW_COLUMNS[0]}.*", KEY_GROUP_COLUMN, rules)


def _is_broadcast() -> Column:
    from pyspark.sql import functions as F

    return F.col(INPUT_COLUMN) == 1


def _by_input(stage: StageSpec, make: _Make) -> Column:
    """A column that depends on the row's input; null for a broadcast row."""
    from pyspark.sql import functions as F

    if len(stage.inputs) == 1 and not stage.has_broadcast:
        return make(stage, stage.inputs[0], "")
    chosen = F.when(F.col(INPUT_COLUMN) == 0, make(stage, stage.inputs[0], f"{ROW_COLUMNS[0]}."))
    return chosen if stage.has_broadcast else chosen.otherwise(make(stage, stage.inputs[1], f"{ROW_COLUMNS[1]}."))


def _key_group(stage: StageSpec, input: KeyedInput, prefix: str) -> Column:
    from pyspark.sql import functions as F

    columns = [F.col(prefix + quoted(name)) for name in input.key_columns]
    return key_group_column(columns, stage.key_schema, stage.max_parallelism)


def key_group_column(columns: Sequence[Column], key_schema: KeySchema, max_parallelism: int) -> Column:
    """The key group of a key's columns, as `KeySchema` computes it in Python."""
    from pyspark.sql import functions as F

    cast = []
    for column, type_ in zip(columns, key_schema.type_names, strict=True):
        typed = column.cast(type_)
        cast.append(typed + F.lit(0.0) if type_ == "double" else typed)  # -0.0 becomes 0.0
    return F.pmod(F.xxhash64(*cast), F.lit(max_parallelism)).cast("int")


def _time(stage: StageSpec, input: KeyedInput, prefix: str) -> Column:
    from pyspark.sql import functions as F

    assert input.event_time is not None
    return event_micros(F.col(prefix + quoted(input.event_time)), input.zone)


def event_micros(time: Column, zone: str | None) -> Column:
    """An event time in microseconds since 1970; with a `zone`, the column is a wall clock's reading there.

    Rows are sorted by it, so it must equal what the slot computes (`keyed_input`), also where clocks are changed. The
    session's zone plays no part: its clock may skip an hour that another zone has.
    """
    from pyspark.sql import functions as F

    if zone is None:
        return F.unix_micros(time)
    utc = F.convert_timezone(F.lit(zone), F.lit("UTC"), time)
    days = F.datediff(utc.cast("date"), F.lit("1970-01-01").cast("date")).cast("bigint")
    seconds = (days * 24 + F.hour(utc)) * 3600 + F.minute(utc) * 60
    return seconds * 1_000_000 + (F.date_part(F.lit("SECOND"), utc) * 1_000_000).cast("bigint")



if TYPE_CHECKING:
    from collections.abc import Callable

    _Make = Callable[[StageSpec, KeyedInput, str], Column]
