"""What a type must be to serve as a key of a MapState or as a namespace.

A heap backend finds a key by `==` and `hash`, a file or RocksDB by its bytes. Both must agree: two keys
are equal if and only if their encodings are. Types for which Python sees that differently are refused.
"""

from __future__ import annotations

import dataclasses

from emberstate.codec.declare import need_hashable
from emberstate.codec.nodes import Node
from emberstate.codec.refusals import refuse


def need_key(node: Node, where: str) -> None:
    """Raise StateDeclarationError, with the way out, unless `node` can be a key."""
    need_hashable(node, where, "a key")
    for part in node.walk():
        if part.kind == "decimal":
            raise refuse(
                where,
                "Decimal cannot be a key: 1.0 and 1.00 are equal, but two different values",
                "use str, or an int of the smallest unit (cents)",
            )
        if part.kind == "dataclass":
            _need_equality(part, where)
        if part.kind == "struct" and part.cls is not None and not part.cls.__struct_config__.eq:
            raise refuse(
                where, f"{part.label} has eq=False: a restored key would not be found", "use eq=True"
            )
        if part.kind == "union":
            numbers = [item.label for item in part.items if any(_is_number(cls) for cls in item.classes)]
            if len(numbers) > 1:
                raise refuse(
                    where,
                    f"{' | '.join(numbers)} cannot be a key: 1 == 1.0 == True, encoded differently",
                    "use one of them",
                )


def _is_number(cls: type[object]) -> bool:
    return issubclass(cls, (int, float))


def _need_equality(node: Node, where: str) -> None:
    assert node.cls is not None
    if not node.cls.__dataclass_params__.eq:
        raise refuse(where, f"{node.label} has eq=False: a restored key would not be found", "use eq=True")
    for field in dataclasses.fields(node.cls):
        if not field.compare or field.hash is False:
            raise refuse(
                where,
                f"{node.label}.{field.name} is not compared: equal keys would be encoded differently",
                "leave compare and hash at their defaults",
            )
