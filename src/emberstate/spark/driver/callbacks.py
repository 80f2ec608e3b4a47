"""What a user gives to be called: sinks and listeners, checked when the pipeline is built.

Thread safety: pure functions.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.spark.plan.pipeline import Listener, Sink

#: A call of such a function runs nothing of it.
_CALLED_IN_VAIN: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def checked_sink(sink: Sink) -> Sink:
    """The sink, if it can be called with a DataFrame and a batch id, and does something then."""
    _check(sink, ("df", "batch_id"), "sink")
    return sink


def checked_listener(listener: Listener) -> Listener:
    """The listener, if it can be called with the progress."""
    _check(listener, ("progress",), "listener")
    return listener


def _check(given: Any, arguments: tuple[str, ...], what: str) -> None:
    """Refuse what a call would fail with, or do nothing at all with, when the first batch is through."""
    wanted = f"a {what} is a function of {' and '.join(arguments)}, called as {what}({', '.join(arguments)})"
    if not callable(given):
        raise StateDeclarationError(f"{wanted}; found {given!r:.200}, which cannot be called")
    name = getattr(given, "__qualname__", type(given).__qualname__)
    method = given if inspect.isroutine(given) or isinstance(given, type) else type(given).__call__
    if any(is_one(method) for is_one in _CALLED_IN_VAIN):
        raise StateDeclarationError(f"{wanted}; {name} is async or a generator: a call would do nothing at all")
    try:
        inspect.signature(given).bind(*arguments)
    except TypeError as error:
        raise StateDeclarationError(f"{wanted}; {name}{inspect.signature(given)} cannot be: {error}") from None
    except ValueError:
        pass  # a function of C that does not say what it takes
