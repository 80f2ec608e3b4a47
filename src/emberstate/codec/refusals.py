"""Types that state cannot hold, each with what to use instead.

Types whose values would not come back exactly are rejected at declaration: at restore it would be too late.
"""

from __future__ import annotations

import collections
import datetime
import fractions
import pathlib
import re
import types
from typing import Any, Final

from emberstate.errors import StateDeclarationError

_WAYS_OUT: Final[dict[Any, str]] = {
    Any: "declare the type that is stored, or a union of a few types",
    object: "declare the type that is stored, or a union of a few types",
    list: "say what it holds: list[int]",
    dict: "say what it holds: dict[str, int]",
    set: "say what it holds: set[int]",
    frozenset: "say what it holds: frozenset[int]",
    tuple: "say what it holds: tuple[int, str], or tuple[int, ...]",
    complex: "use tuple[float, float]",
    bytearray: "use bytes",
    memoryview: "use bytes",
    range: "use tuple[int, int]",
    slice: "use tuple[int, int]",
    type: "store the name as a str",
    collections.defaultdict: "use dict[K, V] and setdefault(): a default factory is code, not state",
    collections.OrderedDict: "use dict[K, V], or list[tuple[K, V]] where the order matters",
    collections.Counter: "use dict[K, int]",
    collections.deque: "use list[T], or a ListState",
    collections.ChainMap: "use dict[K, V]",
    fractions.Fraction: "use tuple[int, int], or Decimal",
    datetime.tzinfo: "store the zone's name as a str; datetimes in state are UTC or naive",
    datetime.timezone: "store the offset as a timedelta; datetimes in state are UTC or naive",
    re.Pattern: "store the pattern as a str",
    pathlib.PurePath: "store str(path)",
    types.FunctionType: "state holds data; keep functions in the code",
    types.GeneratorType: "use list[T]: a generator can be read only once and not be stored",
}

_ABSTRACT: Final = {
    "Sequence": "list[T] or tuple[T, ...]",
    "MutableSequence": "list[T]",
    "Collection": "list[T] or tuple[T, ...]",
    "Iterable": "list[T] or tuple[T, ...]",
    "Iterator": "list[T]",
    "Generator": "list[T]",
    "Mapping": "dict[K, V]",
    "MutableMapping": "dict[K, V]",
    "Set": "set[T] or frozenset[T]",
    "AbstractSet": "set[T] or frozenset[T]",
    "MutableSet": "set[T]",
}


def refuse(where: str, what: str, way_out: str) -> StateDeclarationError:
    """The error for a declaration: where, what is wrong, what to write instead."""
    return StateDeclarationError(f"{where}: {what}; {way_out}", field=where)


def label_of(type_: Any) -> str:
    """Return the name of a type in messages: short, without import paths.

    >>> label_of(int), label_of(list[int])
    ('int', 'list[int]')
    """
    if isinstance(type_, type) and not isinstance(type_, types.GenericAlias):
        return "None" if type_ is type(None) else type_.__qualname__.rpartition("<locals>.")[2]
    return re.sub(r"[\w<>]+\.(?=[\w<])", "", repr(type_))


def refuse_unknown(type_: Any, where: str) -> StateDeclarationError:
    """The error for a type that is none of the supported ones.

    >>> print(refuse_unknown(complex, "value"))
    value: complex cannot be held in state; use tuple[float, float]
    """
    return refuse(where, f"{label_of(type_)} cannot be held in state", _way_out(type_))


def _way_out(type_: Any) -> str:
    if isinstance(type_, str):
        return "give the type itself, not its name"
    origin = getattr(type_, "__origin__", type_)
    try:
        if origin in _WAYS_OUT:
            return _WAYS_OUT[origin]
    except TypeError:
        return "give a type"
    name = getattr(origin, "__name__", "")
    module = str(getattr(origin, "__module__", ""))
    root = module.partition(".")[0]
    if module in ("collections.abc", "typing") and name in _ABSTRACT:
        return f"name the concrete type that is stored: {_ABSTRACT[name]}"
    if name == "Callable":
        return "state holds data; keep functions in the code"
    if root == "numpy":
        return "use int, float, bool or bytes (value.item(), array.tobytes()), or list[float]"
    if root in ("pandas", "pyarrow", "polars"):
        return "use datetime for a Timestamp (to_pydatetime()), and lists or dicts of dataclasses for frames"
    if root == "pyspark":
        return "use a dataclass or NamedTuple with the row's fields"
    if not isinstance(origin, type):
        return "use a concrete type: a scalar, list[T], dict[K, V], tuple[...], a dataclass"
    if issubclass(origin, BaseException):
        return "store its text: str(error)"
    for base in origin.__mro__[1:-1]:
        if base in _WAYS_OUT and base not in (list, dict, set, frozenset, tuple):
            return _WAYS_OUT[base]
        if base.__module__ == "builtins":
            return f"use {base.__name__} itself: a subclass comes back as {base.__name__}"
    if hasattr(origin, "__attrs_attrs__") or hasattr(origin, "__pydantic_fields__"):
        return "use a dataclass or msgspec.Struct with the same fields"
    return "make it a dataclass, NamedTuple or msgspec.Struct, or ask for pickle by name (pickle_codec)"
