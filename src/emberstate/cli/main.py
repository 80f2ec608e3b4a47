"""The entry point: runs a command, and turns errors into messages and exit codes (`exit_codes`).

An error of emberstate is one message; EMBERSTATE_TRACEBACK=1 shows the traceback too.

click and rich are imported inside functions, so that a message can say how to install them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from emberstate.cli.exit_codes import BROKEN_PIPE, BUG, INTERRUPTED, OK, REFUSED
from emberstate.errors import EmberstateError

if TYPE_CHECKING:
    import click

_NAME: Final = "emberstate"
_TRACEBACK: Final = "EMBERSTATE_TRACEBACK"
_NEEDED: Final = ("click", "rich")


def main() -> NoReturn:
    """Run the command that the process was started with, and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    try:
        from emberstate.cli.root import root

        if f"_{_NAME.upper()}_COMPLETE" in os.environ:
            root.main(list(arguments), prog_name=_NAME)  # the shell asks for completions
        code = _invoke(root, arguments)
        sys.stdout.flush()
        return code
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        _say(f"the command line needs {missing}: pip install 'emberstate[cli]'")
        return REFUSED
    except BrokenPipeError:
        _silence()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _invoke(root: click.Group, arguments: Sequence[str]) -> int:
    import click

    try:
        with root.make_context(_NAME, list(arguments)) as context:
            root.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        raise
    except EmberstateError as error:
        if os.environ.get(_TRACEBACK):
            traceback.print_exc()
        _say(str(error))
        return REFUSED
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _NEEDED:
            raise
        traceback.print_exc()
        _say("this is a bug in emberstate: please report it with the traceback above")
        return BUG
    return OK


def _say(message: str) -> None:
    sys.stderr.write(f"{_NAME}: {message}\n")


def _silence() -> None:
    """Discard all further output, also that of the flush at the interpreter's exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
