"""The triggers of `emit="changed"` and `emit=es.every(…)`, and what partial rows look like to a user's trigger.

What a trigger fires for a row is emitted at the end of the transaction, once for a window (`windowed`).

Immutable: what they remember is in the states of a window.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Final

from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.trigger import EVENT, Trigger, TriggerContext, TriggerResult
from emberstate.state.descriptors import ReducingStateDescriptor, StateDescriptor

_NEXT_FIRE: Final = ReducingStateDescriptor("trigger-next-fire", min, int)


@dataclasses.dataclass(frozen=True)
class ChangedTrigger(Trigger):
    """Fires for every row, and at no time."""

    can_merge: ClassVar[bool] = True
    may_purge: ClassVar[bool] = False

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire."""
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Continue."""
        return TriggerResult.CONTINUE

    on_processing_time = on_event_time

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Nothing to merge."""

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Nothing to clear."""


@dataclasses.dataclass(frozen=True)
class EveryTrigger(Trigger):
    """Fires at the next multiple of `interval` after a row, at the window's end, and for rows that come later.

    The state has the time of the next early firing; while there is one, further rows wait for it.
    """

    can_merge: ClassVar[bool] = True
    may_purge: ClassVar[bool] = False
    states: ClassVar[tuple[StateDescriptor, ...]] = (_NEXT_FIRE,)

    interval: int
    domain: TimeDomain

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Wait for the next multiple and for the end; fire if the end is past."""
        now = ctx.now(self.domain)
        if window.end <= now:
            return TriggerResult.FIRE
        if window.end < MAX_TIME:
            ctx.register_timer(self.domain, window.end)
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE)
        if next_fire.get() is None:
            after = max(timestamp, now) if self.domain is EVENT else now
            time = min(after - after % self.interval + self.interval, window.end)
            next_fire.add(time)
            ctx.register_timer(self.domain, time)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end, and when an early firing is due."""
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE)
        if next_fire.get() == time:
            next_fire.clear()
            return TriggerResult.FIRE
        return TriggerResult.FIRE if time == window.end else TriggerResult.CONTINUE

    on_processing_time = on_event_time

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Fire next when the first of the merged windows would have, and at the new end."""
        ctx.merge_partitioned_state(_NEXT_FIRE)
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE).get()
        if next_fire is not None:
            ctx.register_timer(self.domain, next_fire)
        if window.end > ctx.now(self.domain):
            ctx.register_timer(self.domain, window.end)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Drop the next firing and the one at the end."""
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE)
        time = next_fire.get()
        if time is not None:
            ctx.delete_timer(self.domain, time)
            next_fire.clear()
        ctx.delete_timer(self.domain, window.end)


@dataclasses.dataclass(frozen=True)
class WholeRowTrigger(Trigger):
    """A user's trigger, which sees the input row of a partial row."""

    trigger: Trigger
    #: The place of the input row.
    whole: int

    @property
    def states(self) -> tuple[StateDescriptor, ...]:
        """As the user's."""
        return self.trigger.states

    @property
    def can_merge(self) -> bool:
        """As the user's."""
        return self.trigger.can_merge

    @property
    def may_purge(self) -> bool:
        """As the user's."""
        return self.trigger.may_purge

    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """As the user's, for the input row."""
        return self.trigger.on_element(row[self.whole], timestamp, window, ctx)

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """As the user's."""
        return self.trigger.on_event_time(time, window, ctx)

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """As the user's."""
        return self.trigger.on_processing_time(time, window, ctx)

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """As the user's."""
        self.trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """As the user's."""
        self.trigger.clear(window, ctx)
