"""The aggregates that a stage can declare: what each reads, what it results in, and the columns of its partial rows.

A *partial row* stands for one or more input rows of a key: the key's columns, one or more columns per aggregate, and
those of `spec`. An aggregate `in_record` accumulates in these same columns, so that merging a partial row into what
there is treats both sides alike. The others have a state of their own, because what they keep can grow.

    count, sum, min, max, any    x__count bigint, x__sum__amount, …
    mean                         x__mean_sum__amount, x__mean_count__amount bigint
    first, last                  x__first_time__shop bigint, x__first__shop, …
    distinct, collect, top       x__distinct__shop array<T>, a set, x__collect__shop array<T>, x__top… array<struct<…>>

The names say which aggregate it is and of which column, because they are stored: a sum that becomes a maximum, or the
sum of another column, starts anew, rather than from the sum so far.

Null means that there is nothing yet. Counts start at 0; of first and last it is the time that is null then.

Immutable and picklable; any thread.
"""

from __future__ import annotations

import abc
import dataclasses
import re
import zlib
from typing import Any, ClassVar, Final

from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import RowType
from emberstate.state.states import AggregateFunction

BIGINT: Final = DataType("bigint")
DOUBLE: Final = DataType("double")
BOOLEAN: Final = DataType("boolean")

INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
FLOATS: Final = ("float", "double")
_NUMBERS: Final = (*INTEGERS, *FLOATS, "decimal")
_NESTED: Final = ("array", "map", "struct", "void")
_MOST_DIGITS: Final = 38


class Aggregate(abc.ABC):
    """One column of the result. `es.count()`, `es.sum("amount")` and the like make one."""

    __slots__ = ()

    #: What users call it.
    title: ClassVar[str]
    #: Whether it accumulates in the columns of its partial rows; if not, it has a state of its own.
    in_record: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The input columns that it reads."""

    @abc.abstractmethod
    def result_type(self, input: RowType) -> DataType:
        """The type of its result; raises if it cannot aggregate columns of these types."""

    @abc.abstractmethod
    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """The columns of a partial row, for the aggregate of this name."""

    def stored_as(self, name: str, part: str = "") -> str:
        """The name under which it, or a part of it, is stored: whatever else it could be has another one."""
        return "__".join([name, self.title + part, *(_identifier(column) for column in self.columns)])


@dataclasses.dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """How many rows there are, or how many values of a column that are not null."""

    title: ClassVar[str] = "count"
    column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The column whose values are counted, if one is named."""
        return () if self.column is None else (self.column,)

    def result_type(self, input: RowType) -> DataType:
        """Always bigint."""
        for column in self.columns:
            type_of(input, column)
        return BIGINT

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """The count."""
        return (Column(self.stored_as(name), self.result_type(input), nullable=False),)


@dataclasses.dataclass(frozen=True, slots=True)
class _OfColumn(Aggregate):
    """An aggregate of the values of one column."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """One column, of the result's type."""
        return (Column(self.stored_as(name), self.result_type(input)),)


@dataclasses.dataclass(frozen=True, slots=True)
class Sum(_OfColumn):
    """The sum of a column's values."""

    title: ClassVar[str] = "sum"

    def result_type(self, input: RowType) -> DataType:
        """Integers: bigint; float and double: double; decimal: ten digits more."""
        return _total_type(self, input)


@dataclasses.dataclass(frozen=True, slots=True)
class Mean(_OfColumn):
    """The mean of a column's values."""

    title: ClassVar[str] = "mean"

    def result_type(self, input: RowType) -> DataType:
        """Decimals: four digits more behind the point; all others: double."""
        type_ = _of_kinds(self, input, _NUMBERS, "numbers")
        if type_.kind != "decimal":
            return DOUBLE
        return DataType(
            "decimal", precision=min(_MOST_DIGITS, type_.precision + 4), scale=min(_MOST_DIGITS, type_.scale + 4)
        )

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """The sum, and how many values are in it."""
        total = Column(self.stored_as(name, "_sum"), _total_type(self, input))
        return (total, Column(self.stored_as(name, "_count"), BIGINT, nullable=False))


@dataclasses.dataclass(frozen=True, slots=True)
class _Least(_OfColumn):
    """An aggregate that results in one of the column's values, by their order."""

    def result_type(self, input: RowType) -> DataType:
        """The column's type."""
        return _ordered(self, input, self.column)


@dataclasses.dataclass(frozen=True, slots=True)
class Min(_Least):
    """The least of a column's values; NaN is greater than any other."""

    title: ClassVar[str] = "min"


@dataclasses.dataclass(frozen=True, slots=True)
class Max(_Least):
    """The greatest of a column's values; NaN is greater than any other."""

    title: ClassVar[str] = "max"


@dataclasses.dataclass(frozen=True, slots=True)
class _ByTime(_OfColumn):
    """The value of one row, nulls included, that its time chooses."""

    def result_type(self, input: RowType) -> DataType:
        """The column's type."""
        return type_of(input, self.column)

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """The row's event time in microseconds (0 in a stage without event time), and its value."""
        return (Column(self.stored_as(name, "_time"), BIGINT), Column(self.stored_as(name), self.result_type(input)))


