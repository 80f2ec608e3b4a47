"""Rows: light tuples with named fields, and the `RowType` that makes them.

A row is a tuple: it unpacks, compares and hashes as one. A column is an attribute too, except where its name
is one that rows need (`as_dict`, `_make`, `_fields`, names with two underscores in front).

One schema has one row type and one class of rows in a process, however often it is named, and a pickle brings back
that one: rows of an input are of the class that a state was declared with.

Thread safety: row types are immutable; any thread may make and use one.

>>> cards = RowType.of("card string, amount double, count int")
>>> row = cards.row(card="c-1", amount=2.5, count=1)
>>> row.amount, row.count, row == ("c-1", 2.5, 1)
(2.5, 1, True)
>>> row
Row(card='c-1', amount=2.5, count=1)

A row can stand in state, by its class: `list_state(cards.row_class)`.

>>> cards.row_class is RowType.of("card string, amount double, count integer").row_class
True
>>> from emberstate.codec import codec_for
>>> codec = codec_for(cards.row_class)
>>> codec.decode(codec.encode(row)).amount
2.5
"""

from __future__ import annotations

import datetime
import decimal
import threading
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.rows.data_types import Column, DataType, check_columns, parse_schema, parse_type, schema_text
from emberstate.runtime.rows.records import is_record, record_columns, record_names
from emberstate.runtime.rows.row_checks import CLASSES

# Python's own accessor of a named tuple's field: nothing else is as fast.
_field: Any = type(vars(namedtuple("_Sample", "a"))["a"])


class _RowMeta(type):
    """Makes `isinstance(value, Row)` true of the rows of every `RowType`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return hasattr(type(instance), "_row_type")


class Row(tuple[Any, ...], metaclass=_RowMeta):
    """A row. The classes that `RowType` makes have these methods, and are NamedTuples to the codecs."""

    __slots__ = ()

    _row_type: ClassVar[RowType]

    if TYPE_CHECKING:

        def __getattr__(self, column: str) -> Any: ...

    def as_dict(self) -> dict[str, Any]:
        """The row by column name."""
        return dict(zip(self._row_type.names, self, strict=True))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._row_type.names, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _row_of, (self._row_type.schema, tuple(self))


def _row_of(schema: str, values: tuple[Any, ...]) -> Any:
    return RowType.of(schema).row(*values)


def _new_row(cls: type[Any], *values: Any) -> Any:
    """Make a row of as many values as there are columns."""
    if len(values) != len(cls._fields):
        raise RowTypeError(
            f"a row of ({cls._row_type.schema}) has {len(cls._fields)} values, found {len(values)}: {values!r:.200}",
            expected=len(cls._fields),
            found=len(values),
        )
    return tuple.__new__(cls, values)


def _make_row(cls: type[Any], values: Iterable[Any]) -> Any:
    """Make a row of an iterable."""
    return _new_row(cls, *values)


_SHARED: Final = {name: vars(Row)[name] for name in ("as_dict", "__repr__", "__reduce__")}
#: Names that a column cannot have as an attribute, besides all with two underscores in front.
_KEPT: Final = frozenset(["_row_type", "_fields", "_field_defaults", "_make", "as_dict"])


def _row_class(row_type: RowType) -> type[Row]:
    """A NamedTuple by hand, for `typing.NamedTuple` takes no column called `class` or `_id`."""
    fields = {
        name: _field(position, f"Column {name}.")
        for position, name in enumerate(row_type.names)
        if name not in _KEPT and not name.startswith("__")
    }
    body = {
        **_SHARED,
        **fields,
        "__slots__": (),
        "__module__": __name__,
        "__qualname__": f"Row({row_type.schema.replace('%', '%25').replace('.', '%2E')})",
        "__doc__": f"A row of ({row_type.schema}).",
        "__annotations__": {column.name: python_type(column) for column in row_type.columns},
        "__new__": _new_row,
        "_make": classmethod(_make_row),
        "_fields": row_type.names,
        "_field_defaults": {},
        "_row_type": row_type,
    }
    return type("Row", (tuple,), body)


def __getattr__(name: str) -> Any:
    """The class of rows by its qualified name, `Row(schema)`: so a pickle, by value or not, refers to it by name."""
    if name.startswith("Row(") and name.endswith(")"):
        return RowType.of(unquote(name[4:-1])).row_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_PYTHON: Final[dict[str, Any]] = {
    **CLASSES,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
    "decimal": decimal.Decimal,
    "void": None,
}


def python_type(column: Column) -> Any:
    """Return the type of a column's values, for a state that holds them.

    >>> python_type(Column("tags", parse_type("array<string>"), nullable=False))
    list[str | None]
    """
    type_ = column.type
    inner = [python_type(Column("", item)) for item in type_.items]
    if type_.kind == "array":
        plain: Any = list[inner[0]]  # type: ignore[valid-type]
    elif type_.kind == "map":
        plain = dict[python_type(Column("", type_.items[0], False)), inner[1]]  # type: ignore[misc]
    elif type_.kind == "struct":
        plain = struct_rows(type_).row_class
    else:
        plain = _PYTHON[type_.kind]
    return plain | None if column.nullable and plain is not None else plain


def struct_rows(type_: DataType) -> RowType:
    """The row type of a struct's values."""
    return RowType(type_.fields)


