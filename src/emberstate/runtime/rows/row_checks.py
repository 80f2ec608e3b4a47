"""Checks that a value fits the type of its column, by class, at every depth.

A column of floats accepts an int. A bool is not an int, a naive datetime not a TIMESTAMP, an aware one not a
TIMESTAMP_NTZ. Arrow checks whether a number fits the width of its column.

Thread safety: pure functions.

>>> from emberstate.runtime.rows.data_types import parse_type
>>> check_value([1, "2"], parse_type("array<int>"))
Traceback (most recent call last):
    ...
emberstate.errors.RowTypeError: [1] is int, found str ('2')
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any, Final

from emberstate.errors import RowTypeError
from emberstate.runtime.rows.data_types import DataType

#: Column types whose values need no check beyond their class.
CLASSES: Final[dict[str, type]] = {
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "boolean": bool,
    "date": datetime.date,
    "interval day to second": datetime.timedelta,
}
_OTHER_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "timestamp": (datetime.datetime,),
    "timestamp_ntz": (datetime.datetime,),
    "decimal": (decimal.Decimal,),
    "array": (list, tuple),
    "map": (dict,),
    "struct": (tuple, Mapping),
    "void": (),
}


def check_value(value: Any, type_: DataType, nullable: bool = True, path: str = "") -> None:
    """Raise `RowTypeError` unless the value fits the type. `path` is where the value is within its column."""
    if value is None:
        if not nullable:
            expected = f"{type_.name} not null"
            raise RowTypeError(f"{path} is {expected}, found None", field=f"${path}", expected=expected)
        return
    kind = type_.kind
    if not _class_fits(value, kind):
        raise _refusal(value, type_, path)
    if kind == "timestamp" and value.utcoffset() is None:
        raise _refusal(value, type_, path, "; it has no zone: add one with .replace(tzinfo=UTC)")
    if kind == "timestamp_ntz" and value.tzinfo is not None:
        raise _refusal(value, type_, path, "; it has a zone: drop it with .replace(tzinfo=None)")
    if kind == "decimal" and not value.is_finite():
        raise _refusal(value, type_, path)
    if kind == "array":
        for position, item in enumerate(value):
            check_value(item, type_.items[0], True, f"{path}[{position}]")
    elif kind == "map":
        for key, item in value.items():
            check_value(key, type_.items[0], False, f"{path}.key")
            check_value(item, type_.items[1], True, f"{path}[{key!r:.50}]")
    elif kind == "struct":
        _check_struct(value, type_, path)


def _class_fits(value: Any, kind: str) -> bool:
    expected = CLASSES.get(kind)
    if expected is None:
        return isinstance(value, _OTHER_CLASSES[kind])
    # Subclasses fit, such as an IntEnum or numpy's float64, except: a bool is not an int, a datetime not a date.
    if expected is float:
        return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return type(value) is expected if expected is datetime.date else isinstance(value, expected)


def _check_struct(value: Any, type_: DataType, path: str) -> None:
    names = [field.name for field in type_.fields]
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise _mismatch(type_, path, f"a dict with {sorted(map(str, value))}")
        items = [value[name] for name in names]
    else:
        items = list(value)
        if len(items) != len(names):
            raise _mismatch(type_, path, f"a tuple of {len(items)}", f" ({value!r:.100})")
    for field, item in zip(type_.fields, items, strict=True):
        check_value(item, field.type, field.nullable, f"{path}.{field.name}")


def _refusal(value: Any, type_: DataType, path: str, way_out: str = "") -> RowTypeError:
    return _mismatch(type_, path, type(value).__name__, f" ({value!r:.100}){way_out}")


def _mismatch(type_: DataType, path: str, found: str, details: str = "") -> RowTypeError:
    text = f"{path} is {type_.name}, found {found}{details}"
    return RowTypeError(text, field=f"${path}", expected=type_.name, found=found)
