"""The environment of `make integration`: what is installed for it is pinned."""

from __future__ import annotations

import importlib.metadata

import pytest
from tools.requirements import integration_requirements

from tests.project.test_package import ROOT, closure, pins


def test_everything_installed_is_pinned() -> None:
    """Catches: a dependency of a table format or client that comes in the newest version on every fresh clone."""
    try:
        names = closure(integration_requirements(ROOT / "pyproject.toml"))
    except importlib.metadata.PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed: run `make integration`")
    installed = {name: importlib.metadata.version(name) for name in names}

    assert "sqlalchemy" in names  # which nothing of ours asks for by itself
    assert installed == {name: pins().get(name) for name in names}
