"""`WindowFunction`: windows as a function of the runtime, over namespaces; the base of all kinds of windows.

A row goes into its windows, unless they are past their clean-up time: the end plus the allowed lateness. Then the
trigger is asked; if it fires, the window's elements become output rows. A row whose windows are all past is late:
counted and dropped, or sent to the late output. A timer at the clean-up time drops all there is of a window.

A window's timers and those of its trigger have the window as namespace and one name, so that a firing at the
clean-up time is one timer: it fires first and is cleaned up then.

If the allowed lateness is changed between two runs, windows that wait for their old clean-up time are cleaned up
then, or wait on for the new one.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Hashable, Mapping
from typing import Any, Final

from emberstate.errors import LifecycleError
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer, TimeDomain
from emberstate.runtime.functions.function import KeyedProcessFunction, Outputs
from emberstate.runtime.operator.loop import collect
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.runtime.windows.assigners import WindowAssigner
from emberstate.runtime.windows.process_window_function import ProcessWindowFunction, WindowContext
from emberstate.runtime.windows.time_window import GlobalWindow, TimeWindow
from emberstate.runtime.windows.trigger import Trigger, TriggerResult
from emberstate.runtime.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from emberstate.runtime.windows.window_state import WindowState, window_state_for
from emberstate.runtime.windows.window_trigger_context import WindowTriggerContext
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.timers import VOID_NAMESPACE

logger = logging.getLogger("emberstate.runtime.windows")

#: Counters of an operator with windows.
FIRINGS: Final = "window_firings"
LATE_ROWS_DROPPED: Final = "late_rows_dropped"

#: A namespace of every type, to register states with before there is a window.
_SOME: Final[Mapping[Any, Hashable]] = {
    TimeWindow: TimeWindow(0, 0),
    GlobalWindow: GlobalWindow(),
    str: VOID_NAMESPACE,
}


@dataclasses.dataclass(frozen=True, slots=True)
class WindowSpec:
    """The parts of a window function; `window` makes and checks it."""

    assigner: WindowAssigner
    trigger: Trigger
    allowed_lateness: int
    late_output: str | None
    contents: StateDescriptor
    function: ProcessWindowFunction | None

    @property
    def fires_at_end(self) -> bool:
        """Whether windows fire at their end only: then a row that is in time has registered a timer for it."""
        return type(self.trigger) is (EventTimeTrigger if self.assigner.is_event_time else ProcessingTimeTrigger)


class WindowFunction(KeyedProcessFunction):
    """Puts rows into windows, and emits rows when windows fire."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.timer_namespace_type = spec.assigner.window_type

    # -- declared before anything runs ----------------------------------------------------------------------

    def declared_states(self) -> list[Declaration]:
        """The states of contents, trigger and function."""
        window_type = self.spec.assigner.window_type
        states = [self.spec.contents, *self.spec.trigger.states]
        found = [Declaration(state, window_type) for state in states]
        if self.spec.function is not None:
            found += [Declaration(state, window_type) for state in self.spec.function.window_states]
            found += [Declaration(state) for state in self.spec.function.global_states]
        return found

    # -- the runtime's calls --------------------------------------------------------------------------------

    def open(self, ctx: FunctionContext) -> None:
        """Register all states, and open the user's function."""
        self._ctx = ctx
        for declared in self.declared_states():
            self._internal(declared.descriptor, declared.namespace_type)
        self._is_event_time = self.spec.assigner.is_event_time
        self._lateness = self.spec.allowed_lateness
        self._trigger = self.spec.trigger
        self._end_is_cleanup = self.spec.fires_at_end and self.spec.allowed_lateness == 0
        self._trigger_context = WindowTriggerContext(ctx, self.spec.assigner.window_type)
        self._warned = False
        function = self.spec.function
        if function is not None:
            self._window_context = WindowContext(ctx, function)
            function.open(ctx)

    def close(self) -> None:
        """Close the user's function."""
        if self.spec.function is not None:
            self.spec.function.close()

    def process_element(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Add a row to its windows."""
        time = ctx.timestamp_micros if self._is_event_time else ctx.processing_time_micros
        if time is None:
            raise LifecycleError(
                f"{type(self.spec.assigner).__name__} need the event time of every row and this one has none: declare "
                f"which column it is, or use windows of processing time. The row: {row!r:.200}",
                option="event_time",
            )
        out: list[Any] = []
        if not self._take(row, time, out):
            self._drop_late(row)
        return out

    #: The windows decide whether a row is too late.
    process_late_element = process_element

    def on_timer(self, timer: KeyedTimer, ctx: FunctionContext) -> Outputs:
        """Ask the trigger, and clean up a window that is past."""
        out: list[Any] = []
        domain_of_windows = (timer.domain is TimeDomain.EVENT) == self._is_event_time
        self._fire_timer(timer, domain_of_windows and timer.micros >= self._cleanup_time(timer.namespace), out)
        return out

    # -- for the kinds of windows ---------------------------------------------------------------------------

    def _take(self, row: Any, time: int, out: list[Any]) -> bool:
        """Add a row; return False if it is late for all its windows."""
        raise NotImplementedError

    def _fire_timer(self, timer: KeyedTimer, is_cleanup: bool, out: list[Any]) -> None:
        """Handle a timer of a window; with `is_cleanup` the window is closed afterwards."""
        raise NotImplementedError

    def _internal(self, descriptor: StateDescriptor, namespace_type: Any) -> Any:
        """Return a backend's state; the caller binds it to a namespace."""
        return self._ctx.get_internal_state(descriptor, _SOME[namespace_type], namespace_type=namespace_type)

    def _window_state(self) -> WindowState:
        contents = self.spec.contents
        return window_state_for(self._internal(contents, self.spec.assigner.window_type), contents)

    def _cleanup_time(self, window: Any) -> int:
        """Return when a window is dropped; `MAX_TIME` means never."""
        end: int = window.end
        return min(end + self.spec.allowed_lateness, MAX_TIME)

    def _is_late(self, window: Any) -> bool:
        """Whether a window is past its clean-up time, so that it takes no more rows."""
        return self._is_event_time and window.end + self._lateness <= self._ctx.event_now

    def _on_element(self, row: Any, window: Any) -> TriggerResult:
        """Return the trigger's decision on a row; the trigger sees its event time, or the processing time."""
        context, time = self._trigger_context, self._ctx.timestamp_micros
        context.window = window
        return self._trigger.on_element(row, context.processing_time if time is None else time, window, context)

    def _await_end(self, window: Any) -> None:
        """Set the timer of a window's end."""
        context = self._trigger_context
        context.window = window
        if self._is_event_time:
            context.register_event_time_timer(window.end)
        else:
            context.register_processing_time_timer(window.end)

    def _await_cleanup(self, window: Any) -> None:
        time = self._cleanup_time(window)
        if time < MAX_TIME:
            self._trigger_context.window = window
            if self._is_event_time:
                self._trigger_context.register_event_time_timer(time)
            else:
                self._trigger_context.register_processing_time_timer(time)

    def _asked(self, timer: KeyedTimer, window: Any) -> TriggerResult:
        """Return the trigger's decision on a timer of a window."""
        context = self._trigger_context
        context.window = window
        if timer.domain is TimeDomain.EVENT:
            return self._trigger.on_event_time(timer.micros, window, context)
        return self._trigger.on_processing_time(timer.micros, window, context)

    def _emit(self, window: Any, elements: list[Any], out: list[Any]) -> None:
        """Emit the rows of a window's elements; an empty window emits none."""
        if not elements:
            return
        self._ctx.count(FIRINGS)
        function = self.spec.function
        if function is None:
            out += [e if isinstance(e, tuple | Mapping) else (e,) for e in elements]
            return
        self._window_context.window = window
        result = function.process(self._ctx.key, self._window_context, elements)
        if result is not None:
            collect(result, out)

    def _clear_user_states(self, window: Any) -> None:
        function = self.spec.function
        if function is not None:
            self._window_context.window = window
            for descriptor in function.window_states:
                self._window_context.window_state(descriptor).clear()

    def _drop_late(self, row: Any) -> None:
        if self.spec.late_output is not None:
            self._ctx.output(self.spec.late_output, row)
            return
        self._ctx.count(LATE_ROWS_DROPPED)
        if not self._warned:
            self._warned = True
            logger.warning(
                "Operator %r drops rows that are too late for their windows (key %r at first); counter %s says how "
                "many. Allow more lateness, or give a late output to see them.",
                self._ctx.operator_name,
                self._ctx.key,
                LATE_ROWS_DROPPED,
            )
