"""The interface of triggers: when a window's result is emitted, and when its content is dropped.

A trigger is asked for every row of a window and for every timer it registered for one. What it has to remember it
keeps in states of the window (`TriggerContext.get_partitioned_state`), named in `states`; so it remembers through
restarts, and one trigger object serves all keys and windows. Times are int64 microseconds. Triggers that are ready
to use are in `triggers`.

>>> TriggerResult.FIRE_AND_PURGE.is_fire, TriggerResult.FIRE.is_purge
(True, False)

Thread safety: the owner thread of the operator.
"""

from __future__ import annotations

import abc
import enum
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.state.descriptors import StateDescriptor


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
    """What a trigger can see and do, for the current key and one window."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def watermark(self) -> int:
        """The watermark; the least int64 before there is one."""

    @property
    @abc.abstractmethod
    def processing_time(self) -> int:
        """The transaction's processing time."""

    @abc.abstractmethod
    def register_event_time_timer(self, time: int) -> None:
        """Have `on_event_time` called for this window when the watermark reaches `time`; twice is once."""

    @abc.abstractmethod
    def register_processing_time_timer(self, time: int) -> None:
        """Have `on_processing_time` called for this window at `time`; twice is once."""

    @abc.abstractmethod
    def delete_event_time_timer(self, time: int) -> None:
        """Take a registration back, if there is one."""

    @abc.abstractmethod
    def delete_processing_time_timer(self, time: int) -> None:
        """Take a registration back, if there is one."""

    @abc.abstractmethod
    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """The state of this key and window."""

    @abc.abstractmethod
    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """In `on_merge` only: move what the merged windows have of a state into the window they became."""


class Trigger(abc.ABC):
    """When windows fire. Subclass it for triggers of your own."""

    @property
    def states(self) -> tuple[StateDescriptor, ...]:
        """The states that the trigger uses, so that they are known before the first row comes."""
        return ()

    @property
    def can_merge(self) -> bool:
        """Whether it works for windows that merge; it has `on_merge` then."""
        return False

    @property
    def may_purge(self) -> bool:
        """Whether it ever answers PURGE. Overlapping windows share their content unless they may be purged alone."""
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
            f"{type(self).__name__} does not work for windows that merge: it sets can_merge and has no on_merge"
        )

    @abc.abstractmethod
    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """The window is gone: clear the states and delete the timers that were made for it."""
