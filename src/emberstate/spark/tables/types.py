"""Converts between the Arrow types of stored state and the types of Spark.

Almost all are the same. Spark reads no time of day from Python, has no decimals of more than 38 digits and no null
type: all three become text.

Thread safety: pure functions.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.runtime.rows.arrow_rows import row_type_of
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import RowType, python_type


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a table of state in Spark.

    >>> spark_schema(pa.schema({"value": pa.list_(pa.time64("us"))})).simpleString()
    'struct<value:array<string>>'
    """
    fields = [pa.field(field.name, _readable(field.type)) for field in schema]
    return from_arrow_schema(pa.schema(fields))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches."""
    return to_arrow_schema(schema, timezone="UTC")


def row_type(schema: StructType) -> RowType:
    """The row type of a DataFrame."""
    return row_type_of(arrow_schema(schema))


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns and types of a schema."""
    arrays = [_cast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_chosen(chosen: StructType, available: StructType) -> None:
    """Raise unless a user's schema names existing columns with their types."""
    there = {field.name: field for field in available}
    for field in chosen:
        if field.name not in there:
            raise StateDeclarationError(
                f"the schema has a column {field.name!r}, the table has {list(there)}: leave the schema out, or choose "
                f"among these",
                column=field.name,
            )
        if _nullable(field) != _nullable(there[field.name]):
            raise StateDeclarationError(
                f"the schema has column {field.name} as {field.dataType.simpleString()}, the table as "
                f"{there[field.name].dataType.simpleString()}: choose columns by the schema, and cast afterwards",
                column=field.name,
                expected=there[field.name].dataType.simpleString(),
                found=field.dataType.simpleString(),
            )


def check_key_types(schema: StructType, keys: list[str]) -> None:
    """Raise for key columns whose types cannot be keys. Arrow's types do not show collations."""
    KeySchema([schema[name].dataType.simpleString() for name in keys])


def state_type(type_: DataType, where: str) -> Any:
    """The Python type of a state that holds a column's values.

    >>> state_type(DataType("array", (DataType("bigint"),)), "column scores")
    list[int]
    """
    if type_.kind == "struct":
        raise StateDeclarationError(
            f"{where} is {type_.name}, of which the class is unknown: use emberstate.spark.bootstrap_savepoint, which "
            f"takes the function with its declared states",
            found=type_.name,
        )
    if type_.kind == "void":
        raise StateDeclarationError(f"{where} has the type void: cast it to the type of the state", found="void")
    items = [state_type(item, where) for item in type_.items]
    if type_.kind == "array":
        return list[items[0]]  # type: ignore[valid-type]
    if type_.kind == "map":
        return dict[items[0], items[1]]  # type: ignore[valid-type]
    return python_type(Column("", type_, nullable=False))


# -- parts ----------------------------------------------------------------------------------------------------


def _readable(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_time(type_) or pa.types.is_decimal256(type_) or pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_readable(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_readable(type_.key_type), _readable(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in type_])
    return type_


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type.equals(type_) else array.cast(type_)


def _nullable(field: StructField) -> str:
    """The type as text, without nullability."""
    return field.dataType.simpleString()
