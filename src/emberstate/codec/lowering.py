"""From a value to what msgspec encodes, where msgspec would lose something or not be deterministic.

What is lowered, and why: enum members to their names (values of `auto()` shift when members move); sets
and dicts into one order (equal state must give equal bytes, in every process); classes whose options or
hooks would make msgspec write something else than their fields.

Precondition: the value has passed the test of its type. Thread-safety: the functions are pure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import msgspec

from emberstate.codec.generator import Generator, attribute
from emberstate.codec.nodes import NATURAL, Node
from emberstate.codec.wire import Shape


def sorts_by_itself(node: Node) -> bool:
    """Whether msgspec's own "deterministic" order serves: it knows dicts with str keys, and sets."""
    return all(part.items[0].kind in ("str", "enum") for part in node.walk() if part.kind == "dict")


class LoweringBuilder:
    """Compiles the lowering of a type. `by_hand`: dicts and sets are ordered here, not by msgspec."""

    __slots__ = ("_by_hand", "_encode", "_generator")

    def __init__(self, generator: Generator, encode: Callable[[Any], bytes], *, by_hand: bool) -> None:
        self._generator = generator
        self._encode = encode
        self._by_hand = by_hand

    def build(self, shape: Shape) -> Callable[[Any], Any] | None:
        """The lowering as a function; None if msgspec encodes the value as it is."""
        if not self.needed(shape):
            return None
        return self._generator.function("v", [f"return {self.expression(shape, 'v')}"])

    def needed(self, shape: Shape) -> bool:
        """Whether values of this shape are lowered."""
        node = shape.node
        if node.kind == "enum" or not node.plain:
            return True
        if node.kind in ("set", "frozenset") and (self._by_hand or node.items[0].kind not in NATURAL):
            return True
        if node.kind == "dict" and (self._by_hand or node.items[0].kind not in ("str", "enum")):
            return True
        if node.kind == "typeddict" and self._by_hand:
            return True
        return any(self.needed(part) for part in (*shape.items, *shape.fields))

    def expression(self, shape: Shape, v: str) -> str:
        """Source of the lowered form of the variable (or simple source) `v`."""
        if not self.needed(shape):
            return v
        kind = shape.node.kind
        if kind == "enum":
            return f"{v}._name_"
        body = getattr(self, f"_{kind}")(shape)
        return f"{self._generator.define('v', body)}({v})"

    def _list(self, shape: Shape) -> list[str]:
        return [f"return [{self.expression(shape.items[0], 'x')} for x in v]"]

    _vartuple = _list

    def _tuple(self, shape: Shape) -> list[str]:
        parts = [self.expression(part, f"v[{i}]") for i, part in enumerate(shape.items or shape.fields)]
        return [f"return [{', '.join(parts)}]"]

    _namedtuple = _tuple

    def _set(self, shape: Shape) -> list[str]:
        item = shape.items[0]
        if item.node.kind in NATURAL:
            return ["return sorted(v)"]
        encode, raw = self._generator.bind(self._encode), self._generator.bind(msgspec.Raw)
        return [f"return [{raw}(b) for b in sorted([{encode}({self.expression(item, 'x')}) for x in v])]"]

    _frozenset = _set

    def _dict(self, shape: Shape) -> list[str]:
        key, value = shape.items
        if key.node.sortable:
            order = "sorted(v)"
            if key.node.kind == "enum":
                order = f"sorted(v, key={self._generator.bind(operator.attrgetter('_name_'))})"
            return [
                f"return {{{self.expression(key, 'k')}: {self.expression(value, 'v[k]')} for k in {order}}}"
            ]
        bind = self._generator.bind
        encode, raw, first = bind(self._encode), bind(msgspec.Raw), bind(operator.itemgetter(0))
        pair = f"({encode}({self.expression(key, 'k')}), {self.expression(value, 'x')})"
        return [
            f"pairs = sorted([{pair} for k, x in v.items()], key={first})",
            f"return [({raw}(b), x) for b, x in pairs]",
        ]

    def _dataclass(self, shape: Shape) -> list[str]:
        # Lowered fields go into an object of their own: a Struct, which msgspec writes in field order.
        names = [field.name for field in shape.node.fields]
        shadow = self._generator.bind(
            msgspec.defstruct("Lowered", names, tag=shape.node.tag, tag_field=shape.node.tag_field)
        )
        parts = zip(names, shape.fields, strict=True)
        return [
            f"return {shadow}({', '.join(self.expression(part, attribute(name)) for name, part in parts)})"
        ]

    _struct = _dataclass

    def _typeddict(self, shape: Shape) -> list[str]:
        lines = ["d = {k: v[k] for k in sorted(v)}" if self._by_hand else "d = v.copy()"]
        for field, part in zip(shape.node.fields, shape.fields, strict=True):
            if self.needed(part):
                place = f"d[{field.name!r}]"
                lines += [f"if {field.name!r} in d:", f"    {place} = {self.expression(part, place)}"]
        return [*lines, "return d"]

    def _union(self, shape: Shape) -> list[str]:
        lines = []
        for item in shape.items:
            if self.needed(item):
                lines += [f"if type(v) is {self._generator.bind(item.node.cls)}:"]
                lines += [f"    return {self.expression(item, 'v')}"]
        return [*lines, "return v"]
