"""Stored values without the classes of their writer: as plain Python, and as Arrow columns.

A type's schema is stored beside its bytes. From it this module makes a decoder, which validates the bytes and returns
scalars, lists, and dicts for records; and an Arrow type:

| stored | Arrow |
| --- | --- |
| bool, int, float, str, bytes | bool, int64, float64, string, binary |
| datetime | timestamp[us, UTC], or without a zone if none of the values has one; text if some have |
| date, time, timedelta | date32, time64[us], duration[us] |
| decimal | decimal of the precision and scale that hold all values; text if none does |
| uuid, enum, literal texts | string |
| list, set, tuple of any length | list |
| dict | map |
| tuple | struct of _0, _1, … |
| dataclass, struct, namedtuple, typeddict | struct |
| T or None | T |
| any other union, pickle | binary: as encoded |

`ColumnProfile` has what a column needs to know about its values (zones, digits); they are decoded once before for it.

Thread safety: a `ColumnProfile` belongs to one thread; the rest is immutable.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from emberstate.checkpoint.files.field_paths import GONE
from emberstate.codec import TypeSchema
from emberstate.codec.stored import stored_node
from emberstate.codec.wire import Shape, shape_of
from emberstate.errors import CodecError

Convert = Callable[[Any], Any]

#: The most digits of an Arrow decimal; larger ones become text.
_MOST_DIGITS: Final = 76

_LEAVES: Final[dict[str, Any]] = {
    "none": pa.null(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timedelta": pa.duration("us"),
    "uuid": pa.string(),
    "enum": pa.string(),
}
_LISTS: Final = frozenset({"list", "set", "frozenset", "vartuple"})
_RECORDS: Final = frozenset({"dataclass", "struct", "namedtuple", "typeddict"})


class ColumnProfile:
    """What the values of a column are like, part by part (a path such as `$.total[0]`, in present names)."""

    def __init__(self) -> None:
        self._zones: dict[str, set[bool]] = {}  # with a zone, without
        self._digits: dict[str, tuple[int, int]] = {}  # most before and after the point; (-1, -1): no number

    def at_datetime(self, path: str, value: datetime.datetime) -> None:
        """Look at a datetime."""
        self._zones.setdefault(path, set()).add(value.tzinfo is not None)

    def at_decimal(self, path: str, value: decimal.Decimal) -> None:
        """Look at a decimal."""
        _, digits, exponent = value.as_tuple()
        before, after = self._digits.get(path, (1, 0))
        if not isinstance(exponent, int) or before < 0:
            self._digits[path] = (-1, -1)
        else:
            self._digits[path] = (max(before, len(digits) + exponent), max(after, -exponent))

    def datetime_type(self, path: str) -> Any:
        """The Arrow type of the datetimes there."""
        zones = self._zones.get(path, {True})
        return pa.string() if len(zones) > 1 else pa.timestamp("us", "UTC" if True in zones else None)

    def decimal_type(self, path: str) -> Any:
        """The Arrow type of the decimals there."""
        before, after = self._digits.get(path, (1, 0))
        if before < 0 or before + after > _MOST_DIGITS:
            return pa.string()
        return (pa.decimal128 if before + after <= 38 else pa.decimal256)(before + after, after)


def needs_profile(schema: TypeSchema | None) -> bool:
    """Whether the Arrow type of a column depends on its values.

    >>> needs_profile(TypeSchema("list", (TypeSchema("decimal"),))), needs_profile(TypeSchema("int"))
    (True, False)
    """
    if schema is None:
        return False
    parts = (*schema.items, *(field.type for field in schema.fields))
    return schema.kind in ("datetime", "decimal") or any(needs_profile(part) for part in parts)


def arrow_type(schema: TypeSchema, profile: ColumnProfile, path: str = "$") -> Any:
    """The Arrow type of values of a stored type.

    >>> arrow_type(TypeSchema("dict", (TypeSchema("str"), TypeSchema("int"))), ColumnProfile())
    MapType(map<string, int64>)
    """
    kind = schema.kind
    if kind in _LEAVES:
        return _LEAVES[kind]
    if kind == "datetime":
        return profile.datetime_type(path)
    if kind == "decimal":
        return profile.decimal_type(path)
    if kind == "literal":
        types = {type(member) for member in schema.members}
        return pa.string() if types == {str} else pa.int64() if types == {int} else pa.binary()
    if kind in _LISTS:
        return pa.list_(arrow_type(schema.items[0], profile, f"{path}[0]"))
    if kind == "dict":
        return pa.map_(*(arrow_type(item, profile, f"{path}[{i}]") for i, item in enumerate(schema.items)))
    if kind == "tuple":
        return pa.struct([(f"_{i}", arrow_type(t, profile, f"{path}[{i}]")) for i, t in enumerate(schema.items)])
    if kind in _RECORDS:
        return pa.struct([(f.name, arrow_type(f.type, profile, f"{path}.{f.name}")) for f in schema.fields])
    inner = _optional(schema)
    return pa.binary() if inner is None else arrow_type(inner, profile, path)


def _optional(schema: TypeSchema) -> TypeSchema | None:
    """T, of `T | None`."""
    others = [item for item in schema.items if item.kind != "none"]
    return others[0] if schema.kind == "union" and len(others) == 1 and len(schema.items) == 2 else None


def plain_decoder(schema: TypeSchema, renames: Mapping[str, str], profile: ColumnProfile) -> Callable[[bytes], Any]:
    """A decoder of bytes written under `schema` to what `pa.array` takes for `arrow_type`.

    `renames`: path of a field → its name now, or "" for one that is gone. The decoder tells `profile` what it
    sees. It raises CodecError only.

    >>> plain_decoder(TypeSchema("set", (TypeSchema("int"),)), {}, ColumnProfile())(b"\\x92\\x01\\x02")
    [1, 2]
    """
    if schema.kind == "pickle":
        return bytes
    try:
        shape = shape_of(stored_node(schema))
        decoder = msgspec.msgpack.Decoder(shape.annotation)
        convert = _converter(schema, shape, renames, profile, "$", "")
    except Exception as error:
        raise CodecError(f"the stored type schema describes no type ({error})") from None

    def decode(data: bytes) -> Any:
        try:
            return convert(decoder.decode(data))
        except Exception as error:  # of whatever the bytes may hold
            raise CodecError(f"the bytes do not hold {schema.label}: {error!s:.200}") from None

    return decode


def _converter(
    schema: TypeSchema, shape: Shape, renames: Mapping[str, str], profile: ColumnProfile, path: str, fields: str
) -> Convert:
    """`path` is for the look, `fields` the path of the record's fields in stored names."""
    kind = schema.kind
    if kind == "datetime":
        return _profiling(profile.at_datetime, profile.datetime_type, path, datetime.datetime.isoformat)
    if kind == "decimal":
        return _profiling(profile.at_decimal, profile.decimal_type, path, str)
    if kind == "uuid":
        return str
    if kind == "literal":
        return msgspec.msgpack.encode if arrow_type(schema, profile) == pa.binary() else _same
    if kind in _LEAVES:
        return _same
    if kind == "union":
        return _union(schema, shape, renames, profile, path, fields)
    if kind in _RECORDS:
        return _record(schema, shape, renames, profile, path, fields)
    items = [
        _converter(item, part, renames, profile, f"{path}[{i}]", fields)
        for i, (item, part) in enumerate(zip(schema.items, shape.items, strict=True))
    ]
    if kind == "tuple":
        return lambda v: {f"_{i}": convert(part) for i, (convert, part) in enumerate(zip(items, v, strict=True))}
    if kind == "dict":
        key, value = items
        return lambda v: [(key(k), value(x)) for k, x in (v.items() if isinstance(v, dict) else v)]
    return lambda v: [items[0](part) for part in v]


