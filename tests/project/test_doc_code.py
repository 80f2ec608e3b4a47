"""The Python code and the commands in the documentation run.

The ```` ```python ```` blocks of a page are one program, run in order in an empty folder. A block marked ```` ```python
no-run ```` (it needs a cluster, say) is compiled only; as each such block is a test, their number is seen. A page
with a block marked ```` ```python spark ```` is run by `tests/spark/test_doc_pages.py`, one with ```` ```python
integration ```` by `make integration`. A page that has commands, too, is run by `tests.project.page`. The
```` ```pycon ```` blocks of a page are one doctest.
"""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

import emberstate
from tests.patience import PATIENCE
from tests.project.console import Command, commands, matches, objection
from tests.project.markdown import ROOT, Block, blocks, run_documents
from tests.project.page import has_files_or_commands, needs_servers, needs_spark

#: Its commands are run by `tests/cli/test_cli_docs.py`.
CLI_PAGE = ROOT / "docs" / "cli.md"


def python_blocks(file: Path, run: bool) -> list[Block]:
    found = blocks(file.read_text(encoding="utf-8"))
    return [block for block in found if block.info[:1] == ("python",) and ("no-run" not in block.info) is run]


def program(file: Path, chosen: list[Block]) -> str:
    """The blocks as one program in which every line has the number it has on the page."""
    lines = [""] * len(file.read_text(encoding="utf-8").splitlines())
    for block in chosen:
        lines[block.start - 1 : block.start - 1 + len(block.lines)] = block.lines
    return "\n".join(lines) + "\n"


def run(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's program, under the page's name so that a traceback points there."""
    script = folder / f"{file.name}.py"
    script.write_text(program(file, python_blocks(file, run=True)), encoding="utf-8")
    return subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def run_with_commands(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's code and its commands."""
    path = os.pathsep.join([str(ROOT), str(Path(emberstate.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-m", "tests.project.page", str(file)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def session(file: Path) -> doctest.DocTest:
    """The ```pycon blocks as one doctest in which every line has the number it has on the page."""
    chosen = [block for block in blocks(file.read_text(encoding="utf-8")) if block.info == ("pycon",)]
    return doctest.DocTestParser().get_doctest(program(file, chosen), {}, file.name, str(file), 0)


def differences(file: Path) -> str:
    """Run a page's session; what it prints differently from what the page shows."""
    reported: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(session(file), out=reported.append)
    return "".join(reported)


def has_commands(file: Path) -> bool:
    return file != CLI_PAGE and has_files_or_commands(file)


LOCAL = [file for file in run_documents() if not needs_spark(file) and not needs_servers(file)]
PAGES = [file for file in LOCAL if python_blocks(file, run=True) and not has_commands(file)]
PAGES_WITH_SESSIONS = [file for file in LOCAL if session(file).examples]
PAGES_WITH_COMMANDS = [file for file in LOCAL if has_commands(file)]
UNRUN_COMMANDS = [
    (file, command)
    for file in run_documents()
    for block in blocks(file.read_text(encoding="utf-8"))
    if block.info[:1] == ("console",)
    for command in commands(block)
    if not command.run
]
NOT_RUN = [(file, block) for file in run_documents() for block in python_blocks(file, run=False)]


#: They start Spark several times.
_LONG = ("state-tables.md", "survive-a-kill.md")


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=[pytest.mark.long] if file.name in _LONG else []) for file in PAGES],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_code_runs(file: Path, tmp_path: Path) -> None:
    """Catches: an example that the code has moved away from."""
    done = run(file, tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", PAGES_WITH_SESSIONS, ids=lambda file: str(file.relative_to(ROOT)))
def test_sessions_print_what_is_shown(file: Path) -> None:
    """Catches: a picture or result on a page that the code has moved away from."""
    assert differences(file) == ""


@pytest.mark.parametrize("file", PAGES_WITH_COMMANDS, ids=lambda file: str(file.relative_to(ROOT)))
def test_code_and_commands_run(file: Path, tmp_path: Path) -> None:
    """Catches: an example or a command that the code has moved away from; output that is not what the page shows."""
    done = run_with_commands(file, tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("file", "command"), [pytest.param(f, c, id=f"{f.relative_to(ROOT)}:{c.line}") for f, c in UNRUN_COMMANDS]
)
def test_commands_that_are_not_run(file: Path, command: Command) -> None:
    """Catches: a command that could be run and is not; one that makes what is not there."""
    assert objection(command) is None


@pytest.mark.parametrize(
    ("file", "block"), [pytest.param(f, b, id=f"{f.relative_to(ROOT)}:{b.start}") for f, b in NOT_RUN]
)
def test_code_that_is_not_run_is_python(file: Path, block: Block) -> None:
    """Catches: an example that cannot even be parsed."""
    compile(program(file, [block]), str(file), "exec")


def test_blocks_share_names_and_errors_show(tmp_path: Path) -> None:
    """Catches: a check that runs nothing, or each block on its own, or hides the line that failed."""
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n```python\nx = 1\n```\ntext\n```python no-run\nx = 2\n```\n```text\nx = 3\n```\n"
        "1. item\n   ```python\n   assert x == 1\n   raise SystemError(x)\n   ```\n",
        encoding="utf-8",
    )

    done = run(page, tmp_path)

    assert done.returncode == 1
    assert "line 15" in done.stderr
    assert "SystemError: 1" in done.stderr


def test_sessions_are_run_and_compared(tmp_path: Path) -> None:
    """Catches: a check of sessions that runs nothing, or each block on its own, or takes any output."""
    page = tmp_path / "page.md"
    page.write_text("# Title\n```pycon\n>>> x = 1\n```\ntext\n```pycon\n>>> x\n1\n```\n", encoding="utf-8")
    assert differences(page) == ""

    page.write_text("```pycon\n>>> x = 1\n```\ntext\n```pycon\n>>> x\n2\n```\n", encoding="utf-8")
    assert "line 6" in differences(page)


def test_commands_are_run_and_compared(tmp_path: Path) -> None:
    """Catches: a check of commands that runs nothing, or takes any output, or does not know a file's block."""
    page = Path("page.md")
    text = "```python task.py\nimport nothing\n```\n```console\n$ emberstate --version\nemberstate, version {}\n```\n"
    found = tmp_path / page.name
    found.write_text(text.format("…"), encoding="utf-8")
    assert has_files_or_commands(found)
    assert run_with_commands(found, tmp_path).returncode == 0
    assert (tmp_path / "task.py").read_text(encoding="utf-8") == "import nothing\n"

    found.write_text(text.format("77"), encoding="utf-8")
    done = run_with_commands(found, tmp_path)
    assert done.returncode == 1
    assert f"{page.name}:5: $ emberstate --version" in done.stderr


def test_output_is_compared() -> None:
    """Catches: a comparison that takes anything for what is shown."""
    assert matches("a   b 1.5 KiB\n\nc …", "a b 77 B\nc d e\n")
    assert matches("a\n…\nd", "a\nb\nc\nd\n")
    assert not matches("a b", "a c\n")
    assert not matches("a b", "a b\nmore\n")
    assert not matches("a …", "a b\nmore\n")
