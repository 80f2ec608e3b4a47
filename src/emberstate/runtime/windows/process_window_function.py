"""`ProcessWindowFunction`: a user's function from a window's content, with its key and window, to output rows.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.function import Outputs
from emberstate.state.descriptors import StateDescriptor


class ProcessWindowFunction:
    """Makes output rows of a window that fires.

    States are named in `window_states` (of a key and window; cleared with the window) and `global_states` (of a
    key, through all its windows), and reached through the context.

    >>> from emberstate.state.descriptors import ValueStateDescriptor
    >>> class Busiest(ProcessWindowFunction):
    ...     record = ValueStateDescriptor("record", int, default=0)
    ...     global_states = (record,)
    ...
    ...     def process(self, key, ctx, elements):
    ...         record = ctx.global_state(self.record)
    ...         if len(elements) > record.value():
    ...             record.update(len(elements))
    ...             yield key, ctx.window.start_time, len(elements)
    """

    window_states: tuple[StateDescriptor, ...] = ()
    global_states: tuple[StateDescriptor, ...] = ()

    def open(self, ctx: FunctionContext) -> None:
        """Called once, before any window."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Outputs:
        """Return or yield the output rows of a window, as `KeyedProcessFunction.process_element` does.

        `elements` are the rows of the window or, after `reduce` or `aggregate`, the one result. They are copies.
        """
        raise NotImplementedError


class WindowContext:
    """What a `ProcessWindowFunction` gets as `ctx`."""

    __slots__ = ("_context", "_function", "window")

    def __init__(self, context: FunctionContext, function: ProcessWindowFunction) -> None:
        self._context = context
        self._function = function
        #: The window that fires.
        self.window: Any = None

    @property
    def watermark(self) -> datetime | None:
        """The watermark; None while there is none."""
        return self._context.watermark

    @property
    def processing_time(self) -> datetime:
        """The transaction's time."""
        return self._context.processing_time

    def output(self, name: str, row: Any) -> None:
        """Put a row into a side output."""
        self._context.output(name, row)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the operator."""
        self._context.count(name, by)

    def window_state(self, descriptor: StateDescriptor) -> Any:
        """A state of the key and this window, one of `window_states`."""
        self._check_declared(descriptor, self._function.window_states, "window_states")
        return self._context.get_partitioned_state(descriptor, self.window, namespace_type=type(self.window))

    def global_state(self, descriptor: StateDescriptor) -> Any:
        """A state of the key, shared by all its windows; one of `global_states`."""
        self._check_declared(descriptor, self._function.global_states, "global_states")
        return self._context.get_partitioned_state(descriptor)

    def _check_declared(self, descriptor: StateDescriptor, declared: tuple[StateDescriptor, ...], where: str) -> None:
        if not any(known is descriptor or known == descriptor for known in declared):
            name = getattr(descriptor, "name", descriptor)
            raise StateDeclarationError(
                f"{type(self._function).__qualname__} asks for state {name!r} and does not have it in its {where}: add "
                f"it there, so that it is known before the first row comes",
                state=str(name),
                option=where,
            )
