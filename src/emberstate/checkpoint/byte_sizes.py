"""Sizes as users write them: a whole number of bytes, or text such as "256 MiB".

>>> as_bytes("256 MiB", "the memory"), as_bytes("1.5 GB", "the memory"), as_bytes(4096, "the memory")
(268435456, 1500000000, 4096)
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from emberstate.errors import StateDeclarationError

_UNITS: Final = {
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
_BY_LOWER: Final = {unit.lower(): size for unit, size in _UNITS.items()}
_SIZE: Final = re.compile(r" *([0-9]{1,18}(?:\.[0-9]{1,9})?) *([a-z]+) *", re.ASCII)


def as_bytes(value: Any, what: str) -> int:
    """The number of bytes that `value` stands for, which is positive; `what` names it in messages."""
    size = value if type(value) is int else 0
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.lower())) is not None:
        size = int(Decimal(match[1]) * _BY_LOWER.get(match[2], 0))
    if size <= 0:
        raise StateDeclarationError(
            f'{what} must be a positive number of bytes, or text such as "256 MiB" (units: {", ".join(_UNITS)}), '
            f"found {value!r:.100}"
        )
    return size
