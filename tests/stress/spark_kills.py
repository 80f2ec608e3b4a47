"""Spark jobs whose processes are killed, for as long as one likes: `python -m tests.stress.spark_kills`.

An iteration is a history: two jobs over one stream, one on the heap and one in RocksDB, with drivers, slots and Python
workers that are killed by SIGKILL at random moments, each driver going on from what the one before left; then one that
is not killed. Every row must have come out exactly once, with what plain Python says, and every delivery of a batch
must be the same. Nothing may be left of a driver that is gone.

The seed is printed; the input follows from it, the moments do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.spark.driver_process import Driver
from tests.spark.killed_driver import check, deliveries
from tests.spark.pipeline_functions import events
from tests.spark.spark_session import slot_pids, worker_pids
from tests.spark.streams import Stream
from tests.stress.state_map_stress import commit

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "spark_kills.json"
JOBS = ("fs", "rocksdb")
ROWS, BATCHES = 30, 12


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--drivers", type=int, default=4, help="that are killed, per iteration")
    parser.add_argument("--seed", type=int, default=None, help="of the first; default: a new one, printed")
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULT.name}")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    started = time.perf_counter()
    kills: Counter[str] = Counter()
    mismatches = 0
    for number in range(options.iterations):
        with tempfile.TemporaryDirectory() as folder:
            try:
                kills += run_killed(Path(folder), seed + number, options.drivers)
            except AssertionError as error:
                mismatches += 1
                sys.stdout.write(f"iteration of seed {seed + number}: {error}\n")
                sys.stdout.flush()
    result = {
        "name": "spark_kills",
        "commit": commit(),
        "seed": seed,
        "iterations": options.iterations,
        "mismatches": mismatches,
        "kills": kills.total(),
        "kills_by_kind": dict(sorted(kills.items())),
        "batches": 2 * BATCHES * options.iterations,
        "seconds": round(time.perf_counter() - started, 1),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    if options.record:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if mismatches else 0


def run_killed(root: Path, seed: int, drivers: int) -> Counter[str]:
    """One history; what was killed.

    Raises:
        AssertionError: something came out that should not have, or did not.
    """
    chance = random.Random(seed)
    given = events(ROWS * BATCHES, seed)
    Stream(None, root).add(*(given[n : n + ROWS] for n in range(0, len(given), ROWS)))
    kills: Counter[str] = Counter()
    for number in range(drivers + 1):
        driver = Driver(root)
        try:
            kills += _kill_around(driver, root, chance, and_driver=number < drivers)
            code = driver.wait()
            assert code in (0, -signal.SIGKILL), f"driver {number} ended with {code}: {driver.printed()}"
        finally:
            driver.kill()
    for job in JOBS:
        check(root, job, given)
    return kills


def _kill_around(driver: Driver, root: Path, chance: random.Random, *, and_driver: bool) -> Counter[str]:
    """Kill slots and workers now and then, and the driver after some batches more, at a random moment.

    Before each kill a batch of each job gets through. Spark gives up on a task that fails four times, and at once on a
    query that it plans: the source of ticks is planned by a Python worker.
    """
    kills: Counter[str] = Counter()
    enough = len(deliveries(root, "fs")) + chance.randint(1, 4)
    before = _through(root)
    while driver.process.poll() is None:
        time.sleep(chance.random() * 1.5)
        if and_driver and len(deliveries(root, "fs")) >= enough:
            driver.process.kill()
            kills["driver"] += 1
            break
        through = _through(root)
        kind = chance.choice(("slot", "worker"))
        pids = slot_pids(driver.mark) if kind == "slot" else worker_pids(driver.mark)
        if pids and all(through[job] > before[job] for job in JOBS) and chance.random() < 0.5:
            try:
                os.kill(chance.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                continue
            kills[kind] += 1
            before = through
    return kills


def _through(root: Path) -> dict[str, int]:
    """How many batches of each job were delivered."""
    return {job: len(deliveries(root, job)) for job in JOBS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
