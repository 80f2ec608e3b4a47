"""Converts keys from text by their schema, and rows to plain JSON data."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa

from emberstate.codec.key_text import key_of_text
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema


def parse_key(text: str, schema: KeySchema) -> Any:
    """Return the key that a user typed; see `key_of_text`."""
    try:
        return key_of_text(text, schema)
    except StateDeclarationError as error:
        raise click.BadParameter(str(error), param_hint="KEY") from None


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as plain data: structs, and maps with text keys, become dicts."""
    columns = {
        field.name: [plain_value(value, field.type) for value in table.column(field.name).to_pylist()]
        for field in table.schema
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def plain_value(value: Any, type_: Any) -> Any:
    """One value of a column.

    >>> plain_value([("a", [(1, 2)])], pa.map_(pa.string(), pa.map_(pa.int64(), pa.int64())))
    {'a': [[1, 2]]}
    """
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: plain_value(value[field.name], field.type) for field in type_}
    if pa.types.is_list(type_):
        return [plain_value(item, type_.value_type) for item in value]
    if pa.types.is_map(type_):
        pairs = [(plain_value(k, type_.key_type), plain_value(v, type_.item_type)) for k, v in value]
        return dict(pairs) if pa.types.is_string(type_.key_type) else [list(pair) for pair in pairs]
    return value
