"""A cluster on which everything is killed, again and again: `python -m tests.stress.spark_cluster_kills`.

An iteration is a stream of its own, through one or two keyed stages at parallelism 2 to 4, during which slots, Python
workers, executors, whole workers and the driver are killed by SIGKILL at random moments. What comes out is compared
with a plain computation, row by row; at the end nothing may be left running.

The seed is printed; what is killed follows from it, the moments do not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.spark.cluster import Cluster
from tests.spark.cluster_job import DriverProcess, Job
from tests.stress.state_map_stress import commit

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "spark-cluster-kills.json"

#: What is killed, and how often one in comparison with the others.
VICTIMS = {"slot": 4, "python worker": 3, "executor": 4, "worker": 1, "driver": 1}


class Rampage:
    """A cluster, a driver, and who kills them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.cluster = Cluster(root)
        for _ in range(2):
            self.cluster.start_worker()
        self.driver = self._new_driver()

    def _new_driver(self) -> DriverProcess:
        driver = DriverProcess(self.cluster)
        driver.start_session()
        return driver

    def iteration(self, number: int, kills: int) -> int:
        """A stream with so many kills; how many batches it had."""
        job = Job(
            self.cluster.root / f"job{number}",
            self.driver,
            parallelism=self.random.choice([2, 3, 4]),
            stages=self.random.choice([1, 2]),
        )
        job.feed(2)
        job.start()
        for _ in range(kills):
            job.feed(self.random.choice([1, 2, 3]), rows=self.random.choice([0, 300, 10_000]))
            if self.random.random() < 0.7:
                job.wait(self.random.randrange(job.fed))  # else in whatever has begun already
            time.sleep(self.random.random() * 2)  # the moment is to be any
            self._kill(job)
        job.feed(2)
        job.wait()
        job.check()
        job.stop()
        return job.fed

    def _kill(self, job: Job) -> None:
        what = self.random.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if what == "driver":
            self.driver.kill()
            self.driver = job.driver = self._new_driver()
            job.start()
        elif what == "worker":
            self.cluster.kill_worker(self.random.choice(list(self.cluster.workers)))
            self.cluster.start_worker()
        else:
            choice = {
                "slot": list(self.cluster.slots()),
                "python worker": list(self.cluster.processes("pyspark.daemon")),
                "executor": list(self.cluster.executors().values()),
            }[what]
            if not choice:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(choice), signal.SIGKILL)
        self.kills[what] += 1

    def close(self) -> None:
        """End everything, and see that it has ended."""
        self.driver.close()
        self.cluster.close()


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--kills", type=int, default=8, help="in each iteration")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULT.name}")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    started = time.perf_counter()
    batches = done = 0
    with tempfile.TemporaryDirectory() as folder:
        rampage = Rampage(Path(folder), seed)
        try:
            for number in range(options.iterations):
                batches += rampage.iteration(number, options.kills)
                done += 1
                print(f"iteration {number}: {dict(rampage.kills)}, {batches} batches so far, all exact", flush=True)
        finally:
            rampage.close()
    result = {
        "name": "spark-cluster-kills",
        "commit": commit(),
        "seed": seed,
        "iterations": options.iterations,
        "iterations_without_mismatch": done,
        "batches": batches,
        "kills": rampage.kills.total(),
        "kills_by_victim": dict(rampage.kills),
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(result))
    if options.record:
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
