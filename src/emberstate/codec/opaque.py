"""Codecs of undeclared state: its bytes are kept as they are.

State that the program no longer declares must not be decoded: the class may be gone, and a pickle must not run. So a
value is its own encoding, and the stored description of the type is kept with it.

Thread-safety: as every codec.
"""

from __future__ import annotations

from typing import Any

import msgspec

from emberstate.codec.base import Codec
from emberstate.codec.nodes import INT_MAX, INT_MIN
from emberstate.codec.type_schema import TypeSchema
from emberstate.errors import CodecError, StateTypeError


class OpaqueCodec(Codec[Any]):
    """A codec made by `opaque_codec` or `opaque_timer_codec`."""

    __slots__ = ()

    def __init__(self, schema: TypeSchema, name: str) -> None:
        self.name = name
        self.type = bytes
        self.node = None
        self.immutable = True
        self.is_key = True  # equal bytes are equal values, and the other way round
        self.schema = schema
        self.check = self.check_deep = _check_bytes
        self.encode = self.decode = self.copy = _same

    def __reduce__(self) -> tuple[Any, ...]:
        return opaque_codec, (self.schema, self.name)


class _OpaqueTimerCodec(OpaqueCodec):
    __slots__ = ()

    def __init__(self, schema: TypeSchema) -> None:
        super().__init__(schema, "msgspec")
        self.type = tuple
        self.check = self.check_deep = _check_timer
        self.encode = _encode_timer
        self.decode = _decode_timer

    def __reduce__(self) -> tuple[Any, ...]:
        return opaque_timer_codec, (self.schema,)


def opaque_codec(schema: TypeSchema, name: str = "msgspec") -> Codec[Any]:
    """A codec whose values are the bytes that the codec `name` wrote under `schema`.

    >>> codec = opaque_codec(TypeSchema("int"))
    >>> codec.decode(b"\\x05"), codec.encode(b"\\x05"), codec.schema.label
    (b'\\x05', b'\\x05', 'int')
    """
    return OpaqueCodec(schema, name)


def opaque_timer_codec(schema: TypeSchema) -> Codec[Any]:
    """A codec of (time, name, namespace) that leaves the namespace as bytes: a timer without its window's
    class still has its place in the order.

    >>> codec = opaque_timer_codec(TypeSchema("tuple", (TypeSchema("int"), TypeSchema("str"), TypeSchema("bool"))))
    >>> codec.decode(b"\\x93\\x07\\xa1n\\xc3"), codec.encode((7, "n", b"\\xc3"))
    ((7, 'n', b'\\xc3'), b'\\x93\\x07\\xa1n\\xc3')
    """
    return _OpaqueTimerCodec(schema)


_TIMERS = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])
_ENCODER = msgspec.msgpack.Encoder()


def _same(data: Any) -> Any:
    return data


def _check_bytes(value: Any) -> None:
    if type(value) is not bytes:
        raise StateTypeError(
            f"$: the state is not declared, it holds encoded bytes; got {type(value).__name__}", field="$"
        )


def _check_timer(value: Any) -> None:
    if type(value) is not tuple or [type(part) for part in value] != [int, str, bytes]:
        raise StateTypeError(f"$: expected (time, name, encoded namespace), got {value!r:.80}", field="$")


def _encode_timer(timer: Any) -> bytes:
    time, name, namespace = timer
    return _ENCODER.encode((time, name, msgspec.Raw(namespace)))


def _decode_timer(data: bytes) -> Any:
    try:
        time, name, namespace = _TIMERS.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise CodecError(f"the bytes do not hold a timer: {error}") from None
    if not INT_MIN <= time <= INT_MAX:
        raise CodecError(f"the bytes do not hold a timer: time {time} does not fit in 64 bits")
    return time, name, bytes(namespace)
