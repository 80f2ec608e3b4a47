"""The commands on the page about the command line run, and print what the page says.

The page's program is run first, in an empty folder; see `tests.project.console` for how commands are read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Run
from tests.patience import PATIENCE
from tests.project.console import Command, commands, matches
from tests.project.markdown import blocks

PAGE = ROOT / "docs" / "cli.md"


def all_commands() -> list[Command]:
    """Every command on the page."""
    found = blocks(PAGE.read_text(encoding="utf-8"))
    return [command for block in found if block.info[:1] == ("console",) for command in commands(block)]


def test_every_command_runs(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an example that the code has moved away from; a command that the page does not show."""
    code = [block for block in blocks(PAGE.read_text(encoding="utf-8")) if block.info[:1] == ("python",)]
    (tmp_path / "cards.py").write_text("\n".join(line for block in code for line in block.lines), encoding="utf-8")
    subprocess.run([sys.executable, "cards.py"], cwd=tmp_path, check=True, timeout=PATIENCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "cards", raising=False)
    shown = set()
    for command in all_commands():
        words = command.words
        assert words[0] == "emberstate" and command.run
        found = cli(*words[1:])
        assert found.code == command.code, (command, found)
        output = "\n".join(command.shown)
        assert not output or matches(output, found.out), f"docs/cli.md:{command.line}: $ {command.text}\n{found.out}"
        shown.add(tuple(words[1:3] if words[1] not in ("rescale", "doctor", "history") else words[1:2]))
    assert shown == {
        *(("checkpoints", name) for name in ("ls", "show", "verify", "diff", "du", "gc", "plot")),
        *(("state", name) for name in ("ls", "get", "keys", "top", "export", "heatmap")),
        *(("savepoint", name) for name in ("create", "ls", "describe", "restore-check", "rewrite", "rm")),
        ("rescale",),
        ("history",),
        ("doctor",),
    }
    assert sum(bool(command.shown) for command in all_commands()) >= 10
    monkeypatch.delitem(sys.modules, "cards", raising=False)
