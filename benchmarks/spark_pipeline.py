"""A pipeline on Spark beside what Spark itself offers: the same input, one after the other, in one run, on `local[2]`.

Every contender runs in a process of its own (`spark_contender`) and writes its output. The first batches, in which
processes start and code is compiled, do not count; what is compared is the median of the others.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import SEED, Target, print_table, save

ROWS = 2_000_000
KEYS = 100_000
BATCHES = 10
#: For those that would take too long.
FEW_ROWS = 30_000
TAGS = 5
TINY_BATCHES = 30
TOUCHED = 10_000
#: A batch is warm after so many.
COLD = 2

FAST = ("emberstate count", "mapInArrow with shuffle", "groupBy count", "emberstate map count",
        "emberstate count, a row per row")  # fmt: skip
SLOW = ("transformWithState count", "transformWithState map count", "applyInPandasWithState count")


class Runs:
    """Runs contenders, below a directory of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.random = np.random.default_rng(SEED)
        self.number = 0

    def input(self, name: str, batches: Sequence[np.ndarray[Any, Any]]) -> Path:
        """A file per batch, of rows with these keys."""
        folder = self.root / name
        folder.mkdir()
        tags = np.array([f"tag-{number}" for number in range(TAGS)])
        for number, keys in enumerate(batches):
            chosen = tags[self.random.integers(0, TAGS, len(keys))]
            table = pa.table({"k": keys, "tag": pa.array(chosen), "x": self.random.random(len(keys))})
            file = folder / f"{number:04}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1_000_000_000 + number,) * 2)  # the order in which the stream takes them
        return folder

    def random_keys(self, rows: int, batches: int) -> list[np.ndarray[Any, Any]]:
        """Keys of some batches, all alike."""
        return [self.random.integers(0, KEYS, rows // batches) for _ in range(batches)]

    def run(self, contender: str, input: Path, *, warm: int = COLD) -> dict[str, Any]:
        """Seconds per warm batch, their parts, and the most memory that all its processes took."""
        self.number += 1
        work = self.root / f"run-{self.number}"
        work.mkdir()
        batches = len(list(input.iterdir()))
        task = {"contender": contender, "input": str(input), "work": str(work), "batches": batches}
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_contender", json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        peak = _Peak(process.pid)
        out, err = process.communicate()
        most = peak.stop()
        shutil.rmtree(work)
        if process.returncode:
            raise RuntimeError(f"{contender} failed:\n{err[-4000:]}")
        found = json.loads(out.strip().splitlines()[-1])
        parts = found["parts"][warm:]
        return {
            "contender": contender,
            "batches": batches,
            "batch_seconds": statistics.median(found["seconds"][warm:]),
            "seconds": found["seconds"],
            "parts": {name: statistics.median(part[name] for part in parts) for name in (parts[0] if parts else {})},
            "peak_mb": most / 1e6,
        }


class _Peak:
    """Samples the memory of all processes of a session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The most that was seen, in bytes."""
        self._stop.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        page = os.sysconf("SC_PAGESIZE")
        while not self._stop.wait(0.25):
            total = 0
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = stat.read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has just ended
                if int(fields[3]) == self._session:
                    total += int(fields[21]) * page
            self._most = max(self._most, total)


def main() -> None:
    """Run everything."""
    results: dict[str, Any] = {}
    targets: list[Target] = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        _throughput(runs, results, targets)
        _fixed_cost(runs, results, targets)
        _state_size(runs, results, targets)
    save("spark_pipeline", BATCHES, results, targets)


def _throughput(runs: Runs, results: dict[str, Any], targets: list[Target]) -> None:
    many = runs.input("many", runs.random_keys(ROWS, BATCHES))
    few = runs.input("few", runs.random_keys(FEW_ROWS, 5))
    found = {name: {**runs.run(name, many), "rows": ROWS // BATCHES} for name in FAST}
    found |= {name: {**runs.run(name, few), "rows": FEW_ROWS // 5} for name in SLOW}
    for one in found.values():
        one["rows_per_second"] = one["rows"] / one["batch_seconds"]
    rates = {name: one["rows_per_second"] for name, one in found.items()}
    print_table(
        f"{ROWS} rows, {KEYS} keys, {BATCHES} batches ({', '.join(SLOW)}: {FEW_ROWS} rows)",
        ["contender", "rows/s", "s/batch", "peak MB"],
        [[name, one["rows_per_second"], one["batch_seconds"], one["peak_mb"]] for name, one in found.items()],
    )
    ours = [one for name, one in found.items() if name.startswith("emberstate")]
    parts = list(ours[0]["parts"])
    print_table("Seconds per batch", ["contender", *parts], [[o["contender"], *o["parts"].values()] for o in ours])
    results["throughput"] = found
    targets += [
        Target("transformWithState count, rows/s of ours", rates[SLOW[0]] / rates[FAST[0]], 1 / 25),
        Target("transformWithState map count, rows/s of ours", rates[SLOW[1]] / rates[FAST[3]], 1 / 25),
        Target("applyInPandasWithState count, rows/s of ours", rates[SLOW[2]] / rates[FAST[0]], 1 / 25),
        Target("groupBy().count(), rows/s of ours", rates[FAST[2]] / rates[FAST[0]], 1 / 3),
        Target("mapInArrow with shuffle, rows/s of ours", rates[FAST[1]] / rates[FAST[0]], 4),
    ]


def _fixed_cost(runs: Runs, results: dict[str, Any], targets: list[Target]) -> None:
    tiny = runs.input("tiny", [np.array([number]) for number in range(TINY_BATCHES)])
    found = {name: runs.run(name, tiny, warm=10) for name in ("mapInArrow", "emberstate count")}
    plain, ours = (one["batch_seconds"] for one in found.values())
    print_table("Batches of one row", ["contender", "s/batch"], [[n, o["batch_seconds"]] for n, o in found.items()])
    results["fixed_cost"] = found
    targets.append(Target("a batch of one row, against foreachBatch with mapInArrow", ours / plain, 2))


def _state_size(runs: Runs, results: dict[str, Any], targets: list[Target]) -> None:
    """What a batch that touches 10k keys costs beyond a tiny one, with much state and with little."""
    fixed = results["fixed_cost"]["emberstate count"]["batch_seconds"]
    found = {}
    for keys in (TOUCHED, 1_000_000):
        load = np.array_split(np.arange(keys), max(1, keys // 200_000))
        touching = [runs.random.permutation(keys)[:TOUCHED] for _ in range(BATCHES)]
        input = runs.input(f"state-{keys}", [*load, *touching])
        found[str(keys)] = runs.run("emberstate count", input, warm=len(load) + 2)
    costs = {keys: one["batch_seconds"] - fixed for keys, one in found.items()}
    header = ["keys of state", "s/batch beyond the fixed cost"]
    print_table(f"{TOUCHED} keys touched", header, [list(cost) for cost in costs.items()])
    results["state_size"] = {"costs": costs, "runs": found}
    small, large = costs.values()
    targets.append(Target("10k keys touched, at 1M keys of state against 10k", large / small, 1.5))


if __name__ == "__main__":
    main()
