"""A failure on its way from the slot to the task: an exception as text, and an exception again.

Exceptions are not pickled: the class may be one that only the slot's process has. A class of `emberstate.errors`
stays what it is, anything else becomes a `UserFunctionError` with its traceback.

Thread safety: pure functions.
"""

from __future__ import annotations

import traceback
from typing import Final

from emberstate import errors
from emberstate.errors import EmberstateError, RowTypeError, UserFunctionError
from emberstate.runtime.function_host import users_frames
from emberstate.spark.slot_request import SlotFailure

#: Longer messages lose their middle: they pass through Spark's own messages and logs.
MAX_MESSAGE: Final = 1024 * 1024
#: Where the traceback begins in a message that has one.
TRACEBACK: Final = "\nTraceback (most recent call last)"


def failure_of(error: BaseException, where: str) -> SlotFailure:
    """What to say of an exception that was caught in the slot."""
    kind = _known_class(type(error))
    number = error.errno if isinstance(error, OSError) else None
    if kind is None:
        message = f"{type(error).__name__}: {error}\n  in: {where}\n{users_traceback(error)}"
        return SlotFailure(UserFunctionError.__name__, shortened(message))
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if kind in (UserFunctionError, RowTypeError):  # what the user did comes first
        said, trace, rest = text.partition(TRACEBACK)
        return SlotFailure(kind.__name__, shortened(f"{said}\n  in: {where}{trace}{rest}"), number)
    return SlotFailure(kind.__name__, shortened(f"{where}: {text}"), number)


def users_traceback(error: BaseException) -> str:
    """The traceback, without what stands above the user's own code."""
    return "".join(traceback.format_exception(type(error), error, users_frames(error.__traceback__))).rstrip()


def raised(failure: SlotFailure) -> EmberstateError:
    """The exception to raise in the task."""
    kind = getattr(errors, failure.error, None)
    if not (isinstance(kind, type) and issubclass(kind, EmberstateError)):
        return UserFunctionError(f"{failure.error}: {failure.message}")
    return kind(failure.message) if failure.errno is None else kind(failure.errno, failure.message)


def shortened(text: str) -> str:
    """The text, without its middle if it is very long.

    >>> len(shortened("x" * 3_000_000)) < 1_050_000
    True
    """
    if len(text) <= MAX_MESSAGE:
        return text
    half = MAX_MESSAGE // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half} characters left out) …\n{text[-half:]}"


def _known_class(kind: type[BaseException]) -> type[EmberstateError] | None:
    """The nearest class that the task knows as well."""
    for base in kind.__mro__:
        if base.__module__ == errors.__name__ and base is not EmberstateError:
            return base
    return None
