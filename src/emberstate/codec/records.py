"""Declared classes with named fields: dataclasses, NamedTuples, TypedDicts and msgspec Structs.

Only the fields are stored. So a class is rejected if its objects can carry state besides their fields, and restoring
one never runs `__init__` or `__post_init__`: it sets the fields (a Struct can only be made by its constructor, so one
with a `__post_init__` is rejected).
"""

from __future__ import annotations

import dataclasses
import functools
import keyword
import typing
from collections.abc import Callable
from typing import Any, Final, NotRequired, Required

import msgspec

from emberstate.codec.nodes import MISSING, Field, Node
from emberstate.codec.refusals import label_of, refuse

CLASSES: Final = frozenset({"dataclass", "struct"})
Declare = Callable[[Any, str], Node]


def is_record(cls: type[Any]) -> bool:
    """Whether `cls` is one of the four kinds of class with named fields."""
    return _is_namedtuple(cls) or _is_typeddict(cls) or issubclass(cls, msgspec.Struct) or _is_dataclass(cls)


def declare_record(cls: type[Any], where: str, declare: Declare) -> Node:
    """The node of a record class; `declare` makes those of its fields."""
    where = f"{where} ({label_of(cls)})"
    if getattr(cls, "__parameters__", ()):
        raise refuse(where, "the class has type parameters", "make a class without them for what is stored")
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise refuse(
            where,
            f"its annotations cannot be resolved ({error})",
            "define the class and the types it names at module level",
        ) from None
    for name in hints:
        if not _is_typeddict(cls) and (keyword.iskeyword(name) or not name.isidentifier()):
            raise refuse(where, f"field {name!r} is no identifier", "rename the field")
    if _is_typeddict(cls):
        return _typeddict(cls, hints, where, declare)
    if _is_namedtuple(cls):
        return _namedtuple(cls, hints, where, declare)
    if issubclass(cls, msgspec.Struct):
        return _struct(cls, hints, where, declare)
    return _dataclass(cls, hints, where, declare)


def _is_namedtuple(cls: type[Any]) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


def _is_typeddict(cls: type[Any]) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__") and hasattr(cls, "__total__")


def _is_dataclass(cls: type[Any]) -> bool:
    return dataclasses.is_dataclass(cls)


def _native(fields: tuple[Field, ...]) -> bool:
    return all(field.node.native for field in fields)


def _namedtuple(cls: Any, hints: dict[str, Any], where: str, declare: Declare) -> Node:
    if tuple not in cls.__bases__:
        raise refuse(
            where, "it is a subclass of a NamedTuple, whose objects can carry more", "use the NamedTuple"
        )
    if set(hints) != set(cls._fields):
        raise refuse(where, "its fields have no types", "use typing.NamedTuple with annotations")
    fields = tuple(
        Field(
            name,
            declare(hints[name], f"{where}.{name}"),
            name not in cls._field_defaults,
            cls._field_defaults.get(name, MISSING),
        )
        for name in cls._fields
    )
    return Node(
        "namedtuple",
        cls,
        cls,
        label_of(cls),
        all(field.node.immutable for field in fields),
        all(field.node.hashable for field in fields),
        _native(fields),
        fields=fields,
    )


def _typeddict(cls: Any, hints: dict[str, Any], where: str, declare: Declare) -> Node:
    fields = []
    agrees = True
    for name, hint in hints.items():
        required = name in cls.__required_keys__
        # With postponed annotations Python 3.11 counts a NotRequired key as required: the hint knows better.
        while (origin := typing.get_origin(hint)) in (Required, NotRequired) or label_of(
            origin
        ) == "ReadOnly":
            if origin in (Required, NotRequired):
                agrees = agrees and required == (origin is Required)
                required = origin is Required
            hint = typing.get_args(hint)[0]
        fields.append(Field(name, declare(hint, f"{where}.{name}"), required))
    native = agrees and _native(tuple(fields))
    return Node("typeddict", dict, cls, label_of(cls), False, False, native, fields=tuple(fields))


