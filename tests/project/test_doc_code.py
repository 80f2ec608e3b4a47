"""The Python code in the documentation runs.

The blocks of a page are one program, run in order in an empty folder. A block marked ```` ```python
no-run ```` (it needs Spark, say) is compiled only; as each such block is a test, their number is seen.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.markdown import ROOT, Block, blocks, documents


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
        timeout=120,
        check=False,
    )


PAGES = [file for file in documents() if python_blocks(file, run=True)]
NOT_RUN = [(file, block) for file in documents() for block in python_blocks(file, run=False)]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_code_runs(file: Path, tmp_path: Path) -> None:
    """Catches: an example that the code has moved away from."""
    done = run(file, tmp_path)

    assert done.returncode == 0, done.stderr


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
