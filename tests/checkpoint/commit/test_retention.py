"""Retention and collection: what is kept is whole, what is not needed goes, whatever fails or dies."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Sequence

import msgspec
import pytest

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery
from emberstate.checkpoint.commit.garbage import beyond_retention
from emberstate.checkpoint.commit.retention import Retention
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.incarnation import claim
from emberstate.checkpoint.manifest.layout import (
    bundle_path,
    condemned_path,
    manifest_path,
    new_id,
    output_path,
    state_path,
)
from emberstate.checkpoint.manifest.pins import pin
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    FencedError,
    RestoreRefusedError,
    StateDeclarationError,
)
from emberstate.storage.interface import BytesLike
from emberstate.testing.faults import FaultPlan, FaultyStorage, Gate
from tests.checkpoint.counting import small_job
from tests.checkpoint.driver import Job
from tests.checkpoint.stored import SharedMemory, unreferenced
from tests.checkpoint.threads import Thread
from tests.patience import PATIENCE
from tests.raising import raising


def commits(job: Job, count: int) -> None:
    for number in range(count):
        job.feed("ann", "bob", f"word-{number}")


# -- what is kept ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retained", [1, 2, 5])
@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_the_last_commits_are_kept(retained: int, inline_bytes: int) -> None:
    """Catches: keeping too many, too few, or a checkpoint without the files and bundles it needs."""
    storage = SharedMemory()
    job = small_job(storage, retained=retained, inline_bytes=inline_bytes)
    job.open()
    for number in range(12):
        job.feed("ann", f"word-{number}")
        kept = job.check_all(storage)
        assert kept == list(range(max(1, number + 3 - retained), number + 3)) or number + 1 < retained
    assert checkpoint_numbers(storage) == list(range(14 - retained, 14))
    assert unreferenced(storage) == []


def test_each_commit_lists_no_files() -> None:
    """Catches: a commit that costs what the storage holds."""
    plan = FaultPlan({})
    job = small_job(FaultyStorage(SharedMemory(), plan))
    job.open()
    commits(job, 5)
    plan.calls.clear()
    job.feed("ann")
    assert {path for operation, path in plan.calls if operation == "list"} == {"claims", "pins"}
    assert [path for operation, path in plan.calls if operation == "read"] == []


def test_outputs_live_as_long_as_their_checkpoint() -> None:
    """Catches: an output that a sink still reads, in a driver that was paused, deleted by the driver that went on; one
    that stays for good."""
    storage = SharedMemory()
    job = small_job(storage, retained=2, inline_bytes=0)
    job.open()
    first = job.feed("ann")
    paths = [output.place.path for output in first.outputs]
    again = job.open().begin(0, query="q", source="0")
    assert isinstance(again, Redelivery)
    assert [output.place.path for output in again.manifest.outputs] == paths
    second = job.feed("bob")
    assert {*paths, *(output.place.path for output in second.outputs)} == set(storage.list("output"))
    job.open().collect()  # as a second driver does when it starts
    assert set(paths) <= set(storage.list("output"))
    job.feed("ann")
    assert not set(paths) & set(storage.list("output"))
    job.check_all(storage)
    assert unreferenced(storage) == []


def test_starts_without_commits_leave_one_opening() -> None:
    """Catches: a job that crashes at every start filling its storage with openings."""
    storage = SharedMemory()
    job = small_job(storage)
    job.open()
    commits(job, 3)
    for _ in range(5):
        job.open()
    assert checkpoint_numbers(storage) == [3, 4, 9]
    assert storage.list("claims") == ["claims/000006"]
    job.check_all(storage)
    assert unreferenced(storage) == []


def test_retained_is_a_number() -> None:
    """Catches: a job that is taken over, or deletes everything, for a setting that makes no sense."""
    storage = SharedMemory()
    for wrong in (0, -1, True, "3"):
        job = small_job(storage, retained=wrong)
        with raising(StateDeclarationError, option="retained", found=wrong):
            job.open()
    assert storage.list() == []


def test_more_retained_at_the_next_start() -> None:
    """Catches: retention decided once and for all."""
    storage = SharedMemory()
    job = small_job(storage, retained=1)
    job.open()
    commits(job, 3)
    job.open(retained=3)
    commits(job, 5)
    assert checkpoint_numbers(storage) == [8, 9, 10]
    job.open(retained=1)
    assert checkpoint_numbers(storage) == [10, 11]


# -- what is collected ----------------------------------------------------------------------------------------


def test_strays_are_collected_at_the_next_start() -> None:
    """Catches: files of attempts that lost, bundles of commits that failed, or old marks that stay for good."""
    storage = SharedMemory()
    job = small_job(storage)
    holder = job.open().holder
    commits(job, 3)
    strays = [
        state_path(1, new_id()),
        state_path(1, f"{new_id()}-{new_id()}"),
        output_path(1, new_id()),
        bundle_path(4),
        bundle_path(5),
        condemned_path(1, holder.incarnation),
        f"intents/{0:020}-{new_id()}",
    ]
    for path in strays:
        storage.write_new(path, b"stray")
    job.open()
    assert not set(strays) & set(storage.list())
    assert unreferenced(storage) == []
    job.check_all(storage)


def test_what_is_not_ours_stays() -> None:
    """Catches: deleting what somebody else put there, or what a newer holder has written."""
    storage = SharedMemory()
    job = small_job(storage)
    job.open()
    foreign = ["state/readme.txt", "state/000001/notes.arrow", "output/x", "checkpoints/000000000001/bundle", "a/b"]
    newer = [state_path(9, new_id()), output_path(9, new_id())]
    for path in foreign + newer:
        storage.write_new(path, b"x")
    commits(job, 4)
    job.open()
    assert set(foreign + newer) <= set(storage.list())


def test_files_of_the_transaction_in_flight_stay() -> None:
    """Catches: a collection on demand that takes the files of a batch that runs."""
    storage = SharedMemory()
    job = small_job(storage, inline_bytes=0)
    coordinator = job.open()
    commits(job, 1)
    lost = state_path(1, new_id())
    storage.write_new(lost, b"of an attempt that lost")
    transaction = job.begin()
    acknowledgements = job.prepare(transaction, [])
    coordinator.collect()
    assert lost in storage.list()
    manifest = coordinator.commit(transaction, acknowledgements)
    job.models[manifest.id] = job.model
    coordinator.collect()
    assert lost not in storage.list()
    job.check_all(storage)


class HeldRewrites(SharedMemory):
    """What is written in the background waits until it is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = threading.Event()

    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert self.wanted.wait(PATIENCE)
        super().write_new(path, data)


