"""`CanonicalKeys`: the key cells of a file to the bytes of the same keys in their one canonical form.

A writer writes no other form; but a table that finds keys by their bytes must not depend on who wrote a file.

Thread safety: one thread.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from emberstate.codec import codec_for
from emberstate.keygroups import KeySchema
from emberstate.state.cells.packing import Column, array_header, pack
from emberstate.state.cells.unpacking import FieldTarget, RecordUnpacker
from emberstate.state.key_bytes import key_bytes
from emberstate.state.row_columns import Cells

#: Key types of which every value of a column is canonical, and their columns; the codec decodes and checks any other.
_PLAIN: Final = {
    "bigint": "int",
    "string": "str",
    "boolean": "bool",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}


class CanonicalKeys:
    """Encodes the keys of one schema anew; `row` is where an error was found."""

    __slots__ = ("_decode", "_encode", "_header", "_kinds", "row")

    def __init__(self, schema: KeySchema) -> None:
        width = len(schema.types)
        self._header = b"" if width == 1 else array_header(width)
        self._kinds = [_PLAIN.get(kind.name, "object") for kind in schema.types]
        self._encode = [codec_for(kind.python_type).encode for kind in schema.types]
        decode = key_bytes(schema).decode
        self._decode = (lambda data: (decode(data),)) if width == 1 else decode
        self.row = 0

    def encode(self, cells: Cells, start: int, stop: int) -> tuple[bytearray, memoryview]:
        """Return the bytes of the keys in the cells [start, stop), and one offset of 64 bits more.

        Raises:
            CodecError: a cell holds no key.
            UnicodeDecodeError: a text is none.
        """
        fields = [FieldTarget(kind, _name(i), b"", False, None, stop - start) for i, kind in enumerate(self._kinds)]
        unpacker = RecordUnpacker(self._header, fields, self._fields_of, "object" not in self._kinds)
        try:
            unpacker.unpack(cells, start, stop)
        finally:
            self.row = unpacker.row
        columns = [
            Column(kind, data=field.data, objects=field.objects, encode=encode if kind == "object" else None)
            for kind, field, encode in zip(self._kinds, fields, self._encode, strict=True)
        ]
        return pack(self._header, columns, stop - start)

    def _fields_of(self, data: bytes) -> Any:
        return SimpleNamespace(**{_name(i): value for i, value in enumerate(self._decode(data))})


def _name(position: int) -> str:
    return f"column_{position}"
