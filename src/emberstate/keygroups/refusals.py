"""The words for a key that is refused: column, expected, found, what to do.

Apart from the checks because it is cold: nothing here runs for a key that is accepted.

Thread safety: pure functions.
"""

from __future__ import annotations

import enum
import reprlib
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from emberstate.errors import StateTypeError

_EXPECTED: Final[dict[str, tuple[str, type]]] = {
    "bigint": ("an int of 64 bits", int),
    "string": ("a str", str),
    "binary": ("bytes", bytes),
    "boolean": ("a bool", bool),
    "double": ("a float, not NaN", float),
    "date": ("a datetime.date", date),
    "timestamp": ("a datetime with a zone", datetime),
    "timestamp_ntz": ("a datetime without a zone", datetime),
}

#: What a value of this type is called when it is declared: the other way out.
_NAMES: Final[dict[type, str]] = {
    int: "bigint",
    str: "string",
    bytes: "binary",
    bool: "boolean",
    float: "double",
    date: "date",
    datetime: "timestamp or timestamp_ntz",
    Decimal: "decimal(p,s)",
}


def refusal(name: str, position: int, value: object, advice: str) -> StateTypeError:
    """Return the error for ``value`` in a column of type ``name``.

    ``advice`` is what to do if the value has the right type and is refused all the same.
    """
    expected, python_type = _EXPECTED.get(name, ("a Decimal that fits it", Decimal))
    if type(value) is not python_type:
        advice = _advice(value, name, python_type)
    return StateTypeError(
        f"Key column {position} is declared {name} and takes {expected}; found {describe(value)}: {advice}.",
        key=value,
    )


def shape_refusal(type_names: tuple[str, ...], key: object) -> StateTypeError:
    """Return the error for a key that is no tuple of as many values as there are columns."""
    found = f"a tuple of {len(key)}" if type(key) is tuple else describe(key)
    advice = "use tuple(key)" if isinstance(key, (tuple, list)) and type(key) is not tuple else "pass one"
    return StateTypeError(
        f"A key of the columns ({', '.join(type_names)}) is a plain tuple of {len(type_names)} values, in "
        f"this order; found {found}: {advice}.",
        key=key,
    )


def describe(value: object) -> str:
    """Return the type of ``value`` and a short form of it, whatever it is.

    >>> describe(True), describe(None), describe(1 << 99_999)
    ('bool True', 'None', 'int of 100000 bits')
    """
    if value is None:
        return "None"
    name = type(value).__qualname__
    if isinstance(value, int) and value.bit_length() > 256:
        return f"{name} of {value.bit_length()} bits"  # repr() of a huge int is slow, or refused by Python
    try:
        return f"{name} {ascii(value) if isinstance(value, str) and len(value) < 40 else reprlib.repr(value)}"
    except Exception:  # a foreign repr must not hide the refusal
        return name


def _advice(value: object, name: str, python_type: type) -> str:
    if value is None:
        return "a key cannot be null; filter such rows out, or replace the null before key_by"
    if isinstance(value, enum.Enum):
        return "key by the plain value, key.value"
    if isinstance(value, tuple):
        return "a key of one column is the bare value, and a column holds no tuple; pass the value itself"
    if python_type is bytes and isinstance(value, (bytearray, memoryview)):
        return "use bytes(key)"
    if type(value).__module__.partition(".")[0] == "pandas":
        return "use key.to_pydatetime()"
    if type(value).__module__.partition(".")[0] == "numpy":
        return "use key.item()"
    if python_type is date and isinstance(value, datetime):
        return "use key.date(), or declare timestamp"
    if python_type is not bool and isinstance(value, python_type) and type(value) is not bool:
        return f"a subclass may compare in its own way; convert it to a plain {python_type.__name__}"
    other = _NAMES.get(type(value))
    convert = f"convert it to {python_type.__name__} before it becomes a key"
    return convert if other is None else f"{convert}, or declare {other}"
