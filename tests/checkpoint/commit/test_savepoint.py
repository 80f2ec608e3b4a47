"""Savepoints: whole, named, never collected; and jobs that start from them."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from emberstate.checkpoint.commit.coordinator import Transaction
from emberstate.checkpoint.commit.savepoint import delete_savepoint, write_savepoint
from emberstate.checkpoint.manifest.catalogue import (
    checkpoint_numbers,
    read_checkpoint,
    read_savepoint,
    savepoint_names,
    verify,
)
from emberstate.checkpoint.manifest.layout import manifest_path, savepoint_path
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.clock import ManualClock
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    RestoreRefusedError,
    StateDeclarationError,
    StorageError,
    StorageExistsError,
)
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.checkpoint.counting import COUNTING, small_job
from tests.checkpoint.driver import Job
from tests.checkpoint.interleaving import Process, every_interleaving
from tests.checkpoint.stored import SharedMemory, read_content, unreferenced
from tests.raising import raising

INLINE = pytest.mark.parametrize("inline_bytes", [0, 300, 1 << 20])


def job_with(commits: int, inline_bytes: int = 300) -> Job:
    job = small_job(SharedMemory(), retained=1, inline_bytes=inline_bytes)
    job.open()
    for number in range(commits):
        job.feed("ann", "bob", f"word-{number}")
    return job


def check_savepoint(job: Job, storage: Storage, name: str, manifest: Manifest) -> None:
    """It is whole, needs nothing outside its folder, and holds what the checkpoint held."""
    saved = read_savepoint(storage, name)
    assert verify(storage, saved).problems == ()
    assert read_content(storage, saved, COUNTING) == job.models[manifest.id]
    assert {ref.path.rpartition("/")[0] for ref in saved.file_refs()} <= {f"savepoints/{name}"}
    assert saved.outputs == ()


def files_of(storage: Storage, name: str) -> list[str]:
    return sorted({savepoint_path(name), *(ref.path for ref in read_savepoint(storage, name).file_refs())})


@INLINE
def test_a_savepoint_outlives_its_job(inline_bytes: int) -> None:
    """Catches: a savepoint that refers to files of the job, or is collected with it."""
    job = job_with(5, inline_bytes)
    job.coordinator.savepoint("before-upgrade")
    made = job.coordinator.latest
    for number in range(5):
        job.feed("eve", f"later-{number}")
    job.open()
    check_savepoint(job, job.storage, "before-upgrade", made)
    assert savepoint_names(job.storage) == ["before-upgrade"]
    for path in job.storage.list():
        if not path.startswith("savepoints/"):
            job.storage.delete(path)
    check_savepoint(job, job.storage, "before-upgrade", made)


def test_a_savepoint_can_be_carried_away_file_by_file() -> None:
    """Catches: paths or places that tie a savepoint to its storage."""
    job, elsewhere = job_with(3), MemoryStorage()
    job.coordinator.savepoint("s")
    for path in job.storage.list("savepoints"):
        elsewhere.write_new(path, job.storage.read(path))
    check_savepoint(job, elsewhere, "s", job.coordinator.latest)
    again = write_savepoint(elsewhere, read_savepoint(elsewhere, "s"), elsewhere, "copy-of-s")
    assert again.parent is not None
    check_savepoint(job, elsewhere, "copy-of-s", job.coordinator.latest)


def test_a_name_that_is_taken_is_refused() -> None:
    """Catches: a savepoint overwritten, mixed with another, or left without some of its files."""
    job = job_with(2)
    job.coordinator.savepoint("s")
    made, before = job.coordinator.latest, job.storage.list()
    with raising(StorageExistsError, path=savepoint_path("s")):
        job.coordinator.savepoint("s")
    assert job.storage.list() == before
    job.feed("eve")
    with pytest.raises(StorageExistsError):
        job.coordinator.savepoint("s")
    check_savepoint(job, job.storage, "s", made)
    delete_savepoint(job.storage, "s")
    job.coordinator.savepoint("s")
    check_savepoint(job, job.storage, "s", job.coordinator.latest)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 101, "ä", None, "manifest/.."])
@pytest.mark.reliability(7)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    """Catches: a name that leaves the folder of savepoints."""
    job = job_with(1)
    before = job.storage.list()
    with raising(StateDeclarationError, option="savepoint", found=f"{name!r:.120}"):
        job.coordinator.savepoint(name)
    with raising(StateDeclarationError, option="savepoint", found=f"{name!r:.120}"):
        delete_savepoint(job.storage, name)
    assert job.storage.list() == before


@pytest.mark.reliability(2)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_call_leaves_none_or_all(when: str) -> None:
    """Catches: half a savepoint that can be seen; an attempt that stands in the way of the next."""
    job = job_with(4, inline_bytes=0)
    made = job.coordinator.latest
    calls, position, finished = 1, 0, 0
    while position < calls:
        target, plan = MemoryStorage(), FaultPlan({})
        plan.fail(SimulatedKill("dead"), nth=position + 1, when=when)  # type: ignore[arg-type]
        plan.fail(SimulatedKill("dead"), nth=position + 2, forever=True)
        try:
            write_savepoint(job.storage, made, FaultyStorage(target, plan), "s")
            calls = len(plan.calls)
        except SimulatedKill:
            calls = position + 2
        position += 1
        if savepoint_names(target):
            finished += 1
        else:
            with raising(CheckpointCollectedError, path=savepoint_path("s")):
                read_savepoint(target, "s")
            write_savepoint(job.storage, made, target, "s")
        check_savepoint(job, target, "s", made)
        assert target.list() == files_of(target, "s")
    assert position >= 4
    assert 1 <= finished < position


def test_two_attempts_under_one_name() -> None:
    """Catches: one of two writers of a name deleting the other's files."""
    job = job_with(2, inline_bytes=0)
    made = job.coordinator.latest
    target: Storage = MemoryStorage()

    def start() -> tuple[Process, Process]:
        nonlocal target
        target = MemoryStorage()

        def write(storage: Storage) -> object:
            return write_savepoint(job.storage, made, storage, "s")

        matter = "manifest$|^savepoints/s$|-0$"
        return Process(target, matter, write), Process(target, matter, write)

    schedules = 0
    for schedule, one, other in every_interleaving(start):
        schedules += 1
        results = [one.end(StorageExistsError), other.end(StorageExistsError)]
        assert results.count(None) == 1, schedule
        check_savepoint(job, target, "s", made)
        assert target.list() == files_of(target, "s")
    assert schedules > 20


