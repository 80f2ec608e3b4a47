"""The types that a function names: of its rows, its key and its output.

A row's type is the annotation of the row in `process_element`, `process_late_element` or `process_batch`, or else the
argument of the base, `KeyedProcessFunction[Payment, str, Alert]`. A dataclass, a NamedTuple or a `msgspec.Struct` is
what rows come as. `Any`, `object`, `Row`, a tuple or a Protocol leaves rows as they are. Anything else is refused: rows
would not be of it.

Thread safety: pure functions.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections import ChainMap
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.function import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    overrides,
)
from emberstate.runtime.rows.records import is_record, unwrapped
from emberstate.runtime.rows.row import Row

#: The methods that get the rows of an input, and the position of the row, or rows, among their parameters.
_METHODS: Final = (("process_element", 0), ("process_late_element", 0), ("process_batch", 1))
#: The bases with parameters, and what their arguments are.
_ARGUMENTS: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (KeyedBroadcastProcessFunction, ("row", "broadcast", "key", "output")),
    (KeyedCoProcessFunction, ("row1", "row2", "key", "output")),
    (KeyedProcessFunction, ("row", "key", "output")),
)


def row_classes(function: ProcessFunction) -> tuple[type[Any] | None, ...]:
    """By input, the class that its rows come as; None: `Row`s."""
    if isinstance(function, KeyedCoProcessFunction):
        suffixes = ("1", "2")
        return tuple(_row_class(function, [(name + one, at) for name, at in _METHODS], f"row{one}") for one in suffixes)
    return (_row_class(function, _METHODS, "row"),)


def broadcast_class(function: ProcessFunction) -> type[Any] | None:
    """The class that broadcast rows come as; None: `Row`s."""
    return _row_class(function, [("process_broadcast_element", 0)], "broadcast")


def output_class(function: ProcessFunction) -> type[Any] | None:
    """The class of the rows of the main output, if the base's argument is one that has columns."""
    found = _argument(function, "output")
    return found if is_record(found) else None


def key_type(function: ProcessFunction) -> Any:
    """The type of the key as the base's argument says it; Any if it does not."""
    found = _argument(function, "key")
    return Any if isinstance(found, typing.TypeVar) else found


def _row_class(function: ProcessFunction, methods: Any, argument: str) -> type[Any] | None:
    found: dict[str, type[Any]] = {}
    for name, position in methods:
        hint = _annotation(function, name, position) if overrides(function, name) else Any
        where = f"{type(function).__qualname__}.{name}"
        if name == "process_batch":
            hint = next(iter(typing.get_args(unwrapped(hint))), Any)
        record = _record(hint, where)
        if record is not None:
            found[where] = record
    label = f"the base of {type(function).__qualname__}"
    record = _record(_argument(function, argument), label)
    if record is not None:
        found[label] = record
    if len(set(found.values())) > 1:
        shown = ", ".join(f"{record.__qualname__} in {where}" for where, record in found.items())
        raise StateDeclarationError(
            f"the rows of an input are of one type; {type(function).__qualname__} has {shown}",
            option=methods[0][0],
            found=tuple(found.values()),
        )
    return next(iter(found.values()), None)


def _record(hint: Any, where: str) -> type[Any] | None:
    """The record class that an annotation is; None if it says nothing of how rows come."""
    hint = unwrapped(hint)
    if is_record(hint):
        return hint  # type: ignore[no-any-return]
    plain = typing.get_origin(hint) or hint
    if plain in (Any, object, Row, tuple) or isinstance(plain, typing.TypeVar):
        return None
    if isinstance(plain, type) and (hasattr(plain, "_row_type") or getattr(plain, "_is_protocol", False)):
        return None
    raise StateDeclarationError(
        f"{where} annotates its row with {hint!r:.100}, and rows cannot come as that: annotate it with a dataclass, "
        f"a NamedTuple or a msgspec.Struct, or with Row or Any for rows with all columns",
        option="row",
        found=hint,
    )


def _annotation(function: ProcessFunction, name: str, position: int) -> Any:
    """The annotation of a method's parameter, Any if it has none."""
    method = getattr(function, name)
    try:
        parameters = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        return Any
    if position >= len(parameters) or parameters[position].annotation is inspect.Parameter.empty:
        return Any
    plain = inspect.unwrap(getattr(method, "__func__", method))
    cells = zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False) if inspect.isfunction(plain) else ()
    enclosing = {variable: cell.cell_contents for variable, cell in cells if cell != types.CellType()}
    names = ChainMap(enclosing, dict(vars(type(function))))
    where = f"{type(function).__qualname__}.{name}"
    return _resolved(parameters[position].annotation, getattr(plain, "__globals__", {}), names, where)


def _argument(function: ProcessFunction, what: str) -> Any:
    """What the class gives its base for one of its parameters; a TypeVar if it gives nothing."""
    base, names = next((one for one in _ARGUMENTS if isinstance(function, one[0])), (ProcessFunction, ()))
    if what not in names:
        return Any
    found = _arguments(type(function), base)[names.index(what)]
    module = vars(sys.modules.get(type(function).__module__, typing))
    return _resolved(found, module, {}, f"the base of {type(function).__qualname__}")


def _arguments(cls: type[Any], base: type[Any]) -> tuple[Any, ...]:
    """The arguments that a class gives a generic base; parameters, where it gives none."""
    if cls is base:
        return tuple(base.__parameters__)
    for parent in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(parent) or parent
        if isinstance(origin, type) and issubclass(origin, base):
            parameters = getattr(origin, "__parameters__", ())
            given = dict(zip(parameters, typing.get_args(parent), strict=False))
            return tuple(given.get(one, one) for one in _arguments(origin, base))
    return tuple(base.__parameters__)


def _resolved(hint: Any, names: Any, inner: Any, where: str) -> Any:
    """An annotation that was written as a string, or under `from __future__ import annotations`, as a type."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if not isinstance(hint, str):
        return hint
    try:
        return _resolved(eval(hint, names, inner), names, inner, where)
    except Exception as error:
        raise StateDeclarationError(
            f"{where} annotates its row with {hint!r}, which cannot be found ({type(error).__name__}: {error}). Rows "
            f"come as that type: define or import it at the top level of the module, outside of TYPE_CHECKING",
            option="row",
            found=hint,
        ) from None
