"""The wire form of a type: the shape that msgspec encodes and decodes in C.

Where msgspec handles a type exactly, the shape is the type itself. Elsewhere it is a neighbour: the name of
an enum member, a sorted list for a set, a list of pairs for a dict whose keys are no scalars, a shadow
Struct with the same fields for a class that msgspec would not rebuild faithfully. A record is always a map
of all its field names, a NamedTuple an array in the writer's order (whose names are in the stored schema).

Thread-safety: shapes are built once and then only read.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing
from types import GenericAlias
from typing import Any, NotRequired, Required

import msgspec

from emberstate.codec.nodes import Node


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How the values of one node look between the user's objects and the bytes."""

    node: Node
    annotation: Any  # what msgspec is told to decode
    cls: type[Any] | None  # the class of what it then returns (None: several)
    same: bool  # what it returns is the value
    items: tuple[Shape, ...] = ()
    fields: tuple[Shape, ...] = ()


def shape_of(node: Node) -> Shape:
    """The shape of `node` and all below it.

    >>> from emberstate.codec.declare import declare
    >>> shape_of(declare(set[tuple[int, ...]], "value")).annotation
    list[tuple[int, ...]]
    """
    items = tuple(shape_of(item) for item in node.items)
    fields = tuple(shape_of(field.node) for field in node.fields)
    if node.native:
        return Shape(node, node.annotation, node.cls, True, items, fields)
    if node.kind in ("dataclass", "struct"):
        shadow = msgspec.defstruct(
            node.label.replace(".", "_"),
            [(field.name, shape.annotation) for field, shape in zip(node.fields, fields, strict=True)],
            tag=node.tag,
            tag_field=node.tag_field,
        )
        return Shape(node, shadow, shadow, False, items, fields)
    annotation, cls = _neighbour(node, items, fields)
    parts_same = all(shape.same for shape in (*items, *fields))
    same = parts_same and cls is node.cls and node.kind not in ("enum", "namedtuple")
    return Shape(node, annotation, cls, same, items, fields)


def _neighbour(
    node: Node, items: tuple[Shape, ...], fields: tuple[Shape, ...]
) -> tuple[Any, type[Any] | None]:
    kind = node.kind
    if kind == "enum":
        return str, str
    if kind in ("list", "set", "frozenset"):
        return GenericAlias(list, items[0].annotation), list
    if kind == "vartuple":
        return GenericAlias(tuple, (items[0].annotation, ...)), tuple
    if kind in ("tuple", "namedtuple"):
        return GenericAlias(tuple, tuple(shape.annotation for shape in items or fields)), tuple
    if kind == "dict":
        pair = (items[0].annotation, items[1].annotation)
        if node.items[0].sortable:
            return GenericAlias(dict, pair), dict
        return GenericAlias(list, GenericAlias(tuple, pair)), list
    if kind == "typeddict":
        keys = {
            field.name: (Required if field.required else NotRequired)[shape.annotation]
            for field, shape in zip(node.fields, fields, strict=True)
        }
        return typing.TypedDict(node.label, keys), dict  # type: ignore[operator]
    if kind == "union":
        return functools.reduce(operator.or_, (_or_able(shape.annotation) for shape in items)), None
    # A leaf whose annotation says more than we read into it (msgspec.Meta): without it, the plain type.
    return node.annotation, node.cls


def _or_able(annotation: Any) -> Any:
    return typing.Union[annotation, annotation]  # noqa: UP007 - strings and None need no special case
