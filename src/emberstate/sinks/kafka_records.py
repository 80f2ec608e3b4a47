"""Rows as records of Kafka: the key, and the value as a column or the whole row as JSON.

JSON is as Spark's `to_json` writes it, so that `from_json` reads it back: no number is changed, and what JSON has no
number for (NaN, infinities) is a text. Nulls are written.

Thread safety: pure functions.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from emberstate.errors import SinkError
from emberstate.runtime.rows.row import RowType

#: The types of a column that is a record's key or value as it is.
PLAIN: Final = ("string", "binary")


def check_column(row_type: RowType, name: str | None, option: str) -> None:
    """Raise unless a column can be the key or value of records."""
    if name is None:
        return
    columns = {column.name: column.type.name for column in row_type.columns}
    if name not in columns:
        raise SinkError(
            f"{option}: the output has no column {name!r}; it has {', '.join(columns)}",
            option=option, column=name, expected=sorted(columns), found=name,
        )  # fmt: skip
    if columns[name] not in PLAIN:
        raise SinkError(
            f"{option}: expected a column of type string or binary, and {name!r} is {columns[name]}. Have the last "
            f"stage emit it as a text" + (", or leave value out: rows go as JSON" if option == "value" else ""),
            option=option, column=name, expected=PLAIN, found=columns[name],
        )  # fmt: skip


def records(batch: pa.RecordBatch, key: str | None, value: str | None) -> Iterator[tuple[Any, Any]]:
    """The key and value of every row."""
    keys = [None] * batch.num_rows if key is None else batch.column(key).to_pylist()
    if value is not None:
        return zip(keys, batch.column(value).to_pylist(), strict=True)
    return ((one, to_json(row)) for one, row in zip(keys, batch.to_pylist(), strict=True))


def to_json(row: dict[str, Any]) -> bytes:
    """A row as JSON.

    >>> to_json({"card": "a", "paid": decimal.Decimal("1.50"), "ratio": math.inf})
    b'{"card":"a","paid":1.50,"ratio":"Infinity"}'
    """
    return _text(row).encode()


def _text(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{_text(str(name))}:{_text(one)}" for name, one in value.items()) + "}"
        case list() | tuple():
            return f"[{','.join(map(_text, value))}]"
        case float() if not math.isfinite(value):
            return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
        case decimal.Decimal():
            return format(value, "f")  # all digits: a reader decides what it can hold
        case datetime.datetime() | datetime.date():
            return f'"{value.isoformat()}"'
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case str() | bool() | int() | float() | None:
            return json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(str(value))
