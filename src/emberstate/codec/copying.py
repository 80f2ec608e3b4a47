"""Copies of values by their declared type, no deeper than something is mutable.

An immutable value is its own copy; a container of such values is copied one level; the rest part by part. Copies share
nothing mutable with the original, nor within themselves: as after a restore, an object referenced twice becomes two.

Thread-safety: the functions are pure, but a value must not change while it is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import force_setattr

from emberstate.codec.checker import only_fields_and_caches
from emberstate.codec.generator import Generator, attribute
from emberstate.codec.lifting import fill
from emberstate.codec.nodes import Node


class CopyBuilder:
    """Compiles the copier of a type."""

    __slots__ = ("_generator",)

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def build(self, node: Node) -> Callable[[Any], Any]:
        """The copier as a function."""
        return self._generator.function("v", [f"return {self.expression(node, 'v')}"])

    def expression(self, node: Node, v: str) -> str:
        """Source of a copy of the variable (or simple source) `v`."""
        if node.immutable:
            return v
        if node.kind in ("list", "dict", "set") and all(item.immutable for item in node.items):
            return f"{v}.copy()"
        body = getattr(self, f"_{node.kind}")(node)
        return f"{self._generator.define('v', body)}({v})"

    def _list(self, node: Node) -> list[str]:
        return [f"return [{self.expression(node.items[0], 'x')} for x in v]"]

    def _dict(self, node: Node) -> list[str]:
        return [f"return {{k: {self.expression(node.items[1], 'x')} for k, x in v.items()}}"]

    def _vartuple(self, node: Node) -> list[str]:
        return [f"return tuple([{self.expression(node.items[0], 'x')} for x in v])"]

    def _tuple(self, node: Node) -> list[str]:
        return [f"return {self._indexed(node.items)}"]

    def _namedtuple(self, node: Node) -> list[str]:
        parts = self._indexed(tuple(field.node for field in node.fields))
        make = self._generator.bind(tuple.__new__)
        return [f"return {make}({self._generator.bind(node.cls)}, {parts})"]

    def _indexed(self, parts: tuple[Node, ...]) -> str:
        return "(" + "".join(f"{self.expression(part, f'v[{i}]')}, " for i, part in enumerate(parts)) + ")"

    def _dataclass(self, node: Node) -> list[str]:
        if node.in_dict is None or len(node.in_dict) < len(node.fields) or node.caches:
            # Fields only: what a cached_property remembers may be mutable, and belongs to one object.
            values = [(f.name, self.expression(f.node, attribute(f.name))) for f in node.fields]
            return [*self._no_extras(node), *fill(self._generator, node, values), "return o"]
        # All attributes, so that an undeclared one is not quietly dropped here but refused when encoded.
        lines = [*fill(self._generator, node, []), "d = o.__dict__", "d.update(v.__dict__)"]
        for field in node.fields:
            if not field.node.immutable:
                place = f"d[{field.name!r}]"
                lines += [f"{place} = {self.expression(field.node, place)}"]
        return [*lines, "return o"]

    def _no_extras(self, node: Node) -> list[str]:
        if node.in_dict is None:
            return []
        bind = self._generator.bind
        test = f"{bind(only_fields_and_caches)}(v, {bind(node)})"
        return [f"if not {test}:", "    raise TypeError('an undeclared attribute')"]

    def _struct(self, node: Node) -> list[str]:
        put = self._generator.bind(force_setattr)  # also reaches fields of a frozen Struct
        lines = [*self._no_extras(node), "o = v.__copy__()"]
        for field in node.fields:
            if not field.node.immutable:
                lines.append(
                    f"{put}(o, {field.name!r}, {self.expression(field.node, attribute(field.name))})"
                )
        return [*lines, "return o"]

    def _typeddict(self, node: Node) -> list[str]:
        lines = ["o = v.copy()"]
        for field in node.fields:
            if not field.node.immutable:
                place = f"o[{field.name!r}]"
                lines += [f"if {field.name!r} in o:", f"    {place} = {self.expression(field.node, place)}"]
        return [*lines, "return o"]

    def _union(self, node: Node) -> list[str]:
        lines = []
        for item in node.items:
            if not item.immutable:
                lines += [f"if type(v) is {self._generator.bind(item.cls)}:"]
                lines += [f"    return {self.expression(item, 'v')}"]
        return [*lines, "return v"]
