"""Keys as people write them: JSON, read by the types of the key schema.

A key of one column is a JSON value, a key of several an array. Binary is base64; dates and times are ISO 8601, a
`timestamp` with its offset from UTC; a decimal is a text or a number.

Thread safety: pure functions.
"""

from __future__ import annotations

import datetime
import decimal
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec

from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema

_TYPES: Final[dict[str, Any]] = {
    "bigint": int,
    "string": str,
    "binary": bytes,
    "boolean": bool,
    "double": float,
    "date": datetime.date,
    "timestamp": Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    "timestamp_ntz": Annotated[datetime.datetime, msgspec.Meta(tz=False)],
}
_EXAMPLES: Final = {
    "bigint": "7",
    "string": '"ann"',
    "binary": '"AP8="',
    "boolean": "true",
    "double": "1.5",
    "date": '"2026-01-31"',
    "timestamp": '"2026-01-31T12:00:00Z"',
    "timestamp_ntz": '"2026-01-31T12:00:00"',
}


def key_of_json(text: str, schema: KeySchema) -> Any:
    """The canonical key that a JSON text stands for.

    >>> key_of_json('["ann", 7]', KeySchema(["string", "bigint"]))
    ('ann', 7)
    >>> key_of_json("ann", KeySchema(["string"]))
    Traceback (most recent call last):
        ...
    emberstate.errors.StateDeclarationError: 'ann' is no key of (string): JSON is malformed: ...
    """
    types = [_TYPES.get(name, decimal.Decimal) for name in schema.type_names]
    single = len(types) == 1
    try:
        key = msgspec.json.decode(text, type=types[0] if single else GenericAlias(tuple, tuple(types)))
        return schema.normalise(key)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        parts = [_EXAMPLES.get(name, '"1.50"') for name in schema.type_names]
        example = parts[0] if single else f"[{', '.join(parts)}]"
        raise StateDeclarationError(
            f"{text!r:.200} is no key of ({', '.join(schema.type_names)}): {error!s:.200}. Write JSON such as {example}"
        ) from None
