"""Durations and sizes as users write them, sizes and times as they read them.

Never a bare number as a duration: nobody can see its unit.

>>> as_duration("1 hour 30 minutes", "gap", "session windows")
datetime.timedelta(seconds=5400)
>>> as_bytes("256 MiB", "memory"), as_bytes("1.5 GB", "memory"), as_bytes(4096, "memory")
(268435456, 1500000000, 4096)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from emberstate.errors import StateDeclarationError

Duration = timedelta | str

_DURATIONS: Final = {
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_duration(value: Any, option: str, owner: str = "") -> timedelta:
    """Return the duration that `value` stands for. Errors name its `option` and what that is an option of."""
    if isinstance(value, timedelta):
        return value
    total = timedelta(0)
    try:
        text = value.strip().lower()
        while True:
            part = _PART.match(text)
            assert part is not None
            total += int(part[1]) * _DURATIONS[part[2]]
            text = text[part.end() :]
            if not text:
                return total
    except (AttributeError, AssertionError, KeyError, OverflowError, TypeError):
        raise StateDeclarationError(
            f'{option_of(option, owner)} must be a timedelta or text such as "10 seconds" (units: '
            f"{', '.join(_DURATIONS)}), found {value!r:.100}",
            option=option,
        ) from None


def as_micros(value: Any, option: str, owner: str = "") -> int:
    """The same in whole microseconds."""
    return as_duration(value, option, owner) // _MICROSECOND


def option_of(option: str, owner: str) -> str:
    """An option as messages name it.

    >>> option_of("gap", "session windows"), option_of("heartbeat", "")
    ('gap of session windows', 'heartbeat')
    """
    return f"{option} of {owner}" if owner else option


_SIZES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_BY_LOWER: Final = {unit.lower(): size for unit, size in _SIZES.items()}
_SIZE: Final = re.compile(r" *([0-9]{1,18}(?:\.[0-9]{1,9})?) *([a-z]+) *", re.ASCII)


def as_bytes(value: Any, option: str, owner: str = "") -> int:
    """Return the number of bytes that `value` stands for, which is positive. Errors as of `as_duration`."""
    size = value if type(value) is int else 0
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.lower())) is not None:
        size = int(Decimal(match[1]) * _BY_LOWER.get(match[2], 0))
    if size <= 0:
        raise StateDeclarationError(
            f'{option_of(option, owner)} must be a positive number of bytes, or text such as "256 MiB" (units: '
            f"{', '.join(_SIZES)}), found {value!r:.100}",
            option=option,
        )
    return size


def size_text(size: int) -> str:
    """A number of bytes for people.

    >>> size_text(0), size_text(1023), size_text(1536), size_text(5 * 2**30)
    ('0 B', '1023 B', '1.5 KiB', '5.0 GiB')
    """
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def time_text(micros: int | None) -> str | None:
    """A time in µs since 1970 as ISO 8601 in UTC.

    >>> time_text(1_700_000_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    if micros is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} µs"
    return moment.isoformat().replace("+00:00", "Z")
