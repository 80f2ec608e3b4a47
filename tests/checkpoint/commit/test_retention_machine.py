"""Commits, restarts, pins, savepoints and collections in any order, with a fault at any storage call: every
checkpoint that is there, is kept or pinned, and every savepoint, is whole and holds what it held."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberstate.checkpoint.commit.coordinator import Redelivery
from emberstate.checkpoint.manifest.catalogue import (
    checkpoint_numbers,
    read_checkpoint,
    read_savepoint,
    savepoint_names,
    verify,
)
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.manifest.pins import Pin, condemned_numbers, pin
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.errors import CheckpointCollectedError, EmberstateError, StorageExistsError
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import KILL_POINT, FaultPlan, FaultyStorage, Gate, SimulatedKill
from tests.checkpoint.counting import COUNT, COUNTING, OPERATOR, small_job
from tests.checkpoint.driver import Job
from tests.checkpoint.stored import SharedMemory, read_content, unreferenced
from tests.checkpoint.threads import Thread
from tests.checkpoint.work import Content
from tests.effort import examples
from tests.patience import PATIENCE

WORDS = st.lists(st.sampled_from(["ann", "bob", "eve", "joe"]), max_size=3)
#: What goes wrong: the how many-th call, before or after its effect, an error or the end of the process.
FAULT = st.none() | st.tuples(
    st.integers(1, 40), st.sampled_from(["before", "after"]), st.sampled_from([errno.EIO, None])
)


class RetentionMachine(RuleBasedStateMachine):
    """One job and its storage. What the storage holds is checked past the faults."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = SharedMemory()
        self.job = small_job(self.storage, slot_storage=self.storage)
        self.pins: list[Pin] = []
        self.savepoints: dict[str, Content] = {}
        self.pending: Content = {}  # of a commit of which nobody knows whether it was made
        self.newest = 0
        self.restart(None, 2, 2, None)

    # -- what happens ---------------------------------------------------------------------------------------

    @rule(words=WORDS, fault=FAULT)
    def commit(self, words: list[str], fault: Any) -> None:
        """A batch."""
        self.pending = COUNTING.after(self.job.model, self.job.next_batch, words)

        def act() -> None:
            self.newest = self.job.feed(*words).number

        self.attempt(fault, act)

    @rule(fault=FAULT, parallelism=st.integers(1, 3), retained=st.integers(1, 3), back=st.none() | st.integers(0, 5))
    def restart(self, fault: Any, parallelism: int, retained: int, back: int | None) -> None:
        """Another process takes over; from the newest checkpoint, or from an older one."""
        self.job.parallelism, self.job.options["retained"] = parallelism, retained
        numbers = checkpoint_numbers(self.storage)
        start = numbers[-1 - back] if back is not None and back < len(numbers) else None
        self.attempt(fault, lambda: self.open(start))

    @rule(fault=FAULT)
    def collect(self, fault: Any) -> None:
        """On demand."""
        self.attempt(fault, lambda: self.job.coordinator.collect())

    @rule(back=st.integers(0, 3))
    def pin(self, back: int) -> None:
        """A reader pins a checkpoint that is there."""
        numbers = checkpoint_numbers(self.storage)
        if back < len(numbers):
            try:
                self.pins.append(pin(self.storage, numbers[-1 - back], "machine"))
            except CheckpointCollectedError:
                assert numbers[-1 - back] in condemned_numbers(self.storage.list("condemned"))

    @precondition(lambda self: self.pins)
    @rule(which=st.integers(0, 9))
    def unpin(self, which: int) -> None:
        """And releases it."""
        self.pins.pop(which % len(self.pins)).release()

    @rule(name=st.sampled_from("abc"), fault=FAULT)
    def savepoint(self, name: str, fault: Any) -> None:
        """A savepoint, under a name that may be taken."""

        def act() -> None:
            try:
                self.job.coordinator.savepoint(name)
                assert name not in self.savepoints
            except StorageExistsError:
                pass

        model = self.job.model
        self.attempt(fault, act)
        if name in savepoint_names(self.storage):
            self.savepoints.setdefault(name, model)

    # -- how ------------------------------------------------------------------------------------------------

    def open(self, start: int | None) -> None:
        coordinator = self.job.open(start_from=start)
        if coordinator.retention.statistics().failures == 0:
            assert [path for path in unreferenced(self.storage) if not self.is_held(path)] == []
        coordinator.retention.check_invariants()
        self.newest = coordinator.latest.number

    def is_held(self, path: str) -> bool:
        """Whether a mark is of a checkpoint that somebody pinned after an overtaken collector had marked it."""
        return path.startswith("condemned/") and bool(self.pins)

    def attempt(self, fault: Any, act: Any) -> None:
        """Do something, with a fault; if it failed, start again without."""
        plan = FaultPlan({})
        if fault is not None:
            nth, when, error = fault
            if error is None:
                plan.fail(SimulatedKill("dead"), nth=nth, when=when)
                plan.fail(SimulatedKill("dead"), nth=nth + 1, forever=True)
            else:
                plan.fail(error, nth=nth, when=when)
        self.storage_now(FaultyStorage(self.storage, plan))
        try:
            act()
        except (EmberstateError, SimulatedKill):
            self.learn()
            self.storage_now(self.storage)
            self.open(None)
        self.storage_now(self.storage)

    def storage_now(self, storage: Storage) -> None:
        self.job.storage = storage
        if self.job.opened is not None:
            self.job.opened._storage = self.job.opened.retention._storage = storage

    def learn(self) -> None:
        """Of checkpoints whose maker did not live to say so: what they must hold."""
        for number in checkpoint_numbers(self.storage):
            manifest = read_checkpoint(self.storage, number)
            if manifest.id not in self.job.models:
                parent = {} if manifest.parent is None else self.job.models[manifest.parent.id]
                self.job.models[manifest.id] = parent if manifest.kind == "opening" else self.pending

    # -- what must hold -------------------------------------------------------------------------------------

    @invariant()
    def everything_kept_is_whole(self) -> None:
        """Checkpoints, also those of which a collector may have deleted nothing yet, and the newest of all."""
        numbers = self.job.check_all(self.storage)
        assert numbers[-1] == self.newest

    @invariant()
    def what_is_pinned_is_there(self) -> None:
        """A pin that was granted holds."""
        assert {held.number for held in self.pins} <= set(checkpoint_numbers(self.storage))

    @invariant()
    def savepoints_are_whole(self) -> None:
        """And hold what the job held."""
        assert savepoint_names(self.storage) == sorted(self.savepoints)
        for name, model in self.savepoints.items():
            saved = read_savepoint(self.storage, name)
            assert verify(self.storage, saved).problems == ()
            assert read_content(self.storage, saved, COUNTING) == model

    def teardown(self) -> None:
        """In the end nothing is left that nobody needs."""
        for held in self.pins:
            held.release()
        self.pins = []
        self.open(None)
        self.job.check_all(self.storage)
        self.job.close()


