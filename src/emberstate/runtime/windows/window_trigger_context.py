"""`WindowTriggerContext`: the context of triggers, over the context of the runtime.

`window` is the window that calls are about, `merged` the windows that became it; the caller of a trigger sets both.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.rows.times import MIN_TIME
from emberstate.runtime.windows.trigger import EVENT, TriggerContext
from emberstate.state.descriptors import StateDescriptor

#: The name of all timers of windows: their namespace tells them apart.
WINDOW_TIMER: Final = "window"


class WindowTriggerContext(TriggerContext):
    """The context of all triggers of one operator."""

    __slots__ = ("_context", "_event", "_processing", "_states", "_window_type", "merged", "window")

    def __init__(self, context: FunctionContext, window_type: type) -> None:
        self._context = context
        self._event = context.timers.event
        self._processing = context.timers.processing
        self._window_type = window_type
        self._states: dict[str, tuple[StateDescriptor, Any, Any]] = {}  # see _known
        self.window: Any = None
        self.merged: tuple[Any, ...] = ()

    def now(self, domain: TimeDomain) -> int:
        """The watermark or the transaction's processing time."""
        if domain is EVENT:
            return self._context.watermark_micros
        micros = self._context.processing_time_micros
        return MIN_TIME if micros is None else micros

    def register_timer(self, domain: TimeDomain, time: int) -> None:
        """Register a timer of the window."""
        (self._event if domain is EVENT else self._processing).register(WINDOW_TIMER, time, self.window)

    def delete_timer(self, domain: TimeDomain, time: int) -> None:
        """Delete a timer of the window."""
        (self._event if domain is EVENT else self._processing).delete(WINDOW_TIMER, time, self.window)

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """The state of this key and window."""
        facing, internal = self._known(descriptor)
        # Each window has its own handle; made here, which saves the backend's checks.
        return facing(internal.with_namespace(self.window), descriptor)

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """Merge a state of the merged windows into that of the window they became."""
        _, state = self._known(descriptor)
        if not hasattr(state, "merge_namespaces"):
            raise StateDeclarationError(
                f"{descriptor.kind} state {descriptor.name!r} of a trigger cannot be merged: use a reducing, "
                f"aggregating or list state",
                state=descriptor.name,
                found=descriptor.kind,
            )
        state.merge_namespaces(self.window, self.merged)

    def _known(self, descriptor: StateDescriptor) -> tuple[Any, Any]:
        """The class of the user's handle on a state, and the backend's internal state."""
        known = self._states.get(descriptor.name)
        if known is None or known[0] is not descriptor:
            ask = descriptor, self.window
            facing = type(self._context.get_partitioned_state(*ask, namespace_type=self._window_type))
            internal = self._context.get_internal_state(*ask, namespace_type=self._window_type)
            known = self._states[descriptor.name] = (descriptor, facing, internal)
        return known[1:]
