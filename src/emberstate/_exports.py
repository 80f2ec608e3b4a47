"""Public names of a package, each imported from its module on first use.

A package's face does not import its rooms: importing one room would import them all, and slots would start
slower.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, names: Mapping[str, Iterable[str]], packages: Iterable[str] = ()) -> Callable[[str], Any]:
    """A package's `__getattr__` that finds the public names in these of its modules, and the packages inside it."""
    where = {name: module for module, listed in names.items() for name in listed}
    inside = frozenset(packages)

    def find(name: str) -> Any:
        if name in inside:
            return import_module(f"{package}.{name}")
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
