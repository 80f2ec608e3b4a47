"""Checks a user's sinks and listeners when the pipeline is built.

Thread safety: pure functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.sinks.interface import Sink
from emberstate.spark.plan.pipeline import AnySink, Listener

#: A call of such a function runs none of its code.
_CALLED_IN_VAIN: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
#: What the promise of a sink begins with.
_PROMISES: Final = ("exactly-once", "at-least-once")


def checked_sinks(sinks: Sequence[AnySink]) -> tuple[AnySink, ...]:
    """The sinks; raises if a function cannot be called with a DataFrame and a batch id, or a call would do nothing."""
    for sink in sinks:
        if not isinstance(sink, Sink):
            _check(sink, ("df", "batch_id"), "sink")
        elif not str(getattr(sink, "promise", "")).startswith(_PROMISES):
            raise StateDeclarationError(
                f"sink {sink!r}: expected a promise that begins with one of {_PROMISES}, found "
                f"{getattr(sink, 'promise', None)!r}. Say in the class what it promises: promise = 'exactly-once'",
                option="promise",
                expected=_PROMISES,
                found=getattr(sink, "promise", None),
            )
    return tuple(sinks)


def checked_listener(listener: Listener) -> Listener:
    """The listener; raises if it cannot be called with the progress."""
    _check(listener, ("progress",), "listener")
    return listener


def _check(given: Any, arguments: tuple[str, ...], what: str) -> None:
    """Raise now instead of after the first batch."""
    wanted = f"a {what} is a function of {' and '.join(arguments)}, called as {what}({', '.join(arguments)})"
    if not callable(given):
        raise StateDeclarationError(f"{wanted}; got {given!r:.200}, which cannot be called", option=what)
    name = getattr(given, "__qualname__", type(given).__qualname__)
    method = given if inspect.isroutine(given) or isinstance(given, type) else type(given).__call__
    if any(is_one(method) for is_one in _CALLED_IN_VAIN):
        text = f"{wanted}; {name} is async or a generator: a call would do nothing"
        raise StateDeclarationError(text, option=what, found="async or a generator")
    try:
        inspect.signature(given).bind(*arguments)
    except TypeError as error:
        text = f"{wanted}; {name}{inspect.signature(given)} cannot: {error}"
        raise StateDeclarationError(text, option=what) from None
    except ValueError:
        pass  # a function of C without a signature
