"""A stored schema seen as a type again: enough to decode bytes without the classes of their writer."""

from __future__ import annotations

import datetime
import decimal
import typing
import uuid
from typing import Any, Final

from emberstate.codec.nodes import Field, Node
from emberstate.codec.type_schema import TypeSchema

_CLASSES: Final[dict[str, type[Any]]] = {
    "none": type(None),
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
}


def stored_node(schema: TypeSchema) -> Node:
    """A tree for `shape_of`. It knows no class of a user: records become shadow Structs, dicts and tuples.

    >>> stored_node(TypeSchema("list", (TypeSchema("int"),))).items[0].annotation
    <class 'int'>
    """
    items = tuple(stored_node(item) for item in schema.items)
    fields = tuple(Field(field.name, stored_node(field.type), field.required) for field in schema.fields)
    cls = _CLASSES.get(schema.kind)
    annotation: Any = typing.Literal[schema.members] if schema.kind == "literal" else cls
    return Node(
        schema.kind,
        cls,
        annotation,
        schema.label,
        False,
        False,
        cls is not None or schema.kind == "literal",
        items,
        fields,
        schema.members,
        schema.tag,
        schema.tag_field,
    )
