"""The time, injected: nothing else in this layer asks the system for it.

Thread safety: both clocks may be shared between threads.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now_micros(self) -> int:
        """Microseconds since 1970 in UTC. It may step back: order must never rest on it."""


class SystemClock:
    """The machine's clock."""

    def now_micros(self) -> int:
        """Microseconds since 1970 in UTC."""
        return time.time_ns() // 1000


class ManualClock:
    """A clock that stands still until it is told otherwise.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now_micros()
    1500
    """

    def __init__(self, micros: int = 0) -> None:
        self._lock = threading.Lock()
        self._micros = micros

    def now_micros(self) -> int:
        """The time that was set."""
        with self._lock:
            return self._micros

    def set(self, micros: int) -> None:
        """Jump to a time; backwards too, as real clocks do."""
        with self._lock:
            self._micros = micros

    def advance(self, micros: int) -> None:
        """Step by so many microseconds."""
        with self._lock:
            self._micros += micros