def _struct(cls: Any, hints: dict[str, Any], where: str, declare: Declare) -> Node:
    config = cls.__struct_config__
    if cls is msgspec.Struct:
        raise refuse(where, "it has no fields", "use a subclass with fields")
    if hasattr(cls, "__post_init__"):
        raise refuse(
            where,
            "__post_init__ would run on what is restored, and could change it",
            "move the work into a function or classmethod, or use a dataclass (restored without it)",
        )
    fields = tuple(
        Field(
            info.name,
            declare(hints[info.name], f"{where}.{info.name}"),
            info.default is msgspec.NODEFAULT and info.default_factory is msgspec.NODEFAULT,
            MISSING if info.default is msgspec.NODEFAULT else info.default,
            None if info.default_factory is msgspec.NODEFAULT else info.default_factory,
        )
        for info in msgspec.structs.fields(cls)
    )
    # Options that change what is written are not used: always a map of all the fields under their own names,
    # or a default that changes later would change old state, and `compatibility` could not match fields.
    plain = (
        not (config.omit_defaults or config.array_like)
        and cls.__struct_encode_fields__ == cls.__struct_fields__
    )
    immutable = config.frozen and all(field.node.immutable for field in fields)
    hashable = config.frozen and all(field.node.hashable for field in fields)
    return Node(
        "struct",
        cls,
        cls,
        label_of(cls),
        immutable,
        hashable,
        plain and _native(fields),
        fields=fields,
        tag=config.tag,
        tag_field=config.tag_field,
        plain=plain,
        in_dict=frozenset() if config.dict else None,
    )


def _dataclass(cls: Any, hints: dict[str, Any], where: str, declare: Declare) -> Node:
    if "__dataclass_fields__" not in vars(cls):
        raise refuse(where, "it is an undecorated subclass of a dataclass", "decorate it with @dataclass too")
    all_fields = dataclasses.fields(cls)
    names = frozenset(field.name for field in all_fields)
    slots = _only_fields(cls, names, where)
    fields = tuple(
        Field(
            field.name,
            declare(hints[field.name], f"{where}.{field.name}"),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
            MISSING if field.default is dataclasses.MISSING else field.default,
            None if field.default_factory is dataclasses.MISSING else field.default_factory,
        )
        for field in all_fields
    )
    has_dict = cls.__dictoffset__ != 0
    init_vars = len(cls.__dataclass_fields__) - len(names)  # ClassVars too: harmless
    hooks = hasattr(cls, "__post_init__") or cls.__new__ is not object.__new__ or _sets_by_itself(cls)
    plain = all(field.init for field in all_fields)  # msgspec leaves out fields with init=False
    frozen = cls.__dataclass_params__.frozen
    return Node(
        "dataclass",
        cls,
        cls,
        label_of(cls),
        frozen and all(field.node.immutable for field in fields),
        frozen and cls.__hash__ is not None and all(field.node.hashable for field in fields),
        plain and not hooks and not init_vars and _native(fields),
        fields=fields,
        plain=plain,
        caches=frozenset(
            name
            for base in cls.__mro__
            for name, v in vars(base).items()
            if isinstance(v, functools.cached_property)
        ),
        in_dict=names - slots if has_dict else None,
    )


def _sets_by_itself(cls: Any) -> bool:
    return cls.__setattr__ is not object.__setattr__ and not cls.__dataclass_params__.frozen


def _only_fields(cls: Any, names: frozenset[str], where: str) -> frozenset[str]:
    """The slots of `cls`; refuse it if its objects can carry state that is not in a field."""
    slots: set[str] = set()
    for base in cls.__mro__:
        if base in (object, typing.Generic):
            continue
        if base.__flags__ & (1 << 9) == 0:  # not a heap type: a builtin with contents of its own
            raise refuse(
                where, f"it is also a {base.__name__}, whose contents are no field", "use plain fields"
            )
        own = vars(base).get("__slots__", ())
        slots.update((own,) if isinstance(own, str) else own)
    extra = slots - names - {"__dict__", "__weakref__"}
    if extra:
        raise refuse(where, f"slot {min(extra)!r} is no field and would be lost", "make it a field")
    return frozenset(slots)
