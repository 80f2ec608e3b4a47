"""`ScalarEncoder`: one value to its bytes; ints, short ASCII texts and floats in compiled code, the rest by the codec.

Invariants: the bytes are those of the codec, and so are the errors.

Thread safety: immutable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.codec import Codec

#: The kinds of type that compiled code encodes by itself.
KINDS: Final = {"int": 1, "str": 2, "float": 3}

if not cython.compiled:  # compiled, it is a C function of the .pxd file

    def cell_of(kind: int, value: Any) -> bytes | None:
        """Leave it to the codec."""
        return None


class ScalarEncoder:
    """Encodes the values of one codec.

    >>> from emberstate.codec import codec_for
    >>> encoder_of(codec_for(int)).encode(300)
    b'\\xcd\\x01,'
    """

    __slots__ = ("by_codec", "kind")

    by_codec: Callable[[Any], bytes]
    kind: int

    def __init__(self, encode: Callable[[Any], bytes], kind: str | None) -> None:
        """`kind` is one of `KINDS` if `encode` encodes any value of it, and nothing else."""
        self.by_codec = encode
        self.kind = 0 if kind is None else KINDS.get(kind, 0)

    def encode(self, value: Any) -> bytes:
        """Return the bytes; StateTypeError if the value is not of the codec's type."""
        cell: bytes | None = cell_of(self.kind, value)
        return self.by_codec(value) if cell is None else cell


def encoder_of(codec: Codec[Any]) -> ScalarEncoder:
    """Return the encoder of a codec's values."""
    # A float as a key must not be NaN; only the codec checks that. What is opaque is bytes already.
    plain = codec.node is not None and not (codec.is_key and codec.schema.kind == "float")
    return ScalarEncoder(codec.encode, codec.schema.kind if plain else None)
