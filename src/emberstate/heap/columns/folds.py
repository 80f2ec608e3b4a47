# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Folds of columns: each value goes into what there is at its position, in order, whatever repeats.

A target is a column of values and a mask of its nulls (1: nothing yet); so are the values to fold in, which a null
skips. Positions may repeat: values are folded one after the other, as a function over single rows would do it, so sums
of floats come out the same. Targets are the caller's copies: a fold that fails has changed nothing that anybody sees.

Thread safety: functions of their arguments.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython
import numpy as np
import numpy.typing as npt

_GREATEST: cython.longlong = 0x7FFF_FFFF_FFFF_FFFF
_LEAST: cython.longlong = -0x7FFF_FFFF_FFFF_FFFF - 1

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def distinct_rows(rows: Ints, scratch: Ints) -> tuple[Ints, Ints]:
    """Return the distinct ones of `rows`, in order of arrival, and the position of each row among them.

    `scratch` has an element for each possible row, all -1 before and after.
    """
    i: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(rows)
    distinct = np.empty(count, np.int64)
    positions = np.empty(count, np.int64)
    row_at: cython.longlong[::1] = rows.data
    seen_at: cython.longlong[::1] = scratch.data
    first: cython.longlong[::1] = distinct.data
    out: cython.longlong[::1] = positions.data
    found: cython.Py_ssize_t = 0
    for i in range(count):
        if seen_at[row_at[i]] < 0:
            seen_at[row_at[i]] = found
            first[found] = row_at[i]
            found += 1
        out[i] = seen_at[row_at[i]]
    for i in range(found):
        seen_at[first[i]] = -1
    return distinct[:found], positions


def add_ints(values: Ints, nulls: Flags, positions: Ints, added: Ints, added_nulls: Flags) -> int:
    """Add; returns -1, or the number of the first value whose sum 64 bits do not hold: nothing after it was added."""
    i: cython.Py_ssize_t
    old: cython.longlong
    new: cython.longlong
    target: cython.longlong[::1] = values.data
    empty: cython.uchar[::1] = _bytes(nulls)
    at: cython.const[cython.longlong][::1] = positions.data  # type: ignore[valid-type]
    value: cython.const[cython.longlong][::1] = added.data  # type: ignore[valid-type]
    skip: cython.const[cython.uchar][::1] = _bytes(added_nulls)  # type: ignore[valid-type]
    for i in range(len(positions)):
        if skip[i]:
            continue
        new = value[i]
        if empty[at[i]]:
            empty[at[i]] = 0
            target[at[i]] = new
            continue
        old = target[at[i]]
        if (new > 0 and old > _GREATEST - new) or (new < 0 and old < _LEAST - new):
            return i  # type: ignore[no-any-return]
        target[at[i]] = old + new
    return -1


def add_floats(values: Floats, nulls: Flags, positions: Ints, added: Floats, added_nulls: Flags) -> int:
    """Add; returns -1."""
    i: cython.Py_ssize_t
    target: cython.double[::1] = values.data
    empty: cython.uchar[::1] = _bytes(nulls)
    at: cython.const[cython.longlong][::1] = positions.data  # type: ignore[valid-type]
    value: cython.const[cython.double][::1] = added.data  # type: ignore[valid-type]
    skip: cython.const[cython.uchar][::1] = _bytes(added_nulls)  # type: ignore[valid-type]
    for i in range(len(positions)):
        if skip[i]:
            continue
        if empty[at[i]]:
            empty[at[i]] = 0
            target[at[i]] = value[i]
        else:
            target[at[i]] = target[at[i]] + value[i]
    return -1


def keep_int(values: Ints, nulls: Flags, positions: Ints, added: Ints, added_nulls: Flags, sign: cython.int) -> int:
    """Keep the least (`sign` 1) or greatest (-1); returns -1."""
    i: cython.Py_ssize_t
    target: cython.longlong[::1] = values.data
    empty: cython.uchar[::1] = _bytes(nulls)
    at: cython.const[cython.longlong][::1] = positions.data  # type: ignore[valid-type]
    value: cython.const[cython.longlong][::1] = added.data  # type: ignore[valid-type]
    skip: cython.const[cython.uchar][::1] = _bytes(added_nulls)  # type: ignore[valid-type]
    for i in range(len(positions)):
        if skip[i]:
            continue
        if empty[at[i]] or (value[i] < target[at[i]] if sign > 0 else value[i] > target[at[i]]):
            empty[at[i]] = 0
            target[at[i]] = value[i]
    return -1


def keep_float(
    values: Floats, nulls: Flags, positions: Ints, added: Floats, added_nulls: Flags, sign: cython.int
) -> int:
    """Keep the least (`sign` 1) or greatest (-1), NaN being greater than any other; returns -1."""
    i: cython.Py_ssize_t
    old: cython.double
    new: cython.double
    wins: cython.bint
    target: cython.double[::1] = values.data
    empty: cython.uchar[::1] = _bytes(nulls)
    at: cython.const[cython.longlong][::1] = positions.data  # type: ignore[valid-type]
    value: cython.const[cython.double][::1] = added.data  # type: ignore[valid-type]
    skip: cython.const[cython.uchar][::1] = _bytes(added_nulls)  # type: ignore[valid-type]
    for i in range(len(positions)):
        if skip[i]:
            continue
        new = value[i]
        old = target[at[i]]
        wins = new < old or (old != old and new == new)
        if sign < 0:
            wins = new > old or (new != new and old == old)
        if empty[at[i]] or wins:
            empty[at[i]] = 0
            target[at[i]] = new
    return -1


def keep_true(values: Flags, nulls: Flags, positions: Ints, added: Flags, added_nulls: Flags) -> int:
    """Keep whether any is true; returns -1."""
    i: cython.Py_ssize_t
    target: cython.uchar[::1] = _bytes(values)
    empty: cython.uchar[::1] = _bytes(nulls)
    at: cython.const[cython.longlong][::1] = positions.data  # type: ignore[valid-type]
    value: cython.const[cython.uchar][::1] = _bytes(added)  # type: ignore[valid-type]
    skip: cython.const[cython.uchar][::1] = _bytes(added_nulls)  # type: ignore[valid-type]
    for i in range(len(positions)):
        if skip[i]:
            continue
        if empty[at[i]] or value[i]:
            empty[at[i]] = 0
            target[at[i]] = value[i]
    return -1


def choose_by_time(
    times: Ints, nulls: Flags, positions: Ints, added: Ints, added_nulls: Flags, sign: cython.int
) -> Ints:
    """Keep the least time (`sign` 1; of equal ones the older) or the greatest (-1; of equal ones the newer).

    Returns for each target the number of the value that won, -1 if none did.
    """
    i: cython.Py_ssize_t
    wins: cython.bint
    chosen = np.full(len(times), -1, np.int64)
    target: cython.longlong[::1] = times.data
    empty: cython.uchar[::1] = _bytes(nulls)
    at: cython.const[cython.longlong][::1] = positions.data  # type: ignore[valid-type]
    value: cython.const[cython.longlong][::1] = added.data  # type: ignore[valid-type]
    skip: cython.const[cython.uchar][::1] = _bytes(added_nulls)  # type: ignore[valid-type]
    winner: cython.longlong[::1] = chosen.data
    for i in range(len(positions)):
        if skip[i]:
            continue
        wins = value[i] < target[at[i]] if sign > 0 else value[i] >= target[at[i]]
        if empty[at[i]] or wins:
            empty[at[i]] = 0
            target[at[i]] = value[i]
            winner[at[i]] = i
    return chosen


def _bytes(flags: Flags) -> Any:
    return flags.view(np.uint8).data
