"""Prints, for pip, what a development environment of emberstate needs; the versions are constraints.txt's.

The names stand in pyproject.toml alone. They are installed without the package itself, whose build needs
some of them. With `--integration`: what `make integration` needs besides, which `make test` does without.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

#: Extras that are of use only beside a real server, table or browser.
INTEGRATION = frozenset({"delta", "iceberg", "kafka", "postgres", "integration"})


def requirements(pyproject: Path) -> list[str]:
    """What building, running and testing the project ask for, and every extra but those of INTEGRATION, each once."""
    content = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    extras = content["project"]["optional-dependencies"].keys() - INTEGRATION
    return sorted({*content["build-system"]["requires"], *content["project"]["dependencies"], *_of(content, extras)})


def integration_requirements(pyproject: Path) -> list[str]:
    """What the extras of INTEGRATION ask for, each once."""
    return sorted(_of(tomllib.loads(pyproject.read_text(encoding="utf-8")), INTEGRATION))


def _of(content: dict[str, dict[str, dict[str, list[str]]]], extras: frozenset[str] | set[str]) -> set[str]:
    own = f"{content['project']['name']}["  # an extra may name other extras of the project
    named = content["project"]["optional-dependencies"]
    return {text for extra in extras for text in named[extra] if not text.startswith(own)}


if __name__ == "__main__":
    asked = integration_requirements if "--integration" in sys.argv[1:] else requirements
    print("\n".join(asked(Path(__file__).parent.parent / "pyproject.toml")))
