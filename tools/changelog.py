"""Cuts a release in the changelog: `python -m tools.changelog 0.2.0` moves what is unreleased, and every fragment of
changelog.d, under that number.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
UNRELEASED = "## [Unreleased]\n"


def fragments(folder: Path) -> dict[Path, str]:
    """The fragments, with the kind of each; raises for a file whose name has none."""
    found = {}
    for file in sorted(folder.glob("*.md")):
        if file.name == "README.md":
            continue
        kind = file.stem.rpartition(".")[2]
        if kind not in KINDS or not file.stem.rpartition(".")[0]:
            raise SystemExit(f"{file.name}: expected NAME.KIND.md, with a kind of {', '.join(KINDS)}")
        found[file] = kind
    return found


def released(text: str, entries: Mapping[str, list[str]], version: str, day: datetime.date) -> str:
    """The changelog with what is unreleased, and these entries by kind, under a number."""
    before, mark, rest = text.partition(UNRELEASED)
    if not mark or f"## [{version}]" in text:
        raise SystemExit(f"the changelog has no {UNRELEASED.strip()}, or has {version} already")
    body, following, older = rest.partition("\n## [")
    parts = re.split(r"^### (\w+)\n", body, flags=re.MULTILINE)
    sections = {kind.lower(): content.strip() for kind, content in zip(parts[1::2], parts[2::2], strict=True)}
    for kind, added in entries.items():
        lines = [f"- {entry.strip()}" for entry in added]
        sections[kind] = "\n".join(filter(None, [sections.get(kind, ""), *lines]))
    written = "\n\n".join(f"### {kind.capitalize()}\n\n{sections[kind]}" for kind in KINDS if sections.get(kind))
    return f"{before}{UNRELEASED}\n## [{version}] - {day}\n\n{written}\n{following}{older}"


def main(version: str) -> None:
    found = fragments(ROOT / "changelog.d")
    entries: dict[str, list[str]] = {}
    for file, kind in found.items():
        entries.setdefault(kind, []).append(file.read_text(encoding="utf-8"))
    target = ROOT / "CHANGELOG.md"
    today = datetime.datetime.now(datetime.UTC).date()
    target.write_text(released(target.read_text(encoding="utf-8"), entries, version, today), encoding="utf-8")
    for file in found:
        file.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
