"""The inputs of a stage with the rows that its function gets: by the types that the function names, or by `columns`.

Thread safety: pure functions.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.functions.row_annotations import broadcast_class, key_type, output_class, row_classes
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.records import record_names
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.row_shape import RowShape, fit

Columns = Sequence[str] | None


def shaped_inputs(
    function: ProcessFunction,
    inputs: Sequence[KeyedInput],
    columns: Sequence[Columns],
    where: str,
    *,
    whole: bool,
) -> tuple[KeyedInput, ...]:
    """The inputs, each with the shape of its rows; raises if types and columns do not fit.

    `columns` has for each input the names that were given by hand. With `whole`, all columns of the input come,
    whatever the function gets of them.
    """
    shaped = []
    classes = row_classes(function)
    for input, row_class, names in zip(inputs, classes, columns, strict=True):
        if names is not None and row_class is not None:
            raise StateDeclarationError(
                f"{where}: {type(function).__qualname__} gets rows as {row_class.__qualname__}, whose fields say which "
                f"columns it needs: leave out columns",
                option="columns",
                found=tuple(names),
            )
        shape = None
        if row_class is not None:
            shape = RowShape.of_class(row_class, input.row_type, where)
        elif names is not None:
            shape = RowShape.of_columns(names, input.row_type, where)
        _check_key(function, input, where)
        shaped.append(input if shape is None and input.shape is None else input.shaped(shape, whole))
    return tuple(shaped)


def broadcast_shape(function: ProcessFunction, row_type: RowType | None, where: str) -> RowShape | None:
    """What broadcast rows come as; None: `Row`s."""
    row_class = None if row_type is None else broadcast_class(function)
    return None if row_type is None or row_class is None else RowShape.of_class(row_class, row_type, where)


def main_output(function: ProcessFunction, given: RowType | None, where: str) -> RowType | None:
    """The columns of the main output: as given, or else those of the class that the function names as its output."""
    record = output_class(function)
    if record is None or given is None:
        return given if record is None else RowType.of(record)
    names = record_names(record)
    in_order = issubclass(record, tuple)
    if names != given.names if in_order else set(names) != set(given.names):
        raise StateDeclarationError(
            f"{where}: {type(function).__qualname__} emits {record.__qualname__} with the fields {list(names)}, and "
            f"the schema has the columns {list(given.names)}: give both the same names, in the same order, or leave "
            f"out the schema, which then follows from {record.__qualname__}",
            option="schema",
            expected=names,
            found=given.names,
        )
    return given


def _check_key(function: ProcessFunction, input: KeyedInput, where: str) -> None:
    hint = key_type(function)
    types = [input.row_type.columns[input.row_type.position(name)].type for name in input.key_columns]
    parts: tuple[Any, ...] = (hint,)
    if len(types) > 1:
        parts = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    try:
        if hint is not Any:
            for part, type_ in zip(parts, types, strict=True):
                fit(part, type_)
    except (StateDeclarationError, ValueError):
        raise StateDeclarationError(
            f"{where}: the base of {type(function).__qualname__} says that the key is {hint}, and the key is "
            f"{', '.join(f'{name} {type_.name}' for name, type_ in zip(input.key_columns, types, strict=True))}",
            option="key_by",
            expected=[type_.name for type_ in types],
            found=hint,
        ) from None
