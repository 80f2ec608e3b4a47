"""`--watch`: again and again, until Ctrl-C."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberstate.cli.console import Refused, print_line
from emberstate.cli.watch import repeat
from emberstate.clock import ManualClock
from emberstate.errors import StorageError
from tests.cli.conftest import Run
from tests.cli.test_process import start
from tests.patience import PATIENCE


class Waits:
    """Waits without waiting, and is interrupted in the end."""

    def __init__(self, clock: ManualClock, times: int) -> None:
        self._clock = clock
        self._left = times

    def __call__(self, seconds: float) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt
        self._clock.advance(int(seconds * 1_000_000))


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_pictures_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a watch that stops, that shows what it showed, or that does not end with Ctrl-C."""
    clock = ManualClock(1_700_000_000_000_000)
    shown = iter(["one", "two"])
    repeat(lambda: print_line(next(shown)), 90, clock, Waits(clock, 2))
    assert capsys.readouterr().out == (
        "every 90 s, now 2023-11-14T22:13:20Z; Ctrl-C ends it\n\none\n\n"
        "every 90 s, now 2023-11-14T22:14:50Z; Ctrl-C ends it\n\ntwo\n"
    )


def test_a_terminal_shows_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: pictures that scroll away; a picture that does not know it is for a terminal."""
    clock = ManualClock(0)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    repeat(lambda: print_line(f"for a terminal: {sys.stdout.isatty()}"), 1, clock, Waits(clock, 2))
    before, first, second = terminal.getvalue().split("\x1b[H\x1b[J")
    assert before == "" and first.splitlines()[2:] == second.splitlines()[2:] == ["for a terminal: True"]


@pytest.mark.parametrize("error", [Refused("it is gone"), StorageError(5, "it is gone")])
def test_failures(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a watch that a hiccup of the network ends; one that goes on where there is nothing to watch."""
    clock = ManualClock(0)
    pictures: Iterator[str | Exception] = iter(["one", error, "two"])

    def show() -> None:
        picture = next(pictures)
        if isinstance(picture, Exception):
            raise picture
        print_line(picture)

    repeat(show, 1, clock, Waits(clock, 3))
    one, failure, two = (line for line in capsys.readouterr().out.splitlines() if line and not line.startswith("every"))
    assert (one, two) == ("one", "two") and "it is gone" in failure

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        repeat(fail, 1, clock, Waits(clock, 3))


def test_a_process_ends_with_an_interrupt(location: Path) -> None:
    """Catches: a traceback after Ctrl-C, or an exit code that calls the usual end a failure."""
    # Whoever runs the tests in the background has them ignore interrupts, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start("checkpoints", "ls", location, "--watch", "--every", "0.1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    pictures = 0
    while pictures < 2:  # the second is there
        line = process.stdout.readline()
        assert line, process.communicate()
        pictures += line.startswith("checkpoint ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    "command", [("checkpoints", "ls"), ("checkpoints", "du"), ("savepoint", "ls"), ("state", "ls"), ("state", "top")]
)
def test_every_command_that_lists(cli: Run, location: Path, command: tuple[str, str]) -> None:
    """Catches: a listing without --watch; JSON documents without end, which no script can read."""
    assert "--watch" in cli(*command, "--help").out
    assert cli(*command, location, "--watch", "--json").code == 2
    assert cli(*command, location / "nowhere", "--watch").code == 3
