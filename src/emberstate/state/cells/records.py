"""`RecordCells`: values of one declared type as columns, to binary cells and back.

A record of a dataclass has a column per field. It is stored as the codec stores it: a MessagePack map of the names of
its fields to their values. An int, float, bool or str is one column, whose field has no name. Fields that are int,
float, bool, date or datetime, or None, are columns of numbers with a mask of nulls; any other field is a column of
objects.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from emberstate.codec import Codec, codec_for
from emberstate.errors import StateDeclarationError
from emberstate.state.cells.packing import Column, pack
from emberstate.state.cells.unpacking import FieldTarget, RecordUnpacker
from emberstate.state.row_columns import Cells, Decoder

#: The kinds of column (`packing.KINDS`) of the kinds of type; of any other it is "object".
_COLUMN_KINDS: Final = {
    "int": "int", "float": "float", "bool": "bool", "date": "date", "datetime": "timestamp", "str": "str"
}  # fmt: skip


#: Kinds of type whose values are one column.
_PLAIN: Final = ("int", "float", "bool", "str")


class FieldValues(NamedTuple):
    """A column: a buffer of numbers and a mask of nulls (a byte per row, 0 if it is none), or a list of objects.

    Any field can be a list of objects.
    """

    data: Any
    nulls: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class RecordField:
    """A field of the record, and the kind of its column; a value that is no record is a field without name or label."""

    name: str
    kind: str
    nullable: bool
    label: bytes
    codec: Codec[Any]


class RecordCells:
    """Encodes and decodes the records of one codec by columns.

    >>> import dataclasses
    >>> from array import array
    >>> @dataclasses.dataclass
    ... class Total:
    ...     n: int
    ...     best: float | None
    >>> codec = codec_for(Total)
    >>> cells = RecordCells(codec)
    >>> columns = [FieldValues(array("q", [7, 8])), FieldValues(array("d", [0.5, 0.0]), b"\\0\\1")]
    >>> data, offsets = cells.encode(columns, 2)
    >>> codec.decode(bytes(data[offsets[1] : offsets[2]]))
    Total(n=8, best=None)
    """

    __slots__ = ("_header", "fields")

    #: The fields, in the order of their columns.
    fields: tuple[RecordField, ...]

    def __init__(self, codec: Codec[Any], kinds: Mapping[str, str] | None = None) -> None:
        """`kinds`: the column kind of fields for which their type alone does not tell, such as `timestamp_ntz`.

        Raises:
            StateDeclarationError: the codec's type is stored in a way that columns do not have.
        """
        node = codec.node
        if node is not None and node.kind in _PLAIN:
            self._header = b""
            self.fields = (self._field("", b"", codec, None),)
            return
        if node is None or node.kind != "dataclass":
            raise StateDeclarationError(
                f"{codec.schema.label} cannot be kept as columns: expected a dataclass, int, float, bool or str",
                expected="a dataclass",
                found=codec.schema.label,
            )
        self._header = map_header(len(node.fields))
        self.fields = tuple(
            self._field(
                field.name,
                codec_for(str).encode(field.name),
                codec_for(field.node.annotation),
                (kinds or {}).get(field.name),
            )
            for field in node.fields
        )

    @staticmethod
    def _field(name: str, label: bytes, codec: Codec[Any], kind: str | None) -> RecordField:
        assert codec.node is not None
        parts = codec.node.items if codec.node.kind == "union" else (codec.node,)
        plain = [part for part in parts if part.kind != "none"]
        if kind is None:
            kind = _COLUMN_KINDS.get(plain[0].kind, "object") if len(plain) == 1 else "object"
        return RecordField(name, kind, len(plain) < len(parts), label, codec)

    def encode(self, columns: Sequence[FieldValues], count: int) -> tuple[bytearray, memoryview]:
        """Return the bytes of `count` records, and one offset of 64 bits more.

        Raises:
            StateTypeError: a value is not of its field's type.
        """
        parts = []
        for field, (data, nulls) in zip(self.fields, columns, strict=True):
            if isinstance(data, list):
                kind = "str" if field.kind == "str" else "object"
                parts.append(Column(kind, label=field.label, objects=data, encode=field.codec.encode))
            else:
                parts.append(Column(field.kind, label=field.label, data=data, nulls=nulls))
        return pack(self._header, parts, count)

    def unpacker(self, count: int, values: Decoder) -> tuple[RecordUnpacker, list[FieldTarget]]:
        """Return what unpacks up to `count` cells, and the columns that it fills."""
        fields = [
            FieldTarget(field.kind, field.name, field.label, field.nullable, field.codec.decode, count)
            for field in self.fields
        ]
        return RecordUnpacker(self._header, fields, values.decode, values.as_declared), fields

    def decode(self, cells: Cells, start: int, stop: int, values: Decoder) -> list[FieldTarget]:
        """Return the columns of the records in the cells [start, stop); null cells have nulls in all of them.

        Raises:
            CodecError: a cell holds no such record.
        """
        unpacker, fields = self.unpacker(stop - start, values)
        unpacker.unpack(cells, start, stop)
        return fields


@functools.lru_cache(maxsize=64)
def record_cells(codec: Codec[Any]) -> RecordCells:
    """Return the `RecordCells` of a codec, made once: every commit needs it."""
    return RecordCells(codec)


def map_header(length: int) -> bytes:
    """Return how MessagePack begins a map."""
    return bytes([0x80 | length]) if length < 16 else b"\xde" + length.to_bytes(2, "big")
