"""The GitHub workflows: they run what a clone runs. And the threat model names tests that are there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.project.markdown import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def commands(workflow: Any) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_commands_are_the_makefiles(file: Any) -> None:
    """Catches: a check that passes on GitHub and not in a clone, and a target that was renamed."""
    found = commands(yaml.safe_load(file.read_text(encoding="utf-8")))
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert found
    assert [command for command in found if not re.fullmatch(r"make PYTHON3=python [a-z]+", command)] == []
    assert {command.split()[-1] for command in found} <= set(targets)


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_every_file_is_yaml(file: Any) -> None:
    """Catches: a form or rule that GitHub ignores since it cannot be read."""
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


def test_tests_of_the_threat_model_are_there() -> None:
    """Catches: a test that was renamed or removed while the threat model rests on it."""
    named = re.findall(r"\[(test_\w+)\]\((tests/\S+)\)", SECURITY)

    assert len(named) > 10
    assert [name for name, path in named if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")] == []
