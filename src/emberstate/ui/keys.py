"""Keys as a person types them into the page, made of keys."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

#: A longer key gets no link: addresses have limits.
_LONGEST: Final = 1000


def key_input(key: Any) -> str | None:
    """Return what `key_of_text` reads as this key; None if it is too long for a link.

    >>> key_input("ann"), key_input(("ann", 7)), key_input(b"\\x01"), key_input("x" * 2000)
    ('ann', '["ann", "7"]', '01', None)
    """
    text = json.dumps([_part(part) for part in key], ensure_ascii=False) if isinstance(key, tuple) else _part(key)
    return text if len(text) <= _LONGEST else None


def _part(part: Any) -> str:
    if isinstance(part, bytes):
        return part.hex()
    if isinstance(part, bool):
        return "true" if part else "false"
    return part.isoformat() if isinstance(part, datetime) else str(part)
