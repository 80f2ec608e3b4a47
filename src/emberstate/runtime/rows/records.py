"""Record classes of users: dataclasses, NamedTuples and `msgspec.Struct`s, and the columns that one stands for.

    int bigint, float double, str string, bytes binary, bool boolean, date date, datetime timestamp,
    timedelta interval day to second, list[…] array, dict[…, …] map, a NamedTuple a struct

A type with `| None` is a nullable column, any other is not null. `Annotated[Decimal, "decimal(10,2)"]` and
`Annotated[int, "smallint"]` name the column's type. Nothing else is a column.

Thread safety: pure functions.

>>> class Alert(typing.NamedTuple):
...     card: str
...     amount: typing.Annotated[decimal.Decimal, "decimal(10,2)"] | None
>>> from emberstate.runtime.rows.data_types import schema_text
>>> schema_text(record_columns(Alert))
'card string not null, amount decimal(10,2)'
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.data_types import Column, DataType, parse_type

_TYPES: Final = {
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    bool: "boolean",
    datetime.date: "date",
    datetime.datetime: "timestamp",
    datetime.timedelta: "interval day to second",
}


@dataclasses.dataclass(frozen=True, slots=True)
class RecordField:
    """A parameter of a record class's constructor."""

    name: str
    hint: Any
    has_default: bool


def is_record(type_: Any) -> bool:
    """Whether a type is a dataclass, a NamedTuple or a `msgspec.Struct`. The classes of `RowType` are none of these."""
    if not isinstance(type_, type) or hasattr(type_, "_row_type"):
        return False
    is_named_tuple = issubclass(type_, tuple) and hasattr(type_, "_fields")
    return is_named_tuple or dataclasses.is_dataclass(type_) or hasattr(type_, "__struct_fields__")


def record_fields(cls: type[Any]) -> list[RecordField]:
    """The parameters of a record class's constructor, in order, with their types; types keep what `Annotated` adds."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise StateDeclarationError(
            f"the types of {cls.__qualname__}'s fields cannot be found ({type(error).__name__}: {error}): define or "
            f"import what they name where {cls.__qualname__} is defined, at the top level of the module",
            found=cls.__qualname__,
        ) from None
    fields = []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise StateDeclarationError(
                f"{cls.__qualname__} cannot be made of columns: its constructor has the parameter {parameter}",
                found=cls.__qualname__,
            )
        has_default = parameter.default is not parameter.empty
        fields.append(RecordField(parameter.name, hints.get(parameter.name, Any), has_default))
    return fields


def record_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of a record's values, which it has as attributes."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(getattr(cls, "_fields" if issubclass(cls, tuple) else "__struct_fields__"))


@functools.lru_cache(maxsize=256)
def record_getter(cls: Any, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]] | None:
    """What returns the values of a record in the order of these names; None if they are not the record's."""
    if not is_record(cls) or set(record_names(cls)) != set(names):
        return None
    getter: Callable[[Any], Any] = operator.attrgetter(*names)
    return getter if len(names) > 1 else lambda record: (getter(record),)


def record_columns(cls: type[Any]) -> tuple[Column, ...]:
    """The columns that a record class stands for; raises, naming the field, if a type is no column."""
    columns = []
    for field in record_fields(cls):
        try:
            columns.append(_column(field.name, field.hint, cls))
        except StateDeclarationError as error:
            raise error.reworded(f"{cls.__qualname__}.{field.name}: {error}").located(column=field.name) from None
    return tuple(columns)


def unwrapped(hint: Any) -> Any:
    """A type without `Annotated`, `NewType` and alias."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # of Python 3.12
            hint = hint.__value__
        else:
            return hint


def members(hint: Any) -> tuple[list[Any], bool]:
    """The members of a union other than None, or the type alone; and whether None is one."""
    hint = unwrapped(hint)
    all_of = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return [one for one in all_of if one not in (None, type(None))], any(one in (None, type(None)) for one in all_of)


def _column(name: str, hint: Any, owner: type[Any]) -> Column:
    named = _named_type(hint)
    if named is not None:
        return Column(name, named, members(hint)[1])
    found, nullable = members(hint)
    if len(found) != 1:
        raise _no_column(hint)
    return Column(name, _data_type(found[0], owner), nullable)


def _named_type(hint: Any) -> DataType | None:
    """The type that `Annotated` names, if it does."""
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    names = [one for one in hint.__metadata__ if isinstance(one, str)]
    return parse_type(names[0]) if names else None


def _data_type(hint: Any, owner: type[Any]) -> DataType:
    named = _named_type(hint)
    if named is not None:
        return named
    hint = unwrapped(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and hint in _TYPES:
        return parse_type(_TYPES[hint])
    if hint is decimal.Decimal:
        raise StateDeclarationError(
            'a Decimal column needs its digits: write Annotated[Decimal, "decimal(10,2)"]', found="Decimal"
        )
    if origin is list:
        return DataType("array", (_column("", arguments[0], owner).type,))
    if origin is dict:
        return DataType("map", tuple(_column("", one, owner).type for one in arguments))
    if is_record(hint) and issubclass(hint, tuple) and hint is not owner:
        return DataType("struct", (), record_columns(hint))
    raise _no_column(hint)


def _no_column(hint: Any) -> StateDeclarationError:
    shown = getattr(hint, "__qualname__", None) or repr(hint)
    return StateDeclarationError(
        f"{shown} is no type of a column: a column is an int, float, str, bytes, bool, date, datetime or timedelta, a "
        f'list or dict of these, a NamedTuple (a struct), one of these with | None, or Annotated[…, "a type of Spark"]',
        found=shown,
    )