@dataclasses.dataclass(frozen=True, slots=True)
class First(_ByTime):
    """The value of the earliest row; of equally early ones, that which came first."""

    title: ClassVar[str] = "first"


@dataclasses.dataclass(frozen=True, slots=True)
class Last(_ByTime):
    """The value of the latest row; of equally late ones, that which came last."""

    title: ClassVar[str] = "last"


@dataclasses.dataclass(frozen=True, slots=True)
class AnyTrue(_OfColumn):
    """Whether a boolean column is true in any row."""

    title: ClassVar[str] = "any"

    def result_type(self, input: RowType) -> DataType:
        """Always boolean."""
        return _of_kinds(self, input, ("boolean",), "booleans")


@dataclasses.dataclass(frozen=True, slots=True)
class Distinct(_OfColumn):
    """How many different values a column has."""

    title: ClassVar[str] = "distinct"
    in_record: ClassVar[bool] = False

    def result_type(self, input: RowType) -> DataType:
        """Always bigint."""
        _ordered(self, input, self.column)
        return BIGINT

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """The different values, in any order."""
        return (Column(self.stored_as(name), DataType("array", (_ordered(self, input, self.column),))),)


@dataclasses.dataclass(frozen=True, slots=True)
class Collect(_OfColumn):
    """A column's values."""

    title: ClassVar[str] = "collect"
    in_record: ClassVar[bool] = False

    def result_type(self, input: RowType) -> DataType:
        """An array of the column's type."""
        return DataType("array", (type_of(input, self.column),))


@dataclasses.dataclass(frozen=True, slots=True)
class Top(Aggregate):
    """Some columns of the `n` rows with the greatest values of another."""

    title: ClassVar[str] = "top"
    in_record: ClassVar[bool] = False

    n: int
    of: tuple[str, ...]
    by: str

    def __post_init__(self) -> None:
        if type(self.n) is not int or self.n < 1:
            raise StateDeclarationError(
                f"top(n, …) keeps 1 or more rows, got {self.n!r}", option="n", expected="1 or more", found=self.n
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result, then `by` unless it is one of them."""
        return self.of if self.by in self.of else (*self.of, self.by)

    def stored_as(self, name: str, part: str = "") -> str:
        """It stores the rows that were the greatest, of this number and order."""
        return Aggregate.stored_as(self, name, f"{part}_{self.n}_by_{_identifier(self.by)}")

    def result_type(self, input: RowType) -> DataType:
        """An array of structs, the greatest first."""
        _ordered(self, input, self.by)
        fields = tuple(Column(name, type_of(input, name)) for name in self.columns)
        return DataType("array", (DataType("struct", (), fields),))

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """The greatest so far."""
        return (Column(self.stored_as(name), self.result_type(input)),)


@dataclasses.dataclass(frozen=True, slots=True)
class Fold(Aggregate):
    """A user's `AggregateFunction`. It sees whole rows, so a stage that has one does not combine rows."""

    title: ClassVar[str] = "fold"
    in_record: ClassVar[bool] = False

    function: AggregateFunction[Any, Any, Any]
    result: DataType
    #: None: the one that the class was declared with.
    accumulator_type: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        """None by name: it reads the whole row."""
        return ()

    def result_type(self, input: RowType) -> DataType:
        """The declared one."""
        return self.result

    def partial(self, name: str, input: RowType) -> tuple[Column, ...]:
        """None: the row is in the column `spec.WHOLE`."""
        return ()


def _identifier(column: str) -> str:
    """A column's name as a part of an identifier; two names have two."""
    if column.isidentifier():
        return column
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', column)}_{zlib.crc32(column.encode()):08x}"


def type_of(input: RowType, column: str) -> DataType:
    """The type of an input column; raises if there is none of that name."""
    return input.columns[input.position(column)].type


def _of_kinds(aggregate: _OfColumn, input: RowType, kinds: tuple[str, ...], what: str) -> DataType:
    type_ = type_of(input, aggregate.column)
    if type_.kind not in kinds:
        raise StateDeclarationError(
            f"{aggregate.title}({aggregate.column!r}) is of {what} and column {aggregate.column!r} is {type_.name}: "
            f"name another column, or cast this one",
            column=aggregate.column,
            option=aggregate.title,
            expected=what,
            found=type_.name,
        )
    return type_


def _total_type(aggregate: _OfColumn, input: RowType) -> DataType:
    type_ = _of_kinds(aggregate, input, _NUMBERS, "numbers")
    if type_.kind == "decimal":
        return DataType("decimal", precision=min(_MOST_DIGITS, type_.precision + 10), scale=type_.scale)
    return BIGINT if type_.kind in INTEGERS else DOUBLE


def _ordered(aggregate: Aggregate, input: RowType, column: str) -> DataType:
    type_ = type_of(input, column)
    if type_.kind in _NESTED:
        raise StateDeclarationError(
            f"{aggregate.title} compares values, and column {column!r} is {type_.name}: name a column of single values",
            column=column,
            option=aggregate.title,
            expected="single values",
            found=type_.name,
        )
    return type_
