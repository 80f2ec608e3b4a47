"""What happened in the demo, batch by batch: as text for a terminal, and as SVG.

A bar per batch, as high as the batch took long. Below it what happened: a slot was killed after the batch, slots were
restored in it, or the job resumed with another number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

_BARS: Final = "▁▂▃▄▅▆▇█"
_INK, _PALE, _HOT, _RESTORED, _KILLED = "#37474f", "#eceff1", "#90a4ae", "#ef6c00", "#c62828"
_STEP, _LEFT, _TOP, _HEIGHT, _RIGHT = 34, 74, 58, 120, 24


class Moment(NamedTuple):
    """One batch of the demo."""

    batch: int
    rows: int
    seconds: float
    #: How many slots there were, and how many of them got their state from a checkpoint.
    slots: int
    restored: int
    #: Whether a slot was killed after it.
    killed: bool


def as_text(moments: Sequence[Moment]) -> str:
    """The picture in four lines of text."""
    longest = max(moment.seconds for moment in moments)
    most = max(moment.rows for moment in moments) or 1
    lines = {
        "seconds": [_bar(moment.seconds / longest) for moment in moments],
        "payments": [_bar(moment.rows / most) for moment in moments],
        "slots": [str(moment.slots) for moment in moments],
        "": [_mark(moment) for moment in moments],
    }
    drawn = "\n".join(f"{name:>9}  {' '.join(marks)}".rstrip() for name, marks in lines.items())
    return f"{drawn}\n           ↻ slots restored from a checkpoint   ✗ then a slot was killed"


def as_svg(moments: Sequence[Moment]) -> str:
    """The picture as an SVG file."""
    longest = max(moment.seconds for moment in moments)
    width, bottom = _LEFT + _STEP * len(moments) + _RIGHT, _TOP + _HEIGHT
    shapes = [_text(_LEFT, 24, "emberstate demo: seconds per batch", size=15, anchor="start")]
    for at, moment in enumerate(moments):
        x, height = _LEFT + at * _STEP, max(2.0, moment.seconds / longest * _HEIGHT)
        if at == 0 or moments[at - 1].slots != moment.slots:
            same = next((n for n, other in enumerate(moments[at:]) if other.slots != moment.slots), len(moments) - at)
            band = same * _STEP - 4
            shapes.append(f'<rect x="{x}" y="{bottom + 26}" width="{band}" height="20" rx="4" fill="{_PALE}"/>')
            shapes.append(_text(x + band / 2, bottom + 40, f"{moment.slots} slots"))
        colour = _RESTORED if moment.restored else _HOT
        shapes.append(
            f'<rect x="{x + 4}" y="{bottom - height:.1f}" width="{_STEP - 12}" height="{height:.1f}" rx="3" '
            f'fill="{colour}">'
            f"<title>batch {moment.batch}: {moment.rows} payments, {moment.seconds:.2f} s</title></rect>"
        )
        shapes.append(_text(x + _STEP / 2 - 2, bottom + 16, str(moment.batch)))
        if moment.killed:
            line = x + _STEP - 2
            shapes.append(f'<path d="M {line} {_TOP - 8} V {bottom}" stroke="{_KILLED}" stroke-dasharray="4 4"/>')
            shapes.append(_text(line, _TOP - 14, "✗ slot killed", fill=_KILLED))
    shapes.append(_text(_LEFT - 10, _TOP + 10, f"{longest:.1f} s", anchor="end"))
    shapes.append(_text(_LEFT - 10, bottom, "0 s", anchor="end"))
    legend = ((_LEFT, _HOT, "state was hot"), (_LEFT + 130, _RESTORED, "slots restored from a checkpoint"))
    for x, colour, meaning in legend:
        shapes.append(f'<rect x="{x}" y="{bottom + 62}" width="12" height="12" rx="3" fill="{colour}"/>')
        shapes.append(_text(x + 18, bottom + 73, meaning, anchor="start"))
    size = f'width="{width}" height="{bottom + 88}" viewBox="0 0 {width} {bottom + 88}"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join((begin, '<rect width="100%" height="100%" fill="#ffffff"/>', *shapes, "</svg>\n"))


def _bar(share: float) -> str:
    return _BARS[round(share * (len(_BARS) - 1))]


def _mark(moment: Moment) -> str:
    return "✗" if moment.killed else "↻" if moment.restored else "·"


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle", fill: str = _INK) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
