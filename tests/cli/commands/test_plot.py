"""The pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run

COMMANDS = (("checkpoints", "plot"), ("state", "heatmap"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_picture_of_each_kind(cli: Run, location: Path, tmp_path: Path, command: tuple[str, str]) -> None:
    """Catches: a file of another kind than its name says; a picture that differs from run to run."""
    found = cli(*command, location, "--to", tmp_path / "one.svg", "--json")
    assert (found.code, found.json["file"]) == (0, str(tmp_path / "one.svg"))
    drawing = (tmp_path / "one.svg").read_bytes()
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
    assert cli(*command, location, "--to", tmp_path / "two.svg").code == 0
    assert (tmp_path / "two.svg").read_bytes() == drawing
    assert cli(*command, location, "--to", tmp_path / "one.png").code == 0
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_cannot_be_drawn(
    cli: Run, location: Path, tmp_path: Path, command: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a traceback where the extra, the folder or a good name is missing."""
    assert cli(*command, location, "--to", tmp_path / "one.pdf").code == 2
    nowhere = cli(*command, location, "--to", tmp_path / "missing" / "one.svg")
    assert (nowhere.code, "failed" in nowhere.err) == (3, True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    without = cli(*command, location, "--to", tmp_path / "one.svg")
    assert (without.code, without.err) == (3, "emberstate: pictures need matplotlib: pip install 'emberstate[plot]'\n")
    assert list(tmp_path.iterdir()) == []