def test_a_lost_reply() -> None:
    """Catches: a savepoint reported as failed, or its files deleted, when the last reply was lost."""
    job = job_with(2)
    made = job.coordinator.latest
    for forever in (False, True):
        target, plan = MemoryStorage(), FaultPlan({})
        plan.fail(errno.EIO, operation="create_if_absent", when="after", forever=forever)
        if forever:
            with pytest.raises(StorageError):
                write_savepoint(job.storage, made, FaultyStorage(target, plan), "s")
        else:
            write_savepoint(job.storage, made, FaultyStorage(target, plan), "s")
        check_savepoint(job, target, "s", made)


@pytest.mark.reliability(8)
def test_a_full_disk_leaves_nothing() -> None:
    """Catches: copies left behind by an attempt that failed and could clean up."""
    job = job_with(3, inline_bytes=0)
    target, plan = MemoryStorage(), FaultPlan({})
    plan.fail(errno.ENOSPC, operation="write_new", nth=3)
    with raising(StorageError, errno=errno.ENOSPC):
        write_savepoint(job.storage, job.coordinator.latest, FaultyStorage(target, plan), "s")
    assert target.list() == []


@pytest.mark.reliability(7)
def test_damage_is_found_while_copying() -> None:
    """Catches: a savepoint of damaged state that looks sound."""
    job = job_with(3, inline_bytes=0)
    made = job.coordinator.latest
    path = next(ref.path for ref in made.file_refs() if ref.path.startswith("state"))
    data = job.storage.read(path)
    job.storage.delete(path)
    target = MemoryStorage()
    with raising(CorruptionError, path=path, checkpoint=made.number):
        write_savepoint(job.storage, made, target, "s")
    job.storage.write_new(path, data[:-1] + bytes([data[-1] ^ 1]))
    with raising(CorruptionError, path=path):
        write_savepoint(job.storage, made, target, "s")
    assert target.list() == []


