"""Runs a page: its Python blocks in one namespace, its commands between them, in the working directory.

A block marked with a file's name (```` ```python cards.py ````) is written to that file, and not run. A block marked
`spark` needs a local Spark, which the tests share, and one marked `integration` a server.
`python -m tests.project.page PAGE` runs a page in a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from emberstate.cli.main import run as run_cli
from tests.patience import PATIENCE
from tests.project.console import Command, commands, has_printed, matches
from tests.project.markdown import Block, blocks


def is_run(block: Block) -> bool:
    """Whether it is Python that is run, or written to a file."""
    return block.info[:1] == ("python",) and "no-run" not in block.info


def needs_spark(file: Path) -> bool:
    """Whether a page has a block that needs a local Spark."""
    return any(is_run(block) and "spark" in block.info for block in blocks(file.read_text(encoding="utf-8")))


def needs_servers(file: Path) -> bool:
    """Whether a page has a block that needs a server: `make integration` runs it."""
    return any(is_run(block) and "integration" in block.info for block in blocks(file.read_text(encoding="utf-8")))


def has_files_or_commands(file: Path) -> bool:
    """Whether there is more to a page than Python to run."""
    found = list(blocks(file.read_text(encoding="utf-8")))
    return any(block.info[:1] == ("console",) or file_name(block) is not None for block in found)


def file_name(block: Block) -> str | None:
    """The file that a block is to be written to."""
    return next((word for word in block.info[1:] if word.endswith(".py")), None) if is_run(block) else None


def run_page(file: Path, environment: dict[str, str] | None = None, here: dict[str, str] | None = None) -> None:
    """Run everything on a page, from the top; a failure names its line. Commands have `environment`, too. Texts that
    are something else `here`, such as addresses, are replaced."""
    namespace: dict[str, Any] = {"__name__": f"page_{file.stem.replace('-', '_')}"}
    text = file.read_text(encoding="utf-8")
    for shown, meant in (here or {}).items():
        assert shown in text, f"{file} has no {shown!r}"
        text = text.replace(shown, meant)
    for block in blocks(text):
        if (name := file_name(block)) is not None:
            Path(name).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        elif is_run(block):
            source = "\n" * (block.start - 1) + "\n".join(block.lines) + "\n"
            exec(compile(source, str(file), "exec"), namespace)
        elif block.info[:1] == ("console",):
            for command in commands(block):
                if command.run:
                    run_command(command, f"{file}:{command.line}", environment or {})


def run_command(command: Command, where: str, environment: dict[str, str]) -> None:
    """Run a command and compare what it prints."""
    words = command.words
    if words[0] == "emberstate":
        code, output = _in_process(words[1:])
    elif words[0] == "python" and command.killed:
        return _until_killed(command, where, environment)
    else:
        raise AssertionError(f"{where}: $ {command.text}\nIt is not known how to run it; mark it `# not run`.")
    assert code == command.code, f"{where}: $ {command.text}\nexit code {code}\n{output}"
    shown = "\n".join(command.shown)
    assert not shown.split() or matches(shown, output), f"{where}: $ {command.text}\n{output}"
    return None


def _in_process(words: list[str]) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run_cli(words)
    return code, printed.getvalue()


def _until_killed(command: Command, where: str, environment: dict[str, str]) -> None:
    """Start a program, wait until it has printed what is shown, and kill it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        process = subprocess.Popen(
            [sys.executable, "-u", *command.words[1:]],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        try:
            while not has_printed(command.shown, _so_far(out)):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(
                        f"{where}: $ {command.text}\nIt printed only:\n{_so_far(out)}\n{_so_far(err)[-5000:]}"
                    )
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _so_far(file: Any) -> str:
    """What a child has written; its own place in the file is not moved."""
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
