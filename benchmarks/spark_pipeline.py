"""A pipeline on Spark beside what Spark itself offers, with the same rows per batch for all, on `local[2]`.

    python -m benchmarks.spark_pipeline              everything, some 22 minutes on 2 quiet cores (an estimate)
    python -m benchmarks.spark_pipeline rows tiny    some parts; the others stay as they were saved
    python -m benchmarks.spark_pipeline --smoke      everything with few rows, nothing saved

Every contender runs in a process of its own (`spark_contender`) over the same files, with durable state, and writes its
output as Parquet. Ours are Python functions of typed rows that put out a row per row; Spark's stateful ones put out a
row per key and batch, which is less. The first batches, in which processes start and code is compiled, do not count;
what is compared are medians of the others. The spread is that of all batches that count, in all rounds.

Parts: `rows`, function against shuffle + `mapInArrow`; `stateful`, against `transformWithState` and
`applyInPandasWithState`, which are slow, so of few batches; `tiny`, batches of one row; `state`, what a batch costs
when there is much state.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import RESULTS, SEED, Target, print_table, save

KEYS = 100_000
TAGS = 5
TOUCHED = 10_000
ROUNDS = 2
#: A batch is warm after so many.
COLD = 2

COUNT, MAP_COUNT = "emberstate count", "emberstate map count"
SHUFFLE = "mapInArrow with shuffle"
#: Ours, by what is compared with it.
STATEFUL: Final = {
    "transformWithState count": COUNT,
    "transformWithState map count": MAP_COUNT,
    "applyInPandasWithState count": COUNT,
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Batches of one size: how many warm up, and how many count."""

    rows: int
    warm: int
    counted: int

    @property
    def batches(self) -> int:
        """All of them."""
        return self.warm + self.counted


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured."""

    sizes: tuple[Size, ...]
    #: Of ours and of Spark's stateful operators, by rows per batch.
    stateful: tuple[tuple[Size, Size], ...]
    tiny: Size
    state: tuple[int, int]
    rounds: int


FULL = Plan(
    sizes=(Size(200_000, 10, 20), Size(1_000_000, 4, 10)),
    stateful=((Size(6_000, 10, 10), Size(6_000, 2, 3)), (Size(200_000, 8, 8), Size(200_000, 1, 1))),
    tiny=Size(1, 15, 25),
    state=(TOUCHED, 1_000_000),
    rounds=ROUNDS,
)
SMOKE = Plan(
    sizes=(Size(400, 1, 2), Size(1_000, 1, 2)),
    stateful=((Size(100, 1, 2), Size(100, 1, 1)), (Size(400, 1, 2), Size(400, 1, 1))),
    tiny=Size(1, 2, 2),
    state=(100, 1_000),
    rounds=1,
)


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

    def input_of(self, size: Size, name: str) -> Path:
        """Batches of a size, with random keys."""
        return self.input(name, [self.random.integers(0, KEYS, size.rows) for _ in range(size.batches)])

    def rounds(self, names: Sequence[str], input: Path, size: Size, rounds: int) -> dict[str, Any]:
        """Contenders in turns: the median of all batches that count, the least and the most, and parts of ours."""
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(rounds):
            for name, found in runs.items():
                found.append(self.run(name, input, warm=size.warm))
        return {name: _summary(size, found) for name, found in runs.items()}

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
            raise RuntimeError(f"{contender} failed:\n{err[:3000]}\n…\n{err[-3000:]}")
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


def _summary(size: Size, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = [one for run in runs for one in run["seconds"][size.warm :]]
    parts = [run["parts"] for run in runs]
    middle = statistics.median(seconds)
    return {
        "rows": size.rows,
        "batches": len(seconds),
        "batch_seconds": middle,
        "least": min(seconds),
        "most": max(seconds),
        "rows_per_second": size.rows / middle,
        "round_seconds": [run["batch_seconds"] for run in runs],
        "parts": {name: statistics.median(part[name] for part in parts) for name in parts[0]},
        "peak_mb": max(run["peak_mb"] for run in runs),
        "seconds": [run["seconds"] for run in runs],
    }


def main(arguments: Sequence[str] = ()) -> None:
    """Run everything, or the parts that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_pipeline")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--smoke", action="store_true", help="few rows, nothing saved")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    file = RESULTS / "spark_pipeline.json"
    before = json.loads(file.read_text(encoding="utf-8"))["results"] if file.is_file() else {}
    results = {name: before[name] for name in PARTS if name in before and not given.smoke}
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        for name in given.parts or PARTS:
            results[name] = PARTS[name](runs, SMOKE if given.smoke else FULL)
    targets = targets_of(results)
    if given.smoke:
        print(*targets, sep="\n")
    else:
        save("spark_pipeline", ROUNDS, results, targets)


