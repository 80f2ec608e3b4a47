"""Exact conversion of numbers to the scalar type of a state: an int to a float, a NumPy scalar to either.

Only exact conversions: 2**53 + 1 is no float, 1.0 is no int, and a bool is no number.

>>> widened(3, float), widened(2**53 + 1, float), widened(True, float), widened(1.0, int)
(3.0, 9007199254740993, True, 1.0)

Thread safety: pure functions.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any, Final

#: Types for which a test of a value's class is enough.
SCALARS: Final = (int, str, bytes, bool, float)


def scalar_type(declared: Any) -> Any:
    """Return the one scalar type of a declared type (`float` for `float | None`), or None if it has others.

    >>> scalar_type(float), scalar_type(float | None), scalar_type(int | str), scalar_type(list[int])
    (<class 'float'>, <class 'float'>, None, None)
    """
    if isinstance(declared, types.UnionType) or typing.get_origin(declared) is typing.Union:
        members = [member for member in typing.get_args(declared) if member is not type(None)]
        declared = members[0] if len(members) == 1 else None
    return declared if declared in SCALARS else None


def widened(value: Any, scalar: Any) -> Any:
    """Return `value` as a `scalar` (see `scalar_type`) if that is exact, else unchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and scalar is not None and isinstance(value, numpy.generic):
        item = value.item()
        if type(item) is scalar or (scalar is float and type(item) is int):
            value = item
    if scalar is float and type(value) is int:
        try:
            return float(value) if float(value) == value else value
        except OverflowError:
            return value
    return value
