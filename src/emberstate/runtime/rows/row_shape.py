"""`RowShape`: the rows that a function gets of an input: some of its columns, as a class of the user's or as `Row`s.

Checked against the columns of the input when it is made. A field without `| None` takes no null, whatever Spark says
of the column: a null fails the batch, and names column and row.

Thread safety: immutable.

>>> from typing import NamedTuple
>>> class Payment(NamedTuple):
...     card: str
...     amount: float | None
>>> shape = RowShape.of_class(Payment, RowType.of("card string, shop string, amount double"), "stage 'totals'")
>>> shape.columns
('card', 'amount')
>>> shape.of_rows([("ann", "bakery", 2.5)], RowType.of("card string, shop string, amount double"))
[Payment(card='ann', amount=2.5)]
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import logging
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.records import RecordField, members, record_fields, unwrapped
from emberstate.runtime.rows.row import Row, RowType, python_type
from emberstate.runtime.rows.row_batches import RowMaker, make_rows

_log = logging.getLogger("emberstate.runtime")


@dataclasses.dataclass(frozen=True, slots=True)
class NullRule:
    """Where a column may have no nulls: itself, and in the items of an array, or the keys and values of a map."""

    refused: bool = False
    items: tuple[NullRule, ...] = ()

    def broken_by(self, array: pa.Array) -> bool:
        """Whether an array has a null where none may be."""
        if self.refused and array.null_count:
            return True
        if not self.items:
            return False
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_map(array.type):
            present = array.drop_null()
            first, last = present.offsets[0].as_py(), present.offsets[-1].as_py()
            parts = [part.slice(first, last - first) for part in (present.keys, present.items)]
        else:
            parts = [array.flatten()]
        return any(rule.broken_by(part) for rule, part in zip(self.items, parts, strict=True))


_NO_RULE: Final = NullRule()


@dataclasses.dataclass(frozen=True, slots=True)
class RowShape:
    """A class of rows, the columns that its constructor gets, in order, and where these may have no nulls."""

    row_class: Any
    columns: tuple[str, ...]
    rules: tuple[NullRule, ...]
    #: What `make_rows` makes the rows with: a class of tuples, or a `RowMaker`.
    maker: Any = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maker", _maker(self.row_class, self.columns))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowShape, (self.row_class, self.columns, self.rules)

    @classmethod
    def of_class(cls, row_class: type[Any], input: RowType, where: str) -> RowShape:
        """Rows of a dataclass, NamedTuple or Struct; raises if a field is no column of the input.

        A field that has a default may be missing.
        """
        found: list[RecordField] = []
        rules = []
        for field in record_fields(row_class):
            label = f"{where}: {row_class.__qualname__}.{field.name}"
            column = next((one for one in input.columns if one.name == field.name), None)
            if column is not None:
                rules.append(_rule(field.hint, column, label))
                found.append(field)
            elif field.has_default:
                _log.info("%s is no column of the input: rows have its default", label)
            else:
                raise StateDeclarationError(
                    f"{label}: the input has no column {field.name!r}, it has {list(input.names)}. Rename the field, "
                    f"select the column before, or give the field a default.",
                    column=field.name,
                    expected=field.name,
                    found=input.names,
                )
        columns = tuple(field.name for field in found)
        return cls(row_class, columns, tuple(rules))

    @classmethod
    def of_columns(cls, names: Sequence[str], input: RowType, where: str) -> RowShape:
        """`Row`s of these columns, in this order."""
        for name in names:
            if name not in input.names or list(names).count(name) > 1:
                raise StateDeclarationError(
                    f"{where}: columns names {name!r}, which is "
                    f"{'there twice' if name in input.names else 'no column of the input'}; it has {list(input.names)}",
                    option="columns",
                    column=name,
                    found=input.names,
                )
        made = RowType(input.columns[input.position(name)] for name in names).row_class
        return cls(made, tuple(names), (_NO_RULE,) * len(names))

    def check_nulls(self, batch: pa.RecordBatch, shown: Callable[[int], str]) -> None:
        """Raise for a null where the class takes none; `shown` is the row at a position, for the message."""
        for name, rule in zip(self.columns, self.rules, strict=True):
            array = batch.column(name)
            if rule.broken_by(array):
                nulls = array.is_null().to_pylist()
                raise self._null(name, f" in row {shown(nulls.index(True))}" if any(nulls) else ", in an item")

    def of_rows(self, rows: Sequence[Any], row_type: RowType) -> list[Any]:
        """The rows of whole rows, which have the columns of `row_type`."""
        positions = [row_type.position(name) for name in self.columns]
        columns = [[row[position] for row in rows] for position in positions]
        for name, rule, values in zip(self.columns, self.rules, columns, strict=True):
            if rule.refused and None in values:
                raise self._null(name, f" in row {rows[values.index(None)]!r:.500}")
        return make_rows(self.maker, columns, len(rows))

    def _null(self, column: str, where: str) -> RowTypeError:
        label = f"{self.row_class.__qualname__}.{column}"
        return RowTypeError(
            f"column {column!r} is null{where}, and {label} takes no null: annotate it with | None, or filter such "
            f"rows out",
            column=column,
        )


def _rule(hint: Any, column: Column, label: str) -> NullRule:
    try:
        return fit(hint, column.type)
    except StateDeclarationError:
        expected = python_type(column)
        shown = expected.__name__ if isinstance(expected, type) and expected.__module__ == "builtins" else expected
        raise StateDeclarationError(
            f"{label} is {_shown(hint)}, and column {column.name!r} is {column.type.name}, which is {shown} in Python"
            f"{' (annotate a struct with Row)' if 'struct' in column.type.name else ''}. Annotate the field so, or "
            f"cast the column.",
            column=column.name,
            expected=column.type.name,
            found=_shown(hint),
        ) from None


def fit(hint: Any, type_: DataType) -> NullRule:
    """Where values of a type that is annotated so may have no nulls; raises if they are not of the annotated type."""
    found, nullable = members(hint)
    if not found:
        if type_.kind == "void":
            return _NO_RULE
        raise StateDeclarationError("None alone is no column")
    inner = unwrapped(found[0])
    if len(found) > 1:
        raise StateDeclarationError("a union is no column")
    if inner in (Any, object):
        return _NO_RULE
    origin, arguments = typing.get_origin(inner) or inner, typing.get_args(inner)
    if type_.kind in ("array", "map"):
        if origin not in _CONTAINERS[type_.kind]:
            raise StateDeclarationError("another container")
        rules = tuple(fit(one, item) for one, item in zip(arguments, type_.items, strict=bool(arguments)))
        return NullRule(not nullable, rules if any(rule != _NO_RULE for rule in rules) else ())
    fits = origin in (Row, tuple) if type_.kind == "struct" else inner is python_type(Column("", type_, False))
    if not fits:
        raise StateDeclarationError("another type")
    return NullRule(not nullable)


_CONTAINERS: Final = {
    "array": (list, collections.abc.Sequence, collections.abc.Iterable),
    "map": (dict, collections.abc.Mapping),
}


def _shown(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _maker(row_class: type[Any], columns: tuple[str, ...]) -> Any:
    """What `make_rows` makes rows of these columns with."""
    if hasattr(row_class, "_row_type"):
        return row_class
    parameters = list(inspect.signature(row_class).parameters.values())
    in_order = [one.name for one in parameters] == list(columns)
    if in_order and row_class.__bases__ == (tuple,):  # what typing.NamedTuple makes, and has no __new__ of the user's
        return row_class
    if in_order and not any(one.kind is one.KEYWORD_ONLY for one in parameters):
        return RowMaker(row_class, row_class, _slots(row_class, columns))
    return RowMaker(row_class, _ByName(row_class, columns), ())


def _slots(row_class: Any, columns: tuple[str, ...]) -> tuple[Any, ...]:
    """The slots that a generated `__init__` fills, if it does nothing else; else nothing."""
    parameters = getattr(row_class, "__dataclass_params__", None)
    if parameters is None or hasattr(row_class, "__post_init__"):
        return ()
    code = getattr(row_class.__init__, "__code__", None)
    plain = (
        row_class.__new__ is object.__new__
        and code is not None
        and code.co_filename == "<string>"  # generated
        and (row_class.__setattr__ is object.__setattr__ or parameters.frozen)
        and {field.name for field in dataclasses.fields(row_class)} == set(columns)
    )
    slots = tuple(inspect.getattr_static(row_class, name, None) for name in columns)
    return slots if plain and all(isinstance(slot, types.MemberDescriptorType) for slot in slots) else ()


@dataclasses.dataclass(frozen=True, slots=True)
class _ByName:
    """Calls a class by keyword."""

    row_class: type[Any]
    columns: tuple[str, ...]

    def __call__(self, *values: Any) -> Any:
        return self.row_class(**dict(zip(self.columns, values, strict=True)))
