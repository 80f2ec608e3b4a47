"""Timers as a function sees them: named, of the current key, in event time or in processing time.

A timer is identified by time, name and namespace; registering it twice is one timer. Timers fire in order of
time, then key, name and namespace.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import datetime

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.domain_timers import DomainTimers, KeyedTimer, TimeDomain
from emberstate.runtime.rows.times import to_micros
from emberstate.state.timers import VOID_NAMESPACE, TimerQueue


class TimerService:
    """`ctx.timers`: the timers of the current key.

    Times are aware datetimes. Event-time timers fire when the watermark reaches them, processing-time timers
    in the first transaction whose processing time does. A timer registered for a time that has passed fires
    as soon as the row or timer at hand is done.
    """

    __slots__ = ("event", "processing")

    def __init__(
        self,
        make_queue: Callable[[TimeDomain], TimerQueue],
        refusals: Mapping[TimeDomain, StateDeclarationError | None],
    ) -> None:
        self.event, self.processing = (
            DomainTimers(make_queue(domain), domain, refusals[domain])
            for domain in (TimeDomain.EVENT, TimeDomain.PROCESSING)
        )

    def register_event_time(self, name: str, when: datetime, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer: `on_timer` is called when event time reaches `when`. False if it existed already."""
        return self.event.register(name, to_micros(when, "when", f"timer {name!r}"), namespace)

    def register_processing_time(self, name: str, when: datetime, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer: `on_timer` is called when processing time reaches `when`. False if it existed already."""
        return self.processing.register(name, to_micros(when, "when", f"timer {name!r}"), namespace)

    def delete_event_time(self, name: str, when: datetime, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete an event-time timer; False if there was none."""
        return self.event.delete(name, to_micros(when, "when", f"timer {name!r}"), namespace)

    def delete_processing_time(self, name: str, when: datetime, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a processing-time timer; False if there was none."""
        return self.processing.delete(name, to_micros(when, "when", f"timer {name!r}"), namespace)

    def list_event_time(self) -> list[KeyedTimer]:
        """The event-time timers of the current key, in firing order."""
        return self.event.of_current_key()

    def list_processing_time(self) -> list[KeyedTimer]:
        """The processing-time timers of the current key, in firing order."""
        return self.processing.of_current_key()
