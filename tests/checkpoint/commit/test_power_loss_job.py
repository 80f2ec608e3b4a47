"""Power loss under a whole job: what is not synced may be gone, in any part, and no acknowledged batch is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest

from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import FaultPlan, SimulatedKill
from emberstate.testing.faulty_file_system import FaultyFileSystem
from tests.checkpoint.profiles import Oracle, check_stored, committed_batch, next_of, profiles_job
from tests.checkpoint.stored import UnsyncedFileSystem

SEED = 38
Unsynced = Literal["lost", "kept", "either"]


def run_until_killed(
    disk: FaultyFileSystem, root: Path, acknowledged: int | None, *, call: int, until: int, parallelism: int
) -> int | None:
    """Run the job until it dies before a system call; the last batch that was acknowledged by then."""
    disk.plan = FaultPlan({})
    disk.plan.fail(SimulatedKill(), nth=call)
    job = profiles_job(LocalStorage(root, file_system=disk), seed=SEED, parallelism=parallelism)
    said = [acknowledged]
    try:
        job.open()
        job.run_until(until, said.append)
    except SimulatedKill:
        pass
    job.close()
    return said[-1]


@pytest.mark.reliability(3)
@pytest.mark.parametrize("unsynced", ["lost", "kept", "either"])
@pytest.mark.parametrize("seed", range(3))
def test_a_job_through_power_losses(tmp_path: Path, seed: int, unsynced: Unsynced) -> None:
    """Catches: a manifest that is durable before what it names; a commit acknowledged before it is durable; a
    restart that builds on what a killed process left unsynced."""
    chance = random.Random(f"{seed} {unsynced}")
    oracle = Oracle(SEED)
    acknowledged: int | None = None
    root = tmp_path / "0"
    for loss in range(3):
        disk = FaultyFileSystem(root, FaultPlan({}))
        for _ in range(chance.randint(1, 3)):  # processes die on a disk that goes on, the last one with it
            acknowledged = run_until_killed(
                disk, root, acknowledged, call=chance.randint(1, 260), until=next_of(acknowledged) + 4,
                parallelism=chance.randint(1, 3),
            )  # fmt: skip
        # Each may have died with a commit made and not acknowledged; such a one may be lost, or not.
        seen = committed_batch(LocalStorage(root, file_system=UnsyncedFileSystem()))
        allowed = [acknowledged, *range(next_of(acknowledged), next_of(seen))]
        root = tmp_path / str(loss + 1)
        disk.crash(root, chance, unsynced)
        acknowledged = check_stored(LocalStorage(root, file_system=UnsyncedFileSystem()), oracle, allowed)
    job = profiles_job(LocalStorage(root, file_system=UnsyncedFileSystem()), seed=SEED)
    job.open()
    until = next_of(acknowledged) + 4
    job.run_until(until)
    job.close()
    check_stored(job.storage, oracle, [until - 1])


@pytest.mark.reliability(3)
@pytest.mark.parametrize("forgotten", ["fsync", "fsync_directory"])
def test_a_job_without_syncs_does_lose(tmp_path: Path, forgotten: str) -> None:
    """Catches: a model of power loss that would let a job pass which syncs nothing."""
    disk = FaultyFileSystem(tmp_path / "root", FaultPlan({}))
    setattr(disk, forgotten, lambda _: None)
    assert run_until_killed(disk, tmp_path / "root", None, call=100_000, until=4, parallelism=1) == 3
    disk.crash(tmp_path / "left", random.Random(1), "lost")
    left = LocalStorage(tmp_path / "left", file_system=UnsyncedFileSystem())
    with pytest.raises(Exception):  # noqa: B017  which error depends on what is gone
        check_stored(left, Oracle(SEED), [3])
