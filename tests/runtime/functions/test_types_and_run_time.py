"""What type checkers are told about states is what states give.

`assert_type` is read by mypy (`make check`) and by pyright; at run time, what comes is compared with what it says.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import pytest

import emberstate as es
from emberstate.testing import Harness


class Typed(es.KeyedProcessFunction):
    """States of all kinds that had types of their own."""

    count = es.value_state(int, default=0)
    expiring = es.value_state(int, default=0, ttl="1 hour")
    exact = es.value_state(float, default=0)
    bare = es.value_state(int)
    bare_expiring = es.value_state(str, ttl="1 hour")
    optional = es.value_state(int | None)
    either = es.value_state(int | str, default="none yet")
    numbers = es.list_state(float)
    mixed = es.list_state(int | str)
    pairs = es.map_state(str, float)
    optional_pairs = es.map_state(str, float | None)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> list[tuple[str]]:
        given = [
            assert_type(self.count.value(), int),
            assert_type(self.expiring.value(), int),
            assert_type(self.exact.value(), float),
            assert_type(self.bare.value(), int | None),
            assert_type(self.bare_expiring.value(), str | None),
            assert_type(self.numbers.get(), list[float]),
            assert_type(self.pairs.get("x"), float | None),
        ]
        optional: int | None = self.optional.value()
        either: int | str | None = self.either.value()
        self.optional.update(None)
        self.mixed.add_all([1, "one"])
        self.optional_pairs["a"] = None
        return [(f"{given} {optional} {either} {self.mixed.get()} {dict(self.optional_pairs.items())}",)]


def test_states_give_what_their_types_say() -> None:
    """Catches: a read that is typed as never None and is, or the other way round."""
    with Harness(Typed(), schema="k string", key="k", output="text string") as harness:
        (row,) = harness.process(("a",))
    assert row.text == "[0, 0, 0.0, None, None, [], None] None none yet [1, 'one'] {'a': None}"


def test_pyright_takes_it_as_mypy_does() -> None:
    """Catches: a declaration, `value_state(int | None)` say, that one of the two type checkers refuses."""
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(Path(__file__))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "0 errors" in done.stdout, done.stdout + done.stderr
