"""Keys and values between the command line and state: a key typed by its schema, rows as plain JSON data."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from typing import Any, Final

import click
import pyarrow as pa

from emberstate.errors import StateTypeError
from emberstate.keygroups import KeySchema

_BOOLEANS: Final = {"true": True, "false": False}


def parse_key(text: str, schema: KeySchema) -> Any:
    """The key that a user typed: plain text for one column, a JSON array for several.

    bigint, double, boolean (true, false) and decimal as one writes them; date, timestamp (with a zone) and
    timestamp_ntz as ISO 8601; binary in hexadecimal.

    >>> parse_key("7", KeySchema(["bigint"])), parse_key("7", KeySchema(["string"]))
    (7, '7')
    >>> parse_key('["ann", 7]', KeySchema(["string", "bigint"]))
    ('ann', 7)
    """
    names = schema.type_names
    parts: Any = [text]
    if len(names) > 1:
        try:
            parts = json.loads(text, parse_float=decimal.Decimal)
        except ValueError:
            parts = None
        if not isinstance(parts, list) or len(parts) != len(names):
            raise click.BadParameter(
                f"{text!r} is not a JSON array of {len(names)} parts ({', '.join(names)})", param_hint="KEY"
            )
    values = [_parse(part, name) for part, name in zip(parts, names, strict=True)]
    try:
        return schema.normalise(values[0] if len(values) == 1 else tuple(values))
    except StateTypeError as error:
        raise click.BadParameter(str(error), param_hint="KEY") from None


def _parse(part: Any, name: str) -> Any:
    if not isinstance(part, str):
        if isinstance(part, decimal.Decimal) and name == "double":
            return float(part)
        if type(part) is int and name == "double":
            return float(part)
        return decimal.Decimal(part) if type(part) is int and name.startswith("decimal") else part
    parsers: dict[str, Callable[[str], Any]] = {
        "string": str,
        "bigint": int,
        "double": float,
        "boolean": lambda text: _BOOLEANS[text.lower()],
        "binary": lambda text: bytes.fromhex(text.removeprefix("0x")),
        "date": datetime.date.fromisoformat,
        "timestamp": datetime.datetime.fromisoformat,
        "timestamp_ntz": datetime.datetime.fromisoformat,
    }
    try:
        return parsers.get(name, decimal.Decimal)(part)
    except (ValueError, KeyError, ArithmeticError):
        raise click.BadParameter(f"{part!r} is no {name}", param_hint="KEY") from None


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as JSON has them: structs and maps from texts are objects."""
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
