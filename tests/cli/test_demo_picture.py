"""The picture at the end of `emberstate demo`."""

from __future__ import annotations

from xml.etree import ElementTree

from emberstate.cli.demo.picture import Moment, as_svg, as_text

MOMENTS = [
    Moment(0, 100, 4.0, 2, 0, killed=False),
    Moment(1, 100, 1.0, 2, 0, killed=True),
    Moment(2, 100, 2.0, 2, 1, killed=False),
    Moment(3, 0, 2.0, 3, 3, killed=False),
]


def test_the_text_shows_each_batch_and_what_happened() -> None:
    """Catches: a picture in which the kill, the restore or the other parallelism stands at another batch."""
    seconds, payments, slots, marks, _ = as_text(MOMENTS).splitlines()

    assert seconds.split() == ["seconds", "█", "▃", "▅", "▅"]
    assert payments.split() == ["payments", "█", "█", "█", "▁"]
    assert slots.split() == ["slots", "2", "2", "2", "3"]
    assert marks.split() == ["·", "✗", "↻", "↻"]


def test_the_svg_can_be_read() -> None:
    """Catches: a file that no browser draws, or that leaves out a batch, the kill, or a number of slots."""
    root = ElementTree.fromstring(as_svg(MOMENTS))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]

    assert {"0", "1", "2", "3", "✗ slot killed", "2 slots", "3 slots"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}title"))) == len(MOMENTS)
