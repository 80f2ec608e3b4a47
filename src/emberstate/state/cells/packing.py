# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`pack`: columns of values to binary cells, the bytes that the codec writes for the same values, row by row.

A cell is a header, then the label and the value of each column. A key of one column has no header and no label; a key
of several has the header of an array; a record that of a map, and the names of its fields as labels.

Invariants: the cells are those of `codec_for(type).encode`, for every value of a column; compiled, no Python object is
made for values in buffers.

Thread safety: a `Packer` belongs to one call of `pack`; columns are read only.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.codec import codec_for
from emberstate.errors import StateTypeError

#: The kinds of column, and what their buffers hold. All numbers have 8 bytes, of which a bool takes one.
KINDS: Final = {
    "int": 1,
    "float": 2,
    "bool": 3,
    "date": 4,  # days since 1970-01-01
    "timestamp": 5,  # microseconds since then, in UTC
    "timestamp_ntz": 6,  # the same, without a zone
    "text": 7,  # UTF-8, with offsets of 8 bytes
    "bytes": 8,  # bytes, with offsets of 8 bytes
    "str": 9,  # a list of str and None
    "object": 10,  # a list of anything and None, for which there is an encoder
}
MICROS_OF_DAY: Final = 86_400_000_000

_LAYOUTS: Final = {1: "q", 2: "d", 3: "B", 4: "q", 5: "q", 6: "q"}
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_DAY: Final = datetime.timedelta(days=1)
_NOTHING: Final = b"\0"  # a buffer that is empty still needs a byte to point to
_ENCODE: Final = {
    number: codec_for(type_).encode
    for number, type_ in enumerate(
        (int, float, bool, datetime.date, datetime.datetime, datetime.datetime, str, bytes), start=1
    )
}


if not cython.compiled:  # compiled, these are C functions of the .pxd file

    def point(column: Column) -> int:
        """Do nothing: interpreted, there are no pointers."""
        return 0

    def begin(packer: Packer, count: int) -> int:
        """Do nothing."""
        return 0

    def resize(packer: Packer) -> int:
        """Do nothing: the data grows by itself."""
        return 0

    def put_header(packer: Packer, header: bytes) -> int:
        """Begin a cell."""
        packer.data += header
        return 0

    def put_part(packer: Packer, column: Column, row: int) -> int:
        """Add a column's part of a cell, by the codec."""
        packer.data += column.label
        value = value_at(column, row)
        encode = column.encode or _ENCODE[column.number]
        packer.data += b"\xc0" if value is None else encode(value)
        return 0

    def end_row(packer: Packer) -> int:
        """End a cell."""
        packer.row += 1
        memoryview(packer.offsets).cast("q")[packer.row] = packer.size = len(packer.data)
        return 0


class Column:
    """The values of one column, with the bytes that stand before each of them."""

    __slots__ = ("data", "encode", "label", "nulls", "number", "objects", "offsets")

    number: int
    label: bytes
    data: Any
    offsets: Any
    nulls: Any
    objects: list[Any]
    encode: Callable[[Any], bytes] | None

    def __init__(
        self,
        kind: str,
        *,
        label: bytes = b"",
        data: Any = None,
        offsets: Any = None,
        nulls: Any = None,
        objects: list[Any] | None = None,
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        """Buffers as `KINDS` says; `nulls` has a byte per row, 0 if it is none; `encode` belongs to `objects`."""
        self.number = KINDS[kind]
        self.label = label
        self.data = _bytes_of(data)
        self.offsets = _bytes_of(offsets)
        self.nulls = _bytes_of(nulls)
        self.objects = [] if objects is None else objects
        self.encode = codec_for(str).encode if kind == "str" else encode
        point(self)


class Packer:
    """The cells that were packed so far."""

    __slots__ = ("data", "offsets", "room", "row", "size")

    def __init__(self, count: cython.Py_ssize_t) -> None:
        self.row = 0
        self.size = 0
        self.room = 0
        self.data = bytearray()
        self.offsets = bytearray(8 * (count + 1))
        begin(self, count)

    def grow(self, more: cython.Py_ssize_t) -> int:
        """Make room for some bytes more, and for many rows like those before."""
        self.room = 2 * (self.size + more) + 64
        resize(self)
        return 0


def pack(header: bytes, columns: Sequence[Column], count: cython.Py_ssize_t) -> tuple[bytearray, memoryview]:
    """Return the cells of `count` rows: their bytes, and `count + 1` offsets of 64 bits.

    Raises:
        StateTypeError: a value that the codec would not write either.

    >>> from array import array
    >>> data, offsets = pack(b"", [Column("int", data=array("q", [7, 300]))], 2)
    >>> bytes(data), offsets.tolist()
    (b'\\x07\\xcd\\x01,', [0, 1, 4])
    """
    packer: Packer = Packer(count)
    parts: list[Column] = list(columns)
    width: cython.Py_ssize_t = len(parts)
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    for row in range(count):
        put_header(packer, header)
        for i in range(width):
            put_part(packer, parts[i], row)
        end_row(packer)
    packer.room = packer.size
    resize(packer)
    return packer.data, memoryview(packer.offsets).cast("q")


def array_header(length: int) -> bytes:
    """Return how MessagePack begins an array."""
    return bytes([0x90 | length]) if length < 16 else b"\xdc" + length.to_bytes(2, "big")


def refuse_time(number: cython.longlong, days: cython.bint) -> int:
    """Reject a time that no date and no datetime can hold."""
    unit = "days" if days else "microseconds"
    raise StateTypeError(
        f"$: a time {number} {unit} after 1970 is not in the years 1 to 9999. Filter such rows out, or use a bigint.",
        field="$",
        expected="a time in the years 1 to 9999",
        found=f"{number} {unit}",
    )


def _bytes_of(buffer: Any) -> Any:
    """The buffer as bytes."""
    if buffer is None:
        return None
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(_NOTHING)


def _start(view: Any) -> Any:
    return cython.cast(cython.p_uchar, cython.address(view[0]))


def value_at(column: Column, row: int) -> Any:
    """A value of a column as a Python object; None for null."""
    if column.number >= KINDS["str"]:
        return column.objects[row]
    if column.nulls is not None and column.nulls[row]:
        return None
    if column.offsets is not None:
        offsets = column.offsets.cast("q")
        cell = bytes(column.data[offsets[row] : offsets[row + 1]])
        return cell.decode() if column.number == KINDS["text"] else cell
    number = column.data.cast(_LAYOUTS[column.number])[row]
    if column.number == KINDS["bool"]:
        return number != 0
    try:
        if column.number == KINDS["date"]:
            return (_EPOCH + number * _DAY).date()
        if column.number in (KINDS["timestamp"], KINDS["timestamp_ntz"]):
            time = _EPOCH + number * _MICROSECOND
            return time.replace(tzinfo=datetime.UTC) if column.number == KINDS["timestamp"] else time
    except OverflowError:
        refuse_time(number, column.number == KINDS["date"])
    return number
