"""Durations as users write them: a `timedelta`, or text such as "10 seconds". Never a bare number, whose unit
nobody can see.

>>> as_duration("1 hour 30 minutes", "the gap")
datetime.timedelta(seconds=5400)
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from emberstate.errors import StateDeclarationError

Duration = timedelta | str

_UNITS: Final = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_PART: Final = re.compile(r"(\d{1,18}) *([a-z]+?)s?(?: +|$)")
_MICROSECOND: Final = timedelta(microseconds=1)


def as_duration(value: Any, what: str) -> timedelta:
    """The duration that `value` stands for; `what` names it in messages."""
    if isinstance(value, timedelta):
        return value
    total = timedelta(0)
    try:
        text = value.strip().lower()
        while True:
            part = _PART.match(text)
            assert part is not None
            total += int(part[1]) * _UNITS[part[2]]
            text = text[part.end() :]
            if not text:
                return total
    except (AttributeError, AssertionError, KeyError, OverflowError, TypeError):
        raise StateDeclarationError(
            f'{what} must be a timedelta or text such as "10 seconds" (units: {", ".join(_UNITS)}), '
            f"found {value!r:.100}"
        ) from None


def as_micros(value: Any, what: str) -> int:
    """The same in whole microseconds."""
    return as_duration(value, what) // _MICROSECOND
