# cython: boundscheck=False, wraparound=False
"""Converts columns to rows and back, and microseconds to datetimes: the code that runs for every row of a batch.

Thread safety: pure functions.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

_UTC = UTC

if not cython.compiled:  # compiled, the .pxd file has these as C functions

    def new_row(row_class: Any, columns: list[list[Any]], position: int) -> Any:
        """Return the row at `position` of the columns; `row_class` is a class of tuples, or a `RowMaker`."""
        values = [column[position] for column in columns]
        return tuple.__new__(row_class, values) if isinstance(row_class, type) else row_class.make(*values)

    def slot_offsets(slots: tuple[Any, ...]) -> bytes:
        """Return where an object has its slots, for C; interpreted, nowhere."""
        return b""

    def width_of(row: Any) -> int:
        """Return the number of values of a row, or -1 if it is not a tuple."""
        return len(row) if isinstance(row, tuple) else -1

    def item_of(row: Any, position: int) -> Any:
        """Return a value of a tuple."""
        return row[position]

    _EPOCH = datetime(1970, 1, 1)

    def datetime_of(micros: int, zone: Any) -> datetime:
        """Return the datetime of microseconds since 1970."""
        return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=zone)


class RowMaker:
    """Makes rows that are no plain tuples, of the values of their columns in order.

    `slots` are those of `row_class` that take the values: if there are any, making a row does nothing else. Compiled,
    they are filled without a call; otherwise rows are what `make` returns.
    """

    __slots__ = ("make", "offsets", "row_class")

    row_class: type[Any]
    make: Any
    offsets: bytes

    def __init__(self, row_class: type[Any], make: Any, slots: tuple[Any, ...]) -> None:
        self.row_class = row_class
        self.make = make
        self.offsets = slot_offsets(slots)


def make_rows(row_class: Any, columns: list[list[Any]], count: cython.Py_ssize_t) -> list[Any]:
    """Return the rows of columns that have `count` values each."""
    i: cython.Py_ssize_t
    rows: list[Any] = []
    for i in range(count):
        rows.append(new_row(row_class, columns, i))
    return rows


def all_tuples(rows: list[Any], width: cython.Py_ssize_t) -> bool:
    """Return whether all rows are tuples of `width` values."""
    for row in rows:  # noqa: SIM110 - compiled, the loop is the fast form
        if width_of(row) != width:
            return False
    return True


def make_columns(rows: list[Any], classes: list[Any]) -> tuple[list[list[Any]], list[bool]]:
    """Return the columns of rows, and for each column whether all its values are of its class or None.

    Every row is a tuple of `len(classes)` values.
    """
    j: cython.Py_ssize_t
    width: cython.Py_ssize_t = len(classes)
    columns: list[list[Any]] = [[] for _ in classes]
    fits: list[bool] = [True for _ in classes]
    column: list[Any]
    for row in rows:
        for j in range(width):
            value = item_of(row, j)
            column = columns[j]
            column.append(value)
            if type(value) is not classes[j] and value is not None:
                fits[j] = False
    return columns, fits


def instants(micros: list[int]) -> list[datetime]:
    """Return aware UTC datetimes. Raises OverflowError for one outside the years 1 to 9999."""
    value: cython.longlong
    result: list[datetime] = []
    for value in micros:
        result.append(datetime_of(value, _UTC))
    return result


def wall_times(micros: list[int]) -> list[datetime]:
    """Return naive datetimes. Raises OverflowError for one outside the years 1 to 9999."""
    value: cython.longlong
    result: list[datetime] = []
    for value in micros:
        result.append(datetime_of(value, None))
    return result


def dates(days: list[int]) -> list[date]:
    """Return the dates of days since 1970."""
    from_ordinal = date.fromordinal
    return [from_ordinal(day + 719_163) for day in days]
