"""The package as a whole: what its import costs, its version, the versions it is tested with."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools.requirements import integration_requirements, requirements

import emberstate
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
HEAVY = {"numpy", "pandas", "pyarrow", "pyspark"}
ENGINE = ("keygroups", "codec", "state", "heap")

#: Of the engine, what is imported where states or keys in columns are used, and not before.
LAZY = ("emberstate.heap.columns.", "emberstate.heap.loading.records", "emberstate.state.cells.")

PROGRAM = f"""
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []) if "." in name else [], name + "."):
        if not found.name.startswith({LAZY!r}):
            importlib.import_module(found.name)
print(*sys.modules)
"""


def normal(name: str) -> str:
    """A distribution's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normal(name): version for name, version in pairs}


@pytest.mark.parametrize("names", [["emberstate"], [f"emberstate.{layer}" for layer in ENGINE]])
def test_import_is_light(names: list[str]) -> None:
    """Catches: `import emberstate`, or the engine alone, that waits for Spark and Arrow to load."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    loaded = set(done.stdout.split())

    assert set(names) <= loaded
    assert not loaded & HEAVY


def test_version() -> None:
    """Catches: a release whose code and metadata disagree on what it is."""
    assert importlib.metadata.version("emberstate") == emberstate.__version__


def closure(wanted: list[str]) -> set[str]:
    """The names of the distributions that pip installs for these requirements, here."""
    found: set[tuple[str, str]] = set()
    pending = [Requirement(text) for text in wanted]
    while pending:
        requirement = pending.pop()
        for extra in ("", *requirement.extras):
            name = normal(requirement.name)
            if (name, extra) not in found:
                found.add((name, extra))
                needed = map(Requirement, importlib.metadata.requires(name) or ())
                pending += [r for r in needed if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_everything_installed_is_pinned() -> None:
    """Catches: a dependency of a dependency that comes in the newest version on every fresh clone."""
    names = closure(requirements(ROOT / "pyproject.toml"))
    installed = {name: importlib.metadata.version(name) for name in names}

    assert {"py4j", "pluggy"} <= names  # which nothing of ours asks for
    assert installed == {name: pins().get(name) for name in names}


def test_dependencies_are_pinned_and_ranges_elsewhere() -> None:
    """Catches: a new dependency without a pin, and a package that forces exact versions on its users."""
    pyproject = ROOT / "pyproject.toml"
    asked = requirements(pyproject) + integration_requirements(pyproject)

    assert not [text for text in asked if "==" in text]
    assert {normal(re.split(r"[<>=!~ \[;]", text)[0]) for text in asked} <= pins().keys()


def test_no_registry_address() -> None:
    """Catches: an install that works only where one package index can be reached."""
    for name in ("constraints.txt", "pyproject.toml", "setup.py", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"index-url|find-links|://(?!www\.apache\.org)", text), name
