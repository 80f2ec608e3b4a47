"""`ColumnLayout`: the columns that hold the values of a state: one for each field of a record, or a single one.

Records are of a dataclass whose fields are immutable. Ints (of 64 bits), floats and booleans get a NumPy column of
their own kind; with `| None` also a mask of the nulls. Anything else is a column of Python objects, None among them. A
value that is no record, such as a float, is in one column, whose field has no name.

Immutable; any thread.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.state.cells.records import FieldValues

Array = npt.NDArray[Any]

_KINDS: Final[dict[Any, Any]] = {int: np.int64, float: np.float64, bool: np.bool_}
#: What a column takes without a word of NumPy, which would cut 1.5 to 1.
_TAKEN: Final[dict[Any, frozenset[type]]] = {
    np.int64: frozenset({int}),
    np.float64: frozenset({float, int}),
    np.bool_: frozenset({bool}),
}
_UNIONS: Final = (typing.Union, types.UnionType)
#: The types whose values are in a single column.
SINGLE: Final = (int, float, bool, str)


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnField:
    """A field: its name, the type of its column, and whether it may be null, which some columns have a mask for."""

    name: str
    dtype: Any
    masked: bool
    nullable: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """Values of one field; `nulls` is None if none can be null, or if None itself stands for it."""

    values: Array
    nulls: Array | None

    def as_field(self) -> FieldValues:
        """The values as a writer of files takes them; objects in a list."""
        if self.values.dtype == object:
            return FieldValues(self.values.tolist())
        return FieldValues(self.values, self.nulls)

    def fill(self, objects: list[Any]) -> None:
        """Set all values; None is null."""
        if self.nulls is not None:
            self.nulls[:] = [value is None for value in objects]
            objects = [False if value is None else value for value in objects]
        self.values[:] = np.fromiter(objects, self.values.dtype, len(objects))

    def objects(self) -> list[Any]:
        """The values as Python objects."""
        if self.nulls is None or not self.nulls.any():
            return self.values.tolist()  # type: ignore[no-any-return]
        values = self.values.astype(object)
        values[self.nulls] = None
        return values.tolist()  # type: ignore[no-any-return]


class ColumnLayout:
    """How records become columns and columns become records.

    >>> @dataclasses.dataclass
    ... class Total:
    ...     n: int
    ...     total: float | None
    >>> layout = ColumnLayout(Total)
    >>> columns = layout.columns_of([Total(1, 2.5), Total(2, None)])
    >>> columns[1].nulls.tolist(), layout.records_of(columns)
    ([False, True], [Total(n=1, total=2.5), Total(n=2, total=None)])
    """

    __slots__ = ("fields", "record")

    record: type[Any]
    fields: tuple[ColumnField, ...]

    def __init__(self, record: type[Any]) -> None:
        self.record = record
        if record in SINGLE:
            self.fields = (_field("", record),)
            return
        if not dataclasses.is_dataclass(record):
            raise StateDeclarationError(
                f"columns hold records of a dataclass, int, float, bool and str, not {record!r:.100}",
                option="record",
                expected="a dataclass",
                found=repr(record),
            )
        hints = typing.get_type_hints(record)
        self.fields = tuple(_field(field.name, hints[field.name]) for field in dataclasses.fields(record))

    def position(self, name: str) -> int:
        """The position of a field."""
        return [field.name for field in self.fields].index(name)

    def empty(self, rows: int) -> list[Column]:
        """Columns for so many rows, in which everything is null, or 0 if it cannot be null."""
        return [
            Column(
                np.full(rows, None, object) if field.dtype is object else np.zeros(rows, field.dtype),
                np.ones(rows, np.bool_) if field.masked else None,
            )
            for field in self.fields
        ]

    def columns_of(self, records: list[Any]) -> list[Column]:
        """The records as columns; raises StateTypeError for what a column cannot hold."""
        if self.record in SINGLE:
            return [self.column(self.fields[0], records)]
        return [self.column(field, [getattr(record, field.name) for record in records]) for field in self.fields]

    def records_of(self, columns: list[Column]) -> list[Any]:
        """The columns as records."""
        if self.record in SINGLE:
            return columns[0].objects()
        return [self.record(*values) for values in zip(*[column.objects() for column in columns], strict=True)]

    def column(self, field: ColumnField, values: list[Any]) -> Column:
        """The values of a field as a column; raises StateTypeError for what it cannot hold."""
        if field.dtype is object:
            return Column(np.fromiter(values, object, len(values)), None)  # one object each, tuples too
        nulls = np.array([value is None for value in values], np.bool_) if field.masked else None
        filled = [False if value is None else value for value in values] if field.masked else values
        taken = _TAKEN[field.dtype]
        wrong = [value for value in values if type(value) not in taken and not (field.masked and value is None)]
        if not wrong:
            try:
                return Column(np.array(filled, field.dtype), nulls)
            except OverflowError:
                wrong = [max(filled, key=abs)]
        kind = np.dtype(field.dtype).name
        raise StateTypeError(
            f"{f'field {field.name!r} of ' if field.name else ''}{self.record.__name__} is a column of {kind}, which "
            f"does not hold {wrong[0]!r:.100}",
            field=field.name or None,
            expected=kind,
            found=repr(wrong[0])[:100],
        )


def _field(name: str, hint: Any) -> ColumnField:
    nullable = False
    if typing.get_origin(hint) in _UNIONS:
        others = [part for part in typing.get_args(hint) if part is not type(None)]
        nullable = len(others) < len(typing.get_args(hint))
        hint = others[0] if len(others) == 1 else object
    dtype = _KINDS.get(hint, object)
    return ColumnField(name, dtype, nullable and dtype is not object, nullable)