def targets_of(results: dict[str, Any]) -> list[Target]:
    """What was aimed for, of the parts that were measured: our time to that of another."""
    targets = []
    for rows, found in results.get("rows", {}).items():
        for ours in (COUNT, MAP_COUNT):
            ratio = found[ours]["batch_seconds"] / found[SHUFFLE]["batch_seconds"]
            name = f"{ours}, {int(rows):,} rows per batch: time of shuffle + mapInArrow"
            targets.append(Target(name, ratio, 1 / 0.7))
    if "stateful" in results:
        rows, found = list(results["stateful"].items())[-1]  # with small batches fixed cost rules
        for theirs, ours in STATEFUL.items():
            ratio = found[ours]["batch_seconds"] / found[theirs]["batch_seconds"]
            targets.append(Target(f"{ours}, {int(rows):,} rows per batch: time of {theirs}", ratio, 1 / 30))
    if "tiny" in results:
        plain, ours = (results["tiny"][name]["batch_seconds"] for name in ("mapInArrow", COUNT))
        targets.append(Target("a batch of one row: time of foreachBatch with mapInArrow", ours / plain, 1.3))
    if "state" in results:
        small, large = results["state"]["costs"].values()
        targets.append(Target("10k keys touched, at 1M keys of state: time of the same at 10k", large / small, 1.5))
    return targets


def _print(title: str, found: dict[str, Any]) -> None:
    figures = ("rows_per_second", "batch_seconds", "least", "most", "batches", "peak_mb")
    print_table(
        title,
        ["contender", "rows/s", "s/batch", "least", "most", "batches", "peak MB"],
        [[name, *(one[key] for key in figures)] for name, one in found.items()],
    )
    ours = {name: one["parts"] for name, one in found.items() if one["parts"]}
    if ours:
        header = ["contender", *next(iter(ours.values()))]
        print_table("Seconds per batch", header, [[name, *parts.values()] for name, parts in ours.items()])


def _rows(runs: Runs, plan: Plan) -> dict[str, Any]:
    results = {}
    for size in plan.sizes:
        input = runs.input_of(size, f"rows-{size.rows}")
        found = runs.rounds((COUNT, MAP_COUNT, SHUFFLE), input, size, plan.rounds)
        _print(f"{size.rows:,} rows per batch, {KEYS:,} keys", found)
        results[str(size.rows)] = found
        shutil.rmtree(input)
    return results


def _stateful(runs: Runs, plan: Plan) -> dict[str, Any]:
    results = {}
    for mine, theirs in plan.stateful:
        many, few = runs.input_of(mine, f"many-{mine.rows}"), runs.input_of(theirs, f"few-{theirs.rows}")
        found = runs.rounds((COUNT, MAP_COUNT), many, mine, 1)
        found |= runs.rounds(tuple(STATEFUL), few, theirs, 1)
        _print(f"{mine.rows:,} rows per batch, {KEYS:,} keys", found)
        results[str(mine.rows)] = found
        shutil.rmtree(many)
    return results


def _tiny(runs: Runs, plan: Plan) -> dict[str, Any]:
    input = runs.input("tiny", [np.array([number]) for number in range(plan.tiny.batches)])
    found = runs.rounds(("mapInArrow", COUNT), input, plan.tiny, plan.rounds)
    _print("Batches of one row", found)
    return found


def _state(runs: Runs, plan: Plan) -> dict[str, Any]:
    """What a batch that touches 10k keys costs beyond one of one row, with little state and with much."""
    tiny = runs.input("fixed", [np.array([number]) for number in range(plan.tiny.batches)])
    fixed = runs.run(COUNT, tiny, warm=plan.tiny.warm)["batch_seconds"]
    costs, found = {}, {}
    for keys in plan.state:
        load = np.array_split(np.arange(keys), max(1, keys // 200_000))
        touching = [runs.random.permutation(keys)[:TOUCHED] for _ in range(10)]
        one = runs.run(COUNT, runs.input(f"state-{keys}", [*load, *touching]), warm=len(load) + 2)
        found[str(keys)], costs[str(keys)] = one, one["batch_seconds"] - fixed
    header = ["keys of state", "s/batch beyond the fixed cost"]
    print_table(f"{TOUCHED:,} keys touched", header, [list(cost) for cost in costs.items()])
    return {"costs": costs, "runs": found}


PARTS: Final[dict[str, Callable[[Runs, Plan], dict[str, Any]]]] = {
    "rows": _rows,
    "stateful": _stateful,
    "tiny": _tiny,
    "state": _state,
}


if __name__ == "__main__":
    main(sys.argv[1:])
