# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""The columns of a record batch of a state file, as memory: where a backend's loaders read rows.

Cells are those of Arrow's binary columns: bytes, offsets of 32 bits, a bitmap of what is not null. Compiled code
decodes scalars straight from the column's bytes if they have one of the forms that an encoder writes; the codec
decodes or rejects anything else.

Invariants: the buffers fit one another, which Arrow's full validation has established; they do not change.

Thread safety: read only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

if not cython.compiled:  # compiled, these are C constants and functions of the .pxd file
    REPLACED = 1
    CLEARED = 2
    PUT = 3
    REMOVED = 4
    APPENDED = 5

    def point(cells: Cells) -> int:
        """Do nothing: interpreted, there are no pointers."""
        return 0

    def is_null(cells: Cells, row: int) -> bool:
        """Whether a cell is null."""
        return cells.nulls and not (cells.valid[row >> 3] >> (row & 7)) & 1

    def raw_at(cells: Cells, row: int) -> bytes:
        """The bytes of a cell."""
        return bytes(cells.data[cells.offsets[row] : cells.offsets[row + 1]])

    def order_of(cells: Cells, row: int, other: int) -> int:
        """Below, equal to or above 0, as a cell's bytes compare to those of another."""
        one, two = raw_at(cells, row), raw_at(cells, other)
        return (one > two) - (one < two)

    def value_at(decoder: Decoder, cells: Cells, row: int) -> Any:
        """The value of a cell that is not null; interpreted, the codec is the faster decoder."""
        return decoder.decode(raw_at(cells, row))

    def has_stamp(columns: RowColumns, row: int) -> bool:
        """Whether the row has a stamp."""
        return not columns.stamp_nulls or (columns.stamp_valid[row >> 3] >> (row & 7)) & 1 == 1


#: key, namespace, step, user key, value, stamp
StoredRow = tuple[bytes, bytes, int, bytes | None, bytes | None, int | None]

#: The kinds of scalar that compiled code decodes by itself.
SCALARS = {"int": 1, "str": 2, "float": 3, "bytes": 4}

# A column without bytes still needs one to point to.
_NOTHING = memoryview(b"\0")


class BadRow(Exception):
    """A row that no writer writes; the message says what is wrong with it."""


class Cells:
    """A binary column: the bytes of all cells, and the offset of each."""

    __slots__ = ("data", "nulls", "offsets", "valid")

    data: memoryview
    offsets: memoryview
    valid: memoryview
    nulls: bool

    def __init__(self, data: memoryview | None, offsets: memoryview, valid: memoryview | None) -> None:
        """Buffers as Arrow has them: uint8, int32, and a bitmap or None if no cell is null."""
        self.data = _NOTHING if data is None or len(data) == 0 else data
        self.offsets = offsets
        self.nulls = valid is not None
        self.valid = _NOTHING if valid is None else valid
        point(self)


class Decoder:
    """How the cells of a column are read."""

    __slots__ = ("as_declared", "decode", "kind")

    decode: Callable[[bytes], Any]
    kind: int
    as_declared: bool

    def __init__(self, decode: Callable[[bytes], Any], scalar: str | None, as_declared: bool = False) -> None:
        """`scalar` is one of `SCALARS` if `decode` decodes nothing else, else None; `as_declared`: the stored type is
        the declared one, field by field."""
        self.decode = decode
        self.as_declared = as_declared
        self.kind = 0 if scalar is None else SCALARS.get(scalar, 0)