class RowType:
    """The columns of a row: names, types, order. Equal row types are one object."""

    __slots__ = ("__weakref__", "columns", "names", "row_class", "schema")

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    row_class: type[Row]
    schema: str

    def __new__(cls, columns: Iterable[Column]) -> RowType:
        """Return the row type with these columns, an existing one if there is one."""
        columns = tuple(columns)
        with _making:
            found = _made.get(columns)
            if found is None:
                check_columns(columns, "a row type")
                found = super().__new__(cls)
                found.columns = columns
                found.names = tuple(column.name for column in columns)
                found.schema = schema_text(columns)
                found.row_class = _row_class(found)
                _made[columns] = found
        return found

    @classmethod
    def of(cls, schema: RowType | str | type[Any] | Sequence[tuple[str, str | DataType]]) -> RowType:
        """The row type of a schema string, of (name, type) pairs, or of a dataclass, NamedTuple or `msgspec.Struct`.

        >>> RowType.of([("card", "string"), ("n", "int")]) == RowType.of("card string, n int")
        True
        """
        if isinstance(schema, RowType):
            return schema
        if isinstance(schema, str):
            return cls(parse_schema(schema))
        if is_record(schema):
            return cls(record_columns(schema))  # type: ignore[arg-type]
        try:
            pairs = [(name, type_) for name, type_ in schema]
        except (TypeError, ValueError):
            raise StateDeclarationError(
                f'a schema is a string such as "card string, n int" or pairs of name and type, found {schema!r:.100}',
                option="schema",
            ) from None
        return cls(Column(name, type_ if isinstance(type_, DataType) else parse_type(type_)) for name, type_ in pairs)

    def row(self, *values: Any, **named: Any) -> Row:
        """Return a row of these values: all by position, or all by name. Types are not checked."""
        if named:
            return self.row_class(*self._by_name(named)) if not values else self._refuse_mix(values, named)
        return self.row_class(*values)

    def coerce(self, value: Any) -> Row:
        """Return the row of a tuple, of a dict, dataclass or `msgspec.Struct` by column name, or of a row."""
        if isinstance(value, Mapping):
            return self.row_class(*self._by_name(value))
        if is_record(type(value)) and not isinstance(value, tuple):
            names = record_names(type(value))
            return self.row_class(*self._by_name({name: getattr(value, name) for name in names}))
        if not isinstance(value, tuple):
            raise RowTypeError(
                f"a row of ({self.schema}) is a tuple, a dict or a dataclass, found {value!r:.100}",
                found=type(value).__qualname__,
            )
        return self.row(*value)

    def _by_name(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        if len(named) != len(self.names) or any(name not in named for name in self.names):
            missing = [name for name in self.names if name not in named]
            unknown = [name for name in named if name not in self.names]
            found = [f"without {missing}"] if missing else []
            found += [f"with {unknown}, which it does not have"] if unknown else []
            raise RowTypeError(
                f"a row of ({self.schema}) was given by name, {' and '.join(found)}",
                column=str([*missing, *unknown][0]),
                expected=self.names,
                found=tuple(named),
            )
        return tuple(named[name] for name in self.names)

    def _refuse_mix(self, values: tuple[Any, ...], named: Mapping[str, Any]) -> Row:
        raise RowTypeError(
            f"a row is given by position or by name, not both: {values!r} and {dict(named)!r}", found=tuple(named)
        )

    def position(self, name: str) -> int:
        """Return the position of a column."""
        try:
            return self.names.index(name)
        except ValueError:
            raise StateDeclarationError(f"there is no column {name!r} in ({self.schema})", column=name) from None

    def __repr__(self) -> str:
        return f"RowType.of({self.schema!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RowType.of, (self.schema,)


# The row types in use. Making one with structs makes theirs too: the lock is reentrant.
_made: WeakValueDictionary[tuple[Column, ...], RowType] = WeakValueDictionary()
_making: Final = threading.RLock()
