"""Keys as bytes: canonical keys of a declared key schema, encoded by the codec of their Spark types.

One column is the bare value, several are a tuple. Two keys are one key exactly if their bytes are equal,
because the backend normalises keys before it stores them (decimals to their scale, instants to UTC, −0.0 to
0.0).

Thread safety: immutable; any thread.
"""

from __future__ import annotations

import datetime
import decimal
import functools
from collections.abc import Callable
from types import GenericAlias
from typing import Any, Final

from emberstate.codec import codec_for
from emberstate.errors import CodecError, StateTypeError
from emberstate.keygroups import KeySchema

_PYTHON_TYPES: Final[dict[str, type[Any]]] = {
    "bigint": int,
    "string": str,
    "binary": bytes,
    "boolean": bool,
    "double": float,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}

# What a decoder cannot get wrong: every int of 64 bits, every text and every bytes is a canonical key.
_ALWAYS_CANONICAL: Final = frozenset({"bigint", "string", "binary", "boolean"})


class KeyBytes:
    """Encodes and decodes the keys of one schema.

    >>> keys = KeyBytes(KeySchema(("string", "decimal(10,2)")))
    >>> key = ("ann", decimal.Decimal("1.50"))
    >>> keys.decode(keys.encode(key)) == key
    True
    """

    __slots__ = ("decode", "encode", "scalar")

    encode: Callable[[Any], bytes]
    """The bytes of a canonical key; StateTypeError if it is none."""
    decode: Callable[[bytes], Any]
    """The canonical key of the bytes; CodecError, and nothing else, if they hold none."""
    scalar: str | None
    """The kind of a key that is one plain scalar, for a loader that decodes it by itself."""

    def __init__(self, schema: KeySchema) -> None:
        types = [_PYTHON_TYPES.get(name, decimal.Decimal) for name in schema.type_names]
        single = len(types) == 1
        codec = codec_for(types[0] if single else GenericAlias(tuple, tuple(types)), where="key")
        canonical = all(name in _ALWAYS_CANONICAL for name in schema.type_names)
        self.encode = codec.encode
        self.decode = codec.decode if canonical else _normalised(codec.decode, schema.normalise)
        self.scalar = codec.schema.kind if single and canonical else None


@functools.lru_cache(maxsize=64)
def key_bytes(schema: KeySchema) -> KeyBytes:
    """The `KeyBytes` of a schema: compiled once, for every commit needs it."""
    return KeyBytes(schema)


def _normalised(decode: Callable[[bytes], Any], normalise: Callable[[object], Any]) -> Callable[[bytes], Any]:
    def decode_canonical(data: bytes) -> Any:
        key = decode(data)
        try:
            return normalise(key)
        except StateTypeError as error:
            raise CodecError(f"the bytes hold no key: {error}") from None

    return decode_canonical
