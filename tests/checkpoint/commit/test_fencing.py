"""Zombies and rivals: an older holder of a job may wake up at any point, and changes nothing."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.commit.coordinator import Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.commit.starting_point import find_latest
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.incarnation import claim
from emberstate.checkpoint.manifest.layout import manifest_path, new_id
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.errors import FencedError
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, Gate
from tests.checkpoint.driver import Job
from tests.checkpoint.profiles import SECOND, Oracle, check_stored, committed_batch, profiles_job
from tests.checkpoint.stored import SharedMemory, UnsyncedFileSystem
from tests.patience import PATIENCE
from tests.raising import raising

SEED = 38
BATCHES = 4


def files_of(storage: Storage, numbers: list[int]) -> dict[str, bytes]:
    """All that some checkpoints consist of."""
    paths = {manifest_path(number) for number in numbers}
    paths |= {ref.path for number in numbers for ref in read_checkpoint(storage, number).file_refs()}
    return {path: storage.read(path) for path in paths}


def zombie_job(common: Storage, plan: FaultPlan | None = None) -> Job:
    """A job that ran some batches, on a storage of its own making around the common one."""
    storage = FaultyStorage(common, FaultPlan({}) if plan is None else plan)
    job = profiles_job(storage, seed=SEED, inline_bytes=10**9)  # so that state/ is the background's
    job.clock.set(1_700_000_000 * SECOND)
    job.open()
    job.run_until(BATCHES)
    return job


def take_over(common: Storage, batches: int = 3, parallelism: int = 3) -> Job:
    """A newer holder that goes on."""
    job = profiles_job(common, seed=SEED, parallelism=parallelism)
    job.clock.set(1_800_000_000 * SECOND)
    job.open()
    job.run_until(job.next_batch + batches)
    return job


def refused(call: Callable[[], Any], newer: Job) -> None:
    """The call is refused, and says by whom."""
    with pytest.raises(FencedError) as caught:
        call()
    message = str(caught.value)
    holder = newer.coordinator.holder
    assert f"incarnation {holder.incarnation}" in message
    assert f"host {socket.gethostname()}" in message and f"pid {os.getpid()}" in message
    assert "started 2027-01-15T08:00:00+00:00" in message and "Stop it" in message


@pytest.mark.reliability(12)
@pytest.mark.parametrize("collected", [False, True], ids=["kept", "collected"])
@pytest.mark.parametrize("point", ["before begin", "after begin", "after prepare"])
def test_a_zombie_wakes_up_between_calls(point: str, collected: bool) -> None:
    """Catches: an old attempt that commits, or whose late files take the place of newer ones; one that commits a
    number which was free again because the newer holder's checkpoint of that number was collected."""
    common, oracle = SharedMemory(), Oracle(SEED)
    zombie = zombie_job(common)
    transaction = zombie.begin() if point != "before begin" else None
    prepared = zombie.prepare(transaction) if transaction is not None and point == "after prepare" else None
    newer = take_over(common)
    if collected:
        common.delete_all([manifest_path(number) for number in checkpoint_numbers(common)[:-2]])
    numbers = checkpoint_numbers(common)
    before = files_of(common, numbers)
    if transaction is None:
        transaction = zombie.begin()
    if prepared is None:
        prepared = zombie.prepare(transaction)
    for _ in range(2):  # it stays refused
        refused(lambda: zombie.coordinator.commit(transaction, prepared), newer)
        refused(zombie.coordinator.check_holder, newer)
    assert files_of(common, numbers) == before
    check_stored(common, oracle, [BATCHES + 2])
    newer.run_until(BATCHES + 6)
    check_stored(common, oracle, [BATCHES + 5])
    assert newer.content() == oracle.content(BATCHES + 5)
    after = profiles_job(common, seed=SEED)
    after.open()
    after.run_until(BATCHES + 8)
    check_stored(common, oracle, [BATCHES + 7])
    for job in (zombie, newer, after):
        job.close()


