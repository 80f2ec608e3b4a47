"""What a shell is offered to complete a command with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Run
from tests.patience import PATIENCE


def offered(*words: str) -> list[str]:
    """What bash is offered for the last word: lines of a kind and a text."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_EMBERSTATE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("emberstate", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "emberstate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.long
def test_commands_options_and_locations(cli: Run, own_location: Path) -> None:
    """Catches: commands that are found by name only and so never offered; a location that cannot be completed."""
    assert {"plain,checkpoints", "plain,savepoint", "plain,state", "plain,doctor"} <= set(offered(""))
    assert offered("savepoint", "r") == ["plain,restore-check", "plain,rewrite", "plain,rm"]
    assert "plain,--watch" in offered("checkpoints", "ls", "--")
    assert offered("checkpoints", "ls", "some/wh") == ["dir,some/wh"]
    for name in ("monday", "tuesday"):
        assert cli("savepoint", "create", own_location, name).code == 0
    assert offered("savepoint", "rm", str(own_location), "m") == ["plain,monday"]
    assert offered("savepoint", "rm", str(own_location / "nowhere"), "m") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, tmp_path: Path) -> None:
    """Catches: a script as the page says how to make it that is empty, or that the shell does not understand."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"_EMBERSTATE_COMPLETE={shell}_source emberstate" in page
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("there is no bash")
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "_EMBERSTATE_COMPLETE": f"{shell}_source"
    }  # fmt: skip
    command = [sys.executable, "-m", "emberstate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert f"_EMBERSTATE_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell) is not None:
        script = tmp_path / "script"
        script.write_text(done.stdout, encoding="utf-8")
        subprocess.run([shell, "-n", script], check=True, timeout=PATIENCE)
