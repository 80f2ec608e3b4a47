"""What is released: the files of `make dist`, what is in them, and whether they work where there is no clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.dist import LARGEST, build

from emberstate import _hot
from tests.patience import PATIENCE
from tests.project.markdown import ROOT, blocks

pytestmark = pytest.mark.long

#: The endings of the web page's files.
PAGE = (".css", ".html", ".js", ".svg", ".txt")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The source distribution and the wheel that was built of it; the extension cache has the modules."""
    if _hot.extension_file(_hot.HOT_MODULES[0]) is None:
        pytest.skip("without a C compiler no wheel is released")
    return build(tmp_path_factory.mktemp("release") / "dist")


def test_the_wheel_is_complete_and_small(dist: list[Path]) -> None:
    """Catches: a wheel without types, without code to fall back to, or not compiled; one with symbols, declarations or
    C in it; one that an index refuses by its tag.
    """
    wheel = dist[1]
    archive = zipfile.ZipFile(wheel)
    names = {name for name in archive.namelist() if not name.endswith("/")}
    source = ROOT / "src"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    extensions = {name.removesuffix(suffix).replace("/", "."): name for name in names if name.endswith(suffix)}

    assert {str(file.relative_to(source)) for file in source.rglob("*.py")} <= names
    assert "emberstate/py.typed" in names
    assert {str(file.relative_to(source)) for end in PAGE for file in (source / "emberstate").rglob(f"*{end}")} <= names
    assert extensions.keys() == set(_hot.HOT_MODULES)
    assert {Path(name).suffix for name in names if name.startswith("emberstate/")} <= {".py", ".so", ".typed", *PAGE}
    assert {name.partition("/")[0] for name in names} == {
        "emberstate",
        wheel.name.partition("-cp")[0] + ".dist-info",
    }
    assert [name for name in extensions.values() if re.search(rb"\.symtab|\.debug_", archive.read(name))] == []
    assert "manylinux" in wheel.name
    assert wheel.stat().st_size <= LARGEST


def test_the_source_distribution_is_pure(dist: list[Path]) -> None:
    """Catches: a source distribution without declarations, which compiles to slower modules, or with built files."""
    with tarfile.open(dist[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {str(file.relative_to(ROOT)) for file in (ROOT / "src").rglob("*.py")} <= names
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "src").rglob("*.pxd")} <= names
    assert {"LICENSE", "README.md", "setup.py", "pyproject.toml"} <= names
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]


def until_there_are_rows(example: str) -> str:
    """The example, which ends when its sink has had rows and not after ten seconds."""
    changes = {
        "cards.sink(": "query = cards.sink(",
        "df.show()": "df.show() or df.isEmpty() or seen.set()",
        ".awaitTermination(10)": "",
    }
    for old, new in changes.items():
        assert example.count(old) == 1, old
        example = example.replace(old, new)
    return f"import threading\nseen = threading.Event()\n{example}\nassert seen.wait({PATIENCE})\nquery.stop()\n"


def test_outside_of_a_clone(dist: list[Path], tmp_path: Path) -> None:
    """Catches: a dependency that no extra names, a file that only a clone has, Cython asked for at run time."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("EMBERSTATE_", "PYTHON", "SPARK_"))
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    commands = tmp_path / "venv" / "bin"
    run(sys.executable, "-m", "venv", str(commands.parent))
    pip = (str(commands / "python"), "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check")
    run(*pip, "install", "--no-compile", "-c", str(ROOT / "constraints.txt"), f"{dist[1]}[spark,cli,java]")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [example] = [block for block in blocks(readme) if block.info[:1] == ("python",)]
    (tmp_path / "example.py").write_text(until_there_are_rows("\n".join(example.lines)), encoding="utf-8")

    assert "cython" not in run(*pip, "list").lower()
    assert "Verified" in run(str(commands / "emberstate"), "demo", "--batches", "6", "--rows", "50")
    assert "|card-" in run(str(commands / "python"), "example.py").replace(" ", "")
    assert "compiled" in run(str(commands / "emberstate"), "doctor")
