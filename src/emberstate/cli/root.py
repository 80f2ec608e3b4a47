"""The tree of commands. A command is imported when it is called for; the list of them needs none."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

#: The module of each command, and the first words of its help.
COMMANDS: Final = {
    "checkpoints": ("commands.checkpoints", "List, verify and compare checkpoints; show and free disk space."),
    "demo": (
        "demo.command",
        "Run a streaming job on local Spark, kill one of its slots, rescale it, and verify the result.",
    ),
    "doctor": (
        "commands.doctor",
        "Check what this machine has and lacks: Python, compiled modules, libraries, Java and Spark, disk, limits.",
    ),
    "history": ("commands.history", "Show the last batches of a job: rows, times by part, lag, slots, failures."),
    "rescale": (
        "commands.rescale",
        "Show what each slot would hold, and read at its start, with another parallelism.",
    ),
    "savepoint": (
        "commands.savepoint",
        "List and make savepoints, check them against a program, rewrite and delete them.",
    ),
    "state": ("commands.state", "Read the state of a checkpoint."),
    "ui": ("commands.ui", "Show jobs on a web page: batches, checkpoints, slots, the state of any key, errors."),
}


class _Root(click.Group):
    """A group whose commands are found by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"emberstate.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        named = {name: click.Command(name, help=text) for name, (_, text) in COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, named[name].get_short_help_str(limit)) for name in sorted(named)])


@click.group(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 all is well; 1 a problem was found (damage, a refused restore, a difference, no such key, "
    "something missing); 2 the command was not understood; 3 it could not be done. An error is one message; "
    "EMBERSTATE_TRACEBACK=1 shows where it came from.",
)
@click.version_option(sys.modules[__name__.partition(".")[0]].__version__, prog_name="emberstate")
def root() -> None:
    """Look at the checkpoints and the state of a job, and work on its savepoints.

    LOCATION is what FsStateBackend takes: a path, file:///path or s3://bucket/prefix. Commands that read change
    nothing there, and the job may run meanwhile.
    """