TestRetentionMachine = RetentionMachine.TestCase
TestRetentionMachine.settings = settings(max_examples=examples(30), stateful_step_count=15)


# -- readers --------------------------------------------------------------------------------------------------


def test_a_reader_during_collection() -> None:
    """Catches: a reader that gets anything but the checkpoint's state, or the error that it was collected."""
    outcomes = set()
    calls, position = 1, 0
    while position < calls:
        storage, plan = SharedMemory(), FaultPlan({})
        job = small_job(storage, retained=4, inline_bytes=0)
        coordinator = job.open()
        for number in range(4):
            job.feed("ann", f"word-{number}")
        reader = CheckpointReader.open(storage, 2)
        expected = job.models[reader.manifest.id]["ann"][0]
        coordinator.retention._retained = 1
        coordinator._storage = coordinator.retention._storage = FaultyStorage(storage, plan)
        gate = Gate()
        plan.hold(gate, nth=position + 1)
        collector = Thread(coordinator.collect)
        assert gate.reached.wait(PATIENCE)
        try:
            assert reader.get(OPERATOR, COUNT, "ann").value() == expected
            outcomes.add("read")
        except CheckpointCollectedError:
            outcomes.add("collected")
        gate.opened.set()
        collector.join()
        calls = len(plan.calls)
        position += 1
    assert calls > 10
    assert "read" in outcomes and outcomes <= {"read", "collected"}  # which, depends on who was faster


