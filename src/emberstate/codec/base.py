"""`Codec`: how the state layer encodes, decodes, checks and copies values of one type.

A codec is a record of compiled functions rather than a class with methods to override, because the state
layer calls them for every value: one Python call each, no dispatch.

Invariants: for every value that `encode` accepts, `decode(encode(v))` equals `v` with the same classes at
every depth; equal state has equal bytes, in every process; `immutable` is exact.

Thread-safety: a codec holds nothing that changes; any number of threads may use one at once (a snapshot
writer encodes while the owner of the state encodes). A value must not change while it is encoded or copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from emberstate.codec.nodes import Node
    from emberstate.codec.type_schema import TypeSchema

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes, decodes, checks and copies the values of one declared type.

    * ``encode(value)``: the bytes. StateTypeError with the path if the value is not exactly of its type.
    * ``decode(data)``: the value. CodecError, and nothing else, if the bytes are not such a value.
    * ``copy(value)``: shares nothing with the original that can change; the same object if `immutable`.
    * ``check(value)``: StateTypeError unless its class is right (one test; nothing of its contents).
    * ``check_deep(value)``: the same, for its contents at every depth as well.
    """

    __slots__ = (
        "check",
        "check_deep",
        "copy",
        "decode",
        "encode",
        "immutable",
        "is_key",
        "name",
        "node",
        "schema",
        "type",
    )

    name: str
    """"msgspec" or "pickle": stored in files."""
    type: Any
    """The declared type."""
    immutable: bool
    """A value of this type can never change: it is never copied."""
    schema: TypeSchema
    """Description of the type, stored in files."""
    is_key: bool
    """Made by `key_codec_for`: equal values have equal bytes, and the other way round."""
    node: Node | None
    """The type as this package sees it; None for pickle."""
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    copy: Callable[[T], T]
    check: Callable[[Any], None]
    check_deep: Callable[[Any], None]

    def same(self, a: T, b: T) -> bool:
        """Whether two values are the same state: the same object, or equal encodings (so NaN is NaN).

        >>> from emberstate.codec import codec_for
        >>> codec_for(float).same(float("nan"), float("nan")), codec_for(float).same(0.0, -0.0)
        (True, False)
        """
        return a is b or self.encode(a) == self.encode(b)

    def __repr__(self) -> str:
        return f"<{self.name} codec of {self.schema.label}>"
