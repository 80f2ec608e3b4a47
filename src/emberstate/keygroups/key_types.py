"""The types that a key column may have: one `KeyType` each says all that the layers above need to know.

A type's name is what Spark's ``DataType.simpleString()`` returns ("bigint", "decimal(10,2)"). Types that hash alike
after the library's casts are one: all integers are bigint, float is double.

Invariants
1. ``key_type(key_type(name).name) is key_type(name)``; the name is what a manifest stores.
2. A type that cannot be a key is refused with the way out; nothing is guessed.

Thread safety: immutable constants and pure functions.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import re
from collections.abc import Callable
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.keygroups import key_columns
from emberstate.keygroups.key_columns import KeyColumn, Refuse

#: Largest precision of a Spark decimal.
MAX_PRECISION: Final = 38

_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)(?: ?\( ?([0-9]{1,9}) ?(?:, ?(-?[0-9]{1,9}) ?)?\))?")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class KeyType:
    """One type of key columns."""

    name: str  #: Spark's name, in its one spelling
    aliases: tuple[str, ...]  #: other spellings, and types that are cast to this one
    python_type: type[Any]
    expected: str  #: the accepted values, for messages
    column: Callable[[Refuse], KeyColumn]  #: makes a column, which checks, normalises and hashes
    parse: Callable[[str], Any]  #: from text; raises ValueError, KeyError or ArithmeticError
    example: str  #: a value as JSON
    every_value: bool = False  #: whether every decoded value of the Python type is a canonical key
    precision: int = 0  #: of a decimal
    scale: int = 0  #: of a decimal


KEY_TYPES: Final = (
    KeyType(
        "bigint",
        ("tinyint", "byte", "smallint", "short", "int", "integer", "long"),
        int,
        "an int of 64 bits",
        key_columns.bigint_column,
        int,
        "7",
        every_value=True,
    ),
    KeyType(
        "string",
        ("string collate utf8_binary",),  # Spark's default collation: compared and hashed as bytes
        str,
        "a str",
        key_columns.string_column,
        str,
        '"ann"',
        every_value=True,
    ),
    KeyType(
        "binary",
        (),
        bytes,
        "bytes",
        key_columns.binary_column,
        lambda text: bytes.fromhex(text.removeprefix("0x")),
        '"AP8="',
        every_value=True,
    ),
    KeyType(
        "boolean",
        (),
        bool,
        "a bool",
        key_columns.boolean_column,
        lambda text: _BOOLEANS[text.lower()],
        "true",
        every_value=True,
    ),
    KeyType("double", ("float", "real"), float, "a float, not NaN", key_columns.double_column, float, "1.5"),
    KeyType(
        "date",
        (),
        datetime.date,
        "a datetime.date",
        key_columns.date_column,
        datetime.date.fromisoformat,
        '"2026-01-31"',
    ),
    KeyType(
        "timestamp",
        ("timestamp_ltz",),
        datetime.datetime,
        "a datetime with a zone",
        key_columns.timestamp_column,
        datetime.datetime.fromisoformat,
        '"2026-01-31T12:00:00Z"',
    ),
    KeyType(
        "timestamp_ntz",
        (),
        datetime.datetime,
        "a datetime without a zone",
        key_columns.timestamp_ntz_column,
        datetime.datetime.fromisoformat,
        '"2026-01-31T12:00:00"',
    ),
)


@functools.cache
def _decimal_type(precision: int, scale: int) -> KeyType:
    return KeyType(
        f"decimal({precision},{scale})",
        (),
        decimal.Decimal,
        "a Decimal that fits it",
        functools.partial(key_columns.decimal_column, precision, scale),
        decimal.Decimal,
        '"1.50"',
        precision=precision,
        scale=scale,
    )


_BY_NAME: Final = {name: kind for kind in KEY_TYPES for name in (kind.name, *kind.aliases)}

# First match wins. The name is already lower case.
_WAYS_OUT: Final = (
    (r"string collate ", "it is not compared byte by byte; key by collate(column, 'UTF8_BINARY'), of "
     "lower(column) if case shall not matter"),
    (r"(var)?char\b|character\b", "key by cast(column AS string)"),
    (r"struct\b", "key by its fields as several key columns"),
    (r"array\b", "key by its elements as several key columns, or by to_json(column) as string"),
    (r"map\b", "its entries have no order; key by the values that matter as several key columns"),
    (r"variant\b", "key by the field that matters, with variant_get(column, path, 'string')"),
    (r"(calendar)?interval\b", "key by its length as bigint"),
    (r"time\b", "key by its microseconds since midnight as bigint"),
    (r"timestamp", "key by cast(column AS timestamp) or cast(column AS timestamp_ntz), or by a bigint"),
    (r"void\b|null\b", "it holds nothing but nulls; cast the column to the type that the key has"),
)  # fmt: skip

KEY_TYPES_HELP: Final = (
    "bigint (any integer), string, binary, boolean, double (or float), date, timestamp, timestamp_ntz, "
    "decimal(p,s)"
)


def key_type(name: str) -> KeyType:
    """Return the key type of a Spark type name.

    Raises:
        StateDeclarationError: the type cannot be a key; the message says what to use instead.

    >>> key_type("INT").name, key_type("float").name, key_type("Decimal(10, 2)").name
    ('bigint', 'double', 'decimal(10,2)')
    """
    if not isinstance(name, str):
        raise StateDeclarationError(
            f"A key column's type is a Spark type name, got {name!r}; use one of {KEY_TYPES_HELP}, or "
            f"KeySchema.from_python for Python types.",
            option="type_names",
            found=repr(name),
        )
    folded = " ".join(name.lower().split())
    known = _BY_NAME.get(folded)
    if known is not None:
        return known
    matched = _DECIMAL.fullmatch(folded)
    if matched is not None:
        precision, scale = int(matched[1] or 10), int(matched[2] or 0)  # Spark's defaults: decimal(10,0)
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            raise StateDeclarationError(
                f"Key type {name!r} is no decimal of Spark: expected a precision in 1..{MAX_PRECISION} and a "
                f"scale in 0..precision, got precision {precision} and scale {scale}.",
                found=name,
            )
        return _decimal_type(precision, scale)
    for pattern, way_out in _WAYS_OUT:
        if re.match(pattern, folded):
            raise StateDeclarationError(f"A column of type {name!r} cannot be a key: {way_out}.", found=name)
    raise StateDeclarationError(f"A column of type {name!r} cannot be a key; use one of {KEY_TYPES_HELP}.", found=name)


def key_type_of_python(declared: object) -> KeyType:
    """Return the key type of a Python type, or of a Spark type name.

    >>> key_type_of_python(int).name, key_type_of_python("decimal(10,2)").name
    ('bigint', 'decimal(10,2)')
    """
    if isinstance(declared, str):
        return key_type(declared)
    # By identity: bool is a subclass of int and datetime of date, and neither may become the other.
    for kind in KEY_TYPES:
        if declared is kind.python_type:
            return kind
    if declared is decimal.Decimal:
        raise StateDeclarationError(
            "A Decimal key needs its precision and scale, since Spark's hash depends on them: write the "
            "Spark type, such as 'decimal(10,2)', in place of Decimal.",
            found="Decimal",
        )
    shown = declared.__qualname__ if isinstance(declared, type) else repr(declared)
    raise StateDeclarationError(
        f"{shown} cannot be a key type; use int, str, bytes, bool, float, datetime.date, datetime.datetime "
        f"or a Spark type name such as 'decimal(10,2)', or a tuple of these. Enums and classes: key by "
        f"their plain values.",
        found=shown,
    )