@pytest.mark.parametrize("collect_in_between", [True, False])
@pytest.mark.reliability(11)
def test_a_commit_of_unknown_outcome_that_was_made(collect_in_between: bool) -> None:
    """Catches: files of a checkpoint that its own writer does not know of taken for garbage."""
    storage, plan = SharedMemory(), FaultPlan({})
    job = small_job(FaultyStorage(storage, plan), slot_storage=storage, inline_bytes=0, retained=3)
    coordinator = job.open()
    for number in range(3):
        job.feed("ann", f"word-{number}")
    for nth in range(1, 6):
        plan.fail(errno.EIO, operation="create_if_absent", path="manifest", when="after", nth=nth)
    with pytest.raises(EmberstateError):
        job.feed("lost")
    made = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
    assert made.number == coordinator.latest.number + 1
    model = job.models[made.id] = COUNTING.after(job.model, 3, ["lost"])
    if collect_in_between:
        coordinator.collect()
        job.check_all(storage)
    found = coordinator.begin(3, query=job.query, source="3")
    assert isinstance(found, Redelivery) and found.manifest.id == made.id
    job.model = model
    for number in range(8):
        job.feed("ann", f"more-{number}")
        job.check_all(storage)
    coordinator.collect()  # what the attempt wrote that was not needed
    assert unreferenced(storage) == []


@pytest.mark.reliability(11)
def test_a_commit_that_lands_late() -> None:
    """Catches: files of a commit that is still on its way collected before it arrives."""

    class Slow(FaultyStorage):
        """A storage in which manifests are on their way for a long time."""

        late: bytes | None = None
        is_slow = False

        def create_if_absent(self, path: str, data: bytes) -> bool:
            if path.endswith("/manifest") and self.is_slow:
                self.late = data
                raise StorageOutcomeUnknownError(errno.EIO, f"creating {path}: no reply")
            return super().create_if_absent(path, data)

    for inline_bytes in (0, 1 << 20):
        storage = SharedMemory()
        slow = Slow(storage, FaultPlan({}))
        job = small_job(slow, slot_storage=storage, inline_bytes=inline_bytes)
        coordinator = job.open()
        for number in range(3):
            job.feed("ann", f"word-{number}")
        slow.is_slow = True
        with pytest.raises(StorageOutcomeUnknownError):
            job.feed("late")
        coordinator.collect()
        assert slow.late is not None
        storage.write_new(manifest_path(coordinator.latest.number + 1), slow.late)
        made = read_checkpoint(storage, coordinator.latest.number + 1)
        job.models[made.id] = COUNTING.after(job.model, 3, ["late"])
        job.check_all(storage)
        slow.is_slow = False
        job.open()
        assert "late" in job.model
        job.check_all(storage)


# -- real processes -------------------------------------------------------------------------------------------

CHILD = """
import sys
from emberstate.testing.faults import FaultyStorage
from emberstate.storage.local import LocalStorage
from tests.checkpoint.counting import small_job

job = small_job(FaultyStorage(LocalStorage(sys.argv[1])), slot_storage=LocalStorage(sys.argv[1]), retained=1)
job.open()
"""


@pytest.mark.reliability(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "after-create_if_absent",
        pytest.param("before-delete", marks=pytest.mark.long),
        pytest.param("after-list", marks=pytest.mark.long),
    ],
)
def test_a_kill_at_every_call_of_a_collection(tmp_path: Path, point: str) -> None:
    """Catches: a collector whose death leaves a checkpoint without its files, or garbage for good."""
    job: Job
    survived = killed = 0
    nth = 0
    while not survived:
        nth += 1
        root = tmp_path / str(nth)
        storage = LocalStorage(root)
        job = small_job(storage, retained=3, inline_bytes=0, parallelism=1)
        job.open()
        for number in range(2):
            job.feed("ann", f"word-{number}")
        job.close()
        storage.write_new("state/000001/0123456789ab.arrow", b"stray")
        code = run_child(root, f"{point}:{nth}")
        survived, killed = survived + (code == 0), killed + (code == -signal.SIGKILL)
        assert code in (0, -signal.SIGKILL)
        learned(job, storage)
        job.check_all(storage)
        job.open()
        job.check_all(storage)
        assert unreferenced(storage) == []
        assert list((root / ".tmp").iterdir()) == []
        job.close()
    assert killed >= 3


def run_child(root: Path, point: str) -> int:
    repository = Path(__file__).parents[3]
    environment = {**os.environ, KILL_POINT: point, "PYTHONPATH": f"{repository / 'src'}:{repository}"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root)], env=environment, timeout=PATIENCE, capture_output=True, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode


def learned(job: Job, storage: Storage) -> None:
    """Openings of the child hold what they were opened from."""
    for number in checkpoint_numbers(storage):
        manifest: Manifest = read_checkpoint(storage, number)
        if manifest.parent is not None and manifest.id not in job.models:
            job.models[manifest.id] = job.models[manifest.parent.id]
