"""Messages for refused keys: the column, what it expected, what it got, what to do.

Nothing here runs for an accepted key.

Thread safety: pure functions.
"""

from __future__ import annotations

import enum
import reprlib
from datetime import date, datetime
from decimal import Decimal

from emberstate.errors import StateTypeError
from emberstate.keygroups.key_types import KEY_TYPES, KeyType


def refusal(kind: KeyType, position: int, value: object, advice: str) -> StateTypeError:
    """Return the error for ``value`` in the column at ``position`` (from 1).

    ``advice`` is what to do if the value has the right type and is refused all the same.
    """
    if type(value) is not kind.python_type:
        advice = _advice(value, kind.python_type)
    return StateTypeError(
        f"Key column {position} is declared {kind.name} and takes {kind.expected}; got {describe(value)}: {advice}.",
        key=value,
        expected=kind.name,
    )


def shape_refusal(type_names: tuple[str, ...], key: object) -> StateTypeError:
    """Return the error for a key that is no tuple of as many values as there are columns."""
    found = f"a tuple of {len(key)}" if type(key) is tuple else describe(key)
    advice = "use tuple(key)" if isinstance(key, (tuple, list)) and type(key) is not tuple else "pass one"
    return StateTypeError(
        f"A key of the columns ({', '.join(type_names)}) is a plain tuple of {len(type_names)} values, in "
        f"this order; got {found}: {advice}.",
        key=key,
        expected=type_names,
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


def _advice(value: object, python_type: type) -> str:
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
    convert = f"convert it to {python_type.__name__} before it becomes a key"
    names = [kind.name for kind in KEY_TYPES if kind.python_type is type(value)]
    if type(value) is Decimal:
        names = ["decimal(p,s)"]
    return f"{convert}, or declare {' or '.join(names)}" if names else convert