def test_rewrites_stay_while_they_are_ordered() -> None:
    """Catches: a base collected between being written and being adopted; one that was rejected staying for good."""
    storage = HeldRewrites()
    job = small_job(storage, inline_bytes=0, steady=False)
    coordinator = job.open()
    ordered: set[str] = set()
    for _ in range(20):
        storage.wanted.clear()  # none is written in time for the batch that began it
        job.feed("ann", "bob", "eve")
        ordered |= coordinator.unfinished
        storage.wanted.set()
        job.wait_for_rewrites()  # it is written, and nobody has acknowledged it
        coordinator.collect()
    assert len(ordered) > 2
    assert coordinator.statistics().adopted > 2
    job.check_all(storage)
    rejected = state_path(1, f"{new_id()}-{new_id()}")
    storage.write_new(rejected, b"nobody ordered it")
    coordinator.collect()
    assert rejected not in storage.list()


def test_leftovers_of_dead_writers_go_at_the_start(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Catches: temporary files that grow with every crash; removal while slots write."""
    from emberstate.storage.local import LocalStorage

    storage = LocalStorage(tmp_path)
    job = small_job(storage)
    coordinator = job.open()
    leftover = tmp_path / ".tmp" / "dead~0123"
    leftover.write_bytes(b"half")
    job.feed("ann")
    coordinator.collect()
    assert leftover.exists()
    job.open()
    assert not leftover.exists()


# -- who collects ---------------------------------------------------------------------------------------------


def test_only_the_holder_collects() -> None:
    """Catches: a process that was overtaken deleting what its successor needs."""
    storage = SharedMemory()
    job = small_job(storage, retained=1)
    old = job.open()
    commits(job, 3)
    successor = small_job(storage, retained=5)
    successor.models = job.models
    successor.open()
    commits(successor, 2)
    before = storage.list()
    with raising(FencedError, path="claims/000002", expected=1, found=2):
        old.collect()
    assert storage.list() == before
    successor.check_all(storage)


@pytest.mark.reliability(12)
def test_an_overtaken_collector_at_every_call() -> None:
    """Catches: a collector that was overtaken in the middle of its work deleting what its successor needs."""
    calls, position = 1, 0
    while position < calls:
        storage, plan = SharedMemory(), FaultPlan({})
        faulty = FaultyStorage(storage, plan)
        job = small_job(faulty, retained=3, slot_storage=storage)
        old = job.open()
        commits(job, 4)
        storage.write_new(state_path(1, new_id()), b"stray")
        job.coordinator.retention._retained = 1
        plan.calls.clear()
        gate = Gate()
        plan.hold(gate, nth=position + 1)
        collector = Thread(old.collect)
        assert gate.reached.wait(PATIENCE)
        successor = small_job(storage, retained=3)
        successor.models = job.models
        # It goes on from an old checkpoint, if that can be had at all.
        try:
            successor.open(start_from=4)
        except CheckpointCollectedError:
            successor.open()
        commits(successor, 1)
        successor.begin()
        intents = storage.list("intents")[-1:]
        gate.opened.set()
        collector.join(FencedError, CheckpointCollectedError)
        calls = len(plan.calls)
        for manifest in (successor.coordinator.latest, read_checkpoint(storage, successor.coordinator.latest.number)):
            successor.check(storage, manifest)
        assert set(intents) <= set(storage.list("intents"))
        commits(successor, 1)
        successor.open()
        successor.check_all(storage)
        assert unreferenced(storage) == []
        position += 1
    assert calls > 12


# -- when things fail -----------------------------------------------------------------------------------------


@pytest.mark.reliability(8)
def test_a_failure_to_collect_fails_no_commit(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a commit that fails, or is lost, because something old could not be deleted; no second attempt."""
    storage, plan = SharedMemory(), FaultPlan({})
    job = small_job(FaultyStorage(storage, plan), slot_storage=storage)
    coordinator = job.open()
    commits(job, 3)
    plan.fail(errno.EIO, operation="delete")
    with caplog.at_level(logging.WARNING, "emberstate.checkpoint"):
        job.feed("ann")
    assert coordinator.retention.statistics().failures == 1
    assert "repeated later" in caplog.text
    job.check_all(storage)
    commits(job, 2)
    assert checkpoint_numbers(storage) == [6, 7]
    assert unreferenced(storage) == []
    coordinator.retention.check_invariants()


@pytest.mark.parametrize("operation", ["list", "read", "delete", "create_if_absent", "remove_leftovers"])
@pytest.mark.reliability(8)
def test_a_failure_at_the_start_is_made_up_for(operation: str) -> None:
    """Catches: a start that fails for the sake of collecting; incremental work on half a survey."""
    storage, plan = SharedMemory(), FaultPlan({})
    job = small_job(storage)
    job.open()
    commits(job, 4)
    for number in (3, 4):
        storage.write_new(state_path(1, f"{new_id()[:-1]}{number}"), b"stray")
    job.storage = FaultyStorage(storage, plan)
    gate = {"create_if_absent": "condemned"}.get(operation, "")
    plan.fail(errno.EIO, operation=operation, path=gate or ("pins" if operation == "list" else ""))
    if operation == "read":
        plan = FaultPlan({})
        job.storage = FaultyStorage(storage, plan)
        plan.fail(errno.EIO, operation="read", nth=3)  # two are the start's own
    coordinator = job.open(retained=1)
    assert coordinator.retention.statistics().failures == 1
    job.check_all(storage)
    job.feed("ann")
    assert checkpoint_numbers(storage)[-1:] == [coordinator.latest.number]
    assert unreferenced(storage) == []
    job.check_all(storage)


@pytest.mark.reliability(5)
def test_no_files_go_while_a_kept_manifest_is_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: collecting what a damaged manifest named, which a repair might need; refusing for ever."""
    storage = SharedMemory()
    job = small_job(storage, retained=3, inline_bytes=0)
    job.open()
    commits(job, 4)
    path = manifest_path(4)
    whole = storage.read(path)
    storage.delete(path)
    storage.write_new(path, whole[:-1])
    stray = state_path(1, new_id())
    storage.write_new(stray, b"stray")
    before = set(storage.list("state"))
    with caplog.at_level(logging.WARNING, "emberstate.checkpoint"):
        coordinator = job.open()
        found = coordinator.collect()
    assert found.unreadable == (4,)
    assert "cannot be read" in caplog.text
    assert before <= set(storage.list("state"))
    assert coordinator.retention.statistics().refusals == 2
    commits(job, 4)  # it falls out of retention, and all is well again
    assert stray not in storage.list()
    assert unreferenced(storage) == []
    job.check_all(storage)


def test_a_checkpoint_that_vanishes_stops_collection() -> None:
    """Catches: a listing without our own newest checkpoint taken for the truth, and its files for garbage."""
    storage = SharedMemory()
    job = small_job(storage)
    coordinator = job.open()
    commits(job, 2)
    before = storage.list("state")
    storage.delete(manifest_path(coordinator.latest.number))
    with raising(CorruptionError, path=manifest_path(coordinator.latest.number)):
        coordinator.collect()
    assert storage.list("state") == before


def test_set_back_to_an_older_checkpoint() -> None:
    """Catches: a batch whose outputs are kept refused; files of the old one collected."""
    storage = SharedMemory()
    job = small_job(storage, retained=3, inline_bytes=0)
    job.open()
    commits(job, 4)
    outputs = read_checkpoint(storage, 4).outputs
    for start in (4, None):
        again = job.open(start_from=start).begin(2, query="q", source="2")
        assert isinstance(again, Redelivery) and again.manifest.outputs == outputs
    commits(job, 5)
    job.check_all(storage)
    assert unreferenced(storage) == []


def test_set_back_to_a_checkpoint_whose_outputs_are_gone() -> None:
    """Catches: a batch whose outputs an earlier version deleted, delivered as if it had none."""
    storage = SharedMemory()
    job = small_job(storage, retained=3, inline_bytes=0)
    job.open()
    commits(job, 4)
    storage.delete(read_checkpoint(storage, 4).outputs[0].place.path)
    for start in (4, None):  # an opening on an opening remembers
        coordinator = job.open(start_from=start)
        with raising(RestoreRefusedError, "batch 3", batch=2, checkpoint=coordinator.latest.number):
            coordinator.begin(2, query="q", source="2")


# -- decisions ------------------------------------------------------------------------------------------------


def test_strays_of_overtaken_processes_are_beyond_retention() -> None:
    """Catches: a late commit of a fenced process at a number that was collected counting as a checkpoint."""
    storage = SharedMemory()
    job = small_job(storage, retained=1)
    job.open()
    commits(job, 3)
    latest = job.coordinator.latest
    assert latest.parent is not None
    parent = msgspec.structs.replace(latest, number=3, id="another", parent=None)
    assert beyond_retention({3: parent, 4: latest}, 5) == {3}
    known = msgspec.structs.replace(parent, id=latest.parent.id)
    assert beyond_retention({3: known, 4: latest}, 5) == set()
    assert beyond_retention({3: known, 4: latest}, 1) == {3}
    assert beyond_retention({3: known, 4: None}, 1) == set()
    assert beyond_retention({}, 1) == set()


def test_condemned_by_an_older_holder_is_collected() -> None:
    """Catches: keeping, or starting from, a checkpoint that an overtaken collector is about to delete."""
    storage = SharedMemory()
    job = small_job(storage, retained=3)
    old = job.open()
    commits(job, 3)
    storage.write_new(condemned_path(3, old.holder.incarnation), b"mark")
    with raising(CheckpointCollectedError, "retry", checkpoint=3):
        job.open(start_from=3)
    with raising(CheckpointCollectedError, "retry", checkpoint=3):
        pin(storage, 3, "reading")
    job.open()
    assert 3 not in checkpoint_numbers(storage)
    assert storage.list("condemned") == storage.list("pins") == []
    job.check_all(storage)


def test_retention_of_another_incarnation_is_fenced_before_anything_goes() -> None:
    """Catches: marks that an overtaken collector leaves behind."""
    storage = SharedMemory()
    job = small_job(storage)
    coordinator: CheckpointCoordinator = job.open()
    commits(job, 3)
    from emberstate.clock import ManualClock

    claim(storage, ManualClock(0))
    greedy = Retention(storage, coordinator.holder, 1)
    before = storage.list()
    with pytest.raises(FencedError):
        greedy.collect(frozenset())
    assert storage.list() == before
