# cython: boundscheck=False, wraparound=False
"""Whole columns to rows and back, and microseconds to datetimes: what every row of a batch goes through.

Thread safety: pure functions.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import cython

_UTC = UTC

if not cython.compiled:  # compiled, these are C functions of the .pxd file

    def new_row(row_class: type[Any], columns: list[list[Any]], position: int) -> Any:
        """The row at `position` of columns."""
        return tuple.__new__(row_class, [column[position] for column in columns])

    def width_of(row: Any) -> int:
        """How many values a row has; -1 if it is no tuple."""
        return len(row) if isinstance(row, tuple) else -1

    def item_of(row: Any, position: int) -> Any:
        """A value of a tuple."""
        return row[position]

    _EPOCH = datetime(1970, 1, 1)

    def datetime_of(micros: int, zone: Any) -> datetime:
        """The datetime so many microseconds after 1970."""
        return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=zone)


def make_rows(row_class: type[Any], columns: list[list[Any]], count: cython.Py_ssize_t) -> list[Any]:
    """The rows of columns of `count` values each."""
    i: cython.Py_ssize_t
    rows: list[Any] = []
    for i in range(count):
        rows.append(new_row(row_class, columns, i))
    return rows


def all_tuples(rows: list[Any], width: cython.Py_ssize_t) -> bool:
    """Whether all rows are tuples of `width` values."""
    for row in rows:  # noqa: SIM110 - compiled, the loop is the fast form
        if width_of(row) != width:
            return False
    return True


def make_columns(rows: list[Any], classes: list[Any]) -> tuple[list[list[Any]], list[bool]]:
    """The columns of rows, tuples as wide as `classes`, and for each whether all values but None are of its class."""
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
    """Aware UTC datetimes; OverflowError for one outside the years 1 to 9999."""
    value: cython.longlong
    result: list[datetime] = []
    for value in micros:
        result.append(datetime_of(value, _UTC))
    return result


def wall_times(micros: list[int]) -> list[datetime]:
    """Naive datetimes; OverflowError for one outside the years 1 to 9999."""
    value: cython.longlong
    result: list[datetime] = []
    for value in micros:
        result.append(datetime_of(value, None))
    return result


def dates(days: list[int]) -> list[date]:
    """Dates of days since 1970."""
    from_ordinal = date.fromordinal
    return [from_ordinal(day + 719_163) for day in days]
