"""`--watch`: a command that lists shows itself again and again, until it is interrupted.

On a terminal each picture replaces the one before; elsewhere they follow each other, below a line with the time. Ctrl-C
ends it with exit code 0, since there is no other way. If the first picture fails, the command fails; a later failure
(the network is down, the location was moved) is shown in place of the picture, and the next one is tried.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from emberstate.clock import Clock, SystemClock
from emberstate.errors import EmberstateError
from emberstate.units import time_text

F = TypeVar("F", bound=Callable[..., Any])

#: To the upper left corner; and from there delete everything.
_CLEAR: Final = "\x1b[H\x1b[J"


def watch_option(command: F) -> F:
    """`--watch` and `--every SECONDS` for a command that prints something and takes `--json`."""

    @functools.wraps(command)
    def show(*arguments: Any, watch: bool, every: float, as_json: bool, **options: Any) -> None:
        if not watch:
            command(*arguments, as_json=as_json, **options)
            return
        if as_json:
            raise click.UsageError("--watch is for people, --json for scripts: give one of them")
        repeat(lambda: command(*arguments, as_json=False, **options), every, SystemClock(), time.sleep)

    shown: Any = click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")(show)
    text = "For --watch: how often. Default: 2."
    added: F = click.option("--every", type=click.FloatRange(min=0.1), default=2.0, metavar="SECONDS", help=text)(shown)
    return added


def repeat(show: Callable[[], None], every: float, clock: Clock, wait: Callable[[float], None]) -> None:
    """Show a picture every so many seconds, until `wait` or `show` is interrupted."""
    first = True
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            # Made before anything is written, so that a terminal does not flicker.
            with contextlib.redirect_stdout(_Picture(sys.stdout.isatty())) as picture:
                try:
                    show()
                except (EmberstateError, click.ClickException) as error:
                    if first:
                        raise
                    picture.write(f"{error.format_message() if isinstance(error, click.ClickException) else error}\n")
            now = time_text(clock.now_micros() // 1_000_000 * 1_000_000)
            head = f"every {every:g} s, now {now}; Ctrl-C ends it\n\n"
            between = _CLEAR if picture.isatty() else "" if first else "\n"
            sys.stdout.write(between + head + picture.getvalue())
            sys.stdout.flush()
            first = False
            wait(every)


class _Picture(io.StringIO):
    """Collects a picture for a terminal, or for something else."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal
