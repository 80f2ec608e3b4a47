"""The README, its Chinese twin, the glossary, and the pages that are made of other files or name tests."""

from __future__ import annotations

import re

import pytest
from benchmarks.page import PAGE, headline, page

from tests.project.markdown import ROOT, blocks, links

README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_the_chinese_readme_has_the_same_code_and_links() -> None:
    """Catches: one README that was changed and the other that was not."""
    code, chinese_code = ([(block.info, block.lines) for block in blocks(text)] for text in (README, CHINESE))
    here, there = (sorted({link.replace(".zh.md", ".md") for link in links(text)}) for text in (README, CHINESE))

    assert code
    assert chinese_code == code
    assert there == here
    assert [len(re.findall(pattern, CHINESE, re.MULTILINE)) for pattern in ("^## ", r"^\d\. ", "^- ")] == [
        len(re.findall(pattern, README, re.MULTILINE)) for pattern in ("^## ", r"^\d\. ", "^- ")
    ]


def test_the_readme_is_a_screen_and_a_half() -> None:
    """Catches: a README that grows by what belongs on pages of its own."""
    example = next(block for block in blocks(README) if block.info[:1] == ("python",))

    assert len(README.splitlines()) <= 80
    assert sum(1 for line in example.lines if line) <= 15


def test_numbers_of_guarantees_are_permanent() -> None:
    """Catches: a guarantee that was renumbered, here or in the README, while others name it by its number."""
    titles = re.findall(r"^## (\d+)\. (.+)$", GUARANTEES, re.MULTILINE)
    shown = re.findall(r"^(\d+)\. \*\*(.+?)\*\*", README, re.MULTILINE)

    assert [int(number) for number, _ in titles] == list(range(1, 16))
    assert set(shown) < set(titles)


@pytest.mark.parametrize(("name", "path"), re.findall(r"\[(\w+)\]\(\.\./(tests/\S+)\)", GUARANTEES))
def test_a_test_of_a_guarantee_is_there(name: str, path: str) -> None:
    """Catches: a test that was renamed or removed while a guarantee rests on it."""
    assert re.search(rf"\bdef {name}\(", (ROOT / path).read_text(encoding="utf-8"))


def test_every_guarantee_has_a_test() -> None:
    """Catches: a promise that nothing tests."""
    parts = re.split(r"^## ", GUARANTEES, flags=re.MULTILINE)[1:]

    assert [part.splitlines()[0] for part in parts if "../tests/" not in part] == []


def test_benchmarks_are_those_of_the_result_files() -> None:
    """Catches: numbers on a page that nothing has printed."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.page"
    assert any(block.lines == (headline(),) for block in blocks(README))


def test_the_glossary_is_short() -> None:
    """Catches: a glossary that becomes another manual."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z][^|]*) \| [^|\n]+ \|$", text, re.MULTILINE)

    assert 20 < len(rows) <= 42
    assert rows == sorted(rows)


def test_the_code_uses_the_words_of_the_glossary() -> None:
    """Catches: a word that is explained here while the code calls the thing by another name."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    source = " ".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py")).lower()
    plain = re.sub(r"[\s_-]+", " ", source)
    words = [word.replace("-", " ") for word in re.findall(r"^\| ([a-z][^|]*) \|", text, re.MULTILINE)]

    assert [word for word in words if len(re.findall(rf"\b{word}", plain)) < 3] == []
