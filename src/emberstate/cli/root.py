"""The tree of commands."""

from __future__ import annotations

import click

from emberstate.checkpoint.files.meta import library_version
from emberstate.cli.commands.checkpoints import checkpoints
from emberstate.cli.commands.doctor import doctor
from emberstate.cli.commands.rescale import rescale
from emberstate.cli.commands.savepoint import savepoint
from emberstate.cli.commands.state import state
from emberstate.cli.demo.command import demo


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 all is well; 1 a problem was found (damage, a refused restore, a difference, no such key, "
    "something missing); 2 the command was not understood; 3 it could not be done. An error is one message; "
    "EMBERSTATE_TRACEBACK=1 shows where it came from.",
)
@click.version_option(library_version(), prog_name="emberstate")
def root() -> None:
    """Look at the checkpoints and the state of a job, and work on its savepoints.

    LOCATION is what FsStateBackend takes: a path, file:///path or s3://bucket/prefix. Commands that read change
    nothing there, and the job may run meanwhile.
    """


root.add_command(checkpoints)
root.add_command(state)
root.add_command(savepoint)
root.add_command(rescale)
root.add_command(doctor)
root.add_command(demo)
