"""`WindowTriggerContext`: what a trigger can do, done by the runtime's context.

`window` says which window everything is about, `merged` which windows became it; whoever calls a trigger sets them.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.rows.times import MIN_TIME
from emberstate.runtime.windows.trigger import TriggerContext
from emberstate.state.descriptors import StateDescriptor

#: The name of all timers of windows: their namespace tells them apart.
WINDOW_TIMER: Final = "window"


class WindowTriggerContext(TriggerContext):
    """The context of all triggers of one operator."""

    __slots__ = ("_context", "_states", "_timers", "_window_type", "merged", "window")

    def __init__(self, context: FunctionContext, window_type: type) -> None:
        self._context = context
        self._timers = context.timers
        self._window_type = window_type
        self._states: dict[str, tuple[StateDescriptor, Any, Any]] = {}  # see _known
        self.window: Any = None
        self.merged: tuple[Any, ...] = ()

    @property
    def watermark(self) -> int:
        """The watermark."""
        return self._context.watermark_micros

    @property
    def processing_time(self) -> int:
        """The transaction's processing time."""
        micros = self._context.processing_time_micros
        return MIN_TIME if micros is None else micros

    def register_event_time_timer(self, time: int) -> None:
        """Register a timer of the window."""
        self._timers.event.register(WINDOW_TIMER, time, self.window)

    def register_processing_time_timer(self, time: int) -> None:
        """Register a timer of the window."""
        self._timers.processing.register(WINDOW_TIMER, time, self.window)

    def delete_event_time_timer(self, time: int) -> None:
        """Delete a timer of the window."""
        self._timers.event.delete(WINDOW_TIMER, time, self.window)

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a timer of the window."""
        self._timers.processing.delete(WINDOW_TIMER, time, self.window)

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """The state of this key and window."""
        facing, internal = self._known(descriptor)
        # Another window is another handle; made here, without what the backend checks when it is asked.
        return facing(internal.with_namespace(self.window), descriptor)

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """Move what the merged windows have into the window they became."""
        _, state = self._known(descriptor)
        if not hasattr(state, "merge_namespaces"):
            raise StateDeclarationError(
                f"{descriptor.kind} state {descriptor.name!r} of a trigger cannot be merged: use a reducing, "
                f"aggregating or list state"
            )
        state.merge_namespaces(self.window, self.merged)

    def _known(self, descriptor: StateDescriptor) -> tuple[Any, Any]:
        """The class of a state's handles for users, and a handle of the backend."""
        known = self._states.get(descriptor.name)
        if known is None or known[0] is not descriptor:
            ask = descriptor, self.window
            facing = type(self._context.get_partitioned_state(*ask, namespace_type=self._window_type))
            internal = self._context.get_internal_state(*ask, namespace_type=self._window_type)
            known = self._states[descriptor.name] = (descriptor, facing, internal)
        return known[1:]