def _union(
    schema: TypeSchema, shape: Shape, renames: Mapping[str, str], profile: ColumnProfile, path: str, fields: str
) -> Convert:
    inner = _optional(schema)
    if inner is None:
        return msgspec.msgpack.encode
    convert = _converter(inner, shape.items[schema.items.index(inner)], renames, profile, path, fields)
    return lambda v: None if v is None else convert(v)


def _record(
    schema: TypeSchema, shape: Shape, renames: Mapping[str, str], profile: ColumnProfile, path: str, fields: str
) -> Convert:
    reads: list[tuple[Any, str, Convert]] = []
    for position, (field, part) in enumerate(zip(schema.fields, shape.fields, strict=True)):
        stored = f"{fields}.{field.name}" if fields else field.name
        name = renames.get(stored, field.name)
        if name != GONE:
            place = position if schema.kind == "namedtuple" else field.name
            reads.append((place, name, _converter(field.type, part, renames, profile, f"{path}.{name}", stored)))
    if schema.kind == "namedtuple":
        return lambda v: {name: convert(v[place]) for place, name, convert in reads}
    if schema.kind == "typeddict":
        return lambda v: {name: convert(v[place]) for place, name, convert in reads if place in v}
    return lambda v: {name: convert(getattr(v, place)) for place, name, convert in reads}


def _profiling(
    at: Callable[[str, Any], None], type_at: Callable[[str], Any], path: str, text: Callable[[Any], str]
) -> Convert:
    def convert(value: Any) -> Any:
        at(path, value)
        return text(value) if type_at(path) == pa.string() else value

    return convert


def _same(value: Any) -> Any:
    return value
