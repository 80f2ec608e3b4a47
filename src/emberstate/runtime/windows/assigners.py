"""Window assigners: which windows a row belongs to.

Event-time assigners look at the row's time, processing-time ones at the transaction's. Sizes, slides, gaps and
offsets are durations ("1 hour", or a `timedelta`). An offset moves where windows start: daily windows of a zone
two hours ahead of UTC have the offset `timedelta(hours=-2)`.

>>> hours = TumblingEventTimeWindows.of("1 hour")
>>> [window.start_time.isoformat() for window in hours.assign(None, 5_400_000_000)]
['1970-01-01T01:00:00+00:00']
>>> TumblingEventTimeWindows.of("0 seconds")
Traceback (most recent call last):
    ...
emberstate.errors.StateDeclarationError: size of tumbling windows must be ...

Immutable; any thread.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeVar

from emberstate.errors import StateDeclarationError
from emberstate.runtime.windows.slices import SliceGrid
from emberstate.runtime.windows.time_window import GlobalWindow, TimeWindow
from emberstate.runtime.windows.trigger import Trigger
from emberstate.runtime.windows.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from emberstate.units import Duration, as_micros

#: Windows end within int64 microseconds, wherever a row's time is between the years 1 and 9999.
_LONGEST: Final = 2**62

_Tumbling = TypeVar("_Tumbling", bound="TumblingWindows")
_Sliding = TypeVar("_Sliding", bound="SlidingWindows")
_Session = TypeVar("_Session", bound="SessionWindows")


def positive_micros(value: Duration, option: str, owner: str) -> int:
    """Return a duration in microseconds; raise if no window can have it."""
    micros = as_micros(value, option, owner)
    if not 0 < micros < _LONGEST:
        raise StateDeclarationError(
            f"{option} of {owner} must be at least a microsecond and less than 2**62 of them, got {value!r}",
            option=option,
        )
    return micros


def _offset_micros(value: Duration, period: int, owner: str) -> int:
    micros = as_micros(value, "offset", owner)
    if abs(micros) >= period:
        raise StateDeclarationError(
            f"offset of {owner} must be shorter than the distance of two windows ({period} microseconds), "
            f"got {value!r}",
            option="offset",
        )
    return micros


class WindowAssigner(abc.ABC):
    """Says which windows a row belongs to. Subclass it for windows of your own."""

    #: Whether `assign` wants the row's event time (True) or the processing time.
    is_event_time: ClassVar[bool]
    #: The type of the windows; it must be a key type, because windows are namespaces of state.
    window_type: ClassVar[type] = TimeWindow
    #: Whether windows (of type `TimeWindow`) that overlap or touch become one.
    is_merging: ClassVar[bool] = False

    @abc.abstractmethod
    def assign(self, row: Any, time: int) -> Sequence[Any]:
        """The windows of a row at `time`, in microseconds; earliest first."""

    @abc.abstractmethod
    def default_trigger(self) -> Trigger:
        """The trigger of these windows unless another is given."""


class _ByEventTime:
    is_event_time: ClassVar[bool] = True

    def default_trigger(self) -> Trigger:
        """Fire when the watermark passes the end."""
        return EventTimeTrigger()


class _ByProcessingTime:
    is_event_time: ClassVar[bool] = False

    def default_trigger(self) -> Trigger:
        """Fire when the processing time passes the end."""
        return ProcessingTimeTrigger()


@dataclasses.dataclass(frozen=True)
class TumblingWindows(WindowAssigner):
    """Windows of one size, each beginning where the one before ends; all in microseconds."""

    size: int
    offset: int

    @classmethod
    def of(cls: type[_Tumbling], size: Duration, offset: Duration = "0 seconds") -> _Tumbling:
        """Windows of this size."""
        micros = positive_micros(size, "size", "tumbling windows")
        return cls(micros, _offset_micros(offset, micros, "tumbling windows"))

    def assign(self, row: Any, time: int) -> Sequence[TimeWindow]:
        """The one window that `time` is in."""
        start = time - (time - self.offset) % self.size
        return (TimeWindow(start, start + self.size),)


@dataclasses.dataclass(frozen=True)
class TumblingEventTimeWindows(_ByEventTime, TumblingWindows):
    """Tumbling windows of event time."""


@dataclasses.dataclass(frozen=True)
class TumblingProcessingTimeWindows(_ByProcessingTime, TumblingWindows):
    """Tumbling windows of processing time."""


@dataclasses.dataclass(frozen=True)
class SlidingWindows(WindowAssigner):
    """Windows of one size that start every `slide`, also called hopping windows; all in microseconds.

    With a slide shorter than the size a row is in several windows; with a longer one there are rows in none.
    """

    size: int
    slide: int
    offset: int

    @classmethod
    def of(cls: type[_Sliding], size: Duration, slide: Duration, offset: Duration = "0 seconds") -> _Sliding:
        """Windows of this size, one every `slide`."""
        micros = positive_micros(slide, "slide", "sliding windows")
        return cls(
            positive_micros(size, "size", "sliding windows"),
            micros,
            _offset_micros(offset, micros, "sliding windows"),
        )

    def assign(self, row: Any, time: int) -> Sequence[TimeWindow]:
        """The windows that `time` is in, earliest first.

        >>> SlidingEventTimeWindows(size=10, slide=4, offset=0).assign(None, 13)
        [TimeWindow(start=4, end=14), TimeWindow(start=8, end=18), TimeWindow(start=12, end=22)]
        """
        last = time - (time - self.offset) % self.slide
        starts = range(last, time - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in reversed(starts)]

    def grid(self) -> SliceGrid | None:
        """The slices that these windows share, or None if no two of them overlap."""
        return SliceGrid(self.size, self.slide, self.offset) if self.slide < self.size else None


@dataclasses.dataclass(frozen=True)
class SlidingEventTimeWindows(_ByEventTime, SlidingWindows):
    """Sliding windows of event time."""


@dataclasses.dataclass(frozen=True)
class SlidingProcessingTimeWindows(_ByProcessingTime, SlidingWindows):
    """Sliding windows of processing time."""


@dataclasses.dataclass(frozen=True)
class SessionWindows(WindowAssigner):
    """Windows that grow while rows come: one ends when no row came for a gap, in microseconds.

    Two rows exactly one gap apart are in one session.
    """

    is_merging: ClassVar[bool] = True

    gap: Callable[[Any], int]

    @classmethod
    def with_gap(cls: type[_Session], gap: Duration) -> _Session:
        """Sessions with the same gap after every row."""
        return cls(_FixedGap(positive_micros(gap, "gap", "session windows")))

    @classmethod
    def with_dynamic_gap(cls: type[_Session], gap: Callable[[Any], Duration]) -> _Session:
        """Sessions with a gap that `gap(row)` says for each row.

        >>> windows = EventTimeSessionWindows.with_dynamic_gap(lambda row: f"{row} seconds")
        >>> windows.assign(2, 0)
        (TimeWindow(start=0, end=2000000),)
        """
        if not callable(gap):
            raise StateDeclarationError(
                f"a dynamic gap is a function from a row to a duration, got {gap!r}: "
                f"write with_gap({gap!r}) for one gap",
                option="with_dynamic_gap",
            )
        return cls(_GapByRow(gap))

    @property
    def fixed_gap(self) -> int | None:
        """The gap, if it is the same after every row."""
        return self.gap.micros if isinstance(self.gap, _FixedGap) else None

    def assign(self, row: Any, time: int) -> Sequence[TimeWindow]:
        """The session of this row alone; those that overlap or touch are merged."""
        return (TimeWindow(time, time + self.gap(row)),)


@dataclasses.dataclass(frozen=True)
class _FixedGap:
    micros: int

    def __call__(self, row: Any) -> int:
        return self.micros


@dataclasses.dataclass(frozen=True)
class _GapByRow:
    function: Callable[[Any], Duration]

    def __call__(self, row: Any) -> int:
        return positive_micros(self.function(row), "gap", f"the session window of row {row!r:.200}")


@dataclasses.dataclass(frozen=True)
class EventTimeSessionWindows(_ByEventTime, SessionWindows):
    """Session windows of event time."""


@dataclasses.dataclass(frozen=True)
class ProcessingTimeSessionWindows(_ByProcessingTime, SessionWindows):
    """Session windows of processing time."""


@dataclasses.dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """All rows of a key in one window. It fires only by its trigger and is never late.

    >>> GlobalWindows().assign(None, 0)
    (GlobalWindow(),)
    """

    is_event_time: ClassVar[bool] = False
    window_type: ClassVar[type] = GlobalWindow

    def assign(self, row: Any, time: int) -> Sequence[GlobalWindow]:
        """The one window."""
        return (GlobalWindow(),)

    def default_trigger(self) -> Trigger:
        """Never fire."""
        return NeverTrigger()
