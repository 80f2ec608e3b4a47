"""Locations to look at, made once; and a way to run the command line in this process."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emberstate.cli.main import run
from tests.cli.cards import make_location
from tests.patience import PATIENCE


@dataclasses.dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output, which must be one JSON document."""
        return json.loads(self.out)


Run = Callable[..., Result]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return Result(code, found.out, found.err)

    return call


@pytest.fixture(scope="session", params=["fs", "rocksdb"])
def each_location(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a job, on each backend; to read only."""
    folder: Path = tmp_path_factory.mktemp("cards") / request.param
    make_location(folder, request.param)
    return folder


@pytest.fixture(scope="session")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a job whose process has ended; to read only."""
    folder = tmp_path_factory.mktemp("cards") / "location"
    program = f"from tests.cli.cards import *; make_location(Path({str(folder)!r}), 'fs')"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=PATIENCE)
    return folder


@pytest.fixture
def own_location(location: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(location, tmp_path / "location"))
