"""The entry point: runs a command, and turns what happens into messages and exit codes.

    0    done, and all is well
    1    a problem was found: damage, a refused restore, a difference, no such key
    2    the command was not understood
    3    it could not be done: nothing there, not readable, refused
    70   a bug in emberstate; the traceback is shown
    130  interrupted
    141  whoever read the output went away

An error of emberstate is one message; EMBERSTATE_TRACEBACK=1 shows the traceback too.

click and rich are imported here and not before, so that their absence can be explained.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from emberstate.errors import EmberstateError

if TYPE_CHECKING:
    import click

OK: Final = 0
PROBLEM: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
BUG: Final = 70
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

_NAME: Final = "emberstate"
_TRACEBACK: Final = "EMBERSTATE_TRACEBACK"
_NEEDED: Final = ("click", "rich")


def main() -> NoReturn:
    """Run the command that the process was started with, and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    try:
        try:
            from emberstate.cli.root import root
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _NEEDED:
                raise
            _say(f"the command line needs {missing}: pip install 'emberstate[cli]'")
            return REFUSED
        if f"_{_NAME.upper()}_COMPLETE" in os.environ:
            root.main(list(arguments), prog_name=_NAME)  # the shell asks for completions
        code = _invoke(root, arguments)
        sys.stdout.flush()
        return code
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
    except Exception:
        traceback.print_exc()
        _say("this is a bug in emberstate: please report it, with what stands above")
        return BUG
    return OK


def _say(message: str) -> None:
    sys.stderr.write(f"{_NAME}: {message}\n")


def _silence() -> None:
    """Let nothing more be written, not even when the interpreter flushes at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
