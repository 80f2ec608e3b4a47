"""Converts plain values, such as those of a table's rows, to values of a declared type: the inverse of `arrow_values`.

A plain value is converted to the stored form, encoded, and decoded by the type's own codec, which checks everything: so
the result is what a restore would return.

| declared | plain |
| --- | --- |
| bool, int, float, str, bytes | the same; an int for a float |
| datetime, date, time, timedelta, decimal, uuid | the same, or its text |
| enum, literal | the member's name; the text or int |
| list, set, tuple of any length | an iterable |
| dict | a mapping, or an iterable of pairs |
| tuple | a tuple, or a mapping of _0, _1, … |
| dataclass, struct, namedtuple, typeddict | a mapping, or a named tuple, with all of its fields and no others |
| T or None | None, or as T |
| any other union, literal of texts and ints | bytes: as encoded |

A field of a TypedDict that need not be there is left out where the plain value has None for it, or has it not.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from emberstate.codec import Codec
from emberstate.codec.nodes import Node
from emberstate.errors import CodecError, StateDeclarationError, StateTypeError

Convert = Callable[[Any], Any]

_SEQUENCES: Final = frozenset({"list", "set", "frozenset", "vartuple"})
_RECORDS: Final = frozenset({"dataclass", "struct", "namedtuple", "typeddict"})


def typed_maker(codec: Codec[Any], what: str) -> Callable[[Any], Any]:
    """Return a function from plain values to values of the codec's type; `what` names them in messages.

    It raises StateTypeError for a plain value that is none.

    >>> from emberstate.codec import codec_for
    >>> typed_maker(codec_for(dict[str, set[int]]), "state 'seen'")([("a", [1, 1, 2])])
    {'a': {1, 2}}
    >>> typed_maker(codec_for(list[int]), "state 'scores'")(["7"])
    Traceback (most recent call last):
        ...
    emberstate.errors.StateTypeError: state 'scores' takes list[int], found ['7']: Expected `int`, got `str` - at `$[0]`
    """
    if codec.node is None:
        raise StateDeclarationError(
            f"{what} is pickled, and no column can hold such values. Declare a type that is not pickled.",
            found="pickled",
        )
    convert, decode = _converter(codec.node), codec.decode

    def make(plain: Any) -> Any:
        try:
            return decode(msgspec.msgpack.encode(convert(plain)))
        except (CodecError, TypeError, ValueError, OverflowError) as error:
            said = str(error).removeprefix(f"the bytes do not hold {codec.schema.label}: ")
            raise StateTypeError(
                f"{what} takes {codec.schema.label}, found {plain!r:.200}: {said:.300}",
                expected=codec.schema.label,
                found=f"{plain!r:.200}",
            ) from None

    return make


def _converter(node: Node) -> Convert:
    if node.kind in _RECORDS:
        return _record(node)
    if node.kind == "union":
        return _union(node)
    if node.kind == "literal" and not node.sortable:
        return _encoded(node)
    items = [_converter(item) for item in node.items]
    if node.kind in _SEQUENCES:
        return lambda plain: [items[0](item) for item in _iterable(plain)]
    if node.kind == "tuple":
        return _tuple(items)
    if node.kind == "dict":
        make = dict if node.items[0].sortable else list  # as `wire` has it
        return lambda plain: make(_pairs(plain, *items))
    return _same


def _same(plain: Any) -> Any:
    return plain


def _iterable(plain: Any) -> Iterable[Any]:
    if isinstance(plain, str | bytes | Mapping) or not isinstance(plain, Iterable):
        raise TypeError(f"expected a list, found {plain!r:.100}")
    return plain


def _pairs(plain: Any, key: Convert, value: Convert) -> list[tuple[Any, Any]]:
    pairs = list(plain.items() if isinstance(plain, Mapping) else _iterable(plain))
    return [(key(k), value(v)) for k, v in pairs]


def _tuple(items: list[Convert]) -> Convert:
    names = [f"_{i}" for i in range(len(items))]

    def convert(plain: Any) -> Any:
        if isinstance(plain, Mapping):
            _check_names(plain, names, set())
        parts = [plain[name] for name in names] if isinstance(plain, Mapping) else plain
        if not isinstance(parts, tuple | list) or len(parts) != len(items):
            raise TypeError(f"expected {len(items)} parts, found {plain!r:.100}")
        return [item(part) for item, part in zip(items, parts, strict=True)]

    return convert


def _record(node: Node) -> Convert:
    names = [field.name for field in node.fields]
    fields = {field.name: _converter(field.node) for field in node.fields}
    optional = {field.name for field in node.fields if node.kind == "typeddict" and not field.required}

    def convert(plain: Any) -> Any:
        if isinstance(plain, tuple) and hasattr(plain, "_fields"):
            plain = dict(zip(plain._fields, plain, strict=True))
        _check_names(plain, names, optional)
        if node.kind == "namedtuple":
            return [fields[name](plain[name]) for name in names]
        tagged = {} if node.tag is None else {node.tag_field: node.tag}
        kept = [name for name in names if name not in optional or plain.get(name) is not None]
        return tagged | {name: fields[name](plain[name]) for name in kept}

    return convert


def _check_names(plain: Any, names: list[str], optional: set[str]) -> None:
    if not isinstance(plain, Mapping):
        raise TypeError(f"expected the fields {names}, found {plain!r:.100}")
    missing = [name for name in names if name not in plain and name not in optional]
    unknown = [name for name in plain if name not in names]
    if missing or unknown:
        raise TypeError(f"expected the fields {names}; missing are {missing}, unknown {unknown}")


def _union(node: Node) -> Convert:
    others = [item for item in node.items if item.kind != "none"]
    nullable = len(others) < len(node.items)
    inner = _converter(others[0]) if len(others) == 1 else _encoded(node)
    return (lambda plain: None if plain is None else inner(plain)) if nullable else inner


def _encoded(node: Node) -> Convert:
    """Accept encoded bytes, for values that share no type of column."""

    def convert(plain: Any) -> Any:
        if not isinstance(plain, bytes):
            raise TypeError(f"expected the bytes of an encoded {node.label}, found {plain!r:.100}")
        return msgspec.Raw(plain)

    return convert
