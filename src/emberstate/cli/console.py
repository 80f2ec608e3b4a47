"""The output of commands: tables for people, one JSON document for scripts, progress bars.

Results go to standard output, everything else to standard error. A table is as wide as the terminal; without a
terminal, as wide as its content and without colours, so that `grep` and `cut` get whole lines. Progress is shown on a
terminal only.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from emberstate.cli.exit_codes import REFUSED

_WIDE: Final = 100_000

Tick = Callable[[int], None]


class Refused(click.ClickException):
    """The command cannot do what was asked."""

    exit_code = REFUSED

    def show(self, file: Any = None) -> None:
        """Print one line, as for all other errors."""
        sys.stderr.write(f"emberstate: {self.message}\n")


def finish(code: int) -> None:
    """End the command with an exit code."""
    raise click.exceptions.Exit(code)


def print_json(data: Any) -> None:
    """Print one JSON document; times as ISO 8601, bytes in base 64, decimals as text."""
    encoded = msgspec.json.encode(data)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def with_old_sizes(data: Any) -> Any:
    """Add to every size the name it had up to version 0.1, `bytes` or `file_bytes`. Deprecated; ends with 0.3.

    >>> with_old_sizes([{"stored_bytes": 3}, {"live_bytes": 1, "stored_bytes": 2}])
    [{'bytes': 3, 'stored_bytes': 3}, {'bytes': 1, 'live_bytes': 1, 'file_bytes': 2, 'stored_bytes': 2}]
    """
    if isinstance(data, list | tuple):
        return [with_old_sizes(item) for item in data]
    if not isinstance(data, dict):
        return data
    found: dict[str, Any] = {}
    for name, value in data.items():
        if name in ("live_bytes", "retained_bytes", "stored_bytes"):
            old = "file_bytes" if name == "stored_bytes" and "live_bytes" in data else "bytes"
            found.setdefault(old, value)
        found[name] = with_old_sizes(value)
    return found


def print_line(text: str = "") -> None:
    """Print a line of the result."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Print a remark to standard error."""
    sys.stderr.write(f"emberstate: {text}\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[str] = ()) -> None:
    """Print a table; the columns in `right` are numbers. None is an empty cell."""
    numbers = set(right)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else _WIDE
    # Rendered before it is written, so that `main` and not rich handles a broken pipe.
    buffer = io.StringIO()
    Console(file=buffer, width=width, force_terminal=terminal, highlight=False, legacy_windows=False).print(table)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines()))


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Tick]:
    """A progress bar; yields a function to call with the number of steps done."""
    # Not asked of rich, which the environment can make take a file for a terminal.
    terminal = sys.stderr.isatty()
    console = Console(stderr=True, force_terminal=terminal)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
