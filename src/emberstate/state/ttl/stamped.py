"""A value with the time it was last written (or read): what a state with time to live stores."""

from __future__ import annotations

from typing import Any


class Stamped:
    """A value and its stamp in microseconds; replaced as a whole, never changed."""

    __slots__ = ("stamp", "value")

    def __init__(self, value: Any, stamp: int) -> None:
        self.value = value
        self.stamp = stamp

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stamped):
            return NotImplemented
        return self.stamp == other.stamp and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.value, self.stamp))

    def __repr__(self) -> str:
        return f"Stamped({self.value!r}, {self.stamp})"
