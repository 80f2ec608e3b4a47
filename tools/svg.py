"""A few shapes of SVG: boxes, text, arrows. Coordinates are pixels, y grows downwards."""

from __future__ import annotations

from html import escape

INK, PALE, PAPER = "#37474f", "#eceff1", "#ffffff"
OUT, BACK = "#d84315", "#1565c0"


class Drawing:
    """Shapes in the order in which they are drawn."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str = PAPER, line: str = INK) -> None:
        """A rectangle with round corners."""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{line}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 13,
        anchor: str = "middle",
        fill: str = INK,
        bold: bool = False,
    ) -> None:
        """A line of text; y is its baseline."""
        weight = ' font-weight="bold"' if bold else ""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}>'
            f"{escape(text)}</text>"
        )

    def arrow(self, *points: tuple[float, float], colour: str = INK, dashed: bool = False) -> None:
        """A line through two points, or a curve by four, with a head at its end."""
        way = [f"{x:g} {y:g}" for x, y in points]
        shape = f"M {way[0]} L {way[1]}" if len(way) == 2 else f"M {way[0]} C {', '.join(way[1:])}"
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(
            f'<path d="{shape}" fill="none" stroke="{colour}" stroke-width="1.8"{dash} '
            f'marker-end="url(#{_head(colour)})"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, colour: str = INK, dashed: bool = False) -> None:
        """A line without a head."""
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self._shapes.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"{dash}/>')

    def disc(self, x: float, y: float, text: str, colour: str) -> None:
        """A filled disc with a number in it."""
        self._shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="9" fill="{colour}"/>')
        self.text(x, y + 4, text, size=11, fill=PAPER, bold=True)

    def svg(self) -> str:
        """The file."""
        heads = "".join(
            f'<marker id="{_head(colour)}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            f'orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="{colour}"/></marker>'
            for colour in (INK, OUT, BACK)
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
                f'width="{self._width}" height="{self._height}" font-family="sans-serif" role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<defs>{heads}</defs>",
                f'<rect width="{self._width}" height="{self._height}" fill="{PAPER}"/>',
                *self._shapes,
                "</svg>\n",
            ]
        )


def _head(colour: str) -> str:
    return f"head-{colour[1:]}"