@pytest.mark.reliability(12)
@pytest.mark.parametrize("collected", [False, True], ids=["kept", "collected"])
@pytest.mark.parametrize(
    ("operation", "path", "when"),
    [
        ("write_new", "bundle", "before"),
        ("write_new", "bundle", "after"),
        ("create_if_absent", "manifest", "before"),
        ("create_if_absent", "manifest", "after"),
        ("list", "claims", "before"),
    ],
)
def test_a_zombie_wakes_up_in_the_middle_of_its_commit(operation: str, path: str, when: Any, collected: bool) -> None:
    """Catches: a commit that is held anywhere and goes on after a newer holder has committed."""
    common, oracle = SharedMemory(), Oracle(SEED)
    plan = FaultPlan({})
    zombie = zombie_job(common, plan)
    transaction = zombie.begin()
    acknowledgements = zombie.prepare(transaction)  # on this thread, which owns the state
    gate = Gate()
    plan.hold(gate, operation=operation, path=path, when=when)
    with ThreadPoolExecutor(1) as pool:
        committing: Future[Manifest] = pool.submit(zombie.coordinator.commit, transaction, acknowledgements)
        assert gate.reached.wait(PATIENCE)
        made = committed_batch(common) == BATCHES  # then it is the newer one's to deliver
        assert made == ((when == "after" and operation == "create_if_absent") or operation == "list")
        newer = profiles_job(common, seed=SEED, parallelism=3)
        newer.clock.set(1_800_000_000 * SECOND)
        newer.open()
        assert isinstance(newer.offer(BATCHES), Redelivery if made else Transaction)
        newer.run_batch(BATCHES)
        assert newer.delivered == {BATCHES: oracle.output(BATCHES)}
        newer.run_until(BATCHES + 3)
        if collected:
            common.delete_all([manifest_path(number) for number in checkpoint_numbers(common)[:-2]])
        before = files_of(common, numbers := checkpoint_numbers(common))
        gate.opened.set()
        refused(lambda: committing.result(PATIENCE), newer)
    assert files_of(common, numbers) == before
    assert BATCHES not in zombie.delivered
    check_stored(common, oracle, [BATCHES + 2])
    newer.run_until(BATCHES + 5)
    check_stored(common, oracle, [BATCHES + 4])
    zombie.close()
    newer.close()


@pytest.mark.reliability(12)
def test_a_zombie_writes_in_the_background() -> None:
    """Catches: a rewrite of an old holder's slot that is taken by the newer holder, which did not order it."""
    common, oracle = SharedMemory(), Oracle(SEED)
    plan = FaultPlan({})
    zombie = zombie_job(common, plan)
    gate = Gate()
    plan.hold(gate, operation="write_new", path="^state/")
    zombie.run_batch()  # the chains are long enough: rewrites begin
    assert gate.reached.wait(PATIENCE)
    batch = BATCHES + 1
    newer = take_over(common, 0, parallelism=2)
    newer.slots = zombie.slots  # the same executors, which hold the state and are still writing
    newer.run_until(batch + 1)
    assert newer.slot(0).statistics().starts == {"restored": 1, "promoted": batch}
    gate.opened.set()
    newer.run_until(batch + 8)
    check_stored(common, oracle, [batch + 7])
    assert newer.content() == oracle.content(batch + 7)
    newer.close()


@pytest.mark.reliability(13)
@pytest.mark.parametrize(
    ("operation", "path", "nth"),
    [("create_if_absent", "claims", 1), ("list", "checkpoints", 2), ("create_if_absent", "manifest", 1)],
    ids=["claim", "look", "opening"],
)
def test_an_opening_that_is_overtaken(operation: str, path: str, nth: int) -> None:
    """Catches: two openings at once of which both succeed; or neither, because the one that is refused has taken
    the number which the other commits next."""
    common, oracle = SharedMemory(), Oracle(SEED)
    zombie_job(common).close()
    slow = FaultyStorage(common, FaultPlan({}))
    gate = Gate()
    slow.plan.hold(gate, operation=operation, path=path, nth=nth)
    first = profiles_job(slow, seed=SEED)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(first.open)
        assert gate.reached.wait(PATIENCE)
        second = take_over(common)
        gate.opened.set()
        if path == "claims":  # it claims the next one and takes over in its turn
            assert opening.result(PATIENCE).holder.incarnation == second.coordinator.holder.incarnation + 1
            with raising(FencedError, path="claims/000003", expected=2, found=3):
                second.run_batch()
            first.run_until(BATCHES + 4)
            check_stored(common, oracle, [BATCHES + 3])
        else:
            refused(lambda: opening.result(PATIENCE), second)
            second.run_until(BATCHES + 4)
            check_stored(common, oracle, [BATCHES + 3])
    first.close()
    second.close()


@pytest.mark.reliability(13)
def test_a_claim_that_cannot_be_read() -> None:
    """Catches: fencing that needs to read the newer claim to believe in it."""
    common = SharedMemory()
    zombie = zombie_job(common)
    newer = claim(common, zombie.clock)
    common.delete(f"claims/{newer.incarnation:06}")
    common.write_new(f"claims/{newer.incarnation:06}", b"torn")
    with raising(FencedError, path="claims/000002", expected=1, found=2):
        zombie.run_batch()
    zombie.close()


ROUNDS = 20  # on one root, which nobody tidies up


def run_real_batch(job: Job) -> int:
    """Open and commit, with the real state."""
    job.open(keep_slots=True)
    return job.run_batch().number


