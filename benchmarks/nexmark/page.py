"""The section on NEXMark in docs/benchmarks.md, from its results. `benchmarks.page` writes the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

OURS, SPARK, ROCKSDB = "emberstate", "spark", "spark-rocksdb"


def introduction(results: dict[str, Any]) -> str:
    """How it was measured."""
    settings = results["settings"]
    low, high = sorted(settings["load"])
    return (
        f"{settings['events']:,} events (1 person : 3 auctions : 46 bids), 100 seconds of event time, in "
        f"{settings['batches']} files, one per batch; `local[2]` on {settings['cores']} cores; load average of the "
        f"machine {low:.1f} to {high:.1f}. Events of batches after the first {settings['cold']}, per second of their "
        "triggers; every contender has run over a smaller stream before, in the same session. State is durable, output "
        "is written as Parquet. Spark's own operators are in the form that is best for Spark, with its default state "
        "store and with its RocksDB store; a dash is a query that they cannot express. Below 1 we lose.\n\n"
        "Every row that came out was compared with DuckDB's answer over the same files, as multisets: in a run without "
        "faults, in one with slots killed (SIGKILL) while batches ran, and in one whose driver was killed twice and "
        "started again with 3 slots, then 1, instead of 2.\n"
    )


def rows(results: dict[str, Any]) -> Iterator[list[Any]]:
    """The table's rows, below `HEADER`."""
    for name, found in results["queries"].items():
        rates = {one: run["events_per_second"] for one, run in found["contenders"].items()}
        ratios = [f"{rates[OURS] / rates[one]:.2f}" if one in rates else "–" for one in (SPARK, ROCKSDB)]
        speeds = [f"{rates[one]:,.0f}" if one in rates else "–" for one in (OURS, SPARK, ROCKSDB)]
        yield [name, found["title"], f"{found['rows']:,}", *speeds, *ratios, *_exact(found)]


HEADER = ["", "", "rows", "emberstate, events/s", "Spark", "Spark, RocksDB", "to Spark", "to Spark, RocksDB", "exact",
          "slots killed", "drivers killed"]  # fmt: skip


def _exact(found: dict[str, Any]) -> Iterator[str]:
    yield "**no**" if found["contenders"][OURS]["wrong"] else "yes"
    for name in ("killed", "rescaled"):
        run = found.get(name)
        yield "–" if run is None else "**wrong**" if run["wrong"] else f"{run['kills']}, exact"


def variants(results: dict[str, Any]) -> str:
    """Which variant of every query it is, and why Spark's operators cannot express some."""
    lines = []
    for name, found in results["queries"].items():
        missing = f" Not in Spark's operators: {found['not_in_spark']}." if found["not_in_spark"] else ""
        lines.append(f"- **{name}.** {found['variant']}{missing}\n")
    return "".join(lines)
