"""Keys, names and times as bytes that sort like the values: the order of timers in RocksDB.

Each part is self-delimiting, so that parts can be concatenated: numbers have a fixed width, text and bytes end with
0x00 0x00, and a 0x00 within is 0x00 0xFF. These bytes are never decoded.

>>> keys = OrderedKeys(KeySchema(("string", "bigint")))
>>> keys.encode(("a", 2)) < keys.encode(("a", 10)) < keys.encode(("ab", -1))
True
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from typing import Any, Final

from emberstate.keygroups import KeySchema, KeyType

_DOUBLE: Final = struct.Struct(">d")
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def ordered_int(number: int) -> bytes:
    """A signed 64-bit number.

    >>> ordered_int(-1) < ordered_int(0) < ordered_int(2**63 - 1)
    True
    """
    return (number + 2**63).to_bytes(8, "big")


def ordered_bytes(data: bytes) -> bytes:
    """Bytes of any length.

    >>> ordered_bytes(b"a") < ordered_bytes(b"a\\x00") < ordered_bytes(b"a\\x01") < ordered_bytes(b"aa")
    True
    """
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def ordered_text(text: str) -> bytes:
    """Text, by code points."""
    return ordered_bytes(text.encode())


def _ordered_bool(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _ordered_double(value: float) -> bytes:
    bits = int.from_bytes(_DOUBLE.pack(value), "big")
    return (bits ^ (2**64 - 1 if bits >> 63 else 2**63)).to_bytes(8, "big")


def _ordered_date(value: datetime.date) -> bytes:
    return value.toordinal().to_bytes(4, "big")


def _ordered_timestamp(value: datetime.datetime) -> bytes:
    return ordered_int((value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND)  # UTC, or without a zone


def _ordered_decimal(scale: int) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        sign, digits, exponent = value.as_tuple()
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
        return ((-unscaled if sign else unscaled) + 2**127).to_bytes(16, "big")

    return encode


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    int: ordered_int,
    str: ordered_text,
    bytes: ordered_bytes,
    bool: _ordered_bool,
    float: _ordered_double,
    datetime.date: _ordered_date,
    datetime.datetime: _ordered_timestamp,
}


def _encoder(kind: KeyType) -> Callable[[Any], bytes]:
    return _ENCODERS.get(kind.python_type) or _ordered_decimal(kind.scale)


class OrderedKeys:
    """Encodes the canonical keys of one schema into bytes that sort like the keys."""

    __slots__ = ("encode",)

    encode: Callable[[Any], bytes]

    def __init__(self, schema: KeySchema) -> None:
        columns = [_encoder(kind) for kind in schema.types]

        def encode_columns(key: tuple[Any, ...]) -> bytes:
            return b"".join([column(value) for column, value in zip(columns, key, strict=True)])

        self.encode = columns[0] if len(columns) == 1 else encode_columns
