"""Processes that are killed, by the hundred: `python -m tests.stress.checkpoint_kills`.

An iteration is a history on a fresh root: processes that run a small job, each going on from what the one before
left, at another parallelism, and each killed by SIGKILL at a storage call, at a system call or at a random
moment; then one that is not. After each death the newest checkpoint must be that of the last batch which was
acknowledged, or of the one under way, with exactly the state and the output that an oracle in plain Python says.

The seed is printed; the points follow from it, the moments do not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.checkpoint.job_processes import Nursery, run_killed
from tests.stress.state_map_stress import commit

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "checkpoint-kills.json"


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="of the first; default: a new one, printed")
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULT.name}")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    started = time.perf_counter()
    kills: Counter[str] = Counter()
    batches = done = mismatches = 0
    nursery = Nursery()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.iterations):
            try:
                survivor = run_killed(nursery, Path(folder), seed + number)
            except AssertionError as error:
                mismatches += 1
                sys.stdout.write(f"iteration of seed {seed + number}: {error}\n")
                sys.stdout.flush()
                continue
            done += 1
            kills += survivor.kills
            batches += (survivor.acknowledged or 0) + 1
    nursery.close()
    result = {
        "name": "checkpoint-kills",
        "commit": commit(),
        "seed": seed,
        "iterations": options.iterations,
        "iterations_without_mismatch": done,
        "mismatches": mismatches,
        "kills": sum(kills.values()),
        "batches": batches,
        "kills_by_point": dict(sorted(kills.items())),
        "seconds": round(time.perf_counter() - started, 1),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    if options.record:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
