"""Errors on their way from a slot to the user. What the user did comes first, and it is short.

    slot → task    A `SlotFailure`. Exceptions are not pickled: only the slot's process may have the class. A class of
                   `emberstate.errors` stays what it is, with its attributes; any other becomes a `UserFunctionError`
                   with its traceback.
    task → driver  Spark passes on the text of a Python traceback. Its last part is the error that `run_in_slot` raised,
                   whose message has the operator, the key and the user's own traceback. A note has its attributes.
    sink           An error of a sink names the sink, its output and the batch.
    query          Spark passes on the text of another traceback, of the function of foreachBatch: see `cause_first`.

Thread safety: pure functions.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any, Final, cast

from emberstate import errors
from emberstate.errors import EmberstateError, Place, RowTypeError, UserFunctionError
from emberstate.runtime.functions.host import users_frames
from emberstate.spark.slot.messages import SlotFailure

#: Longer messages lose their middle: they pass through Spark's own messages and logs.
MAX_MESSAGE: Final = 1024 * 1024
#: What a note with an error's attributes begins with.
_NOTE: Final = "  place: "
#: The start of the traceback in a message that has one.
TRACEBACK: Final = "\nTraceback (most recent call last)"


def failure_of(error: BaseException, where: str) -> SlotFailure:
    """The message that tells a task of an exception in its slot; `where` names slot and batch."""
    kind = _known_class(type(error))
    number = error.errno if isinstance(error, OSError) else None
    if kind is None:
        message = f"{type(error).__name__}: {error}\n  in: {where}\n{users_traceback(error)}"
        return SlotFailure(UserFunctionError.__name__, shortened(message))
    place = place_text(error) if isinstance(error, EmberstateError) else "{}"
    text = _text(error)
    if kind in (UserFunctionError, RowTypeError):  # what the user did comes first
        said, trace, rest = text.partition(TRACEBACK)
        return SlotFailure(kind.__name__, shortened(f"{said}\n  in: {where}{trace}{rest}"), number, place)
    return SlotFailure(kind.__name__, shortened(f"{where}: {text}"), number, place)


def users_traceback(error: BaseException) -> str:
    """The traceback, from the user's own code on."""
    return "".join(traceback.format_exception(type(error), error, users_frames(error.__traceback__))).rstrip()


def raised(failure: SlotFailure) -> EmberstateError:
    """The exception to raise in the task."""
    kind = getattr(errors, failure.error, None)
    if not (isinstance(kind, type) and issubclass(kind, EmberstateError)):
        return UserFunctionError(f"{failure.error}: {failure.message}")
    arguments = (failure.message,) if failure.errno is None else (failure.errno, failure.message)
    return kind(*arguments, **_place_of(failure.place))


def place_text(error: EmberstateError) -> str:
    """An error's attributes as a literal; a value that is none, such as a datetime, or that is long, as text.

    >>> place_text(errors.UserFunctionError("x", operator="rate", slot=1, key=("ann", 7)))
    "{'operator': 'rate', 'slot': 1, 'key': ('ann', 7)}"
    """
    return repr({name: _portable(value) for name, value in error.place.items()})


def _portable(value: Any) -> Any:
    try:
        text = repr(value)
    except Exception:  # a huge int, or a class of the user's: this error must not hide the other
        return type(value).__name__
    try:
        same = len(text) <= 1000 and bool(ast.literal_eval(text) == value)
    except Exception:
        same = False
    return value if same else text[:1000]


def _place_of(text: str) -> Place:
    """The attributes that `place_text` wrote."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {}
    known = Place.__annotations__
    return cast(Place, {name: found[name] for name in known if name in found} if isinstance(found, dict) else {})


@contextlib.contextmanager
def noting_place() -> Iterator[None]:
    """In a task: add an error's attributes as a note, which is part of the traceback that Spark passes on."""
    try:
        yield
    except EmberstateError as error:
        error.add_note(f"{_NOTE}{place_text(error)}")
        raise


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
    """The nearest class that the task has as well."""
    for base in kind.__mro__:
        if base.__module__ == errors.__name__ and base is not EmberstateError:
            return base
    return None


