"""The stored description of a type, as the writer of the bytes had it.

Every file has it beside the bytes; a later version needs nothing else to read them: kinds, field
names in the writer's order, enum members, tags. Class names are kept for messages only; a class that was
renamed or moved restores.

The JSON form is canonical: one declaration has one text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from keyword import iskeyword
from typing import Any, Final

from emberstate.codec.nodes import FAMILY, LEAVES, RECORDS, Node
from emberstate.errors import CodecError

_CONTAINERS: Final = {
    "list": 1,
    "set": 1,
    "frozenset": 1,
    "vartuple": 1,
    "dict": 2,
    "tuple": None,
    "union": None,
}
_MAX_DEPTH: Final = 100
PICKLE: Final = "pickle"


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSchema:
    """A field of a record type, as its writer had it."""

    name: str
    type: TypeSchema
    required: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TypeSchema:
    """A type as its writer had it.

    >>> from emberstate.codec import codec_for
    >>> schema = codec_for(dict[str, int]).schema
    >>> schema.to_json()
    '{"items":[{"kind":"str"},{"kind":"int"}],"kind":"dict"}'
    >>> TypeSchema.from_json(schema.to_json()) == schema
    True
    """

    kind: str
    items: tuple[TypeSchema, ...] = ()
    fields: tuple[FieldSchema, ...] = ()
    members: tuple[str | int, ...] = ()
    tag: str | int | None = None
    tag_field: str | None = None
    name: str = dataclasses.field(default="", compare=False)  # of the class, for messages

    @staticmethod
    def of(node: Node) -> TypeSchema:
        """The description of a declared type."""
        named = node.kind in RECORDS or node.kind == "enum"
        return TypeSchema(
            node.kind,
            tuple(TypeSchema.of(item) for item in node.items),
            tuple(FieldSchema(f.name, TypeSchema.of(f.node), f.required) for f in node.fields),
            node.members,
            node.tag,
            node.tag_field,
            node.label if named else "",
        )

    @property
    def label(self) -> str:
        """The name of the type in messages.

        >>> TypeSchema("list", (TypeSchema("int"),)).label
        'list[int]'
        """
        if self.name:
            return self.name
        parts = [item.label for item in self.items]
        if self.kind == "union":
            return " | ".join(parts)
        if self.kind == "literal":
            return f"Literal[{', '.join(map(repr, self.members))}]"
        name = {"none": "None", "vartuple": "tuple", "decimal": "Decimal", "uuid": "UUID"}.get(
            self.kind, self.kind
        )
        if self.kind == "vartuple":
            parts.append("...")
        return f"{name}[{', '.join(parts)}]" if self.kind in _CONTAINERS else name

    def to_json(self) -> str:
        """Canonical JSON text."""
        return json.dumps(self._plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"kind": self.kind}
        if self.items:
            plain["items"] = [item._plain() for item in self.items]
        if self.kind in RECORDS:
            plain["fields"] = [
                {"name": f.name, "required": f.required, "type": f.type._plain()} for f in self.fields
            ]
        if self.members:
            plain["members"] = list(self.members)
        if self.tag is not None:
            plain["tag"], plain["tag_field"] = self.tag, self.tag_field
        if self.name:
            plain["name"] = self.name
        return plain

    @staticmethod
    def from_json(text: str | bytes) -> TypeSchema:
        """The schema of a JSON text; CodecError, and nothing else, if it is not one.

        >>> TypeSchema.from_json('{"kind":"spell"}')
        Traceback (most recent call last):
        emberstate.errors.CodecError: the stored type schema is malformed at $: unknown kind 'spell'
        """
        try:
            plain = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise CodecError(f"the stored type schema is no JSON: {error}") from None
        return _read(plain, "$", 0)


def _bad(path: str, what: str) -> CodecError:
    return CodecError(f"the stored type schema is malformed at {path}: {what}", field=path)


def _read(plain: Any, path: str, depth: int) -> TypeSchema:
    if depth > _MAX_DEPTH:
        raise _bad(path, "nested too deeply")
    if not isinstance(plain, dict):
        raise _bad(path, f"expected an object, got {type(plain).__name__}")
    kind = plain.get("kind")
    if not isinstance(kind, str) or not (kind in LEAVES or kind in FAMILY or kind in ("union", PICKLE)):
        raise _bad(path, f"unknown kind {kind!r}")
    items = tuple(_read(i, f"{path}.items", depth + 1) for i in _list(plain, "items", path))
    count = _CONTAINERS.get(kind, 0)
    if (count is not None and len(items) != count) or (kind == "union" and len(items) < 2):
        raise _bad(path, f"{len(items)} parts in a {kind}")
    fields = tuple(_field(f, f"{path}.fields", depth) for f in _list(plain, "fields", path))
    words = kind == "typeddict" or all(f.name.isidentifier() and not iskeyword(f.name) for f in fields)
    if len({f.name for f in fields}) != len(fields) or (fields and kind not in RECORDS) or not words:
        raise _bad(path, "its fields make no sense")
    members = tuple(_list(plain, "members", path))
    wanted = {"enum": (str,), "literal": (str, int)}.get(kind, ())
    if any(type(member) not in wanted for member in members) or (wanted and not members):
        raise _bad(path, "its members make no sense")
    tag, tag_field, name = plain.get("tag"), plain.get("tag_field"), plain.get("name", "")
    tagged = kind == "struct" and type(tag) in (str, int) and type(tag_field) is str
    if not (tagged or tag is tag_field is None) or type(name) is not str:
        raise _bad(path, "its name or tag makes no sense")
    return TypeSchema(kind, items, fields, members, tag, tag_field, name)


def _list(plain: Mapping[str, Any], name: str, path: str) -> list[Any]:
    value = plain.get(name, [])
    if not isinstance(value, list):
        raise _bad(f"{path}.{name}", f"expected an array, got {type(value).__name__}")
    return value


def _field(plain: Any, path: str, depth: int) -> FieldSchema:
    if not isinstance(plain, dict):
        raise _bad(path, f"expected an object, got {type(plain).__name__}")
    name, required = plain.get("name"), plain.get("required")
    if type(name) is not str or type(required) is not bool:
        raise _bad(path, "a field needs a name and `required`")
    return FieldSchema(name, _read(plain.get("type"), f"{path}.{name}", depth + 1), required)
