"""The changelog and its fragments."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from tools.changelog import ROOT, fragments, released

DAY = datetime.date(2026, 1, 2)
BEFORE = """# Changelog

## [Unreleased]

### Fixed

- An old bug.

## [0.1.0] - 2025-01-01

- The first.
"""


def test_a_release_has_every_entry_once() -> None:
    """Catches: a change that users never hear of, or an earlier release that is rewritten."""
    text = released(BEFORE, {"fixed": ["Another.\n"], "added": ["A thing."]}, "0.2.0", DAY)

    assert text == BEFORE.replace(
        "### Fixed\n\n- An old bug.\n",
        "## [0.2.0] - 2026-01-02\n\n### Added\n\n- A thing.\n\n### Fixed\n\n- An old bug.\n- Another.\n",
    )
    with pytest.raises(SystemExit):
        released(text, {}, "0.2.0", DAY)


def test_the_changelog_of_today_can_be_released() -> None:
    """Catches: a section or a fragment that the release would lose, or fail on."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = {kind: [file.read_text(encoding="utf-8")] for file, kind in fragments(ROOT / "changelog.d").items()}

    cut = released(text, entries, "99.0.0", DAY)

    assert {line for line in text.splitlines() if line.startswith("- ")} <= set(cut.splitlines())
    assert all(entry.strip() in cut for added in entries.values() for entry in added)


def test_a_fragment_of_no_kind_is_refused(tmp_path: Path) -> None:
    """Catches: a fragment that stays behind because of its name."""
    (tmp_path / "a.added.md").write_text("A.", encoding="utf-8")
    assert list(fragments(tmp_path).values()) == ["added"]
    for name in ("b.md", "c.new.md"):
        (tmp_path / name).write_text("B.", encoding="utf-8")
        with pytest.raises(SystemExit):
            fragments(tmp_path)
        (tmp_path / name).unlink()
