"""What type checkers see of a user's function: mypy accepts the right one, and names what is wrong in the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]

RIGHT = '''
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import emberstate as es


@dataclasses.dataclass
class Payment:
    card: str
    amount: float


class Alert(NamedTuple):
    card: str
    total: float


class Totals(es.KeyedProcessFunction[Payment, str, Alert]):
    total = es.value_state(float, default=0.0)

    def process_element(self, row: Payment, ctx: es.FunctionContext) -> Iterator[Alert]:
        self.total.update(self.total.value() + row.amount)
        yield Alert(row.card, self.total.value())

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Alert | None:
        return None


class Batches(es.KeyedProcessFunction[Payment]):
    def process_batch(self, key: str, rows: list[Payment], ctx: es.FunctionContext) -> Iterator[tuple[str, float]]:
        yield key, sum(row.amount for row in rows)


class Both(es.KeyedCoProcessFunction[Payment, Alert, str, Alert]):
    def process_element1(self, row: Payment, ctx: es.FunctionContext) -> None: ...

    def process_element2(self, row: Alert, ctx: es.FunctionContext) -> list[Alert]:
        return [row]


class Plain(es.KeyedProcessFunction):
    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[str, int]]:
        yield row.card, 1


pipeline = (
    es.Pipeline("cards", es.MemoryStateBackend())
    .key_by("card")
    .process("totals", Totals())
    .key_by("card")
    .process("plain", Plain(), "card string, n int", columns=["card"])
)
'''

#: What is wrong in the other program, and what a type checker says of it.
MISTAKES = (
    ("value() + row.amount)", "value() + row.amuont)", "amuont"),
    ("yield Alert(row.card, self.total.value())", "yield Payment(row.card, 1.0)", "expected type \"Alert\""),
    ("process_element2(self, row: Alert,", "process_element2(self, row: Payment,", "process_element2"),
    ("Iterator[tuple[str, int]]", "Iterator[int]", "Iterator[int]"),
)


def checked(tool: list[str], path: Path, text: str) -> tuple[int, str]:
    """The result of a type checker over a program."""
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", *tool, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * PATIENCE, check=False)
    return done.returncode, done.stdout + done.stderr


def test_mypy_checks_a_whole_function(tmp_path: Path) -> None:
    """Catches: public names that are Any to a type checker, a plain function that strict mypy refuses, and a row, an
    output or an input of the wrong type that it lets pass."""
    mypy = ["mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    status, output = checked(mypy, tmp_path / "right.py", RIGHT)
    assert status == 0, output
    wrong = RIGHT
    for right, mistake, _ in MISTAKES:
        assert right in wrong
        wrong = wrong.replace(right, mistake)
    status, output = checked(mypy, tmp_path / "wrong.py", wrong)
    assert status == 1, output
    for _, _, found in MISTAKES:
        assert found in output, output


@pytest.mark.long
def test_pyright_takes_it_as_mypy_does(tmp_path: Path) -> None:
    """Catches: generics that one type checker understands and the other does not."""
    pytest.importorskip("pyright")
    status, output = checked(["pyright", "--pythonpath", sys.executable], tmp_path / "right.py", RIGHT)
    assert status == 0, output
