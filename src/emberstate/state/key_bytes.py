"""Keys as bytes: canonical keys of a declared key schema, encoded by the codec of their Spark types.

One column is the bare value, several are a tuple. Two keys are equal exactly if their bytes are, because the backend
normalises keys before it stores them (decimals to their scale, instants to UTC, −0.0 to 0.0).

Thread safety: immutable; any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import GenericAlias
from typing import Any

from emberstate.codec import codec_for
from emberstate.errors import CodecError, StateTypeError
from emberstate.keygroups import KeySchema


class KeyBytes:
    """Encodes and decodes the keys of one schema.

    >>> from decimal import Decimal
    >>> keys = KeyBytes(KeySchema(("string", "decimal(10,2)")))
    >>> key = ("ann", Decimal("1.50"))
    >>> keys.decode(keys.encode(key)) == key
    True
    """

    __slots__ = ("decode", "encode", "scalar")

    encode: Callable[[Any], bytes]
    """Return the bytes of a canonical key; raise StateTypeError if it is none."""
    decode: Callable[[bytes], Any]
    """Return the canonical key of the bytes; raise CodecError, and nothing else, if they hold none."""
    scalar: str | None
    """The kind of a key that is one plain scalar, for a loader that decodes it by itself."""

    def __init__(self, schema: KeySchema) -> None:
        types = [kind.python_type for kind in schema.types]
        single = len(types) == 1
        codec = codec_for(types[0] if single else GenericAlias(tuple, tuple(types)), where="key")
        canonical = all(kind.every_value for kind in schema.types)
        self.encode = codec.encode
        self.decode = codec.decode if canonical else _normalised(codec.decode, schema.normalise)
        self.scalar = codec.schema.kind if single and canonical else None


@functools.lru_cache(maxsize=64)
def key_bytes(schema: KeySchema) -> KeyBytes:
    """Return the `KeyBytes` of a schema, compiled once: every commit needs it."""
    return KeyBytes(schema)


def _normalised(decode: Callable[[bytes], Any], normalise: Callable[[object], Any]) -> Callable[[bytes], Any]:
    def decode_canonical(data: bytes) -> Any:
        key = decode(data)
        try:
            return normalise(key)
        except StateTypeError as error:
            raise CodecError(f"the bytes hold no key: {error}") from None

    return decode_canonical
