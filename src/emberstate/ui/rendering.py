"""Templates, and how numbers, sizes and times look in them. Every value is escaped unless a template says otherwise,
and none does.

Thread safety: any thread.
"""

from __future__ import annotations

import itertools
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from emberstate.ui.shown import Shown, printable
from emberstate.units import size_text, time_text

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60))


def number_text(value: float | None) -> str:
    """A count with narrow spaces between thousands.

    >>> number_text(1234567).replace("\\u202f", " "), number_text(None)
    ('1 234 567', '–')
    """
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def bytes_text(value: int | None) -> str:
    """A size, or a dash."""
    return "–" if value is None else size_text(value)


def duration_text(seconds: float | None) -> str:
    """A duration, as exact as a person needs it.

    >>> [duration_text(seconds) for seconds in (None, 0.0123, 1.5, 75, 7260, 200000)]
    ['–', '12 ms', '1.50 s', '1 min 15 s', '2 h 1 min', '2 d 7 h']
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    names = [*_UNITS, ("s", 1)]
    for (unit, size), (next_unit, next_size) in itertools.pairwise(names):
        if seconds >= size:
            whole, rest = int(seconds // size), int(seconds % size // next_size)
            return f"{whole} {unit} {rest} {next_unit}" if rest else f"{whole} {unit}"
    raise AssertionError("unreachable")


def instant_text(value: str | int | None) -> str:
    """A time in UTC, to the second, without the T.

    >>> instant_text("2026-03-01T12:05:00.123456Z"), instant_text(1_700_000_000_000_000), instant_text(None)
    ('2026-03-01 12:05:00', '2023-11-14 22:13:20', '–')
    """
    text = time_text(value) if isinstance(value, int) else value
    if text is None:
        return "–"
    return text[:19].replace("T", " ") if text[10:11] == "T" else text


def percent_text(share: float) -> str:
    """A share of one.

    >>> percent_text(0.1234), percent_text(0.0001)
    ('12.3 %', '< 0.1 %')
    """
    return "< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


def value_html(value: Shown | None) -> Markup:
    """A stored value, with its length if it is cut."""
    if value is None:
        return Markup('<span class="none">null</span>')
    if not value.length:
        return Markup('<span class="none">empty text</span>')
    text = escape(value.text)
    if not value.is_cut:
        return text
    return Markup('{}<span class="cut">… cut: {} characters in all</span>').format(text, number_text(value.length))


def address(*parts: Any, **query: Any) -> str:
    """The address of a page; empty parts of a query are left out.

    >>> address("job", 0, "key", key="a/b & c", at="")
    '/job/0/key?key=a%2Fb+%26+c'
    """
    path = "/" + "/".join(quote(str(part), safe=":") for part in parts)
    text = urlencode({name: value for name, value in query.items() if value not in (None, "")})
    return f"{path}?{text}" if text else path


def environment() -> Environment:
    """Return the templates."""
    found = Environment(
        loader=PackageLoader("emberstate.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "number": number_text,
        "size": bytes_text,
        "duration": duration_text,
        "instant": instant_text,
        "percent": percent_text,
        "value": value_html,
        "printable": printable,
    }
    found.globals["address"] = address
    return found
