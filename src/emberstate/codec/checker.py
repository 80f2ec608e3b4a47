"""Compiled tests whether a value is exactly of its declared type.

msgspec does not look at types when it encodes: a bool in a list[int] would be written and come back as a
bool, an int in a float field as a float. So a value is tested first. The test returns True or False (it may also
raise); `explain` then finds the place and the message.

A quick test (`deep=False`) skips what the encoder detects by itself: lone surrogates, and integers beyond 64 bits (see
`typed`). A deep test checks everything.

Thread-safety: the functions are pure. A value that another thread changes meanwhile may be misjudged.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any, Final

from emberstate.codec.generator import Generator, attribute
from emberstate.codec.nodes import INT_MAX, INT_MIN, LEAVES, MISSING, Node

Test = Callable[[Any], bool]
# Kinds for which the exact class says everything.
_CLASS_SAYS_ALL: Final = frozenset(["bool", "bytes", "date", "timedelta", "uuid", "enum"])


def is_text(value: str) -> bool:
    """Whether a str can be written: it has no lone surrogates.

    >>> is_text("é"), is_text("\\ud800")
    (True, False)
    """
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_key_float(value: float) -> bool:
    """Whether a float can be a key: equal floats must have equal encodings, so neither NaN nor -0.0.

    >>> is_key_float(0.5), is_key_float(-0.0), is_key_float(float("nan"))
    (True, False, False)
    """
    return value == value and (value != 0.0 or math.copysign(1.0, value) > 0)


class CheckerBuilder:
    """Compiles the test of a type; nested types become functions of their own, leaves are inlined."""

    __slots__ = ("_deep", "_generator", "_key")

    def __init__(self, generator: Generator, *, deep: bool, key: bool) -> None:
        self._generator = generator
        self._deep = deep
        self._key = key

    def build(self, node: Node) -> Test:
        """The test of `node` as a function."""
        return self._generator.function("v", [f"return {self.expression(node, 'v')}"])

    def expression(self, node: Node, v: str) -> str:
        """Source of a test of the variable `v`."""
        if node.kind in LEAVES:
            return self._leaf(node, v)
        if node.kind == "union":
            return "(" + " or ".join(f"({self.expression(item, v)})" for item in node.items) + ")"
        body = getattr(self, f"_{node.kind}")(node)
        return f"{self._generator.define('v', body)}({v})"

    def _leaf(self, node: Node, v: str) -> str:
        bind = self._generator.bind
        if node.kind == "none":
            return f"{v} is None"
        if node.kind == "literal":
            return f"type({v}) in {bind(frozenset(node.classes))} and {v} in {bind(frozenset(node.members))}"
        test = f"type({v}) is {bind(node.cls)}"
        if node.kind == "int" and self._deep:
            return f"{test} and {INT_MIN} <= {v} <= {INT_MAX}"
        if node.kind == "float" and self._key:
            return f"{test} and {bind(is_key_float)}({v})"
        if node.kind == "str" and self._deep:
            return f"{test} and {bind(is_text)}({v})"
        if node.kind == "datetime":
            utc = bind(datetime.UTC)
            return f"{test} and ({v}.tzinfo is {utc} or {v}.tzinfo is None) and not {v}.fold"
        if node.kind == "time":
            return f"{test} and {v}.tzinfo is None and not {v}.fold"
        if node.kind == "decimal":
            return f"{test} and {v}.is_finite()"
        return test

    def _each(self, node: Node, values: str, count: str = "v") -> list[str]:
        """Statements that return False unless every one of `values` (source of an iterable) is of `node`."""
        by_class = (
            node.kind in _CLASS_SAYS_ALL
            or (node.kind == "int")
            or (node.kind == "str" and not self._deep)
            or (node.kind == "float" and not self._key)
        )
        if not by_class:
            return [
                f"for x in {values}:",
                f"    if not ({self.expression(node, 'x')}):",
                "        return False",
            ]
        # Counting classes in C is the quickest exact test there is: list.count compares by identity first.
        lines = [f"if [*map(type, {values})].count({self._generator.bind(node.cls)}) != len({count}):"]
        lines += ["    return False"]
        if node.kind == "int" and self._deep:
            lines += [f"if {count} and (min({values}) < {INT_MIN} or max({values}) > {INT_MAX}):"]
            lines += ["    return False"]
        return lines

    def _class(self, node: Node) -> list[str]:
        return [f"if type(v) is not {self._generator.bind(node.cls)}:", "    return False"]

    def _list(self, node: Node) -> list[str]:
        return [*self._class(node), *self._each(node.items[0], "v"), "return True"]

    _vartuple = _list

    def _set(self, node: Node) -> list[str]:
        return [*self._class(node), *self._keys()._each(node.items[0], "v"), "return True"]

    _frozenset = _set

    def _dict(self, node: Node) -> list[str]:
        key, value = node.items
        lines = [*self._class(node), *self._keys()._each(key, "v"), *self._each(value, "v.values()")]
        return [*lines, "return True"]

    def _keys(self) -> CheckerBuilder:
        # Two NaNs in one dict would have the same encoding: no order, and no equality, could tell them apart.
        return CheckerBuilder(self._generator, deep=self._deep, key=True)

    def _tuple(self, node: Node) -> list[str]:
        lines = [*self._class(node), f"if len(v) != {len(node.items)}:", "    return False"]
        return lines + self._parts([(f"v[{i}]", item) for i, item in enumerate(node.items)])

    def _namedtuple(self, node: Node) -> list[str]:
        return self._class(node) + self._parts([(f"v[{i}]", f.node) for i, f in enumerate(node.fields)])

    def _dataclass(self, node: Node) -> list[str]:
        lines = self._class(node)
        in_dict = node.in_dict
        if in_dict is not None:
            # A count tells of an undeclared attribute. Fields are read from __dict__, because a deleted one
            # would show the default that stands in the class.
            lines += ["d = v.__dict__", f"if len(d) != {len(in_dict)}"]
            if node.caches:
                bind = self._generator.bind
                lines[-1] += f" and not {bind(only_fields_and_caches)}(v, {bind(node)})"
            lines[-1] += ":"
            lines += ["    return False"]
        held = in_dict or frozenset()
        sources = [f"d[{f.name!r}]" if f.name in held else attribute(f.name) for f in node.fields]
        return lines + self._parts([(source, f.node) for source, f in zip(sources, node.fields, strict=True)])

    _struct = _dataclass

    def _typeddict(self, node: Node) -> list[str]:
        required = [f for f in node.fields if f.required]
        lines = [*self._class(node), f"n = {len(required)}"]
        missing = self._generator.bind(MISSING)
        for field in node.fields:
            if not field.required:
                lines += [f"x = v.get({field.name!r}, {missing})", f"if x is not {missing}:", "    n += 1"]
                lines += [f"    if not ({self.expression(field.node, 'x')}):", "        return False"]
        lines += ["if len(v) != n:", "    return False", *self._each(_STR, "v")]
        return lines + self._parts([(f"v[{f.name!r}]", f.node) for f in required])

    def _parts(self, parts: list[tuple[str, Node]]) -> list[str]:
        lines = [f"x{i} = {source}" for i, (source, _) in enumerate(parts)]
        tests = [f"({self.expression(node, f'x{i}')})" for i, (_, node) in enumerate(parts)]
        return [*lines, "return " + (" and ".join(tests) or "True")]


_STR: Final = Node("str", str, str, "str", True, True, True)


def only_fields_and_caches(value: Any, node: Node) -> bool:
    """Whether an object's __dict__ holds its fields and nothing else but what cached_property put there."""
    in_dict = node.in_dict or frozenset()
    return bool(value.__dict__.keys() - (node.caches - in_dict) == in_dict)
