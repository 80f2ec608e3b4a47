"""Stored values as a page shows them: printable, and cut where they are long.

Values come from rows, and rows from anybody. A control character could hide or reorder what a person reads, a lone
surrogate cannot be sent at all, and a value may be as large as memory. Escaping for HTML is the templates' part.

Thread safety: pure functions.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import msgspec

from emberstate.checkpoint.read.plain_rows import value_text

#: Characters of a value that a page shows.
LONGEST: Final = 600
_SIGNS: Final = {"\n": "↵", "\t": "⇥"}


class Shown(msgspec.Struct, frozen=True):
    """A value as it is shown."""

    text: str
    #: Characters of the whole value.
    length: int

    @property
    def is_cut(self) -> bool:
        """Whether `text` is only the beginning."""
        return self.length > LONGEST


def shown(value: Any) -> Shown:
    """Return a value as it is shown.

    >>> shown("a" * 1000).text == "a" * 600, shown("a" * 1000).length, shown({"a": 1}).text
    (True, 1000, '{"a": 1}')
    """
    text = value_text(value)
    return Shown(printable(text[:LONGEST]), len(text))


def shown_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as columns and cells, without columns in which nothing stands."""
    columns = [name for name in (rows[0] if rows else ()) if any(row[name] not in ("", None, False) for row in rows)]
    if rows and not columns:
        columns = ["value"] if "value" in rows[0] else list(rows[0])[:1]
    cells = [[None if row[name] is None else shown(row[name]) for name in columns] for row in rows]
    return {"columns": [printable(name) for name in columns], "rows": cells}


def printable(text: str) -> str:
    """Return a text in which every character is seen.

    >>> printable("a\\x00b\\u202ec\\ud800d\\n")
    'a⟨U+0000⟩b⟨U+202E⟩c⟨U+D800⟩d↵'
    """
    return text if text.isprintable() else "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return f"⟨U+{ord(character):04X}⟩"
    return character
