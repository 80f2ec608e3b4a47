"""Explains why a value is not of its declared type: the place in it, and the message.

Only runs once a compiled test has said no, so it may be slow; it must agree with that test (a property
test compares them).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, NamedTuple

from emberstate.codec.checker import is_key_float, is_text, only_fields_and_caches
from emberstate.codec.nodes import INT_MAX, INT_MIN, KEYED, MISSING, Node
from emberstate.codec.refusals import label_of


class Problem(NamedTuple):
    """What is wrong with a value, and where in it."""

    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.field}: {self.what}"


def explain(node: Node, value: Any, *, key: bool = False, path: str = "$") -> Problem | None:
    """The first thing wrong with `value`, or None.

    >>> from emberstate.codec.declare import declare
    >>> explain(declare(list[int], "value"), [1, True])
    Problem(field='$[1]', what='expected int, got bool (True)')
    """
    if node.kind == "union":
        for item in node.items:
            if type(value) in item.classes:
                return explain(item, value, key=key, path=path)
        return Problem(path, f"expected {node.label}, got {_shown(value)}")
    if node.kind == "literal":
        if any(type(value) is type(member) and value == member for member in node.members):
            return None
        return Problem(path, f"expected {node.label}, got {_shown(value)}")
    if type(value) is not node.cls:
        return Problem(path, f"expected {node.label}, got {_shown(value)}{_hint(node, value)}")
    problem = _content(node, value, key)
    if problem is not None:
        return Problem(path + problem.field, problem.what)
    for part, part_node, part_path in _parts(node, value):
        keyed = key or (node.kind in KEYED and part_node is node.items[0])
        found = explain(part_node, part, key=keyed, path=f"{path}{part_path}")
        if found is not None:
            return found
    return None


def _shown(value: Any) -> str:
    name = label_of(type(value))
    if value is None or not isinstance(value, (bool, int, float, str, bytes)):
        return name
    try:
        text = repr(value)
    except Exception:  # a huge int, or a subclass with a repr of its own
        return name
    return f"{name} ({text if len(text) <= 40 else text[:37] + '...'})"


def _hint(node: Node, value: Any) -> str:
    if node.kind == "float" and type(value) is int:
        return ": write 1.0 rather than 1, or float(x)"
    if node.cls is not None and isinstance(value, node.cls) and type(value) is not bool:
        return f": a subclass would come back as {node.label}; convert it"
    if type(value).__module__ == "numpy":
        return ": convert with .item()"
    return ""


def _content(node: Node, value: Any, key: bool) -> Problem | None:
    """What is wrong with a value of the right class, seen without its parts; the field begins there."""
    kind = node.kind
    if kind == "int" and not INT_MIN <= value <= INT_MAX:
        return Problem("", "int does not fit in 64 bits; declare it as str or Decimal and convert")
    if kind == "float" and key and not is_key_float(value):
        what = "-0.0 (add 0.0 to it)" if value == 0 else "NaN (it is not equal to itself)"
        return Problem("", f"a key cannot be {what}")
    if kind == "str" and not is_text(value):
        return Problem("", f"str has a lone surrogate and is no text ({ascii(value)[:40]}); declare it as bytes")
    if kind == "datetime" and value.tzinfo is not None and value.tzinfo is not datetime.UTC:
        return Problem("", f"datetime must be UTC or naive, got zone {value.tzinfo!r}; use .astimezone(timezone.utc)")
    if kind == "time" and value.tzinfo is not None:
        return Problem("", f"time must be naive, got zone {value.tzinfo!r}; use a datetime in UTC")
    if kind in ("datetime", "time") and value.fold:
        return Problem("", "fold=1 would be lost; use .astimezone(timezone.utc) before it is stored")
    if kind == "decimal" and not value.is_finite():
        return Problem("", f"Decimal must be finite, got {value}; use Optional[Decimal] and None")
    if kind == "tuple" and len(value) != len(node.items):
        return Problem("", f"expected {node.label}, got a tuple of {len(value)}")
    if kind == "typeddict":
        return _keys(node, value)
    if kind in ("dataclass", "struct"):
        return _attributes(node, value)
    return None


def _keys(node: Node, value: dict[Any, Any]) -> Problem | None:
    names = {field.name for field in node.fields}
    for name in value:
        if type(name) is not str or name not in names:
            return Problem("", f"{node.label} has no key {name!r}; add it to the TypedDict (NotRequired)")
    for field in node.fields:
        if field.required and field.name not in value:
            return Problem(f".{field.name}", "missing from the dict, and not NotRequired")
    return None


def _attributes(node: Node, value: Any) -> Problem | None:
    names = {field.name for field in node.fields}
    for field in node.fields:
        if _get(value, field.name) is MISSING:
            return Problem(f".{field.name}", "the field was never set, or deleted")
    if node.in_dict is not None and not only_fields_and_caches(value, node):
        for name in value.__dict__.keys() - names - node.caches:
            return Problem(f".{name}", f"is no field of {node.label} and would be lost; declare it as a field")
        for name in node.in_dict - value.__dict__.keys():
            return Problem(f".{name}", "the field was deleted")
    return None


def _get(value: Any, name: str) -> Any:
    return getattr(value, name, MISSING)


def _parts(node: Node, value: Any) -> Iterable[tuple[Any, Node, str]]:
    if node.kind in ("list", "vartuple"):
        return [(part, node.items[0], f"[{i}]") for i, part in enumerate(value)]
    if node.kind in ("set", "frozenset"):
        return [(part, node.items[0], f"{{{_shown(part)}}}") for part in value]
    if node.kind == "dict":
        keys = [(part, node.items[0], f".key({_short(part)})") for part in value]
        return keys + [(part, node.items[1], f"[{_short(name)}]") for name, part in value.items()]
    if node.kind == "tuple":
        return [(part, item, f"[{i}]") for i, (part, item) in enumerate(zip(value, node.items, strict=True))]
    if node.kind == "typeddict":
        return [(value[f.name], f.node, f".{f.name}") for f in node.fields if f.name in value]
    return [(_get(value, f.name), f.node, f".{f.name}") for f in node.fields]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
