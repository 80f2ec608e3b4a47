"""Random histories of a job, on both state backends at once, beside a model in plain Python.

Transactions are committed, failed and run again, at any parallelism; coordinators are restarted with the slots
they had or with new ones; slots are lost; time passes, backwards too; the storage fails at any call, or the
process does. Whatever happens, state is what the model says after exactly the batches that were committed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, StateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import ManualClock
from emberstate.errors import StorageError
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.checkpoint.job import (
    AUDIT,
    DECLARE,
    KEYS,
    MAX_PARALLELISM,
    OPERATIONS,
    POLICY,
    PROFILES,
    QUERY,
    SCHEMA,
    SECOND,
    Content,
    Model,
    ProfilesFunction,
    Row,
    UnsyncedFileSystem,
    content_of,
    owned,
    read_content,
    run_audit,
)
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


class World:
    """A job on one state backend."""

    def __init__(self, backend: FaultyFsStateBackend | FaultyMemoryStateBackend, clock: ManualClock) -> None:
        self.backend: StateBackend = backend
        self.faulty = backend
        self.clock = clock
        self.parallelism = 1
        self.batch = 0
        self.slots: dict[tuple[str, int], SlotCheckpoint] = {}
        self.coordinator: CheckpointCoordinator | None = None
        self.begun: Transaction | None = None
        self.started: dict[str, list[tuple[SlotCheckpoint, SlotTask]]] = {}

    # -- what a runner does ----------------------------------------------------------------------------------

    def open(self) -> CheckpointCoordinator:
        specs = [
            OperatorSpec(name=name, key_schema=SCHEMA, parallelism=count, max_parallelism=MAX_PARALLELISM)
            for name, count in ((PROFILES, self.parallelism), (AUDIT, 1))
        ]
        self.coordinator = CheckpointCoordinator.open(
            self.backend.open_storage(), "job", specs, clock=self.clock, policy=POLICY
        )
        return self.coordinator

    def begin(self) -> Transaction | Redelivery:
        """Begin the batch, in all slots."""
        coordinator = self.open() if self.coordinator is None else self.coordinator
        begun = coordinator.begin(self.batch, query=QUERY, source=f"rows of {self.batch}")
        if isinstance(begun, Transaction):
            self.begun = begun
            self.started = {PROFILES: [], AUDIT: []}
            for task in begun.tasks:
                slot = self.slot(task.operator, task.slot)
                slot.start(task)
                slot.backend.ttl_clock.processing_time = task.batch.processing_time
                self.started[task.operator].append((slot, task))
        return begun

    def do(self, step: Step) -> list[str]:
        """One step of the batch; what goes out."""
        out: list[str] = []
        for slot, task in self.started[PROFILES]:
            function = ProfilesFunction(slot.backend)
            if isinstance(step, int):
                out += function.fire(step)
            elif owned(task, step[0]):
                out += function.process(step)
        if not isinstance(step, int):
            for slot, task in self.started[AUDIT]:
                run_audit(slot, task, [step])
        return sorted(out)

    def commit(self) -> None:
        assert self.begun is not None and self.coordinator is not None
        acknowledgements = [slot.prepare() for slots in self.started.values() for slot, _ in slots]
        self.coordinator.commit(self.begun, acknowledgements)
        self.ended()

    def ended(self) -> None:
        self.begun = None
        self.batch += 1

    def roll_back(self) -> None:
        self.begun = None
        for slot in self.slots.values():
            slot.roll_back()

    def slot(self, operator: str, number: int) -> SlotCheckpoint:
        if (operator, number) not in self.slots:
            self.slots[operator, number] = self.backend.make_slot(
                SCHEMA, DECLARE[operator], max_parallelism=MAX_PARALLELISM, policy=POLICY
            )
        return self.slots[operator, number]

    def lose_slots(self) -> None:
        for slot in self.slots.values():
            slot.close()
        self.slots.clear()

    # -- through failures ------------------------------------------------------------------------------------

    def insist(self, steps: list[Step], then: Callable[[], None]) -> None:
        """Do something in the batch under way; when the storage fails, run the batch again up to here."""
        for _ in range(TRIES):
            try:
                if self.begun is None:
                    if isinstance(self.begin(), Redelivery):
                        self.ended()  # the commit that raised was made
                        return
                    for step in steps:
                        self.do(step)
                then()
                return
            except StorageError:
                self.roll_back()
        raise AssertionError("the storage failed once and the job for ever")

    def content(self, now: int) -> Content:
        """What the slots hold."""
        found: Content = {}
        for operator, slots in self.started.items():
            for slot, _ in slots:
                slot.backend.check_invariants()
                found |= content_of(slot.backend, operator, now)
        return found


class JobMachine(RuleBasedStateMachine):
    """Both worlds and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(SECOND)
        disk = FaultyFsStateBackend(self.folder.name + "/job")
        self.worlds = [World(disk, self.clock), World(FaultyMemoryStateBackend(), self.clock)]
        for world in self.worlds:
            world.faulty.plan = FaultPlan({})
        self.committed = Model()
        self.working = Model()
        self.steps: list[Step] = []
        self.now = 0  # of the batch under way
        self.committed_at = -(10**18)  # of the last commit
        self.under_way = False

    @initialize(parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> None:
        for world in self.worlds:
            world.parallelism = parallelism

    # -- inside a batch --------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.under_way:
            return
        times = set()
        for world in self.worlds:
            world.insist([], lambda: None)
            assert world.begun is not None
            times.add(world.begun.batch.processing_time)
        if not self.fixed:
            self.now = max(self.clock.now_micros(), self.committed_at)  # it never goes back
        assert times == {self.now}, "a batch that runs again sees another time"
        self.fixed = True
        self.under_way = True

    fixed = False  # whether the batch's time was fixed by an earlier run

    def step(self, step: Step) -> None:
        self.begin()
        expected = self.working.fire(step) if isinstance(step, int) else self.working.process(step, self.now)
        for world in self.worlds:
            steps = list(self.steps)
            found: list[str] = []
            world.insist(steps, lambda world=world, found=found: found.extend(world.do(step)))  # type: ignore[misc]
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
        for world in self.worlds:
            assert world.content(self.now) == self.working.content(self.now)

    # -- ends of a batch -------------------------------------------------------------------------------------

    @rule(fault=st.none() | FAULTS)
    def commit(self, fault: tuple[int, int, Any] | None = None) -> None:
        """Commit, perhaps with a fault at one of the calls that do it."""
        self.begin()
        for world in self.worlds:
            before = world.batch
            if fault is not None:
                number, nth, when = fault
                world.faulty.plan.fail(number, nth=nth, when=when)
            world.insist(self.steps, world.commit)
            assert world.batch == before + 1
        self.accept()

    def accept(self) -> None:
        self.committed, self.committed_at = self.working.copy(), self.now
        self.steps, self.under_way, self.fixed = [], False, False

    @precondition(lambda self: self.under_way)
    @rule(prepared=st.booleans())
    def fail(self, prepared: bool) -> None:
        """The batch fails, before or after its slots have prepared, and comes again with other rows."""
        for world in self.worlds:
            if prepared:
                with contextlib.suppress(StorageError):
                    for slot, _ in itertools.chain(*world.started.values()):
                        slot.prepare()
            world.roll_back()
        self.abandon()

    def abandon(self) -> None:
        self.working = self.committed.copy()
        self.steps, self.under_way = [], False

    # -- what befalls a job ----------------------------------------------------------------------------------

    @rule(parallelism=st.integers(1, 3), hot=st.booleans())
    def restart(self, parallelism: int, hot: bool) -> None:
        """The coordinator starts again; the slots are still there, with what they were doing, or not."""
        for world in self.worlds:
            world.coordinator = world.begun = None
            world.parallelism = parallelism
            if not hot:
                world.lose_slots()
        self.abandon()

    @rule()
    def lose_slots(self) -> None:
        for world in self.worlds:
            world.begun = None
            world.lose_slots()
        self.abandon()

    @rule(fault=FAULTS)
    def storage_fails(self, fault: tuple[int, int, Any]) -> None:
        """Some call from here on fails, once."""
        number, nth, when = fault
        for world in self.worlds:
            world.faulty.plan.fail(number, nth=nth, when=when)

    @rule(nth=st.integers(1, 6), when=st.sampled_from(["before", "after"]), parallelism=st.integers(1, 3))
    def die_in_commit(self, nth: int, when: Any, parallelism: int) -> None:
        """The process dies while it commits, or just after, and another goes on from what it left."""
        self.begin()
        for world in self.worlds:
            world.insist(self.steps, lambda: None)
            batch = world.batch
            world.faulty.plan.fail(SimulatedKill(), nth=nth, when=when)
            with contextlib.suppress(SimulatedKill, StorageError):
                world.commit()
            world.faulty.plan = FaultPlan({})
            world.lose_slots()
            world.coordinator = world.begun = None
            world.parallelism = parallelism
            made = world.open().latest.batch
            if made is not None and made.id == batch:
                world.batch = batch + 1
            else:
                assert world.batch == batch, "a commit that was acknowledged is not there"
                world.insist(self.steps, world.commit)
        self.accept()

    @precondition(lambda self: not self.under_way and self.worlds[0].coordinator is not None)
    @rule()
    def read_back(self) -> None:
        """What is stored is what was committed, exactly."""
        for world in self.worlds:
            coordinator = world.coordinator
            if coordinator is not None and coordinator.latest.batch is not None:
                storage = world.backend.open_storage()
                assert isinstance(storage, FaultyStorage)
                content = read_content(storage.inner, coordinator.latest)
                assert content == self.committed.content(self.committed_at)

    def teardown(self) -> None:
        for world in self.worlds:
            world.faulty.plan = FaultPlan({})
            world.roll_back()
        self.abandon()
        self.commit()
        self.read_back()
        for world in self.worlds:
            world.lose_slots()
        self.folder.cleanup()


TestJobModel = pytest.mark.reliability(19)(JobMachine.TestCase)
TestJobModel.settings = hypothesis.settings(
    max_examples=examples(20), stateful_step_count=25, suppress_health_check=list(hypothesis.HealthCheck)
)
