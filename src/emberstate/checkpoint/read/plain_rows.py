"""The rows of a checkpoint as plain data, and as people read them.

Thread safety: pure functions, apart from `key_rows`, which is as the reader.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Final

import msgspec
import pyarrow as pa

from emberstate.checkpoint.files.meta import StoredState, StoredTtl
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.read.reader import CheckpointReader

_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


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


def value_text(value: Any) -> str:
    """A stored value on one line.

    >>> value_text("a b"), value_text({"a": [1, None]}), value_text(b"\\x01")
    ('a b', '{"a": [1, null]}', '0x01')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict | list | tuple) or value is None or isinstance(value, bool):
        return json.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False)
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def key_rows(
    reader: CheckpointReader, operator: str, stored: StoredState, key: Any, most: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of one key in a state, without its key columns, at most `most`; and how many there are.

    With a time to live, a row has `expires`, and whether it had `expired` at the end of the checkpoint's batch.
    """
    table = reader.of_key(operator, stored.address, key)
    rows = plain_rows(table if most is None else table.slice(0, most))
    for row in rows:
        for column in [column for column in row if column == "key" or column.startswith("key_")]:
            del row[column]
        if stored.ttl is not None:
            row.update(_expiry(row["stamp"], stored.ttl, reader.manifest))
    return rows, table.num_rows


def _expiry(stamp: datetime.datetime | None, ttl: StoredTtl, manifest: Manifest) -> dict[str, Any]:
    if stamp is None:
        return {"expires": None, "expired": False}
    try:
        expires = stamp + ttl.micros * _MICROSECOND
    except OverflowError:
        return {"expires": None, "expired": False}
    batch = manifest.times
    now = manifest.created if batch is None else batch.watermark if ttl.time == "event" else batch.processing_time
    return {"expires": expires, "expired": now is not None and (expires - _EPOCH) // _MICROSECOND <= now}
