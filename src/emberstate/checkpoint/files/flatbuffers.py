"""A reader of FlatBuffers tables, the encoding of Arrow's metadata, that trusts no offset.

It reads tables, scalars, strings and vectors: enough to check a footer or a record batch's header before Arrow gets it.
Every access is checked against the buffer and raises only `CorruptionError`.

Thread safety: values are immutable; a buffer must not change while it is read.
"""

from __future__ import annotations

import struct
from typing import Final

from emberstate.errors import CorruptionError

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")


def read(layout: struct.Struct, buffer: memoryview, position: int) -> int:
    """Return the integer at `position`."""
    if not 0 <= position <= len(buffer) - layout.size:
        raise CorruptionError(f"Arrow metadata points to byte {position} of {len(buffer)}")
    number: int = layout.unpack_from(buffer, position)[0]
    return number


class FlatTable:
    """A table at a position of a buffer; fields are found by their number in Arrow's schema files."""

    __slots__ = ("_buffer", "_fields", "_position", "_vtable")

    def __init__(self, buffer: memoryview, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._vtable = position - read(_I32, buffer, position)
        self._fields = (read(_U16, buffer, self._vtable) - 4) // 2
        if self._fields < 0:
            raise CorruptionError(f"Arrow metadata has a table without a size at byte {position}")

    @staticmethod
    def root(buffer: memoryview) -> FlatTable:
        """Return the root table of a buffer."""
        return FlatTable(buffer, read(_U32, buffer, 0))

    @property
    def position(self) -> int:
        """The table's position in the buffer."""
        return self._position

    def scalar(self, field: int, layout: str, default: int = 0) -> int:
        """Return a number field, or Arrow's default."""
        place = self._place(field)
        return default if place is None else read(struct.Struct(layout), self._buffer, place)

    def table(self, field: int) -> FlatTable | None:
        """Return a table field, or None."""
        place = self._place(field)
        return None if place is None else FlatTable(self._buffer, self._follow(place))

    def structs(self, field: int, layout: str) -> list[tuple[int, ...]]:
        """Return a vector of structs, each with all its fields."""
        item = struct.Struct(layout)
        start, count = self._vector(field, item.size)
        return list(item.iter_unpack(self._buffer[start : start + count * item.size]))

    def pairs(self, field: int) -> dict[bytes, bytes]:
        """Return a vector of KeyValue tables: Arrow's custom metadata."""
        start, count = self._vector(field, 4)
        found: dict[bytes, bytes] = {}
        for number in range(count):
            pair = FlatTable(self._buffer, self._follow(start + 4 * number))
            found[pair._string(0)] = pair._string(1)
        return found

    def _string(self, field: int) -> bytes:
        start, length = self._vector(field, 1)
        return bytes(self._buffer[start : start + length])

    def _vector(self, field: int, item_size: int) -> tuple[int, int]:
        place = self._place(field)
        if place is None:
            return 0, 0
        start = self._follow(place)
        count = read(_U32, self._buffer, start)
        if count * item_size > len(self._buffer) - start - 4:
            raise CorruptionError(f"Arrow metadata declares {count} items where {len(self._buffer)} bytes are")
        return start + 4, count

    def _place(self, field: int) -> int | None:
        if field >= self._fields:
            return None
        offset = read(_U16, self._buffer, self._vtable + 4 + 2 * field)
        return self._position + offset if offset else None

    def _follow(self, place: int) -> int:
        return place + read(_U32, self._buffer, place)
