"""A lower layer never imports a higher one, nor a third-party module that is not meant for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.project.layers import violations
from tests.project.module_graph import cycle, module_graph

SOURCE = Path(__file__).parents[2] / "src"


def test_the_package_keeps_its_layers() -> None:
    """Catches: an engine that cannot be used or tested without what stands on it, such as Spark."""
    assert violations(SOURCE) == []


def tree(folder: Path, files: dict[str, str]) -> Path:
    """A source tree with these files in the package."""
    for name, text in files.items():
        file = folder / "emberstate" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("heap/map.py", "from emberstate.state.changes import ABSENT"),
        ("heap/map.py", "import emberstate.heap.map.entry"),
        ("heap/map/x.py", "from . import entry\nfrom ...codec import base"),
        ("heap/map.py", "import cython\nimport threading\nfrom cython.cimports.emberstate.state import x"),
        (
            "heap/map.pxd",
            "from emberstate.heap.map.entry cimport Entry\nfrom libc.stdint cimport int64_t\ncimport cython",
        ),
        ("keygroups/hash.py", "from emberstate.errors import E\nfrom xxhash import xxh64"),
        ("state/x.py", "from emberstate import codec, errors"),
        ("codec/x.py", "import msgspec\nfrom emberstate.keygroups import KeySchema"),
        ("spark/pipeline.py", "def f():\n    import pyspark.sql"),
        ("__init__.py", "from emberstate.spark import Pipeline"),
    ],
)
def test_what_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    """Catches: a check that objects to what the design allows."""
    assert violations(tree(tmp_path, {name: text})) == []


@pytest.mark.parametrize(
    ("name", "text", "line", "culprit"),
    [
        ("heap/map.py", "import emberstate.checkpoint.storage", 1, "emberstate.checkpoint.storage"),
        ("heap/map.py", "from emberstate.checkpoint import storage", 1, "emberstate.checkpoint"),
        ("heap/map.py", "import os\nfrom emberstate import errors, runtime", 2, "emberstate.runtime"),
        ("heap/map/x.py", "from ...runtime import timers", 1, "emberstate.runtime"),
        ("heap/map/x.py", "from ... import runtime", 1, "emberstate.runtime"),
        ("heap/map.py", "def f():\n    from emberstate.runtime import x", 2, "emberstate.runtime"),
        ("heap/map.py", "if TYPE_CHECKING:\n    import emberstate.ui", 2, "emberstate.ui"),
        ("heap/map.py", "importlib.import_module('emberstate.spark')", 1, "emberstate.spark"),
        ("heap/map.py", "from cython.cimports.emberstate.runtime import x", 1, "emberstate.runtime"),
        ("heap/map.pxd", "# x\nfrom emberstate.runtime.timers cimport T", 2, "emberstate.runtime.timers"),
        ("heap/map.pxd", "from emberstate cimport (errors,\n    runtime)", 1, "emberstate.runtime"),
        ("heap/map.pxd", "cimport emberstate.spark.slot", 1, "emberstate.spark.slot"),
        ("heap/map.pxd", "cimport scipy", 1, "scipy"),
        ("heap/map.py", "from emberstate import MapState", 1, "emberstate.MapState"),
        ("heap/map.py", "import emberstate", 1, "emberstate"),
        ("heap/map.py", "from emberstate.rocksdb import x", 1, "emberstate.rocksdb"),
        ("codec/x.py", "from emberstate.state import x", 1, "emberstate.state"),
        ("keygroups/x.py", "from emberstate._hot import HOT_MODULES", 1, "emberstate._hot"),
        ("keygroups/x.py", "import msgspec", 1, "msgspec"),
        ("checkpoint/files/x.py", "def f():\n    import pyspark", 2, "pyspark"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, text: str, line: int, culprit: str) -> None:
    """Catches: a check that never fails: each way to import upwards or sideways is found where it is."""
    [found] = violations(tree(tmp_path, {name: text}))

    layer = name.partition("/")[0]
    assert found.startswith(f"emberstate/{name}:{line}: {layer} must not import {culprit}:")


@pytest.mark.parametrize(
    ("name", "text", "culprit"),
    [
        ("heap/map/x.py", "from emberstate.heap.states.kinds import x", "emberstate.heap.states.kinds"),
        ("checkpoint/files/x.py", "from ..manifest import model", "emberstate.checkpoint.manifest"),
        ("checkpoint/read/x.py", "def f():\n    import emberstate.checkpoint.commit", "emberstate.checkpoint.commit"),
        ("runtime/rows/x.py", "from emberstate.runtime import Row", "emberstate.runtime"),
        ("heap/states/x.pxd", "cimport emberstate.heap.backend", "emberstate.heap.backend"),
    ],
)
def test_what_a_room_is_refused(tmp_path: Path, name: str, text: str, culprit: str) -> None:
    """Catches: rooms that are folders in name only, since each may import every other."""
    [found] = violations(tree(tmp_path, {name: text}))

    assert f"must not import {culprit}:" in found


def test_a_room_without_a_place(tmp_path: Path) -> None:
    """Catches: a new room, or a loose module beside the rooms, that escapes the rules."""
    [found] = violations(tree(tmp_path, {"heap/utils.py": "import emberstate.heap.map.entry"}))

    assert found.startswith("emberstate/heap/utils.py: heap.utils has no place in ROOMS")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Catches: two modules that can only be understood, and only be imported, together."""
    assert cycle(module_graph(SOURCE)) is None


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Catches: a search for circles that finds none, whatever there is."""
    files = {
        "a.py": "from emberstate.b import x",
        "b.pxd": "from emberstate.c cimport y",
        "c.py": "if TYPE_CHECKING:\n    from emberstate import a",
        "d.py": "def f():\n    import emberstate.d\nimport emberstate.c",
    }
    found = cycle(module_graph(tree(tmp_path, files)))
    assert found == ["emberstate.a", "emberstate.b", "emberstate.c", "emberstate.a"]


def test_a_module_without_a_layer(tmp_path: Path) -> None:
    """Catches: a new top-level module that escapes the rules because nobody gave it a place."""
    [found] = violations(tree(tmp_path, {"utils.py": "import emberstate.spark"}))

    assert found.startswith("emberstate/utils.py: utils has no place in LAYERS")


def backend_checks(source: Path) -> list[str]:
    """Where a layer above the backends asks for the class of a backend, its table or its loader: a line each."""
    found = []
    for layer in ("checkpoint", "runtime", "spark", "testing", "cli"):
        for file in sorted((source / "emberstate" / layer).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                        names = {name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)}
                        if any(re.fullmatch(r"(Heap|RocksDB|Bulk)(?!StateBackend)\w+", name) for name in names):
                            found.append(f"{file.relative_to(source)}:{node.lineno}")
    return found


def test_no_layer_asks_which_backend_it_has(tmp_path: Path) -> None:
    """Catches: a third backend that a checkpoint cannot restore, because it knows the two by their classes."""
    assert backend_checks(SOURCE) == []
    asks = "x = 1\nassert isinstance(backend, int | HeapKeyedStateBackend)\nassert isinstance(b, RocksDBStateBackend)"
    assert backend_checks(tree(tmp_path, {"checkpoint/x.py": asks})) == ["emberstate/checkpoint/x.py:2"]
