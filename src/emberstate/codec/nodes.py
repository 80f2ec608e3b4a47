"""The model of a declared type: a tree of `Node`s that every other module of this package reads.

`declare` builds it once, when a state is declared; checking, encoding, copying, the stored schema and
compatibility all follow the same tree, so they cannot disagree about a type.

Invariants: a tree is finite (recursive types are refused at declaration) and never changes once built,
so it may be shared between threads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
"""Marks the absence of a default (None is a fine default)."""

LEAVES: Final = frozenset(
    [
        "none",
        "bool",
        "int",
        "float",
        "str",
        "bytes",
        "datetime",
        "date",
        "time",
        "timedelta",
        "decimal",
        "uuid",
        "enum",
        "literal",
    ]
)
"""Kinds without parts."""

NATURAL: Final = frozenset(["bool", "int", "str", "bytes", "date", "time", "timedelta", "uuid"])
"""Kinds whose values have a total order of their own, the same in every process: sorted as they are."""

RECORDS: Final = frozenset(["dataclass", "struct", "namedtuple", "typeddict"])
"""Kinds with named fields."""

KEYED: Final = frozenset(["dict", "set", "frozenset"])
"""Kinds whose first part is hashed: it must be fit to be a key."""

# What MessagePack shows of a value. msgspec tells the members of a union apart by this and nothing else,
# so two members of one family cannot stand in one union (tagged Structs excepted).
FAMILY: Final = {
    "none": "nil",
    "bool": "bool",
    "int": "int",
    "float": "float",
    "list": "array",
    "set": "array",
    "frozenset": "array",
    "tuple": "array",
    "vartuple": "array",
    "namedtuple": "array",
    "dict": "map",
    "dataclass": "map",
    "typeddict": "map",
    "struct": "map",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One named field of a record type."""

    name: str
    node: Node
    required: bool = True  # TypedDict: the key must be there; others: there is no default
    default: Any = MISSING
    factory: Callable[[], Any] | None = None

    def make_default(self) -> Any:
        """A fresh default; only for a field that has one."""
        return self.factory() if self.factory is not None else self.default

    @property
    def default_text(self) -> str:
        """How a report shows the default."""
        if self.factory is not None:
            return f"default from {getattr(self.factory, '__name__', 'a factory')}()"
        return f"default {self.default!r}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A type as declared. `cls` is the exact class of its values (None for unions and literals)."""

    kind: str
    cls: type[Any] | None
    annotation: Any  # the type as msgspec may be given it, if `native`
    label: str  # its name in messages
    immutable: bool
    hashable: bool
    native: bool  # msgspec decodes `annotation` by itself into exactly such a value
    items: tuple[Node, ...] = ()
    fields: tuple[Field, ...] = ()
    members: tuple[Any, ...] = ()  # enum: canonical names; literal: values
    tag: str | int | None = None  # struct
    tag_field: str | None = None
    plain: bool = True  # record: msgspec encodes it by itself as a map (array) of all its fields
    caches: frozenset[str] = frozenset()  # dataclass: attributes that cached_property may add
    in_dict: frozenset[str] | None = (
        None  # dataclass, struct: the fields that live in __dict__, if it has one
    )

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for item in self.items:
            yield from item.walk()
        for field in self.fields:
            yield from field.node.walk()

    def walk_keys(self) -> Iterator[Node]:
        """All nodes below that stand in a key of a dict or in a set."""
        for part in self.walk():
            if part.kind in KEYED:
                yield from part.items[0].walk()

    @property
    def family(self) -> frozenset[str]:
        """The MessagePack families its encodings can begin with."""
        if self.kind == "union":
            return frozenset().union(*(item.family for item in self.items))
        if self.kind == "literal":
            return frozenset("int" if type(value) is int else "text" for value in self.members)
        if self.kind == "dict" and not self.items[0].sortable:
            return frozenset({"array"})  # such a dict is written as an array of pairs
        return frozenset({FAMILY.get(self.kind, "text")})

    @property
    def sortable(self) -> bool:
        """Whether keys of this type are put in order by themselves rather than by their encoding."""
        if self.kind == "literal":
            return len({type(value) for value in self.members}) == 1
        return self.kind in NATURAL or self.kind == "enum"

    @property
    def classes(self) -> tuple[type[Any], ...]:
        """The exact classes its values can have."""
        if self.kind == "union":
            return tuple(cls for item in self.items for cls in item.classes)
        if self.kind == "literal":
            return tuple({type(value): None for value in self.members})
        assert self.cls is not None
        return (self.cls,)
