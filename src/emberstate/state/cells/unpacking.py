# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`RecordUnpacker`: binary cells that hold records to a column per field; the reverse of `packing`.

Compiled code reads the form that an encoder writes: every field, in the declared order. The codec decodes or rejects
any other cell, and all cells of a file whose record was declared otherwise.

Invariants: columns hold what the codec decodes; whatever bytes there are, nothing but the cell is read.

Thread safety: one thread.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import CodecError
from emberstate.state.cells.packing import KINDS
from emberstate.state.row_columns import Cells

if not cython.compiled:  # compiled, these are C functions of the .pxd files
    from emberstate.state.row_columns import is_null, raw_at

    def point(target: FieldTarget) -> int:
        """Do nothing: interpreted, there are no pointers."""
        return 0

    def unpack_row(unpacker: RecordUnpacker, cells: Cells, row: int, place: int) -> bool:
        """Leave it to the codec, which is the faster decoder if this runs interpreted."""
        return False


_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_LAYOUTS: Final = {"int": "q", "float": "d", "bool": "?", "date": "q", "timestamp": "q", "timestamp_ntz": "q"}
_NAMES: Final = {number: name for name, number in KINDS.items()}


class FieldTarget:
    """The values of one field: in `data`, as `packing.KINDS` says, or in `objects`; `nulls` has 1 for null."""

    __slots__ = ("data", "decode", "label", "name", "nullable", "nulls", "number", "objects")

    number: int
    name: str
    label: bytes
    nullable: bool
    decode: Callable[[bytes], Any] | None
    data: bytearray
    nulls: bytearray
    objects: list[Any]

    def __init__(
        self,
        kind: str,
        name: str,
        label: bytes,
        nullable: bool,
        decode: Callable[[bytes], Any] | None,
        count: cython.Py_ssize_t,
    ) -> None:
        """Room for `count` values, all null; `decode` decodes an object."""
        self.number = KINDS[kind]
        self.name = name
        self.label = label
        self.nullable = nullable
        self.decode = decode
        objects = self.number >= KINDS["str"]
        self.data = bytearray(0 if objects else count * (1 if kind == "bool" else 8))
        self.nulls = bytearray(b"\1" * count)
        self.objects = [None] * count if objects else []
        point(self)

    def fill(self, place: cython.Py_ssize_t, value: Any) -> None:
        """Set a value that the codec has decoded."""
        self.nulls[place] = value is None
        kind = _NAMES[self.number]
        if self.number >= KINDS["str"]:
            self.objects[place] = value
        elif value is not None:
            if kind in ("timestamp", "timestamp_ntz"):
                if (value.tzinfo is None) != (kind == "timestamp_ntz"):  # the codec takes both
                    raise CodecError(f"field {self.name!r} holds {value!r}, expected a {kind}", field=self.name)
                value = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
            elif kind == "date":
                value = (value - _EPOCH.date()).days
            layout = _LAYOUTS[kind]
            struct.pack_into(layout, self.data, place * struct.calcsize(layout), value)


class RecordUnpacker:
    """Unpacks runs of rows into targets; `row` is where an error was found."""

    __slots__ = ("as_declared", "decode", "fields", "header", "row")

    def __init__(
        self, header: bytes, fields: Sequence[FieldTarget], decode: Callable[[bytes], Any], as_declared: bool
    ) -> None:
        """`decode` decodes a whole record; `as_declared`: the file's record is the declared one."""
        self.header = header
        self.fields = list(fields)
        self.decode = decode
        self.as_declared = as_declared
        self.row = 0

    def unpack(self, cells: Cells, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> None:
        """Unpack the cells [start, stop) to the places from 0; null cells leave all fields null.

        Raises:
            CodecError: a cell holds no such record.
        """
        row: cython.Py_ssize_t
        for row in range(start, stop):
            self.row = row
            if is_null(cells, row):
                continue
            if not self.as_declared or not unpack_row(self, cells, row, row - start):
                self.by_codec(cells, row, row - start)

    def by_codec(self, cells: Cells, row: cython.Py_ssize_t, place: cython.Py_ssize_t) -> int:
        """Unpack a cell that has another form."""
        record = self.decode(raw_at(cells, row))
        field: FieldTarget
        for field in self.fields:
            field.fill(place, getattr(record, field.name) if field.name else record)
        return 0