_RAISED: Final = re.compile(r"^(?:emberstate\.errors\.)(\w+): (.*)", re.MULTILINE | re.DOTALL)
_END: Final = re.compile(r"\n+ ?(?:\tat |SQLSTATE:|JVM stacktrace:|Driver stacktrace:|During handling of the above)")
#: How the text of an `OSError` with a number begins.
_NUMBER: Final = re.compile(r"\[Errno (\d+)\] ")
#: Parts of Spark's message for a job that ended with its query.
_STOPPED: Final = ("part of cancelled job group", "java.lang.InterruptedException")
_JVM: Final = "\n\nJVM stacktrace:"


def emberstate_error(error: BaseException, where: str) -> errors.EmberstateError | None:
    """The error of this library that a Spark job failed with; None if it failed with something else."""
    if isinstance(error, errors.EmberstateError):
        return error
    text = str(error)
    if "ModuleNotFoundError: No module named 'emberstate'" in text:
        return errors.InstallationError(
            f"{where}: the Python of Spark's executors has no emberstate. Set PYSPARK_PYTHON to one that has it (in "
            f"local mode: {sys.executable}), or install it there."
        )
    found = _RAISED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], None)
    if not isinstance(kind, type) or not issubclass(kind, errors.EmberstateError):
        return None
    text = _END.split(found[2], maxsplit=1)[0].rstrip()
    message, noted, place = text.rpartition(f"\n{_NOTE}")
    made = kind(message, **_place_of(place)) if noted else kind(text)  # it says where
    number = _NUMBER.match(str(made)) if isinstance(made, OSError) else None
    return made if number is None else kind(int(number[1]), str(made)[number.end() :], **made.place)


@contextlib.contextmanager
def naming_sink(pipeline: str, sink: str, output: tuple[str, str], batch: int) -> Iterator[None]:
    """Have what a sink raises name the sink, its output and the batch."""
    try:
        yield
    except Exception as error:
        where = f"pipeline {pipeline!r}, batch {batch}: sink {sink!r} of output {output[1]!r} of stage {output[0]!r}"
        after = "The batch is committed; a query delivers it again when it is started again."
        found = emberstate_error(error, where)  # of reading the output, in a task
        if found is not None:
            said = found.reworded(f"{where} failed: {_text(found)} {after}")
            raise said.located(operator=output[0], batch=batch) from error
        message = f"{type(error).__name__}: {str(error).partition(_JVM)[0]}"
        raise UserFunctionError(
            f"{where} raised {message}\n  {after}\n{users_traceback(error)}", operator=output[0], batch=batch
        ) from error


def summary(error: BaseException) -> str:
    """The message of an error, without a traceback."""
    return _text(error).partition(TRACEBACK)[0]


def one_line(error: BaseException) -> str:
    """Class and message of an error, for a line of a log.

    >>> one_line(errors.UserFunctionError("Rate.process_element raised KeyError: 'x'\\n  key: 'ann'"))
    "UserFunctionError: Rate.process_element raised KeyError: 'x'; key: 'ann'"
    """
    return f"{type(error).__name__}: {'; '.join(part.strip() for part in summary(error).splitlines()):.1000}"


def was_stopped(error: BaseException) -> bool:
    """Whether a batch ended because the query was stopped, which is no failure."""
    return any(part in str(error) for part in _STOPPED)


def cause_first(error: Exception, where: str) -> Exception:
    """The exception to raise to Spark for an error of a batch: Spark then shows the whole error first.

    Spark shows the text of a traceback, all of whose frames are Spark's and ours. A cause stands before the frames; so
    the error becomes the cause, without frames, of one of the same class that says the same in short. Errors that are
    not this library's, or that are its bugs, stay as they are.
    """
    if not isinstance(error, errors.EmberstateError) or isinstance(error, errors.InvariantError):
        return error
    short = summary(error)
    raised = error.reworded(short if where in short else f"{where}: {short}")
    raised.__cause__ = error.reworded(_text(error))
    return raised


def _text(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
