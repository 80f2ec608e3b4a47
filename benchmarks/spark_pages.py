"""What the benchmarks page and the README say of `spark_pipeline`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: Names of contenders for readers.
TITLES = {
    "emberstate count": "running count",
    "emberstate map count": "map count",
    "mapInArrow with shuffle": "shuffle + mapInArrow",
    "mapInArrow": "foreachBatch with mapInArrow",
}


def headline(results: Mapping[str, Any]) -> str:
    """One line: rows per second with the same rows per batch for all."""
    rows, found = list(results["stateful"].items())[-1]
    rates = {**found, "mapInArrow with shuffle": results["rows"][rows]["mapInArrow with shuffle"]}
    names = ("emberstate count", "mapInArrow with shuffle", "transformWithState count", "applyInPandasWithState count")
    texts = [f"{TITLES.get(name, name)} {rates[name]['rows_per_second'] / 1000:.1f}k" for name in names]
    return f"rows/s, local[2], {int(rows) / 1000:.0f}k-row batches for all: {', '.join(texts)}"


def parts(results: Mapping[str, Any], table: Callable[..., str], number: Callable[[float], str]) -> list[str]:
    """The parts of the page's section; `table` and `number` write Markdown."""
    text = [
        "Durable state, output written as Parquet. Ours are Python functions of typed rows that put out a row per row; "
        "`transformWithState` (Row) and `applyInPandasWithState` put out a row per key and batch. Seconds are medians "
        "of warm batches, with the least and the most of them.\n",
    ]
    header = ["", "rows/s", "s per batch", "least", "most", "batches", "peak memory, MB"]
    for group in ("rows", "stateful"):
        for rows, found in results[group].items():
            text.append(f"{int(rows):,} rows per batch:\n")
            text.append(table(header, [_row(name, one) for name, one in found.items()]))
    text += ["Batches of one row:\n", table(header, [_row(name, one) for name, one in results["tiny"].items()])]
    ours = {
        f"{TITLES[name]}, {int(rows):,} rows": one["parts"]
        for rows, found in results["rows"].items()
        for name, one in found.items()
        if one["parts"]
    }
    names = [name for name in next(iter(ours.values())) if name != "background"]
    text += [
        "Seconds of a batch, by what takes them:\n",
        table(["", *names], [[title, *(one[name] for name in names)] for title, one in ours.items()]),
    ]
    small, large = results["state"]["costs"].values()
    text.append(
        f"Touching 10k keys costs {number(large)} s beyond the fixed cost with 1M keys of state, "
        f"{number(small)} s with 10k.\n"
    )
    return text


def _row(name: str, one: Mapping[str, Any]) -> list[Any]:
    figures = [float(one[key]) for key in ("rows_per_second", "batch_seconds", "least", "most")]
    return [TITLES.get(name, name), *figures, one["batches"], float(one["peak_mb"])]
