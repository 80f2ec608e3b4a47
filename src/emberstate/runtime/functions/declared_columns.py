"""`column_state`: the declaration of a state in columns, for `process_arrow`.

What is stored is a value state: a plain value, or a record with named fields. So a function may go over from
`process_element` with a `value_state` to `process_arrow` with a `column_state` of the same name and type, and back.

Imports no NumPy: declaring is cheap.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.declared_states import DeclaredState
from emberstate.state.descriptors import ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig
from emberstate.units import Duration

if TYPE_CHECKING:
    from emberstate.runtime.functions.column_state import ColumnState

_PLAIN: Final = (int, float, bool, str)
_UNIONS: Final = (typing.Union, types.UnionType)


class DeclaredColumns(DeclaredState[Any]):
    """An attribute of a function's class that stands for a state in columns."""


def column_state(
    type_: type[Any], *, default: Any = None, name: str | None = None, ttl: TtlConfig | Duration | None = None
) -> DeclaredState[ColumnState]:
    """Declare a state in columns, for `process_arrow`: one value per key, or one record with named fields.

    Args:
        type_: int (of 64 bits), float, bool or str; or a dataclass whose fields are of these types, each with
            `| None` if it may be null.
        default: what a key without a value reads as. A dataclass whose fields all have defaults needs none.
        name: the name that a restart finds the state by; that of the attribute unless given.
        ttl: the time to live. Each batch that uses the state reads it for all keys of the batch.
    """
    return DeclaredColumns(partial(_descriptor, type_=type_, default=default, ttl=ttl), name)


def _descriptor(name: str, type_: Any, default: Any, ttl: Any) -> ValueStateDescriptor[Any]:
    if type_ in _PLAIN:
        if default is None:
            raise StateDeclarationError(
                f"column state {name!r} of {type_.__name__} needs a default, which a key without a value reads as: "
                f"column_state({type_.__name__}, default=…)",
                state=name,
                option="default",
            )
    elif isinstance(type_, type) and dataclasses.is_dataclass(type_):
        _check_fields(name, type_)
        default = _made(name, type_) if default is None else default
    else:
        raise StateDeclarationError(
            f"column state {name!r} cannot hold {type_!r:.100}: columns hold int, float, bool and str, or a dataclass "
            f"with fields of these. Keep anything else in a value_state, list_state or map_state, with process_element "
            f"or process_batch.",
            state=name,
            expected="int, float, bool, str or a dataclass of these",
            found=repr(type_)[:100],
        )
    return ValueStateDescriptor(name, type_, default=default, ttl=ttl)


def _check_fields(name: str, record: type[Any]) -> None:
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        parts = typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
        plain = [part for part in parts if part is not types.NoneType]
        if len(plain) != 1 or plain[0] not in _PLAIN:
            raise StateDeclarationError(
                f"column state {name!r}: field {field.name!r} of {record.__qualname__} is {hint}, and a column holds "
                f"int, float, bool or str, or one of these | None. Keep a time as its microseconds, and anything else "
                f"in a value_state, with process_element or process_batch.",
                state=name,
                field=field.name,
                expected="int, float, bool or str",
                found=str(hint),
            )


def _made(name: str, record: type[Any]) -> Any:
    try:
        return record()
    except TypeError:
        raise StateDeclarationError(
            f"column state {name!r} needs a default, which a key without a record reads as: give every field of "
            f"{record.__qualname__} one, or write column_state(…, default={record.__qualname__}(…))",
            state=name,
            option="default",
        ) from None
