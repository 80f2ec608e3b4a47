"""The interface of triggers: when a window's result is emitted, and when its content is dropped.

The runtime calls a trigger for every row of a window and for every timer that it registered for one. A trigger keeps
what it remembers in states of the window (`TriggerContext.get_partitioned_state`), listed in `states`: so it survives
restarts, and one trigger object serves all keys and windows. Times are int64 microseconds. `triggers` has triggers
ready to use.

>>> TriggerResult.FIRE_AND_PURGE.is_fire, TriggerResult.FIRE.is_purge
(True, False)

Thread safety: the owner thread of the operator.
"""

from __future__ import annotations

import abc
import enum
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.state.descriptors import StateDescriptor

EVENT: Final = TimeDomain.EVENT
PROCESSING: Final = TimeDomain.PROCESSING


class TriggerResult(enum.Enum):
    """What to do with a window now."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    def __init__(self, is_fire: bool, is_purge: bool) -> None:
        self.is_fire = is_fire  # emit the window's result
        self.is_purge = is_purge  # drop the window's content; the window itself and the trigger's states stay


class TriggerContext(abc.ABC):
    """What a trigger can read and do, for the current key and one window."""

    __slots__ = ()

    @abc.abstractmethod
    def now(self, domain: TimeDomain) -> int:
        """The watermark or the transaction's processing time; the least int64 while there is none."""

    @abc.abstractmethod
    def register_timer(self, domain: TimeDomain, time: int) -> None:
        """Call the trigger back for this window when the domain's time reaches `time`; twice is once."""

    @abc.abstractmethod
    def delete_timer(self, domain: TimeDomain, time: int) -> None:
        """Delete a timer of this window, if it is registered."""

    @property
    def watermark(self) -> int:
        """The watermark; the least int64 while there is none."""
        return self.now(EVENT)

    @property
    def processing_time(self) -> int:
        """The transaction's processing time."""
        return self.now(PROCESSING)

    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` for this window when the watermark reaches `time`; twice is once."""
        self.register_timer(EVENT, time)

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` for this window at `time`; twice is once."""
        self.register_timer(PROCESSING, time)

    def delete_event_time_timer(self, time: int) -> None:
        """Delete an event-time timer of this window, if it is registered."""
        self.delete_timer(EVENT, time)

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a processing-time timer of this window, if it is registered."""
        self.delete_timer(PROCESSING, time)

    @abc.abstractmethod
    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """The state of this key and window."""

    @abc.abstractmethod
    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """In `on_merge` only: merge a state of the merged windows into that of the window they became."""


class Trigger(abc.ABC):
    """When windows fire. Subclass it for triggers of your own."""

    @property
    def states(self) -> tuple[StateDescriptor, ...]:
        """The states that the trigger uses; they are registered before the first row comes."""
        return ()

    @property
    def can_merge(self) -> bool:
        """Whether it works for windows that merge; if so, it implements `on_merge`."""
        return False

    @property
    def may_purge(self) -> bool:
        """Whether it ever returns PURGE. If not, overlapping windows share their content."""
        return True

    @abc.abstractmethod
    def on_element(self, row: Any, timestamp: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """A row came into the window; `timestamp` is its event time, or the processing time if it has none."""

    @abc.abstractmethod
    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """The watermark has reached a time that was registered for the window."""

    @abc.abstractmethod
    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """The processing time has reached a time that was registered for the window."""

    def on_merge(self, window: Any, ctx: TriggerContext) -> None:
        """Several windows have become `window`; the old ones are cleared right after."""
        raise StateDeclarationError(
            f"{type(self).__name__} does not work for windows that merge: it sets can_merge and has no on_merge",
            option="on_merge",
        )

    @abc.abstractmethod
    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """The window is gone: clear the states and delete the timers that were made for it."""
