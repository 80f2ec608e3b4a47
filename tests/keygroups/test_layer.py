"""What holds for the layer as a whole: independence of the process, imports, documentation."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import emberstate.keygroups
from tests.patience import PATIENCE

MODULES = [
    name for _, name, _ in pkgutil.iter_modules(emberstate.keygroups.__path__, "emberstate.keygroups.")
]

PROGRAM = """
from emberstate.keygroups import KeySchema
schema = KeySchema(("string", "bigint", "binary"))
keys = [(f"k\\xe9y-{i}", -i, bytes([i])) for i in range(100)]
print(hash("key"), [schema.hash64(key) for key in keys], [schema.key_group(key, 100) for key in keys])
"""


def run(hash_seed: str) -> tuple[str, str]:
    """Run PROGRAM in a new process; return (Python's own hash, ours)."""
    source = Path(next(iter(emberstate.keygroups.__path__))).parents[1]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    salted, _, ours = done.stdout.partition(" ")
    return salted, ours


def test_hashes_do_not_depend_on_the_process() -> None:
    """Catches: Python's salted hash() anywhere in the way from key to group."""
    one, other = run("1"), run("2")

    assert one[0] != other[0]
    assert one[1] == other[1]


def test_the_layer_imports_nothing_above_it() -> None:
    """Catches: a lower layer that grows a dependency on a higher one, or on pyspark."""
    for path in Path(next(iter(emberstate.keygroups.__path__))).glob("*.py"):
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or ".")
        ours = {n for n in imported if n.partition(".")[0] == "emberstate"}
        foreign = {n.partition(".")[0] for n in imported - ours} - sys.stdlib_module_names

        assert foreign <= {"xxhash"}, path.name
        assert all(n == "emberstate.errors" or n.startswith("emberstate.keygroups") for n in ours), path.name


def test_exports() -> None:
    """Catches: a public name that vanished or crept in."""
    assert emberstate.keygroups.__all__ == [
        "DEFAULT_MAX_PARALLELISM",
        "MAX_PARALLELISM_CAP",
        "KeyGroupRange",
        "KeySchema",
        "KeyType",
        "check_max_parallelism",
        "default_max_parallelism",
        "range_for_slot",
        "slot_for_key_group",
    ]


@pytest.mark.parametrize("name", ["emberstate.keygroups", *MODULES])
def test_doctests(name: str) -> None:
    """Catches: documentation that is not true."""
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert result.failed == 0