def test_a_checkpoint_collected_while_it_is_copied() -> None:
    """Catches: what was collected reported as damage."""
    job = job_with(3, inline_bytes=0)
    made = job.coordinator.latest
    for number in range(20):
        job.feed("ann", f"later-{number}")
    target = MemoryStorage()
    with raising(CheckpointCollectedError, checkpoint=made.number):
        write_savepoint(job.storage, made, target, "s")
    assert target.list() == []


# -- starting from one ----------------------------------------------------------------------------------------


@INLINE
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_new_job_starts_from_a_savepoint(inline_bytes: int, parallelism: int) -> None:
    """Catches: state lost or doubled on the way; files shared with the savepoint; the old query's batches asked for."""
    old = job_with(5, inline_bytes)
    old.coordinator.savepoint("s")
    new = small_job(SharedMemory(), parallelism=parallelism, inline_bytes=inline_bytes)
    coordinator = new.open(savepoint=(old.storage, "s"))
    assert coordinator.latest.saved_batch == old.coordinator.latest.batch
    assert coordinator.latest.batch is None
    new.model = new.models[coordinator.latest.id] = old.model
    new.check_all(new.storage)
    delete_savepoint(old.storage, "s")
    new.query = "another"
    new.commit(new.begin(700, source="elsewhere"), [])
    new.check_all(new.storage)
    for number in range(5):
        new.feed("ann", f"new-{number}")
        new.check_all(new.storage)
    new.open()
    new.check_all(new.storage)
    assert unreferenced(new.storage) == []
    assert new.coordinator.latest.saved_batch is None


def test_a_job_with_checkpoints_refuses_a_savepoint() -> None:
    """Catches: state of a running job replaced, and its progress lost, by an option left in a script."""
    old, new = job_with(2), job_with(3)
    old.coordinator.savepoint("s")
    before = new.storage.list()
    with raising(RestoreRefusedError, option="savepoint", found="s", checkpoint=new.coordinator.latest.number):
        new.open(savepoint=(old.storage, "s"))
    assert new.storage.list() == before


def test_a_savepoint_that_is_not_there() -> None:
    """Catches: a job that starts empty because of a misspelt name."""
    old, new = job_with(2), small_job(SharedMemory())
    old.coordinator.savepoint("s")
    with raising(CheckpointCollectedError, path=savepoint_path("t"), expected="t", found=("s",)):
        new.open(savepoint=(old.storage, "t"))
    assert new.storage.list() == []


@pytest.mark.reliability(2)
def test_a_start_from_a_savepoint_that_dies_can_be_repeated() -> None:
    """Catches: half an import that stands in the way, or stays for good."""
    old = job_with(4, inline_bytes=0)
    old.coordinator.savepoint("s")
    dead = position = 0
    while dead == position:
        storage, plan = SharedMemory(), FaultPlan({})
        position += 1
        plan.fail(SimulatedKill("dead"), nth=position)
        plan.fail(SimulatedKill("dead"), nth=position + 1, forever=True)
        new = small_job(FaultyStorage(storage, plan), slot_storage=storage)
        new.models = old.models
        try:
            new.open(savepoint=(old.storage, "s"))
        except SimulatedKill:
            dead += 1
        again = small_job(storage)
        again.models = dict(old.models)
        if checkpoint_numbers(storage):
            again.models[read_checkpoint(storage, 1).id] = old.model
            again.open()
        else:
            coordinator = again.open(savepoint=(old.storage, "s"))
            again.model = again.models[coordinator.latest.id] = old.model
        again.check_all(storage)
        again.feed("ann")
        again.check_all(storage)
        assert unreferenced(storage) == []
    assert dead > 10


