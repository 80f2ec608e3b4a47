"""Triggers ready to use, as Flink's users know them.

>>> PurgingTrigger(CountTrigger(3))
PurgingTrigger(trigger=CountTrigger(count=3))

Immutable: what they remember is in the states of a window. The names of these states are stored in checkpoints.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.trigger import Trigger, TriggerContext, TriggerResult
from emberstate.state.descriptors import ReducingStateDescriptor, StateDescriptor
from emberstate.units import Duration, as_micros

CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE


class _ReadyTrigger(Trigger):
    """A trigger that merges, never purges, and ignores the timers of a domain unless it overrides their method."""

    can_merge: ClassVar[bool] = True
    may_purge: ClassVar[bool] = False

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Continue."""
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Continue."""
        return CONTINUE


class _EndTrigger(_ReadyTrigger):
    """Fires when the time of its domain passes the end of the window."""

    domain: ClassVar[TimeDomain]

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Wait for the end."""
        ctx.register_timer(self.domain, window.end)
        return CONTINUE

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Wait for the new end."""
        if window.end > ctx.now(self.domain):
            ctx.register_timer(self.domain, window.end)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Stop waiting."""
        ctx.delete_timer(self.domain, window.end)


@dataclasses.dataclass(frozen=True)
class EventTimeTrigger(_EndTrigger):
    """Fires when the watermark passes the end of the window, and for every late row after that."""

    domain: ClassVar[TimeDomain] = TimeDomain.EVENT

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire for a late row; otherwise wait for the end."""
        if window.end <= ctx.now(self.domain):
            return FIRE
        ctx.register_timer(self.domain, window.end)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end; the timer may be that of the clean-up."""
        return FIRE if time == window.end else CONTINUE


@dataclasses.dataclass(frozen=True)
class ProcessingTimeTrigger(_EndTrigger):
    """Fires when the processing time passes the end of the window."""

    domain: ClassVar[TimeDomain] = TimeDomain.PROCESSING

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end."""
        return FIRE


@dataclasses.dataclass(frozen=True)
class NeverTrigger(_ReadyTrigger):
    """Never fires."""

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Continue."""
        return CONTINUE

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Nothing to merge."""

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Nothing to clear."""


def _sum(old: int, new: int) -> int:
    return old + new


_COUNT = ReducingStateDescriptor("trigger-count", _sum, int)
_NEXT_FIRE = ReducingStateDescriptor("trigger-next-fire", min, int)


@dataclasses.dataclass(frozen=True)
class CountTrigger(_ReadyTrigger):
    """Fires whenever `count` more rows have come into the window."""

    states: ClassVar[tuple[StateDescriptor, ...]] = (_COUNT,)

    count: int

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            what = f"a CountTrigger fires after 1 or more rows, got {self.count!r}"
            raise StateDeclarationError(what, option="count")

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Count the row, and fire when there are enough."""
        counted = ctx.get_partitioned_state(_COUNT)
        counted.add(1)
        if counted.get() < self.count:
            return CONTINUE
        counted.clear()
        return FIRE

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Add the counts."""
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Forget the count."""
        ctx.get_partitioned_state(_COUNT).clear()


@dataclasses.dataclass(frozen=True, init=False)
class _ContinuousTrigger(_ReadyTrigger):
    """Fires at the multiples of `interval` in the time of its domain; a state has the time of the next firing."""

    domain: ClassVar[TimeDomain]
    states: ClassVar[tuple[StateDescriptor, ...]] = (_NEXT_FIRE,)

    interval: int

    def __init__(self, interval: Duration) -> None:
        object.__setattr__(self, "interval", _interval(interval))

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Fire next when the first of the merged windows would have."""
        ctx.merge_partitioned_state(_NEXT_FIRE)
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE).get()
        if next_fire is not None:
            ctx.register_timer(self.domain, next_fire)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Drop the next firing."""
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE)
        time = next_fire.get()
        if time is not None:
            ctx.delete_timer(self.domain, time)
            next_fire.clear()

    def _fire_at(self, time: int, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_NEXT_FIRE).add(time)
        ctx.register_timer(self.domain, time)


@dataclasses.dataclass(frozen=True, init=False)
class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires every `interval` of event time (at its multiples), at the end of the window, and for late rows.

    It fires whether or not rows came in between. In a window without end it waits for the next row after each firing:
    otherwise the end of the input would make it fire for ever.
    """

    domain: ClassVar[TimeDomain] = TimeDomain.EVENT

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire for a late row; otherwise register the next firing if none is."""
        if window.end <= ctx.now(self.domain):
            return FIRE
        ctx.register_timer(self.domain, window.end)
        if ctx.get_partitioned_state(_NEXT_FIRE).get() is None:
            self._register_next(timestamp, window, ctx)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire if the timer is for the next firing or the end."""
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE)
        if time != window.end and next_fire.get() != time:
            return CONTINUE
        next_fire.clear()
        if time < window.end < MAX_TIME:
            self._register_next(time, window, ctx)
        return FIRE

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Drop the next firing and the one at the end."""
        ctx.delete_timer(self.domain, window.end)
        super().clear(window, ctx)

    def _register_next(self, after: int, window: Any, ctx: TriggerContext) -> None:
        self._fire_at(min(after - after % self.interval + self.interval, window.end), ctx)


@dataclasses.dataclass(frozen=True, init=False)
class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires every `interval` of processing time (at its multiples) while the window lives."""

    domain: ClassVar[TimeDomain] = TimeDomain.PROCESSING

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Register the next firing if none is."""
        if ctx.get_partitioned_state(_NEXT_FIRE).get() is None:
            self._register_next(window, ctx)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire if the timer is for the next firing."""
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE)
        if next_fire.get() != time:
            return CONTINUE
        next_fire.clear()
        self._register_next(window, ctx)
        return FIRE

    def _register_next(self, window: Any, ctx: TriggerContext) -> None:
        # From now, not from the last firing: after a pause the same result would be emitted many times.
        now = ctx.now(self.domain)
        time = now - now % self.interval + self.interval
        # The last firing is at the window's end. A window of event time may have ended long ago by the clock: then
        # its end bounds nothing, and a timer for it would fire at once, for ever.
        if now < window.end:
            time = min(time, window.end)
        self._fire_at(time, ctx)


@dataclasses.dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """Acts as another trigger, and drops the window's content whenever that one fires."""

    trigger: Trigger

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, Trigger):
            what = f"a PurgingTrigger is made of another trigger, got {self.trigger!r}"
            raise StateDeclarationError(what, option="trigger")

    @property
    def states(self) -> tuple[StateDescriptor, ...]:
        """The states of the other trigger."""
        return self.trigger.states

    @property
    def can_merge(self) -> bool:
        """As the other trigger."""
        return self.trigger.can_merge

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """As the other, purging."""
        return _purging(self.trigger.on_element(row, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """As the other, purging."""
        return _purging(self.trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """As the other, purging."""
        return _purging(self.trigger.on_processing_time(time, window, ctx))

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """As the other."""
        self.trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """As the other."""
        self.trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire else result


def _interval(value: Duration) -> int:
    micros = as_micros(value, "interval", "a continuous trigger")
    if micros <= 0:
        what = f"interval of a continuous trigger must be positive, got {value!r}"
        raise StateDeclarationError(what, option="interval")
    return micros
