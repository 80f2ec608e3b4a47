"""Writes docs/benchmarks.md from the files in `results`: `python -m benchmarks.page`.

`--check` writes nothing and exits with 1 if the page is out of date; `--line` prints the line that the README shows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import spark_pages
from benchmarks.nexmark import page as nexmark

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

INTRODUCTION = """\
# Benchmarks

`make bench` runs the benchmarks and saves their results in [benchmarks/results](../benchmarks/results); `python -m
benchmarks.page` writes this page from those files, and a test fails if the page is out of date. Ratios are medians of
runs that take turns on a shared machine with 2 cores. They vary from run to run, those of whole cycles most. Each
section names the commit that was measured. "Limit" is the value we aimed for; a missed one says so.
"""


def load(name: str) -> dict[str, Any]:
    """The saved results of a benchmark."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def number(value: float) -> str:
    """Three digits, without an exponent."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    cells = [[number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    lines = [header, ["---"] * len(header), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(title: str, command: str, record: dict[str, Any], *parts: str) -> str:
    """A heading, where the numbers come from, the parts, and what was aimed for."""
    commit = f"commit {record['commit']}" if record.get("commit") else "commit not recorded"
    text = [f"## {title}\n", f"`{command}`, {commit}.\n", *parts]
    if targets := record.get("targets"):
        rows = [[t["name"], f"{number(t['value'])} {t['unit']}", f"{number(t['limit'])} {t['unit']}",
                 "met" if t["met"] else "**missed**"] for t in targets]  # fmt: skip
        text.append(table(["Aim", "Measured", "Limit", ""], rows))
    return "\n".join(text)


def headline() -> str:
    """The line of the README: a running count on Spark beside what Spark itself offers."""
    results = load("spark_pipeline")["results"]
    if "stateful" in results:
        return spark_pages.headline(results)
    groups: dict[int, list[str]] = {}
    runs = results["throughput"]  # as saved before all contenders had the same rows per batch
    for name in ("emberstate count", "groupBy count", "transformWithState count", "applyInPandasWithState count"):
        groups.setdefault(runs[name]["rows"], []).append(f"{name} {runs[name]['rows_per_second'] / 1000:.1f}k")
    return "rows/s, local[2]: " + "; ".join(
        f"{', '.join(rates)} ({rows / 1000:.0f}k-row batches)" for rows, rates in groups.items()
    )


def _pipeline_before(record: dict[str, Any]) -> list[str]:
    """What was saved before all contenders had the same rows per batch."""
    runs = record["results"]["throughput"]
    mine = [one for name, one in runs.items() if name.startswith("emberstate")]
    parts = [part for part in mine[0]["parts"] if part != "background"]
    costs = record["results"]["state_size"]["costs"]
    return [
        "Durable state, output written as Parquet, one output row per key and batch unless the name says otherwise. "
        "`transformWithState` is Spark's Row API; `groupBy count` runs in the JVM with the RocksDB state store.\n",
        table(["", "rows/s", "rows per batch", "s per batch", "peak memory, MB"],
              [[name, run["rows_per_second"], f"{run['rows']:,}", run["batch_seconds"], run["peak_mb"]]
               for name, run in runs.items()]),
        "Seconds of a batch, by what takes them:\n",
        table(["", *parts], [[run["contender"], *(run["parts"][part] for part in parts)] for run in mine]),
        f"Touching 10k keys costs {number(costs['1000000'])} s beyond the fixed cost with 1M keys of state, "
        f"{number(costs['10000'])} s with 10k.\n",
    ]  # fmt: skip


def sections() -> Iterator[str]:
    """The page, section by section."""
    record = load("spark_pipeline")
    found = record["results"]
    parts = spark_pages.parts(found, table, number) if "stateful" in found else _pipeline_before(record)
    yield section("A pipeline on Spark", "python -m benchmarks.spark_pipeline", record, *parts)

    if (RESULTS / "nexmark.json").is_file():  # `make nexmark` has been run
        record = load("nexmark")
        yield section(
            "NEXMark", "make nexmark", record,
            nexmark.introduction(record["results"]),
            "![Events per second of every query, beside Spark's own operators](pictures/nexmark.svg)\n",
            table(nexmark.HEADER, list(nexmark.rows(record["results"]))),
            "Which variant each query is:\n",
            nexmark.variants(record["results"]),
        )  # fmt: skip

    record = load("state-map-operations")
    yield section(
        "The state map against a dict", "python -m benchmarks.run state_map_operations", record,
        "Time of an operation at 1M entries, as a multiple of a dict's.\n",
        table(["Keys", "Operation", "ns", "to `d[key]`", "to `d[(key, namespace)]`"],
              [[o["keys"], o["operation"], o["map_ns"], o["ratio"], o["ratio_to_pairs"]]
               for o in record["results"]["operations"]]),
    )  # fmt: skip

    record = load("snapshot-cost")
    results = record["results"]
    yield section(
        "Snapshots", "python -m benchmarks.run snapshot_cost", record,
        table(["Taking a snapshot of", "µs"], [[name, us] for name, us in results["median_us"].items()]),
        f"`dict.copy()` of 1M entries takes {number(results['dict_copy_ms_at_1m'])} ms. A cycle (snapshot, touch 10k, "
        "list the changes, release) costs per touch:\n",
        table(["Entries", "ns"], [[f"{int(size):,}", ns] for size, ns in results["cycle_ns_per_touch"].items()]),
    )  # fmt: skip

    record = load("growth-pause")
    results = record["results"]
    yield section(
        "Growth", "python -m benchmarks.run growth_pause", record,
        table(["Longest single put while growing to 5M entries", "ms"],
              [["state map", results["longest_put_ms"]], ["dict", results["longest_dict_put_ms"]]]),
    )  # fmt: skip

    record = load("collections-in-state")
    results = record["results"]
    yield section(
        "Lists, maps and memory", "python -m benchmarks.run collections_in_state", record,
        table(["Right after a snapshot", "median µs", "longest µs"],
              [["one user key put into a map state of 1M", *results["large_map_put_us"]],
               ["one element added to a list state of 1M", *results["large_list_add_us"]]]),
        table(["Memory beyond keys and values", "bytes"], [[name, size] for name, size in results["bytes"].items()]),
    )  # fmt: skip

    record = load("timers")
    results = record["results"]
    yield section(
        "Timers", "python -m benchmarks.run timers", record,
        table(["Operation with 1M timers", "µs", "longest, ms"],
              [[name, us, results["longest_ms"][name]] for name, us in results["operation_us"].items()]),
        table(["Transaction of 1,000 timers", "10k held, µs", "1M held, µs", "ratio"],
              [[name, one["small"], one["large"], one["ratio"]] for name, one in results["transaction_us"].items()]),
    )  # fmt: skip

    for title, module, name in (
        ("State files", "state_files", "state-files"),
        ("A base written in the background", "background_base", "background-base"),
        ("Windows", "windows", "windows"),
    ):
        record = load(name)
        rows = [[what, float(value)] for what, value in record["results"].items()]
        yield section(title, f"python -m benchmarks.run {module}", record, table(["", ""], rows))

    record = load("runtime-loop")
    results = record["results"]
    yield section(
        "The loop over rows", "python -m benchmarks.run runtime_loop", record,
        table(["", *results],
              [[what, *(one[what] for one in results.values())]
               for what, value in next(iter(results.values())).items() if isinstance(value, float)]),
    )  # fmt: skip

    record = load("rocksdb_states")
    yield section(
        "RocksDB", "python -m benchmarks.rocksdb_states", record,
        "Against the bare rocksdict calls that it makes, and against the heap. State that fits into memory belongs on "
        "the heap.\n",
        table(["", "ns", "to rocksdict", "to the heap"],
              [[name, one["nanoseconds"], one["to rocksdict"], one["to heap"]]
               for name, one in record["results"].items()]),
    )  # fmt: skip

    record = load("rocksdb_memory")
    yield section(
        "Memory of RocksDB", "make memory", record,
        f"{number(record['rocksdb']['state_bytes'] / 1e9)} GB of state under a limit of "
        f"{record['limit'] >> 20} MiB: the process grew by {record['rocksdb_grown_to_limit']} times the limit; "
        f"on the heap by {record['heap_grown_to_limit']} times.\n",
    )  # fmt: skip

    record = load("state-map-stress")
    kills = load("checkpoint-kills")
    yield section(
        "Stress", "make stress", record,
        f"{record['operations']:,} random operations on the state map, {record['snapshots']:,} snapshots, "
        f"{record['rollbacks']:,} roll-backs, {record['commits']:,} commits, all compared with a model: "
        f"{'no mismatch' if record['ok'] else '**MISMATCH**'}.\n",
        f"{kills['iterations']:,} histories of a job with {kills['kills']:,} kills (commit {kills['commit']}): "
        f"{kills['mismatches'] or 'no'} mismatch{'es' if kills['mismatches'] > 1 else ''}.\n",
    )  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *sections()])


def main(arguments: list[str]) -> int:
    """Write the page, or check it, or print the README's line."""
    if arguments == ["--line"]:
        print(headline())
    elif arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != page():
            print("docs/benchmarks.md is out of date: run python -m benchmarks.page")
            return 1
    else:
        PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
