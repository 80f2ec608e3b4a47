"""Rewrites in the background: slow ones, failing ones, and what they write while the slot goes on."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emberstate.checkpoint.commit.coordinator import Transaction
from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.errors import StorageError
from emberstate.storage.interface import Storage
from emberstate.testing.faults import FaultPlan, FaultyStorage, Gate
from tests.checkpoint.driver import Job
from tests.checkpoint.profiles import (
    KEYS,
    POLICY,
    PROFILES,
    WORKS,
    Oracle,
    ProfilesFunction,
    check_stored,
    profiles_job,
    time_of,
)
from tests.checkpoint.stored import SharedMemory, StorageBackend, restored_backend
from tests.patience import PATIENCE
from tests.raising import raising

SEED = 38
ROOT = Path(__file__).parents[3]
#: Deltas travel, so that what is written below state/ was written in the background.
ALL_INLINE = 10**9


#: Deltas are merged, and no base is written.
MERGING = ChainPolicy(most_files=8, rewrite_at=4, small_bytes=10**9)


def job_with_plan(plan: FaultPlan, rewrite_seconds: float = PATIENCE, policy: ChainPolicy = POLICY) -> Job:
    """A job of which one slot has a faulty storage. Until it restores, it uses that in the background alone."""
    storage = SharedMemory()
    job = profiles_job(storage, seed=SEED, parallelism=1, inline_bytes=ALL_INLINE, policy=policy)
    job.open()
    job.backend = StorageBackend(storage, FaultyStorage(storage, plan))
    job.slot(0)._rewrite_seconds = rewrite_seconds
    job.backend = StorageBackend(storage)
    return job


def files_of(job: Job) -> int:
    """How long the first slot's chain is."""
    return len(job.coordinator.latest.operators[0].slots[0].files)


@pytest.mark.reliability(10)
def test_slow_storage() -> None:
    """Catches: rewrites that pile up behind a slow one; a chain that grows without bound; a wait for ever."""
    plan, gate, oracle = FaultPlan({}), Gate(), Oracle(SEED)
    plan.hold(gate, operation="write_new", path="^state/")
    job = job_with_plan(plan, rewrite_seconds=0.01)
    slot = job.slot(0)
    while files_of(job) < job.policy.most_files:
        job.run_batch()
    assert gate.reached.wait(PATIENCE), "the rewrite was not begun"
    batch = job.next_batch
    for _ in range(3):
        with raising(StorageError, operator="profiles", slot=0, batch=batch, errno=errno.ETIMEDOUT):
            job.run_batch()
    statistics = slot.statistics()
    assert statistics.waits == 3
    assert statistics.rewrites is not None and statistics.rewrites.begun == 1, "a second rewrite overlaps the first"
    check_stored(job.storage, oracle, [batch - 1])
    gate.opened.set()
    while files_of(job) >= job.policy.most_files:
        try:
            job.run_batch()
        except StorageError as error:  # the rewrite has not quite ended
            assert error.errno == errno.ETIMEDOUT
    until = job.next_batch + 3
    job.run_through(until, tries=1000)
    check_stored(job.storage, oracle, [until - 1])
    job.close()


@pytest.mark.reliability(10)
def test_a_full_chain_waits() -> None:
    """Catches: a slot that fails, or lets the chain grow, while its rewrite is still under way."""
    plan, gate, oracle = FaultPlan({}), Gate(), Oracle(SEED)
    plan.hold(gate, operation="write_new", path="^state/")
    job = job_with_plan(plan)
    while files_of(job) < job.policy.most_files:
        job.run_batch()

    def own() -> None:
        """Take the state over for the calling thread."""
        for slot in job.slots.values():
            slot.backend.context.own()

    def run_batch() -> None:
        own()
        job.run_batch()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run_batch)
        while not waiting.done() and not job.slot(0).statistics().waits:
            pass  # until it waits, or has failed to
        gate.opened.set()
        waiting.result(PATIENCE)
    own()
    assert job.slot(0).statistics().waits == 1
    assert files_of(job) < job.policy.most_files
    check_stored(job.storage, oracle, [job.next_batch - 1])
    assert job.content() == oracle.content(job.next_batch - 1)
    job.close()


