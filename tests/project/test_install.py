"""What a user gets where there is no C compiler, or no Cython; the wheel is test_wheel.py's.

Builds run on a copy of the project, without network, with the tools that are installed here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tools.dist import copy

from emberstate import _hot
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
NOTICE = "no working C compiler: the hot modules run interpreted"
WARNING = "The hot modules run interpreted"

PROGRAM = """
import importlib, sys
sys.modules["cython"] = None  # as if it were not installed
from emberstate import _hot
for name in _hot.HOT_MODULES:
    importlib.import_module(name)
    assert not _hot.is_compiled(name), name
print(_hot.__file__)
"""

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a build reads and of what earlier builds left for reuse, with the files' times."""
    folder = tmp_path / "project"
    copy(folder)
    for name in ("cython", "in-place"):
        if (ROOT / "build" / name).exists():
            shutil.copytree(ROOT / "build" / name, folder / "build" / name)
    return folder


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python, without the switch that the suite itself may run under."""
    inherited = {name: value for name, value in os.environ.items() if name not in (_hot.SWITCH, "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def in_place(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build as `make build` does."""
    return python("setup.py", "build_ext", "--inplace", cwd=project, **environment)


def test_install_without_a_compiler(project: Path, tmp_path: Path) -> None:
    """Catches: an install that fails, says nothing or says it over and over where there is no C compiler; an
    interpreted module that needs Cython.
    """
    shutil.rmtree(project / "build", ignore_errors=True)
    target = tmp_path / "target"
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--no-input", "--disable-pip-version-check")
    done = python(
        *("-m", "pip", "install", "-v", *options, "--target", str(target), "."), cwd=project, CC="/bin/false"
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(NOTICE) == 1

    loud = python("-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(target))
    assert loud.returncode == 0, loud.stdout
    assert str(target) in loud.stdout
    assert loud.stdout.count(WARNING) == 1

    quiet = python("-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(target), EMBERSTATE_INTERPRETED="1")
    assert quiet.returncode == 0, quiet.stdout
    assert WARNING not in quiet.stdout


def test_a_build_without_a_compiler_leaves_no_old_extensions(project: Path) -> None:
    """Catches: old extension files that are loaded, and differ from the source, after a build without."""
    module = project.joinpath("src", *_hot.HOT_MODULES[0].split("."))
    leftover = module.with_name(module.name + sysconfig.get_config_var("EXT_SUFFIX"))
    leftover.write_bytes(b"")

    done = in_place(project, CC="/bin/false")

    assert done.returncode == 0, done.stdout
    assert NOTICE in done.stdout
    assert not leftover.exists()


def test_half_an_install_runs_interpreted(project: Path) -> None:
    """Catches: compiled and interpreted modules in one process, which crash on each other's objects."""
    module = project.joinpath("src", *_hot.HOT_MODULES[0].split("."))
    module.with_name(module.name + sysconfig.get_config_var("EXT_SUFFIX")).write_bytes(b"not loadable")

    done = python("-c", PROGRAM, cwd=project, PYTHONPATH=str(project / "src"))

    assert done.returncode == 0, done.stdout
    assert done.stdout.count(WARNING) == 1


def test_an_error_of_translation_is_loud(project: Path) -> None:
    """Catches: a mistake in a hot module that is taken for a missing compiler, and ships interpreted."""
    declarations = next((project / "src").rglob("copy_on_write_state_map.pxd"))
    declarations.write_text(
        declarations.read_text(encoding="utf-8") + "\ncdef int nonsense(\n", encoding="utf-8"
    )

    done = in_place(project)

    if NOTICE in done.stdout:
        pytest.skip(NOTICE)
    assert done.returncode != 0
    assert "nonsense" in done.stdout


def test_an_error_of_compilation_is_loud(project: Path, tmp_path: Path) -> None:
    """Catches: C that a working compiler refuses, taken for a missing compiler."""
    usual = sysconfig.get_config_var("CC") or "cc"
    compiler = tmp_path / "picky-cc"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *probe*) exec {usual} "$@" ;; esac\nexit 1\n', encoding="utf-8"
    )
    compiler.chmod(0o755)

    done = in_place(project, CC=str(compiler))

    if NOTICE in done.stdout:
        pytest.skip(NOTICE)
    assert done.returncode != 0
    assert not list((project / "src").rglob("*.so"))
