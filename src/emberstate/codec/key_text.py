"""Keys as people write them, read by the types of the key schema: as JSON, or as plain text.

As JSON, a key of one column is a JSON value, a key of several an array. Binary is base64; dates and times are ISO 8601,
a `timestamp` with its offset from UTC; a decimal is a text or a number.

As text, a key of one column is written without quotes, a key of several as a JSON array. Binary is hexadecimal; each
part may be a text.

Thread safety: pure functions.
"""

from __future__ import annotations

import datetime
import decimal
import json
from types import GenericAlias
from typing import Any

import msgspec

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.keygroups import KeySchema, KeyType


def key_of_json(text: str, schema: KeySchema) -> Any:
    """Return the canonical key of a JSON text.

    >>> key_of_json('["ann", 7]', KeySchema(["string", "bigint"]))
    ('ann', 7)
    >>> key_of_json("ann", KeySchema(["string"]))
    Traceback (most recent call last):
        ...
    emberstate.errors.StateDeclarationError: 'ann' is no key of (string): JSON is malformed: ...
    """
    types = [kind.python_type for kind in schema.types]
    single = len(types) == 1
    try:
        key = msgspec.json.decode(text, type=types[0] if single else GenericAlias(tuple, tuple(types)))
        return schema.normalise(key)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        parts = [kind.example for kind in schema.types]
        example = parts[0] if single else f"[{', '.join(parts)}]"
        raise StateDeclarationError(
            f"{text!r:.200} is no key of ({', '.join(schema.type_names)}): {error!s:.200}. Write JSON such as "
            f"{example}",
            expected=schema.type_names,
            found=text[:200],
        ) from None


def key_of_text(text: str, schema: KeySchema) -> Any:
    """Return the canonical key of a plain text.

    >>> key_of_text("7", KeySchema(["bigint"])), key_of_text("7", KeySchema(["string"]))
    (7, '7')
    >>> key_of_text('["ann", 7]', KeySchema(["string", "bigint"]))
    ('ann', 7)
    """
    types = schema.types
    parts: Any = [text]
    if len(types) > 1:
        try:
            parts = json.loads(text, parse_float=decimal.Decimal)
        except ValueError:
            parts = None
        if not isinstance(parts, list) or len(parts) != len(types):
            raise StateDeclarationError(
                f"{text!r:.200} is not a JSON array of {len(types)} parts ({', '.join(schema.type_names)})"
            )
    values = [_value(part, kind) for part, kind in zip(parts, types, strict=True)]
    try:
        return schema.normalise(values[0] if len(values) == 1 else tuple(values))
    except StateTypeError as error:
        raise StateDeclarationError(str(error)) from None


def text_of_key(key: Any) -> str:
    """Return the plain text of a canonical key, of which `key_of_text` makes the key again.

    >>> text_of_key("ann"), text_of_key(True), text_of_key(b"\\x01"), text_of_key(("ann", 7, 1.5))
    ('ann', 'true', '01', '["ann", 7, "1.5"]')
    """
    if isinstance(key, tuple):
        parts = [part if isinstance(part, str | int) else text_of_key(part) for part in key]
        return json.dumps(parts, ensure_ascii=False)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, bytes):
        return key.hex()
    return key.isoformat() if isinstance(key, datetime.date) else str(key)


def _value(part: Any, kind: KeyType) -> Any:
    """One part of a key: a text, or what JSON made of it."""
    try:
        if isinstance(part, str):
            return kind.parse(part)
        if type(part) in (int, decimal.Decimal) and kind.python_type in (float, decimal.Decimal):
            return kind.python_type(part)
    except (ValueError, KeyError, ArithmeticError):
        raise StateDeclarationError(f"{part!r:.200} is no {kind.name}") from None
    return part
