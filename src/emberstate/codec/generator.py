"""A small builder of Python functions from source text, as `dataclasses` and `namedtuple` do it.

Checking, lowering, lifting and copying are compiled once per declared type, because they run for every
value of every commit. No text of a user ever becomes source: names of fields are only used where they are
identifiers, and every other object is bound to a generated name.

Thread-safety: a generator is used by one thread while a codec is built; the functions it makes are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Generator:
    """Collects functions that see one another and the objects bound to them.

    >>> g = Generator("demo")
    >>> limit = g.bind(10)
    >>> g.function("v", [f"return v < {limit}"])(3)
    True
    """

    __slots__ = ("_count", "_label", "_namespace")

    def __init__(self, label: str) -> None:
        self._label = label
        self._namespace: dict[str, Any] = {}
        self._count = 0

    def bind(self, value: Any) -> str:
        """A name under which generated code finds `value`."""
        self._count += 1
        name = f"_{self._count}"
        self._namespace[name] = value
        return name

    def function(self, parameters: str, body: Iterable[str]) -> Callable[..., Any]:
        """Compile `def …(parameters): body`."""
        self._count += 1
        name = f"f{self._count}"
        source = "\n    ".join([f"def {name}({parameters}):", *body])
        exec(compile(source, f"<emberstate codec {self._label}>", "exec"), self._namespace)
        function: Callable[..., Any] = self._namespace[name]
        return function

    def define(self, parameters: str, body: Iterable[str]) -> str:
        """Compile a function for other generated code: its name."""
        return self.function(parameters, body).__name__


def attribute(name: str, of: str = "v") -> str:
    """Source that reads an attribute; identifiers only, which class bodies guarantee."""
    if not name.isidentifier():
        raise ValueError(f"not an identifier: {name!r}")
    return f"{of}.{name}"
