"""What went wrong in a batch, on its way to a person: what the user did comes first, and it is short.

    slot → task    Spark hands on the text of a Python traceback. Its last part is the error that `run_in_slot` raised,
                   whose message says everything: the operator, the key, the user's own traceback.
    sink           named with its output and batch
    query          Spark hands on another traceback as text, of the function of foreachBatch

Thread safety: pure functions.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from emberstate import errors
from emberstate.spark.slot_failure import TRACEBACK, users_traceback

_RAISED: Final = re.compile(r"^(?:emberstate\.errors\.)(\w+): (.*)", re.MULTILINE | re.DOTALL)
_END: Final = re.compile(r"\n+ ?(?:\tat |SQLSTATE:|JVM stacktrace:|Driver stacktrace:|During handling of the above)")
#: What Spark says of a job that ended with its query.
_STOPPED: Final = ("part of cancelled job group", "java.lang.InterruptedException")
_JVM: Final = "\n\nJVM stacktrace:"


def emberstate_error(error: BaseException, where: str) -> errors.EmberstateError | None:
    """The error of this library that a Spark job failed with; None if it was something else."""
    if isinstance(error, errors.EmberstateError):
        return error
    text = str(error)
    if "ModuleNotFoundError: No module named 'emberstate'" in text:
        return errors.LifecycleError(
            f"{where}: the Python of Spark's executors has no emberstate. Set PYSPARK_PYTHON to one that has it (in "
            f"local mode: {sys.executable}), or install it there."
        )
    found = _RAISED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], None)
    if not isinstance(kind, type) or not issubclass(kind, errors.EmberstateError):
        return None
    message = _END.split(found[2], maxsplit=1)[0].rstrip()
    return kind(message)  # it says where


@contextlib.contextmanager
def naming_sink(pipeline: str, sink: Any, output: tuple[str, str], batch: int) -> Iterator[None]:
    """Have what a sink raises say which sink it was, of which stage's output, and what becomes of the batch."""
    try:
        yield
    except Exception as error:
        name = getattr(sink, "__qualname__", type(sink).__qualname__)
        where = f"pipeline {pipeline!r}, batch {batch}: sink {name!r} of output {output[1]!r} of stage {output[0]!r}"
        after = "The batch is committed; a query delivers it again when it is started again."
        found = emberstate_error(error, where)  # of reading the output, in a task
        if found is not None:
            raise _remade(found, f"{where} failed: {_text(found)} {after}") from error
        said = f"{type(error).__name__}: {str(error).partition(_JVM)[0]}"
        raise errors.UserFunctionError(f"{where} raised {said}\n  {after}\n{users_traceback(error)}") from error


def summary(error: BaseException) -> str:
    """What an error says, without the traceback that its message may have."""
    return _text(error).partition(TRACEBACK)[0]


def one_line(error: BaseException) -> str:
    """The same for a line of a log.

    >>> one_line(errors.UserFunctionError("Rate.process_element raised KeyError: 'x'\\n  key: 'ann'"))
    "UserFunctionError: Rate.process_element raised KeyError: 'x'; key: 'ann'"
    """
    return f"{type(error).__name__}: {'; '.join(part.strip() for part in summary(error).splitlines()):.1000}"


def was_stopped(error: BaseException) -> bool:
    """Whether a batch ended because somebody stopped the query, which is no failure."""
    return any(part in str(error) for part in _STOPPED)


def cause_first(error: Exception, where: str) -> Exception:
    """What to raise to Spark for an error of a batch: it is shown first, in full, and then all that led to it.

    Spark shows the text of a traceback, all of whose frames are Spark's and ours. A cause stands before the frames; so
    the error becomes the cause, without frames, of one of the same class that says the same in short. Errors that are
    not this library's, or that are its bugs, stay as they are.
    """
    if not isinstance(error, errors.EmberstateError) or isinstance(error, errors.InvariantError):
        return error
    short = summary(error)
    raised = _remade(error, short if where in short else f"{where}: {short}")
    raised.__cause__ = _remade(error, _text(error))
    return raised


def _text(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _remade(error: errors.EmberstateError, text: str) -> errors.EmberstateError:
    """An error of the same class with another text."""
    if isinstance(error, OSError) and error.errno is not None:
        return type(error)(error.errno, text)
    return type(error)(text)
