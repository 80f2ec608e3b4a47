"""Which module of the package imports which, and whether they do so in a circle.

What counts is what is imported when a module is, and what a type checker needs: an import inside a function is how a
module uses one that is made of it (a map its snapshot's reader).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.project.layers import PACKAGE, _cython_imports, _python_imports

Graph = Mapping[str, frozenset[str]]


def module_graph(source: Path) -> Graph:
    """The modules of the package below `source`, by name, each with those that it imports."""
    files: dict[str, list[Path]] = {}
    for file in [*(source / PACKAGE).rglob("*.py"), *(source / PACKAGE).rglob("*.pxd")]:
        parts = file.relative_to(source).with_suffix("").parts
        files.setdefault(".".join(parts).removesuffix(".__init__"), []).append(file)
    return {
        name: frozenset(found for file in paths for found in _imported(file, source, files)) - {name, PACKAGE}
        for name, paths in sorted(files.items())
        if name != PACKAGE
    }


def cycle(graph: Graph) -> list[str] | None:
    """Modules that import each other in a circle, the first again at the end; None if there are none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        path.append(module)
        for imported in sorted(graph.get(module, ())):
            if found := visit(imported):
                return found
        done.add(path.pop())
        return None

    for module in graph:
        if found := visit(module):
            return found
    return None


def _imported(file: Path, source: Path, modules: Mapping[str, object]) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    inside = file.relative_to(source).with_suffix("").parts[:-1]
    if file.suffix == ".pxd":
        found = _cython_imports(text)
    else:
        found = _python_imports(_WithoutFunctions().visit(ast.parse(text, str(file))), inside)
    for module, names, _ in found:
        module = module.removeprefix("cython.cimports.")
        if module.partition(".")[0] != PACKAGE:
            continue
        for name in names or [""]:
            target = f"{module}.{name}" if f"{module}.{name}" in modules else module
            while target not in modules:
                target = target.rpartition(".")[0]
            yield target


class _WithoutFunctions(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None
