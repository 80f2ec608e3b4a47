"""SQL text of the expressions that plans share.

A plan of text takes few calls into the JVM; one that is put together of Spark's column objects takes several for each
of them. Names of columns are `quoted`, other texts are literals that no setting of the parser reads in another way.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from emberstate.keygroups import KeySchema
from emberstate.runtime.rows.columns import quoted
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import RowType


def schema_text(row_type: RowType) -> str:
    """The columns as Spark reads them. `RowType.schema` quotes fewer names than Spark wants quoted.

    >>> schema_text(RowType.of("größe int, `a b` array<struct<c: int not null>>"))
    '`größe` int, `a b` array<struct<`c`:int not null>>'
    """
    return ", ".join(_column(column, " ") for column in row_type.columns)


def _column(column: Column, separator: str) -> str:
    return f"{quoted(column.name)}{separator}{type_text(column.type)}{'' if column.nullable else ' not null'}"


def type_text(type_: DataType) -> str:
    """A type as Spark reads it."""
    if type_.kind == "struct":
        return f"struct<{','.join(_column(field, ':') for field in type_.fields)}>"
    return f"{type_.kind}<{','.join(map(type_text, type_.items))}>" if type_.items else type_.name


def text_literal(text: str) -> str:
    """A string as a constant: what a backslash or a quote means depends on settings, digits do not.

    >>> text_literal("a'b")
    "cast(X'612762' as string)"
    """
    return f"cast(X'{text.encode().hex()}' as string)"


def key_group_text(columns: Sequence[str], key_schema: KeySchema, max_parallelism: int) -> str:
    """The key group of a key's columns, as `KeySchema` computes it in Python.

    >>> key_group_text(["`k`"], KeySchema.from_python(int), 128)
    'cast(pmod(xxhash64(cast(`k` as bigint)), 128) as int)'
    """
    cast = []
    for column, type_ in zip(columns, key_schema.type_names, strict=True):
        typed = f"cast({column} as {type_})"
        cast.append(f"{typed} + 0.0D" if type_ == "double" else typed)  # -0.0 becomes 0.0
    return f"cast(pmod(xxhash64({', '.join(cast)}), {max_parallelism}) as int)"


def slot_text(key_group: str, parallelism: int, max_parallelism: int) -> str:
    """The slot of a key group."""
    return f"cast({key_group} * {parallelism} div {max_parallelism} as int)"


def event_micros(time: str, zone: str | None) -> str:
    """An event time in microseconds since 1970; with a `zone`, the column is a wall clock's reading there.

    Rows are sorted by it, so it must equal what the slot computes (`keyed_input`), also where clocks are changed. The
    session's zone plays no part: its clock may skip an hour that another zone has.
    """
    if zone is None:
        return f"unix_micros({time})"
    utc = f"convert_timezone({text_literal(zone)}, 'UTC', {time})"
    days = f"cast(datediff(cast({utc} as date), date'1970-01-01') as bigint)"
    seconds = f"(({days} * 24 + hour({utc})) * 3600 + minute({utc}) * 60)"
    return f"({seconds} * 1000000 + cast(date_part('SECOND', {utc}) * 1000000 as bigint))"
