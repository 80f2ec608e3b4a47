"""`import emberstate` and `emberstate --help` import little; the public names come when they are asked for."""

from __future__ import annotations

import ast
import subprocess
import sys

import click
import pytest

import emberstate
from emberstate.cli.root import COMMANDS, root
from tests.patience import PATIENCE

#: What takes long to import, and what imports much of the package.
HEAVY = {"pyarrow", "numpy", "pyspark", "pandas", "msgspec", "xxhash", "rocksdict", "rich", "asyncio", "inspect"}


def imported(program: str) -> set[str]:
    """The modules that a fresh interpreter has imported after a program."""
    code = f"import sys\n{program}\nprint(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


def test_importing_the_package_imports_little() -> None:
    """Catches: a room that the package's face imports again, with Arrow and all that stands on it."""
    found = imported("import emberstate")

    assert found & HEAVY == set()
    ours = {name for name in found if name.startswith("emberstate.")}
    assert ours == {"emberstate._exports", "emberstate._hot", "emberstate.errors"}


def test_packages_inside_are_there_without_an_import_of_their_own() -> None:
    """Catches: `emberstate.heap` that is missing until somebody else has imported it."""
    program = "import emberstate\nfor name in {!r}: getattr(emberstate, name)"
    packages = ["checkpoint", "codec", "heap", "keygroups", "rocksdb", "spark", "state", "storage", "testing"]

    assert {f"emberstate.{name}" for name in packages} <= imported(program.format(packages))


def test_help_imports_no_command() -> None:
    """Catches: a list of commands that loads Arrow and Spark to be shown."""
    help_ = "import contextlib, io, emberstate.cli.main\nwith contextlib.redirect_stdout(io.StringIO()) as out: "
    found = imported(help_ + "emberstate.cli.main.run(['--help'])\nassert 'savepoint' in out.getvalue()")

    assert found & (HEAVY - {"inspect"}) == set()  # click imports it
    assert not any(name.startswith("emberstate.cli.commands.") for name in found)


def test_a_star_import_and_dir_have_every_name() -> None:
    """Catches: names that only an attribute access finds, so that completion and star imports miss them."""
    found: dict[str, object] = {}
    exec("from emberstate import *", found)

    assert set(emberstate.__all__) <= set(found)
    assert set(emberstate.__all__) <= set(dir(emberstate))
    assert found["Pipeline"] is emberstate.Pipeline
    with pytest.raises(AttributeError, match="'emberstate' has no attribute 'Pipelin'"):
        emberstate.Pipelin  # type: ignore[attr-defined]


def test_a_part_that_cannot_be_imported_says_what_is_missing() -> None:
    """Catches: a missing library that is told as a missing name of the package."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        imported("sys.modules['pyarrow'] = None\nimport emberstate\nemberstate.Pipeline")

    assert "import of pyarrow halted" in caught.value.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_list_of_commands_says_what_they_say(name: str) -> None:
    """Catches: a command whose help was changed in one of its two places."""
    with click.Context(root) as context:
        command = root.get_command(context, name)

    assert command is not None
    assert command.get_short_help_str(1_000) == COMMANDS[name][1]
