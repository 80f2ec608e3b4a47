"""From a Python type to its `Node` tree; rejects types whose values would not come back exactly.

Everything that can be known from the type alone is decided here, once: which classes values may have,
whether they can change, whether msgspec handles them by itself.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from typing import Any, Final

import msgspec

from emberstate.codec import records
from emberstate.codec.nodes import INT_MAX, INT_MIN, Node
from emberstate.codec.refusals import label_of, refuse, refuse_unknown

_SCALARS: Final[dict[Any, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    datetime.datetime: "datetime",
    datetime.date: "date",
    datetime.time: "time",
    datetime.timedelta: "timedelta",
    decimal.Decimal: "decimal",
    uuid.UUID: "uuid",
}
_NONE: Final = Node("none", type(None), type(None), "None", True, True, True)


def declare(type_: Any, where: str, outer: tuple[Any, ...] = ()) -> Node:
    """The tree of `type_`; raises StateDeclarationError with the way out. `outer`: the classes around it.

    >>> declare(list[int], "value").items[0].kind
    'int'
    """
    type_, plain = _strip(type_)
    node = _declare(type_, where, outer)
    return node if plain else dataclasses.replace(node, native=False)


def _strip(type_: Any) -> tuple[Any, bool]:
    """Without Annotated, NewType, Final and aliases. False if msgspec would read more into it than we do."""
    plain = True
    while True:
        origin = typing.get_origin(type_)
        if origin is typing.Annotated:
            # Constraints of msgspec.Meta are tested on decode only: a value that breaks one would be
            # written and then not come back. So they are left to the function, and msgspec never sees them.
            plain = plain and not any(isinstance(extra, msgspec.Meta) for extra in type_.__metadata__)
            type_ = type_.__origin__
        elif origin is typing.Final:
            type_ = typing.get_args(type_)[0]
        elif isinstance(type_, typing.NewType):
            type_ = type_.__supertype__
        elif type(type_).__name__ == "TypeAliasType":
            type_ = type_.__value__
        else:
            return type_, plain


def _declare(type_: Any, where: str, outer: tuple[Any, ...]) -> Node:
    origin = typing.get_origin(type_)
    if type_ is None or type_ is type(None):
        raise refuse(where, "None alone holds nothing", "use Optional[T], or bool for a flag")
    if isinstance(type_, typing.TypeVar):
        raise refuse(where, f"{type_} is not a concrete type", "put the type itself in its place")
    if origin in (typing.Union, types.UnionType):
        return _union(type_, typing.get_args(type_), where, outer)
    if origin is typing.Literal:
        return _literal(type_, where)
    if origin is not None:
        return _generic(type_, origin, where, outer)
    if not isinstance(type_, type):
        raise refuse_unknown(type_, where)
    if type_ in _SCALARS:
        return Node(_SCALARS[type_], type_, type_, label_of(type_), True, True, True)
    if issubclass(type_, enum.Enum):
        return _enum(type_, where)
    if records.is_record(type_):
        if type_ in outer:
            raise refuse(
                where,
                f"{label_of(type_)} contains itself",
                "keep the parts in a flat dict[id, part], each with the ids of its children",
            )
        return records.declare_record(type_, where, lambda t, w: declare(t, w, (*outer, type_)))
    raise refuse_unknown(type_, where)


def _generic(type_: Any, origin: Any, where: str, outer: tuple[Any, ...]) -> Node:
    args = typing.get_args(type_)
    if origin not in (list, dict, set, frozenset, tuple):
        if isinstance(origin, type) and records.is_record(origin):
            raise refuse(
                where,
                f"{label_of(type_)} is a generic class",
                "make a class without type parameters for what is stored",
            )
        raise refuse_unknown(type_, where)
    if not args and type_ != tuple[()]:
        raise refuse_unknown(origin, where)
    label = label_of(type_)
    if any(getattr(arg, "__unpacked__", False) for arg in args):
        raise refuse(where, f"{label} unpacks another tuple", "name each part, or use tuple[T, ...]")
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            item = declare(args[0], f"{where}[]", outer)
            return Node("vartuple", tuple, type_, label, item.immutable, item.hashable, item.native, (item,))
        items = tuple(declare(arg, f"{where}[{i}]", outer) for i, arg in enumerate(args))
        return Node("tuple", tuple, type_, label, *_all(items), items)
    if origin is dict:
        key, value = declare(args[0], f"{where}.key", outer), declare(args[1], f"{where}[]", outer)
        need_hashable(key, f"{where}.key", "a dict key")
        native = key.native and value.native and key.sortable
        return Node("dict", dict, type_, label, False, False, native, (key, value))
    item = declare(args[0], f"{where}[]", outer)
    if origin is list:
        return Node("list", list, type_, label, False, False, item.native, (item,))
    need_hashable(item, f"{where}[]", "in a set")
    frozen = origin is frozenset
    # Records in a set are decoded as a list first: msgspec would not hash its own intermediate objects.
    native = item.native and item.kind in _HASHED_BY_MSGSPEC
    return Node(origin.__name__, origin, type_, label, frozen, frozen, native, (item,))


_HASHED_BY_MSGSPEC: Final = frozenset({*_SCALARS.values(), "literal"})


def _all(items: tuple[Node, ...]) -> tuple[bool, bool, bool]:
    """immutable, hashable, native: of a tuple, if all its parts are."""
    return (
        all(item.immutable for item in items),
        all(item.hashable for item in items),
        all(item.native for item in items),
    )


def need_hashable(node: Node, where: str, role: str) -> None:
    """Refuse a type that cannot be {role}, naming what can."""
    for part in node.walk():
        if part.hashable:
            continue
        ways = {
            "list": "use tuple[T, ...]",
            "set": "use frozenset[T]",
            "dict": "use frozenset[tuple[K, V]] or a frozen dataclass",
            "typeddict": "use a frozen dataclass or a NamedTuple",
            "dataclass": "use @dataclass(frozen=True) with fields that cannot change",
            "struct": "use msgspec.Struct with frozen=True and fields that cannot change",
        }
        if part.kind in ways and all(child.hashable for child in part.walk() if child is not part):
            raise refuse(where, f"{part.label} can change and cannot be {role}", ways[part.kind])


def _enum(type_: type[enum.Enum], where: str) -> Node:
    label = label_of(type_)
    if issubclass(type_, enum.Flag):
        raise refuse(
            where, f"{label} is a Flag, whose combinations have no name", "use frozenset[Enum] or int"
        )
    if not len(type_):
        raise refuse(where, f"{label} has no members", "use an Enum with members")
    names = tuple(member.name for member in type_)
    return Node("enum", type_, type_, label, True, True, False, members=names)


def _literal(type_: Any, where: str) -> Node:
    values = typing.get_args(type_)
    for value in values:
        if type(value) not in (str, int, type(None)):
            raise refuse(
                where,
                f"Literal[{value!r}] cannot be told from other values when decoded",
                "use bool, bytes or the Enum itself; a Literal holds str, int and None",
            )
        if type(value) is int and not INT_MIN <= value <= INT_MAX:
            raise refuse(where, f"Literal[{value}] does not fit in 64 bits", "use a str")
    members = tuple(value for value in values if value is not None)
    if not members:
        raise refuse(where, "Literal[None] holds nothing", "use Optional[T]")
    literal = Node(
        "literal", None, typing.Literal[members], label_of(type_), True, True, True, members=members
    )
    if None not in values:
        return literal
    return Node("union", None, type_, label_of(type_), True, True, True, (literal, _NONE))


def _union(type_: Any, args: tuple[Any, ...], where: str, outer: tuple[Any, ...]) -> Node:
    items: list[Node] = []
    for arg in args:
        node = _NONE if arg is type(None) else declare(arg, where, outer)
        # An alias or NewType may hide a union (or a None) inside this one.
        items.extend(node.items if node.kind == "union" else (node,))
    items = list({id(item) if item.kind != "none" else 0: item for item in items}.values())
    for i, one in enumerate(items):
        for other in items[:i]:
            shared = one.family & other.family
            if shared and not _tagged_apart(one, other):
                raise _ambiguous(other, one, shared, where)
            if set(one.classes) & set(other.classes):  # dicts that are written differently: values do not tell which
                raise refuse(
                    where,
                    f"{other.label} | {one.label} are of the same Python class",
                    "use a dataclass with one Optional field for each",
                )
    label = " | ".join(item.label for item in items)
    return Node("union", None, type_, label, *_all(tuple(items)), tuple(items))


def _tagged_apart(one: Node, other: Node) -> bool:
    return (
        one.kind == other.kind == "struct"
        and one.tag is not None
        and type(one.tag) is type(other.tag)
        and one.tag != other.tag
        and one.tag_field == other.tag_field
    )


def _ambiguous(one: Node, other: Node, shared: frozenset[str], where: str) -> Exception:
    if "map" in shared and one.kind in records.CLASSES and other.kind in records.CLASSES:
        way_out = "use msgspec.Struct classes with tag=True, or one class with a `kind` field"
    elif "map" in shared or "array" in shared:
        way_out = "use a dataclass with one Optional field for each"
    else:
        way_out = "use one of the two, or a dataclass with one Optional field for each"
    return refuse(where, f"{one.label} | {other.label} look the same when encoded", way_out)