@pytest.mark.reliability(7)
@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "state/../../x", "claims/000001", "savepoints/s/../../x", "a\0b"]
)
def test_a_manifest_that_names_files_elsewhere_is_refused(path: str) -> None:
    """Catches: a forged checkpoint or savepoint that makes a reader open what is none of its files."""
    job = job_with(2)
    job.coordinator.savepoint("s")
    readers: dict[str, Callable[[], Manifest]] = {
        manifest_path(3): lambda: read_checkpoint(job.storage, 3),
        savepoint_path("s"): lambda: read_savepoint(job.storage, "s"),
    }
    for home, read in readers.items():
        forged = with_path(read(), path)
        job.storage.delete(home)
        job.storage.write_new(home, forged.to_bytes())
        with raising(CorruptionError, path=home, found=path):
            read()


@pytest.mark.reliability(7)
def test_a_savepoint_that_is_not_whole_is_refused() -> None:
    """Catches: a savepoint that names files of its job, which will be collected; a checkpoint posing as one."""
    job = job_with(2, inline_bytes=0)
    made = job.coordinator.latest
    job.coordinator.savepoint("s")
    for forged in (made, with_path(read_savepoint(job.storage, "s"), next(made.file_refs()).path)):
        job.storage.delete(savepoint_path("s"))
        job.storage.write_new(savepoint_path("s"), forged.to_bytes())
        with raising(CorruptionError, path=savepoint_path("s"), expected="savepoint", found=forged.kind):
            read_savepoint(job.storage, "s")


def with_path(manifest: Manifest, path: str) -> Manifest:
    """The manifest with another path for its first state file."""
    operator = manifest.operators[0]
    number = next(number for number, slot in enumerate(operator.slots) if slot.files)
    slot = operator.slots[number]
    file = msgspec.structs.replace(slot.files[0], place=msgspec.structs.replace(slot.files[0].place, path=path))
    slot = msgspec.structs.replace(slot, files=(file, *slot.files[1:]))
    slots = (*operator.slots[:number], slot, *operator.slots[number + 1 :])
    return msgspec.structs.replace(manifest, operators=(msgspec.structs.replace(operator, slots=slots),))


# -- time goes on from there -----------------------------------------------------------------------------------


def timed_job(storage: Storage) -> Job:
    """A job after a batch that has seen event time 900 and stands at watermark 700, processing time 5,000."""
    job = small_job(storage)
    coordinator = job.open(clock=ManualClock(5_000))
    begun = coordinator.begin(0, query="q", source="s", watermark=700)
    assert isinstance(begun, Transaction)
    commit_empty(job, begun, max_event_time=900)
    return job


def commit_empty(job: Job, transaction: Transaction, max_event_time: int | None = None) -> Manifest:
    """Commit a batch without changes."""
    prepared = job.prepare(transaction, [])
    acknowledgements = [msgspec.structs.replace(found, max_event_time=max_event_time) for found in prepared]
    return job.coordinator.commit(transaction, acknowledgements)


@pytest.mark.reliability(2)
def test_times_of_a_savepoint_survive_a_kill_before_the_first_batch(tmp_path: Path) -> None:
    """Catches: watermark, greatest event time and processing time known only to the process that opened the job."""
    old = timed_job(LocalStorage(tmp_path / "old"))
    old.coordinator.savepoint("s")
    new = LocalStorage(tmp_path / "new")
    child = os.fork()
    if child == 0:
        try:
            small_job(new).open(savepoint=(old.storage, "s"), clock=ManualClock(1_000))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    job = small_job(new)
    job.models = {read_checkpoint(new, 1).id: old.model}
    for _ in range(2):  # it may die there more than once
        coordinator = job.open(clock=ManualClock(1_000))
        assert coordinator.latest.batch is None
        assert coordinator.latest.times == old.coordinator.latest.batch
    coordinator.savepoint("of-an-opening")
    assert read_savepoint(new, "of-an-opening").times == old.coordinator.latest.batch
    begun = coordinator.begin(41, query="another", source="elsewhere", watermark=3)
    assert isinstance(begun, Transaction)
    assert (begun.batch.watermark, begun.batch.processing_time) == (700, 5_000)
    made = commit_empty(job, begun)
    assert made.batch is not None and made.batch.max_event_time == 900
    assert made.saved_batch is None and made.times == made.batch
