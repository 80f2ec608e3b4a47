"""Numbers that say the same as what a state holds, as what it holds: an int for a float, a NumPy scalar for either.

Only what is exact: 2**53 + 1 is no float, 1.0 is no int, and a bool is no number.

>>> widened(3, float), widened(2**53 + 1, float), widened(True, float), widened(1.0, int)
(3.0, 9007199254740993, True, 1.0)

Thread safety: pure functions.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any, Final

#: Types of which one test of a value's class says that it is of the type.
SCALARS: Final = (int, str, bytes, bool, float)


def scalar_type(declared: Any) -> Any:
    """The scalar that a state of this type holds, be it `float` or `float | None`; None if it holds others too.

    >>> scalar_type(float), scalar_type(float | None), scalar_type(int | str), scalar_type(list[int])
    (<class 'float'>, <class 'float'>, None, None)
    """
    if isinstance(declared, types.UnionType) or typing.get_origin(declared) is typing.Union:
        members = [member for member in typing.get_args(declared) if member is not type(None)]
        declared = members[0] if len(members) == 1 else None
    return declared if declared in SCALARS else None


def widened(value: Any, scalar: Any) -> Any:
    """`value` as a `scalar` (see `scalar_type`) if that says exactly the same, else as it is."""
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
