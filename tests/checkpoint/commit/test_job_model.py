"""Random histories of a job, on both state backends at once, beside a model in plain Python.

Transactions are committed, failed and run again, at any parallelism; coordinators are restarted with the slots
they had or with new ones; slots are lost; time passes, backwards too; the storage fails at any call, or the
process does. Whatever happens, state is what the model says after exactly the batches that were committed.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend
from emberstate.checkpoint.commit.coordinator import Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.clock import ManualClock
from emberstate.errors import StorageError
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.checkpoint.driver import Job
from tests.checkpoint.profiles import (
    AUDIT,
    KEYS,
    OPERATIONS,
    POLICY,
    SECOND,
    Audit,
    Model,
    Profiles,
    ProfilesFunction,
    Row,
)
from tests.checkpoint.stored import UnsyncedFileSystem
from tests.effort import examples

TRIES = 12
FAULTS = st.tuples(
    st.sampled_from([errno.ENOSPC, errno.EIO, errno.EMFILE]), st.integers(1, 6), st.sampled_from(["before", "after"])
)
Step = Row | int  # a row, or the time up to which timers fire


class FaultyFsStateBackend(FsStateBackend):
    """`FsStateBackend` on a disk that fails as planned."""

    plan = FaultPlan({})

    def open_storage(self) -> Storage:
        return FaultyStorage(LocalStorage(self.uri, file_system=UnsyncedFileSystem()), self.plan)


class FaultyMemoryStateBackend(MemoryStateBackend):
    """`MemoryStateBackend` whose coordinator's storage fails as planned."""

    plan = FaultPlan({})

    def open_storage(self) -> Storage:
        return FaultyStorage(super().open_storage(), self.plan)


class SteppedJob(Job):
    """A job whose batches are run step by step; when the storage fails, a batch is run again up to where it was."""

    def __init__(self, backend: FaultyFsStateBackend | FaultyMemoryStateBackend, clock: ManualClock) -> None:
        super().__init__(backend, Profiles(0), Audit(), policy=POLICY, clock=clock)
        self.faulty = backend
        self.faulty.plan = FaultPlan({})
        self.batch = 0
        self.begun: Transaction | None = None

    def start_batch(self) -> bool:
        """Begin the batch, in all slots; whether it is not a redelivery."""
        if self.opened is None:
            self.storage = self.backend.open_storage()
            self.open(keep_slots=True)
        begun = self.coordinator.begin(self.batch, query=self.query, source=f"rows of {self.batch}")
        if isinstance(begun, Redelivery):
            return False
        self.begun = begun
        for task in begun.tasks:
            self.start(task)
        return True

    def started(self) -> list[tuple[SlotTask, SlotCheckpoint]]:
        """The tasks of the batch and their slots."""
        assert self.begun is not None
        return [(task, self.slot(task.slot, task.operator)) for task in self.begun.tasks]

    def do(self, step: Step) -> list[str]:
        """One step of the batch; what goes out."""
        out: list[str] = []
        for task, slot in self.started():
            if task.operator == AUDIT:
                self.works[AUDIT].process(slot.backend, task, [] if isinstance(step, int) else [step])
            elif isinstance(step, int):
                out += ProfilesFunction(slot.backend).fire(step)
            elif self.work.owns(slot.backend, step[0]):
                out += ProfilesFunction(slot.backend).process(step)
        return sorted(out)

    def prepare_slots(self) -> list[Acknowledgement]:
        """Let all slots prepare."""
        return [slot.prepare() for _, slot in self.started()]

    def end_batch(self) -> None:
        """Commit the batch."""
        assert self.begun is not None
        self.coordinator.commit(self.begun, self.prepare_slots())
        self.ended()

    def ended(self) -> None:
        self.begun = None
        self.batch += 1

    def roll_back(self) -> None:
        self.begun = None
        super().roll_back()

    def die(self, *, keep_slots: bool = False) -> None:
        """The coordinator is gone, and the slots unless they are kept."""
        self.opened = self.begun = None
        if not keep_slots:
            self.close()

    def insist(self, steps: list[Step], then: Callable[[], None]) -> None:
        """Do something in the batch under way; when the storage fails, run the batch again up to here."""
        for _ in range(TRIES):
            try:
                if self.begun is None:
                    if not self.start_batch():
                        self.ended()  # the commit that raised was made
                        return
                    for step in steps:
                        self.do(step)
                then()
                return
            except StorageError:
                self.roll_back()
        raise AssertionError("the storage failed once and the job for ever")


