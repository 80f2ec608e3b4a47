"""`FunctionHost`: checks a user's function once, as a prototype, and copies, opens and closes working copies of it.

Thread safety: the operator's thread.
"""

from __future__ import annotations

import copy
import inspect
import logging
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from emberstate.errors import EmberstateError, RowTypeError, StateDeclarationError, UserFunctionError
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_columns import DeclaredColumns
from emberstate.runtime.functions.function import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    overrides,
)

logger = logging.getLogger("emberstate.runtime")

_METHODS = (
    "open",
    "close",
    "on_timer",
    "process_element",
    "process_batch",
    "process_arrow",
    "process_late_element",
    "process_element1",
    "process_element2",
    "process_late_element1",
    "process_late_element2",
    "process_broadcast_element",
)
#: Frames of the user's traceback in the message, which is all that other processes see.
_FRAMES = 20


class FunctionHost:
    """Makes working copies of a function, and says what they implement."""

    def __init__(self, operator_name: str, prototype: ProcessFunction) -> None:
        self.operator_name = operator_name
        self.label = type(prototype).__qualname__
        _check(operator_name, prototype)
        self._prototype = self._copied(prototype)  # the caller may change its own
        self.two_inputs = isinstance(prototype, KeyedCoProcessFunction)
        self.has_broadcast = isinstance(prototype, KeyedBroadcastProcessFunction)
        self.by_batch = overrides(prototype, "process_batch")
        self.by_arrow = overrides(prototype, "process_arrow")
        self.has_timers = overrides(prototype, "on_timer")
        self.timer_namespace_type = prototype.timer_namespace_type
        names = ("1", "2") if self.two_inputs else ("",)
        self.elements = tuple(f"process_element{name}" for name in names)
        if not self.two_inputs and not overrides(prototype, "process_element"):
            self.elements = ("process_arrow",) if self.by_arrow else ("process_batch",)
        late = [f"process_late_element{name}" for name in names]
        #: By input: the method for late rows, or None if they are dropped.
        self.late = tuple(name if overrides(prototype, name) else None for name in late)

    def declared(self) -> ProcessFunction:
        """Return the prototype: its class has the declared states."""
        return self._prototype

    def make(self, context: FunctionContext, handles: dict[str, Any]) -> ProcessFunction:
        """Return a new, open copy with its states."""
        function = self._copied(self._prototype)
        function.__dict__.update(handles)
        try:
            function.open(context)
        except Exception as error:
            raise self.failure(error, "open", []) from error
        return function

    def dispose(self, function: ProcessFunction) -> None:
        """Close a copy and take its states away. Logs an error of `close`: there is nothing to undo."""
        try:
            function.close()
        except Exception:
            logger.exception("operator %r: %s.close raised", self.operator_name, self.label)
        for attribute in type(function)._declared:
            function.__dict__.pop(attribute, None)

    def failure(self, error: Exception, method: str, place: list[tuple[str, Any]]) -> Exception:
        """Return the error to raise for an exception of the function, with its place and its own traceback."""
        where = f"operator {self.operator_name!r}, {self.label}.{method}"
        details = "".join(f"\n  {what}: {value!r:.1000}" for what, value in place)
        key = dict(place).get("key")
        if isinstance(error, RowTypeError):
            return error.reworded(f"{where}: {error}{details}").located(operator=self.operator_name, key=key)
        trace = users_frames(error.__traceback__)
        shown = "".join(traceback.format_exception(type(error), error, trace, limit=-_FRAMES)).rstrip()
        raised = UserFunctionError(
            f"{where} raised {type(error).__name__}: {error}{details}\n{shown}", operator=self.operator_name, key=key
        )
        return raised.located(**error.place) if isinstance(error, EmberstateError) else raised

    def _copied(self, prototype: ProcessFunction) -> ProcessFunction:
        try:
            return copy.deepcopy(prototype)
        except Exception as error:
            raise StateDeclarationError(
                f"operator {self.operator_name!r}: {self.label} cannot be copied ({type(error).__name__}: {error}). A "
                f"function is made anew when a transaction is rolled back: make connections, locks and files in open()",
                operator=self.operator_name,
                option="__deepcopy__",
            ) from error


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the user's first frame on, or all of it if there is none."""
    frame = trace
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith("emberstate."):
        frame = frame.tb_next
    return trace if frame is None else frame


def _check(operator_name: str, function: Any) -> None:
    """Reject a function that cannot run."""
    where = f"operator {operator_name!r}"
    if isinstance(function, type):
        what = f"{where} needs an instance, found the class: write {function.__qualname__}()"
        raise StateDeclarationError(what, operator=operator_name, expected="an instance", found=function.__qualname__)
    if not isinstance(function, ProcessFunction):
        raise StateDeclarationError(
            f"{where} needs a KeyedProcessFunction or one of its siblings, found {function!r:.200}",
            operator=operator_name,
            expected="KeyedProcessFunction",
            found=type(function).__qualname__,
        )
    label = type(function).__qualname__
    needed: tuple[str, ...] = ()
    if isinstance(function, KeyedCoProcessFunction):
        needed = ("process_element1", "process_element2")
    elif not isinstance(function, KeyedProcessFunction):
        raise StateDeclarationError(
            f"{where}: {label} must be a KeyedProcessFunction, KeyedCoProcessFunction or KeyedBroadcastProcessFunction",
            operator=operator_name,
            expected="KeyedProcessFunction",
            found=label,
        )
    elif not overrides(function, "process_batch") and not overrides(function, "process_arrow"):
        needed = ("process_element",)
    if isinstance(function, KeyedBroadcastProcessFunction):
        needed += ("process_broadcast_element",)
    for name in needed:
        if not overrides(function, name):
            what = f"{where}: {label} has no {name}: define it, its rows would go nowhere"
            raise StateDeclarationError(what, operator=operator_name, option=name)
    _check_arrow(where, operator_name, function)
    for name in _METHODS:
        method: Callable[..., Any] | None = getattr(function, name, None)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            what = f"{where}: {label}.{name} is async; write it as an ordinary method"
            raise StateDeclarationError(what, operator=operator_name, option=name, found="async")


#: What a function with `process_arrow` has no use for: it gets all rows there, and registers no timers.
_NOT_WITH_ARROW = ("process_element", "process_batch", "process_late_element", "process_broadcast_element", "on_timer")


def _check_arrow(where: str, operator_name: str, function: ProcessFunction) -> None:
    """Reject a function that mixes `process_arrow`, or its states, with anything else."""
    label = type(function).__qualname__
    by_arrow = overrides(function, "process_arrow")
    for name in _NOT_WITH_ARROW if by_arrow else ():
        if overrides(function, name):
            raise StateDeclarationError(
                f"{where}: {label} has process_arrow, which gets all rows that are not late, and {name}, which would "
                f"never be called: leave one of them out",
                operator=operator_name,
                option=name,
            )
    for attribute, state in type(function)._declared.items():
        if isinstance(state, DeclaredColumns) != by_arrow:
            what = (
                "is no column_state: process_arrow has no current key, declare it with column_state"
                if by_arrow
                else "is a column_state, which process_arrow alone can use: declare it with value_state"
            )
            name = state.declaration.descriptor.name
            raise StateDeclarationError(
                f"{where}: {label}.{attribute} {what}", operator=operator_name, state=name, option=attribute
            )
