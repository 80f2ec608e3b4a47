"""The documentation holds together: links lead somewhere, decision records are complete and in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.markdown import ROOT, anchors, documents, headings, links

DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(file for file in DECISIONS.glob("*.md") if file.name != "README.md")


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def broken(file: Path, root: Path) -> list[str]:
    """The page's links within the project that lead nowhere, or out of it."""
    found = []
    for link in links(file.read_text(encoding="utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (file.parent / path).resolve() if path else file.resolve()
        if (
            not target.is_relative_to(root.resolve())
            or not target.exists()
            or (
                fragment
                and target.suffix == ".md"
                and fragment not in anchors(target.read_text(encoding="utf-8"))
            )
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("file", documents(), ids=name)
def test_links(file: Path) -> None:
    """Catches: a link to a page or heading that was renamed or never written."""
    assert broken(file, ROOT) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    """Catches: a link check that finds nothing."""
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A *heading*, here\n", encoding="utf-8")
    page.write_text(
        "[a](other.md) [b](other.md#a-heading-here) [c](#top) [d](https://example.org/x)\n# Top\n"
        "```\n[e](code.md)\n```\n`[f](code.md)`\n"
        "[g](missing.md) ![h](missing.png) [i](other.md#missing) [j](../outside.md)\n\n[k]: gone.md\n",
        encoding="utf-8",
    )

    assert broken(page, tmp_path) == [
        "missing.md",
        "missing.png",
        "other.md#missing",
        "../outside.md",
        "gone.md",
    ]


def test_decision_numbers_are_unique() -> None:
    """Catches: two records written at the same time under one number, which then stands for either."""
    numbers = [file.name.partition("-")[0] for file in RECORDS]

    assert RECORDS
    assert all(re.fullmatch(r"\d{4}", number) for number in numbers), numbers
    assert len(numbers) == len(set(numbers)), numbers


@pytest.mark.parametrize("file", RECORDS, ids=name)
def test_decision_records_are_complete(file: Path) -> None:
    """Catches: a record that says what was decided and not why, or that the index does not list."""
    titles = headings(file.read_text(encoding="utf-8"))
    index = links((DECISIONS / "README.md").read_text(encoding="utf-8"))

    numbered = re.match(r"(\d+)\W", titles[0])
    assert numbered is not None, titles[0]
    assert int(numbered[1]) == int(file.name.partition("-")[0])
    assert {"Context", "Decision", "Consequences"} <= set(titles)
    assert file.name in index
