"""A job run in two ways: cleanly, and through crashes and rescales."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from emberstate.testing import Harness

MakeHarness = Callable[..., Harness]
Rows = list[tuple[Any, ...]]


def clean(make: MakeHarness, rows: Rows) -> list[tuple[Any, ...]]:
    """What the job puts out, sorted, with one slot and a transaction for every row."""
    with make() as harness:
        harness.process(*rows)
        harness.close_input()
        return sorted(harness.output)


def battered(make: MakeHarness, rows: Rows, seed: str, **options: Any) -> list[tuple[Any, ...]]:
    """The same in batches of any size, with five crashes and a rescale after each."""
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, len(rows)), 9))
    batches = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    crashes = set(rng.sample(range(len(batches)), 5))
    with make(parallelism=3, **options) as harness:
        for number, batch in enumerate(batches):
            if number in crashes:
                harness.crash(rng.choice(["now", "before prepare", "after prepare", "after commit"]))
            harness.process_batch(batch)
            if number in crashes:
                harness.restore(parallelism=rng.randrange(1, 6))
        harness.close_input()
        assert harness.statistics().job.crashes == 5
        harness.check_invariants()
        return sorted(harness.output)
