"""Reads what the documentation tests need out of Markdown: code blocks, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


def documents() -> list[Path]:
    """The project's pages: those at its root and all below docs."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def run_documents() -> list[Path]:
    """The pages whose code is run: README.zh.md has that of README.md, which a test sees to."""
    return [file for file in documents() if file.name != "README.zh.md"]


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, the number of its first line, its lines."""

    info: tuple[str, ...]
    start: int
    lines: tuple[str, ...]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page; one that is never closed ends with the page, as Markdown has it."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = re.match(r"( *)(`{3,}|~{3,})(.*)", lines[number])
        number += 1
        if fence:
            start = number
            while number < len(lines) and not re.fullmatch(rf" *{fence[2]}{fence[2][0]}* *", lines[number]):
                number += 1
            content = tuple(line.removeprefix(fence[1]) for line in lines[start:number])
            yield Block(tuple(fence[3].split()), start + 1, content)
            number += 1


def prose(text: str) -> str:
    """The page without code, in which brackets and number signs mean other things."""
    lines = text.splitlines()
    for block in blocks(text):
        for number in range(block.start - 1, block.start - 1 + len(block.lines)):
            lines[number] = ""
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", " ", code[0]), "\n".join(lines))


def links(text: str) -> list[str]:
    """The targets of the page's links and images, written inline or as references."""
    plain = prose(text)
    return [
        *re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", plain),
        *re.findall(r"^ {0,3}\[[^\]]+\]:\s*(\S+)", plain, re.MULTILINE),
    ]


def headings(text: str) -> list[str]:
    return re.findall(r"^#{1,6} +(.+?) *#*$", prose(text), re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The fragments that lead to the page's headings, as code hosts make them."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings(text)}