@pytest.mark.reliability(8)
@pytest.mark.reliability(14)
@pytest.mark.reliability(17)
@pytest.mark.parametrize("operation", ["read_range", "write_new"])
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error"), MemoryError(),
     ZeroDivisionError("a bug")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_rewrite_that_fails(error: Exception, operation: str) -> None:
    """Catches: a failure in the background that nobody hears of, that is heard of for ever, or that costs state."""
    plan, oracle = FaultPlan({}), Oracle(SEED)
    job = job_with_plan(plan, policy=MERGING if operation == "read_range" else POLICY)
    plan.fail(error, operation=operation)
    failed_at = None
    while failed_at is None:
        batch = job.next_batch
        assert batch < 20, "the rewrite never failed"
        try:
            job.run_batch(batch)
        except StorageError as caught:
            failed_at = batch
            assert "in the background" in str(caught) and "Nothing is lost" in str(caught)
            assert caught.errno == (error.errno if isinstance(error, OSError) else errno.EIO)
            assert caught.__cause__ is not None
    rewrites = job.slot(0).statistics().rewrites
    assert rewrites is not None and rewrites.failed == 1
    check_stored(job.storage, oracle, [failed_at - 1])
    until = failed_at + 6
    job.run_until(until)  # it is raised once
    check_stored(job.storage, oracle, [until - 1])
    assert job.content() == oracle.content(until - 1)
    assert job.coordinator.statistics().adopted > 0, "it was not tried again"
    job.close()


@pytest.mark.reliability(20)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_base_is_the_state_at_its_checkpoint(seed: int) -> None:
    """Catches: writes of later batches in a base that was made meanwhile; bytes that depend on the timing."""
    storage = SharedMemory()
    job = profiles_job(storage, seed=seed)
    job.open(retained=100)
    job.run_until(20)
    job.close()
    manifests = {number: read_checkpoint(storage, number) for number in checkpoint_numbers(storage)}
    compared = set()
    for manifest in manifests.values():
        for position, operator in enumerate(manifest.operators):
            for slot, chain in enumerate(operator.slots):
                for file in chain.files:
                    if file.kind == "base" and file.id not in compared:
                        compared.add(file.id)
                        backend = restored_backend(
                            storage, manifests[file.number].operators[position], slot, WORKS[position]
                        )
                        at = manifests[file.number].batch
                        assert at is not None
                        backend.ttl_clock.processing_time = at.processing_time  # what has expired is not in a base
                        backend.ttl_clock.event_time = at.watermark
                        with backend.snapshot() as snapshot:
                            at_rest = b"".join(BaseWriter(backend, snapshot, file.key_groups))
                        assert storage.read_range(file.place.path, file.place.offset, file.place.size) == at_rest
    assert len(compared) >= 3
    oracle = Oracle(seed)
    for manifest in manifests.values():
        batch = None if manifest.batch is None else manifest.batch.id
        assert job.stored(storage, manifest) == oracle.content(batch)


@pytest.mark.reliability(20)
def test_a_clock_that_steps_back() -> None:
    """Catches: what had expired and is not in a base any more, but is seen again in hot state at an earlier time."""
    storage = SharedMemory()
    job = profiles_job(storage, seed=SEED, parallelism=1)
    job.open()
    job.run_until(3)
    late, early = time_of(3 + 100), time_of(3)
    for batch, now in enumerate([late] * 6 + [early] * 2, job.next_batch):
        job.clock.set(now)
        begun = job.coordinator.begin(batch, query=job.query, source=f"nothing in {batch}", watermark=time_of(2))
        assert isinstance(begun, Transaction)
        acknowledgements = []
        for task in begun.tasks:
            slot = job.start(task)
            if task.operator == PROFILES:
                ProfilesFunction(slot.backend).process((KEYS[0], "count", 1))
            acknowledgements.append(slot.prepare())
        manifest = job.coordinator.commit(begun, acknowledgements)
    assert manifest.batch is not None
    profiles = manifest.operators[0]
    assert profiles.slots[0].files[0].kind == "base"
    assert job.content() == job.stored(storage, manifest)
    job.close()


def history() -> str:
    """What the checkpoints of a run hold: everything but ids, paths and who wrote them."""
    storage = SharedMemory()
    job = profiles_job(storage, seed=SEED, steady=True)
    job.open()
    job.run_until(10)
    job.close()
    told = hashlib.sha256()
    for number in checkpoint_numbers(storage):
        told.update(repr(logical(storage, read_checkpoint(storage, number))).encode())
    assert job.coordinator.statistics().adopted > 0
    return told.hexdigest()


def logical(storage: Storage, manifest: Manifest) -> object:
    """A manifest without what differs from run to run."""
    files = [
        (operator.name, slot.groups, file.kind, file.groups, file.place.checksum, file.seal, file.number)
        for operator in manifest.operators
        for slot in operator.slots
        for file in slot.files
    ]
    outputs = [(output.operator, output.slot, output.rows, output.place.checksum) for output in manifest.outputs]
    return (manifest.number, manifest.kind, manifest.batch, manifest.created, files, outputs)


@pytest.mark.reliability(20)
def test_other_processes_make_the_same_checkpoints() -> None:
    """Catches: checkpoints that depend on Python's salted hashes, the zone, or the timing of the background."""
    program = "from tests.checkpoint.commit.test_background import history; print(history())"
    expected = history()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "TZ": "Asia/Kolkata", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
