"""The timers of one time domain, in microseconds: for the operator, and for functions such as windows.

Invariant: no timer of the queue is earlier than `next_time`; so one comparison tells whether a timer is due.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from datetime import datetime
from typing import Any, NamedTuple

from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.times import MAX_TIME, from_micros
from emberstate.state.timers import VOID_NAMESPACE, Timer, TimerQueue


class TimeDomain(enum.Enum):
    """Which time a timer waits for."""

    EVENT = "event time"
    PROCESSING = "processing time"


class KeyedTimer(NamedTuple):
    """A timer as `on_timer` gets it."""

    name: str
    micros: int
    key: Any
    namespace: Hashable
    domain: TimeDomain

    @property
    def time(self) -> datetime:
        """The time it was registered for."""
        return from_micros(self.micros)


class DomainTimers:
    """The timers of one domain; `refusal` says why none may be registered, or is None."""

    __slots__ = ("domain", "next_time", "queue", "refusal")

    domain: TimeDomain
    next_time: int
    queue: TimerQueue
    refusal: StateDeclarationError | None

    def __init__(self, queue: TimerQueue, domain: TimeDomain, refusal: StateDeclarationError | None) -> None:
        self.queue = queue
        self.domain = domain
        self.refusal = refusal
        self.next_time = MAX_TIME
        self.refresh()

    def register(self, name: str, micros: int, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer of the current key; False if it was there already."""
        if self.refusal is not None:
            raise self.refusal.reworded(str(self.refusal))  # a copy: an exception keeps its first traceback
        added = self.queue.register(micros, name, namespace)
        if micros < self.next_time:
            self.next_time = micros
        return added

    def delete(self, name: str, micros: int, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a timer of the current key; False if it was not there."""
        return self.queue.delete(micros, name, namespace)

    def of_current_key(self) -> list[KeyedTimer]:
        """The timers of the current key, in firing order."""
        return [self._keyed(timer) for timer in self.queue.timers_of_current_key()]

    def poll(self, until: int) -> KeyedTimer | None:
        """Take the next timer that is due at `until`, and make its key current; None if none is."""
        if self.next_time > until:
            return None
        timer = self.queue.poll(until)
        if timer is None:
            self.refresh()
            return None
        return self._keyed(timer)

    def refresh(self) -> None:
        """Read the queue again, after a restore or roll-back changed it."""
        head = self.queue.peek()
        self.next_time = MAX_TIME if head is None else head.time

    def _keyed(self, timer: Timer) -> KeyedTimer:
        return KeyedTimer(timer.name, timer.time, timer.key, timer.namespace, self.domain)
