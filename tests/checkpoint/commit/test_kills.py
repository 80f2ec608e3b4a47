"""kill -9 at every call, at named points and at any moment: the last committed checkpoint is what is found.

The long run is `python -m tests.stress.checkpoint_kills`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.checkpoint.job_processes import OPERATIONS, Level, Nursery, Run, Survivor, run_killed
from tests.checkpoint.profiles import Oracle, check_stored, committed_batch, next_of, profiles_job
from tests.checkpoint.stored import SharedMemory

#: Points next to others, which the long run has.
LESS_TELLING = ("make_directory", "close", "open_directory", "create", "check_conditional_create")
SEED = 38  # no batch is empty; the eighth has a rewrite and a delta too large to travel


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.mark.reliability(2)
def test_a_kill_at_every_call() -> None:
    """Catches: a call between two others that leaves half a checkpoint, or a checkpoint without its files."""
    oracle = Oracle(SEED)
    found = SharedMemory()
    job = profiles_job(found, seed=SEED, parallelism=1, steady=True)
    job.open()
    job.run_until(7)
    job.close()
    outcomes = set()
    for nth in itertools.count(1):
        storage = FaultyStorage(found.copy(), FaultPlan({}))
        storage.plan.fail(SimulatedKill(), nth=nth)
        job = profiles_job(storage, seed=SEED, parallelism=1, steady=True)
        acknowledged: list[int | None] = [6]
        try:
            job.open()
            job.run_until(9, acknowledged.append)
        except SimulatedKill:
            job.close()
        batch = check_stored(storage.inner, oracle, [acknowledged[-1], next_of(acknowledged[-1])])
        outcomes.add((acknowledged[-1], batch))
        if len(storage.plan.calls) < nth:
            break
        if nth % 6 == 0:  # and the next process goes on
            job = profiles_job(storage.inner, seed=SEED, parallelism=2)
            job.open()
            job.run_until(10)
            check_stored(storage.inner, oracle, [9])
            job.close()
    # Each batch may be found to be committed though nobody was told.
    assert outcomes == {(6, 6), (6, 7), (7, 7), (7, 8), (8, 8)}


@pytest.mark.reliability(2)
@pytest.mark.parametrize("level", ["storage", "file system"])
def test_a_kill_at_each_named_point(nursery: Nursery, tmp_path: Path, level: Level) -> None:
    """Catches: a point at which kill -9 leaves something that the next process trips over, or believes."""
    survivor = Survivor(nursery, tmp_path / "root", SEED)
    survivor.run(Run(str(survivor.root), SEED, 1, until=2, steady=True))
    missed = []
    operations = [operation for operation in OPERATIONS[level] if operation not in LESS_TELLING]
    for number, (operation, when) in enumerate(itertools.product(operations, ("before", "after"))):
        often = OPERATIONS[level][operation]
        point = f"{when}-{operation}:{1 + (3 * number) % often if number % 3 else often // 2 + 1}"
        until = next_of(survivor.acknowledged) + 4
        if not survivor.run(Run(str(survivor.root), SEED, 1 + number % 3, until, level, point, steady=True)):
            missed.append(point)
        survivor.check()
    assert len(missed) <= len(OPERATIONS[level]) // 2, f"not reached: {missed}"


@pytest.mark.reliability(15)
def test_a_kill_during_restore_again_and_again(nursery: Nursery, tmp_path: Path) -> None:
    """Catches: a restore or a change of the parallelism that cannot be begun again where it was cut off."""
    survivor = Survivor(nursery, tmp_path / "root", SEED)
    survivor.run(Run(str(survivor.root), SEED, 2, until=6))
    for nth in (1, 2, 3, 5, 8):
        run = Run(str(survivor.root), SEED, 1 + nth % 3, until=7, point=f"before-read_range:{nth}")
        assert survivor.run(run)
        assert survivor.check() == 5
    survivor.run(Run(str(survivor.root), SEED, 3, until=9))
    assert survivor.check() == 8
    assert committed_batch(survivor.plain) == 8


@pytest.mark.reliability(1)
@pytest.mark.reliability(15)
@pytest.mark.parametrize("seed", range(6))
def test_histories_of_kills(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    """Catches: what several deaths in a row break, at points and at random moments, in the background too."""
    run_killed(nursery, tmp_path, seed)
