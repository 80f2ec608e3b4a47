"""Errors of the storage at every call of a job: nothing is lost, the error says what to do, the job goes on."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path
from typing import Literal

import pytest

from emberstate.errors import StorageError
from emberstate.storage.interface import StorageOutcomeUnknownError
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage
from emberstate.testing.faulty_file_system import FaultyFileSystem
from tests.checkpoint.profiles import Oracle, check_stored, next_of, profiles_job
from tests.checkpoint.stored import SharedMemory, UnsyncedFileSystem
from tests.raising import raising

SEED = 38  # no batch is empty; the fifth and the eighth have rewrites and a delta too large to travel
BATCHES = 8
WRITES = ("write_new", "create_if_absent")
ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(SEED)


def some_batches(batches: int) -> SharedMemory:
    """What a job that ran so many batches leaves."""
    storage = SharedMemory()
    job = profiles_job(storage, seed=SEED, parallelism=1, steady=True)
    job.run_through(batches)
    job.close()
    return storage


@pytest.mark.reliability(8)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("batches", [range(2), range(7, 9)], ids=["first-start", "restart"])
def test_an_error_at_every_call(oracle: Oracle, batches: range, when: Literal["before", "after"]) -> None:
    """Catches: an error that loses a batch, applies one twice, sticks, or comes without its errno; a commit that
    was made and is taken for a failure."""
    found = some_batches(batches.start)
    numbers = itertools.cycle(ERRNOS)
    failed = set()
    storage = FaultyStorage(found.copy(), FaultPlan({}))
    job = profiles_job(storage, seed=SEED, parallelism=1, steady=True)
    assert job.run_through(batches.stop) == []
    job.close()
    for nth, (expected, _) in enumerate(storage.plan.calls, 1):
        if when == "after" and expected not in WRITES:
            continue  # an error after a read is like one before it
        storage = FaultyStorage(found.copy(), FaultPlan({}))
        job = profiles_job(storage, seed=SEED, parallelism=1, steady=True)
        number = next(numbers)
        storage.plan.fail(number, nth=nth, when=when)
        failures = job.run_through(batches.stop)
        operation, path = call = storage.plan.calls[nth - 1]
        if failures:
            assert [failure.errno for failure in failures] == [number], call
            assert os.strerror(number) in str(failures[0])
        else:
            settled = operation == "create_if_absent" and when == "after" and "manifest" in path
            rewrites = [slot.statistics().rewrites for slot in job.slots.values()]
            not_asked = any(done is not None and done.failed for done in rewrites)
            swept = job.coordinator.retention.statistics().failures > 0  # logged, and made up for later
            assert settled or not_asked or swept, call
        failed.add(operation)
        check_stored(storage.inner, oracle, [batches.stop - 1])
        storage.plan = FaultPlan({})
        job.run_until(batches.stop + 1)
        assert job.content() == oracle.content(batches.stop), call
        assert job.delivered == {batch: oracle.output(batch) for batch in range(batches.start, batches.stop + 1)}, call
        job.close()
    assert failed >= {"write_new", "create_if_absent"}
    if when == "before":
        assert failed >= {"check_conditional_create", "list", "read_range"}
        assert failed >= {"ensure_durable", "read"} or batches.start == 0


@pytest.mark.reliability(8)
@pytest.mark.parametrize("number", ERRNOS[:2], ids=lambda number: errno.errorcode[number])
def test_no_space_for_a_while(oracle: Oracle, number: int) -> None:
    """Catches: state that drifts while every attempt fails, and a job that does not go on when space returns."""
    storage = FaultyStorage(SharedMemory(), FaultPlan({}))
    job = profiles_job(storage, seed=SEED)
    job.open()
    job.run_until(BATCHES)
    storage.plan.fail(number, operation="write_new", forever=True)
    for _ in range(5):
        with pytest.raises(StorageError) as caught:
            job.run_batch()
        assert caught.value.errno == number and str(caught.value).endswith(".")
        check_stored(storage.inner, oracle, [BATCHES - 1])
    storage.plan = FaultPlan({})
    job.run_through(BATCHES + 6)
    check_stored(storage.inner, oracle, [BATCHES + 5])
    assert job.content() == oracle.content(BATCHES + 5)
    job.close()


@pytest.mark.reliability(8)
@pytest.mark.reliability(9)
@pytest.mark.parametrize("operation", ["fsync", "link", "fsync_directory"])
def test_a_system_call_fails_in_a_commit(tmp_path: Path, oracle: Oracle, operation: str) -> None:
    """Catches: a sync that failed once and is believed later; temporary files that pile up."""

    def run(root: Path, plan: FaultPlan, batches: int) -> list[StorageError]:
        storage = LocalStorage(root, file_system=FaultyFileSystem(root, plan))
        job = profiles_job(storage, seed=SEED, parallelism=1, steady=True)
        try:
            return job.run_through(batches, tries=3)
        finally:
            job.close()

    run(tmp_path / "found", FaultPlan({}), 4)
    failed = 0
    for nth in range(1, 9):  # some are of the collection, which is made up for later: nothing is raised then
        root = tmp_path / str(nth)
        shutil.copytree(tmp_path / "found", root)
        plan = FaultPlan({})
        # Of the restart itself only the opening and what follows: the rest is the storage's own test.
        plan.fail(errno.EIO, operation=operation, path="(state|checkpoints|intents|[.]tmp)", nth=nth)
        finished = True
        try:
            failures = run(root, plan, 5)
            assert [failure.errno for failure in failures] in ([errno.EIO], [])
            failed += len(failures)
        except AssertionError:
            # A directory that failed to sync is not believed again by the same process: what it holds may go with
            # the next power loss. A new one goes on.
            assert operation == "fsync_directory"
            finished = False
        plain = LocalStorage(root, file_system=UnsyncedFileSystem())
        assert next_of(check_stored(plain, oracle, [3, 4] if not finished else [4]))
        assert not [*root.glob(".tmp/*")]
        assert run(root, FaultPlan({}), 6) == []
        check_stored(plain, oracle, [5])
    assert failed >= 2


@pytest.mark.reliability(11)
@pytest.mark.parametrize("lost", [1, 3, 5, 6])
@pytest.mark.parametrize("landed", ["before-the-reply-was-lost", "never"])
def test_lost_replies_of_a_commit(oracle: Oracle, lost: int, landed: str) -> None:
    """Catches: a commit whose outcome is unknown and that is run again on top of itself, or taken for another's."""
    storage = FaultyStorage(SharedMemory(), FaultPlan({}))
    job = profiles_job(storage, seed=SEED)
    job.open()
    job.run_until(3)
    unknown = StorageOutcomeUnknownError(errno.ETIMEDOUT, "the reply was lost")
    for nth in range(1, lost + 1):
        # An error after the effect of the first is one after no effect of the next: the file is there already.
        storage.plan.fail(
            unknown, operation="create_if_absent", path="manifest", nth=nth,
            when="after" if landed != "never" else "before",
        )  # fmt: skip
    failures = job.run_through(4)
    assert len(failures) == (1 if lost >= 5 else 0)
    assert job.coordinator.statistics().retries == (5 if lost == 6 and landed == "never" else min(lost, 4))
    check_stored(storage.inner, oracle, [3])
    assert job.delivered[3] == oracle.output(3)
    job.run_through(BATCHES)
    check_stored(storage.inner, oracle, [BATCHES - 1])
    assert job.content() == oracle.content(BATCHES - 1)
    job.close()


