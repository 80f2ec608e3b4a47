"""Columns of an output in PostgreSQL: which types of a table can hold them unchanged, and values for COPY.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emberstate.errors import SinkError
from emberstate.runtime.rows.data_types import DataType
from emberstate.runtime.rows.row import RowType

#: By type of a column: PostgreSQL's types that hold all its values, the best one first.
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "boolean": ("boolean",),
    "tinyint": ("smallint", "integer", "bigint"),
    "smallint": ("smallint", "integer", "bigint"),
    "int": ("integer", "bigint"),
    "bigint": ("bigint",),
    "float": ("real", "double precision"),
    "double": ("double precision",),
    "string": ("text", "character varying", "bytea"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamp with time zone",),
    "timestamp_ntz": ("timestamp without time zone",),
}


def accepted(type_: DataType) -> tuple[str, ...]:
    """The types of PostgreSQL that hold a column; empty if there is none."""
    if type_.kind == "decimal":
        return (f"numeric({type_.precision},{type_.scale})", "numeric")
    return TYPES.get(type_.name, ())


def check_table(row_type: RowType, found: Mapping[str, str], table: str) -> None:
    """Raise unless a table, of which the types by column are given, can take the rows."""
    for column in row_type.columns:
        types = accepted(column.type)
        if not types:
            raise SinkError(
                f"column {column.name!r} is {column.type.name}, which has no type in PostgreSQL here. Have the last "
                f"stage emit it as a text, as JSON say.",
                option="table", column=column.name, expected=sorted(TYPES), found=column.type.name,
            )  # fmt: skip
        if found.get(column.name) not in types:
            raise SinkError(
                f"table {table}: column {column.name!r} must be {' or '.join(types)}, and is "
                f"{found.get(column.name, 'not there')}. Change the table, or give the sink another one: "
                f"{creation(row_type, table)}",
                option="table", column=column.name, expected=types, found=found.get(column.name),
            )  # fmt: skip


def creation(row_type: RowType, table: str) -> str:
    """The statement that makes a fitting table."""
    columns = ", ".join(f'"{one.name}" {(accepted(one.type) or ("text",))[0]}' for one in row_type.columns)
    return f"CREATE TABLE {table} ({columns})"


def copied(value: Any, type_: str, name: str) -> Any:
    """A value as COPY takes it, for a column of this type of PostgreSQL."""
    if isinstance(value, str):
        if type_ == "bytea":
            return value.encode()
        if "\0" in value:
            raise SinkError(
                f"column {name!r}: a text has a NUL character, which PostgreSQL's {type_} cannot hold. Make the column "
                f"bytea (ALTER TABLE … ALTER COLUMN \"{name}\" TYPE bytea USING convert_to(\"{name}\", 'UTF8')): texts "
                f"go there as UTF-8. The batch is delivered when the query is started again.",
                option="table", column=name, expected="no NUL", found="NUL",
            )  # fmt: skip
    return value