class JobMachine(RuleBasedStateMachine):
    """Both jobs and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(SECOND)
        disk = FaultyFsStateBackend(self.folder.name + "/job")
        self.jobs = [SteppedJob(disk, self.clock), SteppedJob(FaultyMemoryStateBackend(), self.clock)]
        self.committed = Model()
        self.working = Model()
        self.steps: list[Step] = []
        self.now = 0  # of the batch under way
        self.committed_at = -(10**18)  # of the last commit
        self.under_way = False

    @initialize(parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> None:
        for job in self.jobs:
            job.parallelism = parallelism

    # -- inside a batch --------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.under_way:
            return
        times = set()
        for job in self.jobs:
            job.insist([], lambda: None)
            assert job.begun is not None
            times.add(job.begun.batch.processing_time)
        if not self.fixed:
            self.now = max(self.clock.now_micros(), self.committed_at)  # it never goes back
        assert times == {self.now}, "a batch that runs again sees another time"
        self.fixed = True
        self.under_way = True

    fixed = False  # whether the batch's time was fixed by an earlier run

    def step(self, step: Step) -> None:
        self.begin()
        expected = self.working.fire(step) if isinstance(step, int) else self.working.process(step, self.now)
        for job in self.jobs:
            steps = list(self.steps)
            found: list[str] = []
            job.insist(steps, lambda job=job, found=found: found.extend(job.do(step)))  # type: ignore[misc]
            assert found == sorted(expected)
        self.steps.append(step)

    @rule(
        key=st.sampled_from(KEYS[:6]),
        operation=st.sampled_from([name for name in OPERATIONS if name not in ("log", "timer", "untimer")]),
        argument=st.integers(0, 50),
    )
    def change(self, key: str, operation: str, argument: int) -> None:
        self.step((key, operation, argument))

    @rule(key=st.sampled_from(KEYS[:6]), text=st.text(max_size=5))
    def append(self, key: str, text: str) -> None:
        self.step((key, "log", text))

    @rule(key=st.sampled_from(KEYS[:6]), operation=st.sampled_from(["timer", "untimer"]), time=st.integers(0, 9))
    def timer(self, key: str, operation: str, time: int) -> None:
        self.step((key, operation, time * SECOND))

    @rule(until=st.integers(0, 9))
    def fire(self, until: int) -> None:
        self.step(until * SECOND)

    @rule(seconds=st.integers(-2, 5))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)

    @precondition(lambda self: self.under_way)
    @rule()
    def look(self) -> None:
        """Hot state is the model's."""
        for job in self.jobs:
            assert job.content() == self.working.content(self.now)

    # -- ends of a batch -------------------------------------------------------------------------------------

    @rule(fault=st.none() | FAULTS)
    def commit(self, fault: tuple[int, int, Any] | None = None) -> None:
        """Commit, perhaps with a fault at one of the calls that do it."""
        self.begin()
        for job in self.jobs:
            before = job.batch
            if fault is not None:
                number, nth, when = fault
                job.faulty.plan.fail(number, nth=nth, when=when)
            job.insist(self.steps, job.end_batch)
            assert job.batch == before + 1
        self.accept()

    def accept(self) -> None:
        self.committed, self.committed_at = self.working.copy(), self.now
        self.steps, self.under_way, self.fixed = [], False, False

    @precondition(lambda self: self.under_way)
    @rule(prepared=st.booleans())
    def fail(self, prepared: bool) -> None:
        """The batch fails, before or after its slots have prepared, and comes again with other rows."""
        for job in self.jobs:
            if prepared:
                with contextlib.suppress(StorageError):
                    job.prepare_slots()
            job.roll_back()
        self.abandon()

    def abandon(self) -> None:
        self.working = self.committed.copy()
        self.steps, self.under_way = [], False

    # -- what befalls a job ----------------------------------------------------------------------------------

    @rule(parallelism=st.integers(1, 3), hot=st.booleans())
    def restart(self, parallelism: int, hot: bool) -> None:
        """The coordinator starts again; the slots are still there, with what they were doing, or not."""
        for job in self.jobs:
            job.die(keep_slots=hot)
            job.parallelism = parallelism
        self.abandon()

    @rule()
    def lose_slots(self) -> None:
        for job in self.jobs:
            job.begun = None
            job.close()
        self.abandon()

    @rule(fault=FAULTS)
    def storage_fails(self, fault: tuple[int, int, Any]) -> None:
        """Some call from here on fails, once."""
        number, nth, when = fault
        for job in self.jobs:
            job.faulty.plan.fail(number, nth=nth, when=when)

    @rule(nth=st.integers(1, 6), when=st.sampled_from(["before", "after"]), parallelism=st.integers(1, 3))
    def die_in_commit(self, nth: int, when: Any, parallelism: int) -> None:
        """The process dies while it commits, or just after, and another goes on from what it left."""
        self.begin()
        for job in self.jobs:
            job.insist(self.steps, lambda: None)
            batch = job.batch
            job.faulty.plan.fail(SimulatedKill(), nth=nth, when=when)
            with contextlib.suppress(SimulatedKill, StorageError):
                job.end_batch()
            job.faulty.plan = FaultPlan({})
            job.die()
            job.parallelism = parallelism
            job.storage = job.backend.open_storage()
            made = job.open().latest.batch
            if made is not None and made.id == batch:
                job.batch = batch + 1
            else:
                assert job.batch == batch, "a commit that was acknowledged is not there"
                job.insist(self.steps, job.end_batch)
        self.accept()

    @precondition(lambda self: not self.under_way and self.jobs[0].opened is not None)
    @rule()
    def read_back(self) -> None:
        """What is stored is what was committed, exactly."""
        for job in self.jobs:
            if job.opened is not None and job.opened.latest.batch is not None:
                storage = job.backend.open_storage()
                assert isinstance(storage, FaultyStorage)
                content = job.stored(storage.inner, job.opened.latest)
                assert content == self.committed.content(self.committed_at)

    def teardown(self) -> None:
        for job in self.jobs:
            job.faulty.plan = FaultPlan({})
            job.roll_back()
        self.abandon()
        self.commit()
        self.read_back()
        for job in self.jobs:
            job.close()
        self.folder.cleanup()


TestJobModel = pytest.mark.reliability(19)(JobMachine.TestCase)
TestJobModel.settings = hypothesis.settings(
    max_examples=examples(20), stateful_step_count=25, suppress_health_check=list(hypothesis.HealthCheck)
)
