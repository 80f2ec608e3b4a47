"""A declared running count beside Spark's `groupBy("k").count()`, on both of Spark's state stores, on `local[2]`.

Every contender runs in a process of its own (`spark_contender`) over the same files, all of them in turn, `ROUNDS`
times; state is durable and the output is written as Parquet. The first batches, in which processes start and code is
compiled, do not count. What is compared are medians of the others; the spread is that of the rounds.

Then, without Spark, what a row costs that is counted in tumbling windows, beside a plain function that counts the rows
of each key: CPU time of one operator.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Target, print_table, save, side_by_side
from benchmarks.spark_pipeline import KEYS, Runs
from benchmarks.windows import TUMBLING, Count, WithKey, batch_of, run
from emberstate.runtime.functions.declared_states import value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.windows import window

ROUNDS = 2
OURS = "declared count"
THEIRS = ("groupBy count", "groupBy count, default store")
#: Rows per batch, batches, and how many of them are for warming up.
SIZES = ((200_000, 40, 20), (1_000_000, 20, 10))
#: What our time should be at most, of the time of each of theirs.
LIMITS = ((1 / 1.7, 1.0), (1 / 1.2, 1 / 0.7))
LIMITS_SKEWED = (1 / 1.2, None)
#: What a row may cost in a window, of its cost without.
LIMIT_WINDOWS = 2.0
ROWS_IN_WINDOWS = 40_000


class PlainCount(KeyedProcessFunction):
    """Counts the rows of a key."""

    count = value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        """One more."""
        self.count.update(self.count.value() + 1)


def main() -> None:
    """Run everything."""
    results: dict[str, Any] = {}
    targets: list[Target] = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        for (rows, batches, warm), limits in zip(SIZES, LIMITS, strict=True):
            even = [runs.random.integers(0, KEYS, rows) for _ in range(batches)]
            targets += _compare(f"{rows} rows per batch", runs, even, warm, limits, results)
        rows, batches, warm = SIZES[0]
        skewed = [_skewed(runs, rows) for _ in range(batches)]
        title = f"{rows} rows per batch, half of them of one key"
        targets += _compare(title, runs, skewed, warm, LIMITS_SKEWED, results)
    targets += window_functions(ROWS_IN_WINDOWS, 5, results)
    save("aggregates", ROUNDS, results, targets)


def _skewed(runs: Runs, rows: int) -> np.ndarray[Any, Any]:
    keys = runs.random.integers(0, KEYS, rows)
    keys[runs.random.random(rows) < 0.5] = 0
    return keys


def _compare(
    title: str,
    runs: Runs,
    batches: Sequence[np.ndarray[Any, Any]],
    warm: int,
    limits: Sequence[float | None],
    results: dict[str, Any],
) -> list[Target]:
    input = runs.input(f"input-{len(results)}", batches)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in (OURS, *THEIRS)}
    for _ in range(ROUNDS):
        for name, found in rounds.items():
            found.append(runs.run(name, input, warm=warm))
    seconds = {name: [one["batch_seconds"] for one in found] for name, found in rounds.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print_table(
        f"{title}, {KEYS} keys",
        ["contender", "s/batch", "least", "most", "peak MB"],
        [
            [name, medians[name], min(times), max(times), max(one["peak_mb"] for one in rounds[name])]
            for name, times in seconds.items()
        ],
    )
    parts = [one["parts"] for one in rounds[OURS]]
    shares = {name: statistics.median(part[name] for part in parts) for name in parts[0]}
    print_table("Seconds per batch", list(shares), [list(shares.values())])
    results[title] = {"rounds": rounds, "medians": medians, "parts": shares}
    targets = []
    for name, limit in zip(THEIRS, limits, strict=True):
        ratios = [ours / theirs for ours, theirs in zip(seconds[OURS], seconds[name], strict=True)]
        print(f"  {name}: {', '.join(f'{ratio:.2f}' for ratio in ratios)} of its time")
        if limit is not None:
            targets.append(Target(f"{title}: time of {name}", statistics.median(ratios), limit))
    return targets


def window_functions(rows: int, rounds: int, results: dict[str, Any]) -> list[Target]:
    """What a row costs in windows, against the plain function."""
    batch = batch_of(rows)
    mine, other, ratio = side_by_side(
        lambda _: run(window(TUMBLING).aggregate(Count(), function=WithKey()), batch),
        lambda _: run(PlainCount(), batch),
        rounds,
    )
    found = {"µs": mine / rows * 1e6, "µs of the plain function": other / rows * 1e6, "ratio": ratio}
    print_table("A window function, per row", list(found), [list(found.values())])
    results["a window function, per row"] = found
    return [Target("a window function, per row: cost of the plain function", ratio, LIMIT_WINDOWS)]


if __name__ == "__main__":
    main()
