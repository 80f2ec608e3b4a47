"""From what msgspec decoded back to the value: the inverse of `lowering`.

Objects get their fields back as they were: neither `__init__` nor `__post_init__` runs.
Whatever bytes say, only the declared classes are ever made. Thread-safety: the functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.codec.generator import Generator
from emberstate.codec.nodes import Node
from emberstate.codec.wire import Shape


class LiftingBuilder:
    """Compiles the lifting of a type."""

    __slots__ = ("_generator",)

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def build(self, shape: Shape) -> Callable[[Any], Any] | None:
        """The lifting as a function; None if msgspec returns the value itself."""
        if shape.same or not self._needed(shape):
            return None
        return self._generator.function("v", [f"return {self.expression(shape, 'v')}"])

    def _needed(self, shape: Shape) -> bool:
        if shape.node.kind == "union":
            return any(self._needed(item) for item in shape.items)
        return not shape.same

    def expression(self, shape: Shape, v: str) -> str:
        """Source of the value made of the variable (or simple source) `v`."""
        if not self._needed(shape):
            return v
        kind = shape.node.kind
        if kind == "enum":
            assert shape.node.cls is not None
            # Aliases count: a renamed member restores if its old name stays as an alias.
            return f"{self._generator.bind(dict(shape.node.cls.__members__))}[{v}]"
        body = getattr(self, f"_{kind}")(shape)
        return f"{self._generator.define('v', body)}({v})"

    def _list(self, shape: Shape) -> list[str]:
        return [f"return [{self.expression(shape.items[0], 'x')} for x in v]"]

    def _set(self, shape: Shape) -> list[str]:
        return [f"return {{{self.expression(shape.items[0], 'x')} for x in v}}"]

    def _frozenset(self, shape: Shape) -> list[str]:
        return [
            f"return {self._generator.bind(frozenset)}([{self.expression(shape.items[0], 'x')} for x in v])"
        ]

    def _vartuple(self, shape: Shape) -> list[str]:
        return [f"return tuple([{self.expression(shape.items[0], 'x')} for x in v])"]

    def _tuple(self, shape: Shape) -> list[str]:
        return [f"return {self._indexed(shape.items)}"]

    def _namedtuple(self, shape: Shape) -> list[str]:
        make = self._generator.bind(tuple.__new__)
        return [f"return {make}({self._generator.bind(shape.node.cls)}, {self._indexed(shape.fields)})"]

    def _indexed(self, parts: tuple[Shape, ...]) -> str:
        return "(" + "".join(f"{self.expression(part, f'v[{i}]')}, " for i, part in enumerate(parts)) + ")"

    def _dict(self, shape: Shape) -> list[str]:
        key, value = shape.items
        pairs = "v.items()" if shape.node.items[0].sortable else "v"
        return [f"return {{{self.expression(key, 'k')}: {self.expression(value, 'x')} for k, x in {pairs}}}"]

    def _dataclass(self, shape: Shape) -> list[str]:
        names = [field.name for field in shape.node.fields]
        parts = zip(names, shape.fields, strict=True)
        values = [(name, self.expression(part, f"v.{name}")) for name, part in parts]
        return [*fill(self._generator, shape.node, values), "return o"]

    def _struct(self, shape: Shape) -> list[str]:
        names = [field.name for field in shape.node.fields]
        parts = zip(names, shape.fields, strict=True)
        values = ", ".join(f"{name}={self.expression(part, f'v.{name}')}" for name, part in parts)
        return [f"return {self._generator.bind(shape.node.cls)}({values})"]

    def _typeddict(self, shape: Shape) -> list[str]:
        lines = []
        for field, part in zip(shape.node.fields, shape.fields, strict=True):
            if self._needed(part):
                place = f"v[{field.name!r}]"
                lines += [f"if {field.name!r} in v:", f"    {place} = {self.expression(part, place)}"]
        return [*lines, "return v"]

    def _union(self, shape: Shape) -> list[str]:
        lines = []
        for item in shape.items:
            if self._needed(item):
                lines += [f"if type(v) is {self._generator.bind(item.cls)}:"]
                lines += [f"    return {self.expression(item, 'v')}"]
        return [*lines, "return v"]


def fill(generator: Generator, node: Node, values: list[tuple[str, str]]) -> list[str]:
    """Statements that make a dataclass object `o` of sources of its fields, running no code of the class."""
    assert node.cls is not None
    lines = [f"o = {generator.bind(object.__new__)}({generator.bind(node.cls)})"]
    cls: Any = node.cls
    if cls.__setattr__ is object.__setattr__:
        return lines + [f"o.{name} = {source}" for name, source in values]
    put = generator.bind(object.__setattr__)  # frozen, or a __setattr__ of its own
    return lines + [f"{put}(o, {name!r}, {source})" for name, source in values]
