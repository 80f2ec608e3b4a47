"""The ```console blocks of a page: commands, and what they print.

A line `$ …` is a command; what follows is its output. After two blanks a remark may say how it ends:

    # exit code 1     it ends with that code, else with 0
    # killed          it is killed once it has printed the lines that are shown, in this order, among others
    # not run         it is not run: it needs a network or a cluster, or takes long; see `objection`

In output, blanks, ids, sizes in bytes, hosts, today's times and how long a checkpoint took may differ; `…` stands for
anything, on a line of its own for any lines. A command without output shown may print anything.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator

from tests.project.markdown import ROOT, Block

_REMARK = re.compile(r" +# (exit code (?P<code>\d+)|(?P<killed>killed)|(?P<unrun>not run))$")

_VARYING = {
    r"\d+(\.\d)? ([KM]i)?B\b": "SIZE",
    r"[0-9a-f]{24}(:\d+)?": "ID",
    r"host \S+, pid \d+": "HOST",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z": "NOW",
    r"(?m)(?<=SIZE )\d+\.\d{3}$": "SECONDS",
}

#: What may be marked as not run.
_NOT_RUN = {"git", "kill", "make", "pip", "spark-submit"}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command on a page."""

    line: int
    text: str
    code: int = 0
    killed: bool = False
    run: bool = True
    shown: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """As a shell sees them."""
        return shlex.split(self.text)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(block.lines, start=block.start):
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        else:
            found[-1][2].append(line)
    for number, text, shown in found:
        remark = _REMARK.search(text)
        if remark is None:
            yield Command(number, text, shown=tuple(shown))
        else:
            yield Command(
                number,
                text[: remark.start()],
                code=int(remark["code"] or 0),
                killed=remark["killed"] is not None,
                run=remark["unrun"] is None,
                shown=tuple(shown),
            )


def objection(command: Command) -> str | None:
    """What is wrong with a command that is not run, as far as that can be told."""
    program, *rest = command.words
    if program not in _NOT_RUN:
        return f"{program} is to be run"
    if program == "make":
        targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if not rest or rest[0] not in targets:
            return f"there is nothing called {rest} to make"
    return None


def normal(text: str) -> str:
    """Output without what may differ from run to run."""
    text = "\n".join(" ".join(line.split()) for line in text.splitlines() if line.split())
    for pattern, word in _VARYING.items():
        text = re.sub(pattern, word, text)
    return text


def matches(shown: str, output: str) -> bool:
    """Whether output is what a page shows."""
    pattern = ""
    for line in normal(shown).splitlines():
        pattern += r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
    return re.fullmatch(pattern, normal(output) + "\n") is not None


def has_printed(shown: tuple[str, ...], output: str) -> bool:
    """Whether the lines that a page shows have come, in their order, whatever came between them."""
    lines = iter(output.splitlines())
    return all(any(matches(wanted, line) for line in lines) for wanted in shown if wanted.split())