@pytest.mark.reliability(11)
def test_a_commit_that_lands_late(oracle: Oracle) -> None:
    """Catches: a request that was given up and lands after the batch was begun again: it must be found, not
    overwritten, nor taken for a takeover."""
    storage = FaultyStorage(SharedMemory(), FaultPlan({}))
    job = profiles_job(storage, seed=SEED)
    job.open()
    job.run_until(3)
    started = job.begin(3)
    prepared = job.prepare(started)
    given_up: list[tuple[str, bytes]] = []

    def never_replies(path: str, data: bytes) -> bool:
        given_up.append((path, data))
        raise StorageOutcomeUnknownError(errno.ETIMEDOUT, "no reply")

    with pytest.MonkeyPatch.context() as patch, raising(StorageOutcomeUnknownError, errno=errno.ETIMEDOUT):
        patch.setattr(storage, "create_if_absent", never_replies)
        job.coordinator.commit(started, prepared)
    again = job.begin(3)
    prepared = job.prepare(again)
    assert storage.create_if_absent(*given_up[0])
    with raising(StorageOutcomeUnknownError, errno=errno.EAGAIN, checkpoint=again.number):
        job.coordinator.commit(again, prepared)
    job.run_batch(3)
    assert job.coordinator.statistics().redeliveries == 1
    assert job.delivered[3] == oracle.output(3)
    job.run_until(BATCHES)
    check_stored(storage.inner, oracle, [BATCHES - 1])
    job.close()