class RowColumns:
    """The columns of a record batch."""

    __slots__ = (
        "key_groups", "keys", "namespaces", "ops", "stamp_nulls", "stamp_valid", "stamps", "states",
        "user_keys", "values",
    )  # fmt: skip

    key_groups: memoryview
    states: memoryview
    keys: Cells
    namespaces: Cells
    ops: memoryview
    user_keys: Cells
    values: Cells
    stamps: memoryview
    stamp_nulls: bool
    stamp_valid: memoryview

    def __init__(
        self,
        key_groups: memoryview,
        states: memoryview,
        keys: Cells,
        namespaces: Cells,
        ops: memoryview,
        user_keys: Cells,
        values: Cells,
        stamps: memoryview,
        stamp_valid: memoryview | None,
    ) -> None:
        self.key_groups = key_groups
        self.states = states
        self.keys = keys
        self.namespaces = namespaces
        self.ops = ops
        self.user_keys = user_keys
        self.values = values
        self.stamps = stamps
        self.stamp_nulls = stamp_valid is not None
        self.stamp_valid = _NOTHING if stamp_valid is None else stamp_valid

    def runs(self) -> list[tuple[int, int, int, int]]:
        """(start, stop, key group, state) of the rows of each state in each key group.

        Raises:
            BadRow: key groups, or states in a key group, do not ascend.
        """
        found: list[tuple[int, int, int, int]] = []
        count: cython.Py_ssize_t = len(self.ops)
        start: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        for row in range(1, count + 1):
            if row < count:
                if self.key_groups[row] == self.key_groups[start] and self.states[row] == self.states[start]:
                    continue
                if self.key_groups[row] < self.key_groups[start] or (
                    self.key_groups[row] == self.key_groups[start] and self.states[row] < self.states[start]
                ):
                    raise BadRow(f"row {row}: key group and state do not ascend")
            found.append((start, row, self.key_groups[start], self.states[start]))
            start = row
        return found

    def key_group(self, row: cython.Py_ssize_t) -> int:
        """The key group of a row."""
        group: int = self.key_groups[row]
        return group

    def place(self, row: cython.Py_ssize_t) -> tuple[bytes, bytes]:
        """The key and the namespace of a row."""
        return raw_at(self.keys, row), raw_at(self.namespaces, row)

    def first_disorder(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> int:
        """The first of the rows [start + 1, stop) whose key and namespace are not above those before it; -1 if none."""
        row: cython.Py_ssize_t
        order: cython.int
        for row in range(start + 1, stop):
            order = order_of(self.keys, row, row - 1)
            if order < 0 or (order == 0 and order_of(self.namespaces, row, row - 1) <= 0):
                return int(row)
        return -1

    def steps(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        """The steps of the rows [start, stop)."""
        return bytes(self.ops[start:stop])

    def stamps_of(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> tuple[bytes, bytearray]:
        """The stamps of the rows [start, stop), of 64 bits each; and a byte for each row, 0 if it has none."""
        has = bytearray(stop - start)
        row: cython.Py_ssize_t
        for row in range(start, stop):
            has[row - start] = has_stamp(self, row)
        return bytes(self.stamps[start:stop]), has

    def rows(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> list[StoredRow]:
        """The rows [start, stop), for a loader that does not read the columns itself."""
        found: list[StoredRow] = []
        row: cython.Py_ssize_t
        for row in range(start, stop):
            found.append((
                raw_at(self.keys, row),
                raw_at(self.namespaces, row),
                self.ops[row],
                None if is_null(self.user_keys, row) else raw_at(self.user_keys, row),
                None if is_null(self.values, row) else raw_at(self.values, row),
                self.stamps[row] if has_stamp(self, row) else None,
            ))
        return found


def nulls_of(cells: Cells, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytearray:
    """A byte for each of the cells [start, stop): 0 if it is not null."""
    nulls = bytearray(stop - start)
    row: cython.Py_ssize_t
    for row in range(start, stop):
        nulls[row - start] = is_null(cells, row)
    return nulls


def distinct_cells(cells: Cells, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> tuple[list[bytes], list[int]]:
    """The different cells among [start, stop), and for each row the position of its own."""
    places: dict[bytes, int] = {}
    numbers: list[int] = []
    row: cython.Py_ssize_t
    number = 0
    for row in range(start, stop):
        if row == start or order_of(cells, row, row - 1) != 0:
            number = places.setdefault(raw_at(cells, row), len(places))
        numbers.append(number)
    return list(places), numbers
