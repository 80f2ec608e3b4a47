"""Time to live: how long the content of a state stays visible, and the clock it is compared with.

A value (a list's element, a map's user value) is stamped when it is written; it has expired when
`stamp + duration <= now`. Times are int64 microseconds. The operator sets `now` once per transaction, so that a rerun
sees the same time: nothing here reads the system's clock.

>>> from datetime import timedelta
>>> config = TtlConfig(timedelta(seconds=10))
>>> config.expired(1_000_000, 10_999_999), config.expired(1_000_000, 11_000_000)
(False, True)
"""

from __future__ import annotations

import dataclasses
import enum
from datetime import timedelta

from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.units import Duration, as_duration

_MICROSECOND = timedelta(microseconds=1)
_LONGEST = 2**63 - 1  # in microseconds: what files hold


class TtlTime(enum.Enum):
    """The time that counts."""

    PROCESSING = "processing"
    EVENT = "event"


class TtlUpdate(enum.Enum):
    """What renews a value's stamp."""

    ON_CREATE_AND_WRITE = "on create and write"
    ON_READ_AND_WRITE = "on read and write"


class TtlVisibility(enum.Enum):
    """Whether reads return expired content until it is cleaned up."""

    NEVER_RETURN_EXPIRED = "never return expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return expired if not cleaned up"


@dataclasses.dataclass(frozen=True, slots=True)
class TtlConfig:
    """How long a state's content lives."""

    duration: timedelta
    update: TtlUpdate
    visibility: TtlVisibility
    time: TtlTime

    def __init__(
        self,
        duration: Duration,
        update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE,
        visibility: TtlVisibility = TtlVisibility.NEVER_RETURN_EXPIRED,
        time: TtlTime = TtlTime.PROCESSING,
    ) -> None:
        lifetime = as_duration(duration, "duration", "a TtlConfig")
        if lifetime <= timedelta(0):
            raise StateDeclarationError(f"a time to live must be positive, got {duration!r}", option="duration")
        if lifetime // _MICROSECOND > _LONGEST:
            raise StateDeclarationError(
                f"a time to live of {duration!r} does not fit in 64 bits of microseconds: "
                f"leave it out for state that never expires",
                option="duration",
            )
        for name, value in (("duration", lifetime), ("update", update), ("visibility", visibility), ("time", time)):
            object.__setattr__(self, name, value)  # the class is frozen

    @property
    def micros(self) -> int:
        """The duration in microseconds."""
        return self.duration // _MICROSECOND

    def expired(self, stamp: int, now: int) -> bool:
        """Whether what was stamped at `stamp` has expired at `now`."""
        return stamp + self.micros <= now


class TtlClock:
    """The transaction's time, in microseconds, for stamps and expiry."""

    __slots__ = ("event_time", "processing_time")

    def __init__(self) -> None:
        self.processing_time: int | None = None
        self.event_time: int | None = None

    def reading(self, time: TtlTime) -> int | None:
        """Return the current time, or None while it is not set."""
        return self.processing_time if time is TtlTime.PROCESSING else self.event_time

    def stopped(self) -> TtlClock:
        """Return a clock that keeps the current time."""
        clock = TtlClock()
        clock.processing_time = self.processing_time
        clock.event_time = self.event_time
        return clock

    def now(self, time: TtlTime) -> int:
        """Return the current time; raise if it is not set."""
        micros = self.reading(time)
        if micros is None:
            raise LifecycleError(
                f"a state with time to live was used before the {time.value} time was set: set "
                f"backend.ttl_clock.{time.value}_time at the start of the transaction",
                option=f"{time.value}_time",
            )
        return micros
