"""Tables for notebooks: what `_repr_html_` of the public classes returns.

Whatever a stored value says is text: markup is escaped, characters that cannot be seen are written as escapes, and long
values are cut, with their length. No script, no style sheet, no request.

Thread safety: pure functions.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

_CELL: Final = 200
_ROWS: Final = 20


def cell_text(value: Any) -> str:
    """A value as escaped text.

    >>> cell_text("<script>alert(1)</script>"), cell_text("a\\0b"), cell_text(None), cell_text("x" * 300)[-20:]
    ('&lt;script&gt;alert(1)&lt;/script&gt;', 'a\\\\x00b', '', 'xx… (300 characters)')
    """
    text = "" if value is None else str(value)
    # Beyond the cut nothing is looked at: a value may have a million characters.
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:_CELL])
    more = f"… ({len(text)} characters)" if len(text) > _CELL else ""
    return html.escape(shown + more)


def table_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int | None = None) -> str:
    """A table with a title; at most 20 rows, and how many there are if `count` says more.

    >>> table_html("t", ["a"], [["<b>"]])
    '<table><caption>t</caption><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{cell_text(column)}</th>" for column in columns)
    lines = ["".join(f"<td>{cell_text(cell)}</td>" for cell in row) for row in islice(rows, _ROWS)]
    if count is not None and count > len(lines):
        lines.append(f'<td colspan="{max(1, len(columns))}">{len(lines)} of {count}</td>')
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    caption = f"<caption>{cell_text(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts_html(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    """A table of names and values; those that are None are left out."""
    known = ((cell_text(name), cell_text(value)) for name, value in facts if value is not None)
    lines = (f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in known)
    return f"<table><caption>{cell_text(title)}</caption><tbody>{''.join(lines)}</tbody></table>"
