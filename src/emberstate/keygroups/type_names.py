"""The Spark types that a key column may have, and their one spelling each.

A type name is what Spark's ``DataType.simpleString()`` gives ("bigint", "decimal(10,2)"). Names that
hash alike after the library's casts are folded into one: all integers are bigint, float is double.

Invariants
1. ``canonical_type_name`` is idempotent, and its result is what a manifest stores.
2. A type that cannot be a key is refused with the way out; nothing is guessed.

Thread safety: pure functions over constants.
"""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Final

from emberstate.errors import StateDeclarationError

_CANONICAL: Final = {
    "tinyint": "bigint",
    "byte": "bigint",
    "smallint": "bigint",
    "short": "bigint",
    "int": "bigint",
    "integer": "bigint",
    "bigint": "bigint",
    "long": "bigint",
    "float": "double",
    "real": "double",
    "double": "double",
    "string": "string",
    "string collate utf8_binary": "string",  # Spark's default collation: compared and hashed as bytes
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}

_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)(?: ?\( ?([0-9]{1,9}) ?(?:, ?(-?[0-9]{1,9}) ?)?\))?")

#: Largest precision of a Spark decimal.
MAX_PRECISION: Final = 38

_PYTHON_TYPES: Final[dict[object, str]] = {
    int: "bigint",
    str: "string",
    bytes: "binary",
    bool: "boolean",
    float: "double",
    datetime.date: "date",
    datetime.datetime: "timestamp",
}

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


def canonical_type_name(name: str) -> str:
    """Return the one spelling of a key type.

    Raises:
        StateDeclarationError: the type cannot be a key; the message says what to use instead.

    >>> canonical_type_name("INT"), canonical_type_name("float"), canonical_type_name("Decimal(10, 2)")
    ('bigint', 'double', 'decimal(10,2)')
    """
    if not isinstance(name, str):
        raise StateDeclarationError(
            f"A key column's type is a Spark type name, found {name!r}; use one of {KEY_TYPES_HELP}, or "
            f"KeySchema.from_python for Python types."
        )
    folded = " ".join(name.lower().split())
    canonical = _CANONICAL.get(folded)
    if canonical is not None:
        return canonical
    matched = _DECIMAL.fullmatch(folded)
    if matched is not None:
        precision, scale = int(matched[1] or 10), int(matched[2] or 0)  # Spark's defaults: decimal(10,0)
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            raise StateDeclarationError(
                f"Key type {name!r} is no decimal of Spark: expected a precision in 1..{MAX_PRECISION} and a "
                f"scale in 0..precision, found precision {precision} and scale {scale}."
            )
        return f"decimal({precision},{scale})"
    for pattern, way_out in _WAYS_OUT:
        if re.match(pattern, folded):
            raise StateDeclarationError(f"A column of type {name!r} cannot be a key: {way_out}.")
    raise StateDeclarationError(f"A column of type {name!r} cannot be a key; use one of {KEY_TYPES_HELP}.")


def decimal_parameters(canonical_name: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a canonical decimal name, None for any other type.

    >>> decimal_parameters("decimal(10,2)"), decimal_parameters("bigint")
    ((10, 2), None)
    """
    matched = _DECIMAL.fullmatch(canonical_name)
    return None if matched is None else (int(matched[1]), int(matched[2]))


def type_name_of_python(declared: object) -> str:
    """Return the key type for a Python type; a Spark type name stands for itself.

    >>> type_name_of_python(int), type_name_of_python("decimal(10,2)")
    ('bigint', 'decimal(10,2)')
    """
    if isinstance(declared, str):
        return canonical_type_name(declared)
    # By identity: bool is a subclass of int and datetime of date, and neither may become the other.
    for python_type, name in _PYTHON_TYPES.items():
        if declared is python_type:
            return name
    if declared is decimal.Decimal:
        raise StateDeclarationError(
            "A Decimal key needs its precision and scale, since Spark's hash depends on them: write the "
            "Spark type, such as 'decimal(10,2)', in place of Decimal."
        )
    shown = declared.__qualname__ if isinstance(declared, type) else repr(declared)
    raise StateDeclarationError(
        f"{shown} cannot be a key type; use int, str, bytes, bool, float, datetime.date, datetime.datetime "
        f"or a Spark type name such as 'decimal(10,2)', or a tuple of these. Enums and classes: key by "
        f"their plain values."
    )
