"""Windows: a span of time, or all of it.

Windows are namespaces of a key's state and timers, so they are encoded as keys. Times are int64 microseconds since the
epoch; `start` belongs to the window and `end` does not: when the watermark reaches `end`, all rows of the window that
are in time have come, and the window fires.

>>> hour = TimeWindow(0, 3_600_000_000)
>>> hour.start_time.isoformat(), hour.end_time.isoformat()
('1970-01-01T00:00:00+00:00', '1970-01-01T01:00:00+00:00')
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import NamedTuple

from emberstate.runtime.rows.times import MAX_TIME, from_micros


class TimeWindow(NamedTuple):
    """A span of time, from `start` up to but not including `end`."""

    start: int
    end: int

    @property
    def start_time(self) -> datetime:
        """The start as an aware UTC datetime."""
        return from_micros(self.start)

    @property
    def end_time(self) -> datetime:
        """The end, which is not in the window, as an aware UTC datetime."""
        return from_micros(self.end)

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the two overlap or touch: sessions exactly one gap apart are one session, as in Flink."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that has both in it.

        >>> TimeWindow(0, 5).cover(TimeWindow(3, 9))
        TimeWindow(start=0, end=9)
        """
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


@dataclasses.dataclass(frozen=True, slots=True)
class GlobalWindow:
    """The one window of `GlobalWindows`: it never ends by itself.

    >>> GlobalWindow() == GlobalWindow()
    True
    """

    @property
    def end(self) -> int:
        """The end of time: a timer for it fires when a bounded input has ended, and not before."""
        return MAX_TIME


Window = TimeWindow | GlobalWindow