def run_empty_batch(job: Job) -> int:
    """Open and commit, with slots that changed nothing: as fast as can be."""
    job.open(keep_slots=True)
    begun = job.begin()
    nothing = [
        Acknowledgement(
            operator=task.operator,
            slot=task.slot,
            number=task.number,
            attempt=new_id(),
            started_from=task.chain.attempt,
        )
        for task in begun.tasks
    ]
    return job.coordinator.commit(begun, nothing).number


def race(roots: list[str], run: Callable[[Job], int], start: Barrier, told: Queue[Any]) -> None:
    """Open and commit again and again, at the same time as another does."""
    for root in roots:
        storage = LocalStorage(root, file_system=UnsyncedFileSystem())
        job = profiles_job(storage, seed=SEED, parallelism=1)
        committed, refusals = [], 0
        for _ in range(ROUNDS):
            start.wait(PATIENCE)
            try:
                committed.append(run(job))
            except FencedError:
                refusals += 1
        job.close()
        told.put((root, committed, refusals))


@pytest.mark.reliability(13)
@pytest.mark.parametrize(("run", "count"), [(run_empty_batch, 9), (run_real_batch, 1)], ids=["empty", "real"])
def test_two_processes_racing(tmp_path: Path, run: Callable[[Job], int], count: int) -> None:
    """Catches: two processes of which both commit one number, or whose histories fork."""
    roots = [str(tmp_path / str(number)) for number in range(count)]
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(2), context.Queue()
    racers = [context.Process(target=race, args=(roots, run, start, told)) for _ in range(2)]
    for racer in racers:
        racer.start()
    results = [told.get(timeout=PATIENCE) for _ in range(2 * count)]
    for racer in racers:
        racer.join(PATIENCE)
        assert racer.exitcode == 0
    for root in roots:
        check_linear(LocalStorage(root), [committed for where, committed, _ in results if where == root])
        if run is run_real_batch:
            check_stored(LocalStorage(root), Oracle(SEED))
    refusals = sum(refusals for _, _, refusals in results)
    assert sum(len(committed) for _, committed, _ in results) + refusals == 2 * ROUNDS * count
    assert refusals >= count, "they hardly met"


def check_linear(storage: Storage, committed: list[list[int]]) -> None:
    """Every number once, each the child of the one before, the batches in order; and nobody dreamt a commit.

    An opening that another opening followed may have been collected.
    """
    manifests = [read_checkpoint(storage, number) for number in checkpoint_numbers(storage)]
    for older, newer in itertools.pairwise(manifests):
        assert newer.parent is not None
        if newer.number == older.number + 1:
            assert (newer.parent.number, newer.parent.id) == (older.number, older.id)
        else:
            assert newer.kind == "opening" and newer.parent.number == newer.number - 1
        assert newer.writer.incarnation >= older.writer.incarnation
    commits = [manifest for manifest in manifests if manifest.kind == "commit"]
    assert [commit.batch.id for commit in commits if commit.batch is not None] == list(range(len(commits)))
    told = [number for numbers in committed for number in numbers]
    assert len(set(told)) == len(told) >= ROUNDS, "of two, at least one goes on each time"
    assert {commit.number for commit in commits} >= set(told)


@pytest.mark.reliability(13)
def test_the_newest_is_collected_between_looking_and_reading() -> None:
    """Catches: a start that fails because another has just gone on and tidied up behind itself."""
    common = SharedMemory()
    job = zombie_job(common)
    watched = FaultyStorage(common, FaultPlan({}))
    gate = Gate()
    watched.plan.hold(gate, operation="read", path="manifest", when="before")
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(find_latest, watched, "job")
        assert gate.reached.wait(PATIENCE)
        gone = job.coordinator.latest.number
        job.run_until(BATCHES + 1)
        common.delete(manifest_path(gone))
        gate.opened.set()
        found = looking.result(PATIENCE)
    assert found.manifest is not None and found.manifest.number == gone + 1
    job.close()


@pytest.mark.reliability(12)
def test_a_number_that_was_taken_and_collected_while_it_was_asked_for() -> None:
    """Catches: a zombie that learns of no newer holder, because the checkpoint that beat it is gone by then."""
    common = SharedMemory()
    plan = FaultPlan({})
    zombie = zombie_job(common, plan)
    transaction = zombie.begin()
    acknowledgements = zombie.prepare(transaction)
    gate = Gate()
    plan.hold(gate, operation="create_if_absent", path="manifest", when="after")
    newer = take_over(common)
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(zombie.coordinator.commit, transaction, acknowledgements)
        assert gate.reached.wait(PATIENCE)
        common.delete(manifest_path(transaction.number))
        gate.opened.set()
        refused(lambda: committing.result(PATIENCE), newer)
    for job in (zombie, newer):
        job.close()
