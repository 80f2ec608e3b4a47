"""The picture of NEXMark's throughput, from its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.svg import BACK, INK, OUT, Drawing

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "nexmark.json"
#: Contender, colour and what it is called.
_BARS = (("emberstate", OUT, "emberstate"), ("spark", BACK, "Spark's operators, default store"),
         ("spark-rocksdb", "#90a4ae", "Spark's operators, RocksDB store"))  # fmt: skip
_LEFT, _WIDTH, _BAR, _TOP = 250, 480, 8, 60


def nexmark() -> str:
    """The picture of the saved results."""
    return drawn(json.loads(RESULTS.read_text(encoding="utf-8"))["results"])


def drawn(results: dict[str, Any]) -> str:
    """Bars of every query; a query that is slower than Spark's default store says so."""
    queries = results["queries"]
    row = len(_BARS) * _BAR + 10
    most = max(run["events_per_second"] for found in queries.values() for run in found["contenders"].values())
    drawing = Drawing(960, _TOP + row * len(queries) + 10, "NEXMark: events per second")
    drawing.text(
        20, 22, f"NEXMark, {results['settings']['events']:,} events: events per second", anchor="start", bold=True
    )
    x = 20
    for _, colour, name in _BARS:
        drawing.box(x, 34, 12, 12, colour, colour)
        drawing.text(x + 18, 45, name, anchor="start", size=12)
        x += 240
    drawing.text(940, 45, "ours to Spark's default", anchor="end", size=12)
    for number, (name, found) in enumerate(queries.items()):
        y = _TOP + row * number
        drawing.text(20, y + 17, name, anchor="start", bold=True)
        drawing.text(58, y + 17, found["title"], anchor="start", size=11)
        rates = {one: run["events_per_second"] for one, run in found["contenders"].items()}
        for place, (contender, colour, _) in enumerate(_BARS):
            if contender in rates:
                width = max(1.0, _WIDTH * rates[contender] / most)
                drawing.box(_LEFT, y + _BAR * place, round(width, 1), _BAR - 2, colour, colour)
                drawing.text(
                    _LEFT + width + 6, y + _BAR * place + 7, f"{rates[contender] / 1000:.1f}k", anchor="start", size=9
                )
        if "spark" in rates:
            ratio = rates["emberstate"] / rates["spark"]
            text = f"{ratio:.2f} x" + (", slower" if ratio < 1 else "")
            drawing.text(940, y + 17, text, anchor="end", fill=OUT if ratio < 1 else INK, bold=ratio < 1)
        else:
            drawing.text(940, y + 17, "not in Spark's operators", anchor="end", size=11)
    return drawing.svg()
