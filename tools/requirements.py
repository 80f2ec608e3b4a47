"""Prints, for pip, what a development environment of emberstate needs; the versions are constraints.txt's.

The names stand in pyproject.toml alone. They are installed without the package itself, whose build needs
some of them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path


def requirements(pyproject: Path) -> list[str]:
    """What building, running, testing and every extra of the project ask for, each once."""
    content = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project = content["project"]
    wanted = [*content["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += [text for text in extra if not text.startswith(f"{project['name']}[")]  # extras of its own
    return sorted(set(wanted))


if __name__ == "__main__":
    print("\n".join(requirements(Path(__file__).parent.parent / "pyproject.toml")))
