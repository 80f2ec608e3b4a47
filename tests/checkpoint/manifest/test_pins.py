"""Pins: a checkpoint that was pinned is not collected; one that could not be pinned says so."""

from __future__ import annotations

import os
import socket

import pytest

from emberstate.checkpoint.commit.retention import Retention
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.layout import PINS
from emberstate.checkpoint.manifest.pins import Pin, pin, pins
from emberstate.clock import ManualClock
from emberstate.errors import CheckpointCollectedError, StateDeclarationError, StorageError
from emberstate.storage.interface import Storage
from emberstate.storage.memory import MemoryStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.checkpoint.counting import small_job
from tests.checkpoint.driver import Job
from tests.checkpoint.interleaving import Process, every_interleaving
from tests.checkpoint.stored import SharedMemory, unreferenced
from tests.raising import raising


def job_with(commits: int, retained: int = 1) -> Job:
    job = small_job(SharedMemory(), retained=retained)
    job.open()
    for number in range(commits):
        job.feed("ann", f"word-{number}")
    return job


def test_a_pinned_checkpoint_stays_until_it_is_released() -> None:
    """Catches: collecting what is pinned, by commits or at a start; keeping it after it was released."""
    job = job_with(2)
    storage = job.storage
    with pin(storage, 3, "an export") as held:
        for number in range(6):
            job.feed("bob", f"more-{number}")
            assert checkpoint_numbers(storage) == [3, number + 4]
            job.check_all(storage)
        job.open()
        job.feed("bob")
        assert checkpoint_numbers(storage) == [3, 11]
        job.check_all(storage)
    held.release()  # once more, for nothing
    job.feed("bob")
    job.feed("bob")
    assert checkpoint_numbers(storage) == [13]
    assert unreferenced(storage) == []
    assert storage.list(PINS) == []


def test_two_pins_of_one_checkpoint() -> None:
    """Catches: the first release setting free what the second still holds."""
    job = job_with(2)
    one, other = pin(job.storage, 3, "one"), pin(job.storage, 3, "other")
    job.feed("bob")
    one.release()
    job.feed("bob")
    assert 3 in checkpoint_numbers(job.storage)
    other.release()
    job.open()
    assert 3 not in checkpoint_numbers(job.storage)


def test_pins_say_whose_they_are() -> None:
    """Catches: a pin that nobody can judge or release by hand."""
    job = job_with(1)
    storage = job.storage
    pin(storage, 2, "nightly export", clock=ManualClock(1_700_000_000_000_000))
    (found,) = pins(storage)
    assert found.record is not None
    assert (found.number, found.record.host, found.record.pid) == (2, socket.gethostname(), os.getpid())
    assert (found.record.reason, found.record.created) == ("nightly export", "2023-11-14T22:13:20+00:00")
    assert "nightly export" in repr(found)
    found.release()
    assert pins(storage) == []


def test_a_pin_that_cannot_be_read_holds_all_the_same() -> None:
    """Catches: a torn pin taken for none."""
    job = job_with(2)
    path = "pins/000000000003-0123"
    job.storage.write_new(path, b"torn")
    job.feed("bob")
    job.feed("bob")
    assert 3 in checkpoint_numbers(job.storage)
    (found,) = pins(job.storage)
    assert (found.number, found.record) == (3, None)
    assert "cannot be read" in repr(found)
    found.release()
    job.open()
    assert 3 not in checkpoint_numbers(job.storage)


@pytest.mark.parametrize("reason", ["", "x" * 201, "line\nbreak", None])
def test_a_pin_has_a_reason(reason: str) -> None:
    """Catches: a pin that nobody dares to release."""
    job = job_with(1)
    with raising(StateDeclarationError, option="reason", found=reason):
        pin(job.storage, 2, reason)
    assert pins(job.storage) == []


def test_what_is_not_there_cannot_be_pinned() -> None:
    """Catches: a pin of nothing, which would be believed, or left behind."""
    job = job_with(3)
    for number in (1, 99):
        with raising(CheckpointCollectedError, checkpoint=number):
            pin(job.storage, number, "late")
    assert pins(job.storage) == []


def test_every_interleaving_of_pinner_and_collector() -> None:
    """Catches: a checkpoint collected under a pin that was granted; a pin or mark left by one that was not."""
    outcomes: dict[tuple[bool, bool], int] = {}
    storage: Storage = MemoryStorage()

    def start() -> tuple[Process, Process]:
        nonlocal storage
        job = job_with(2, retained=2)
        storage = job.storage
        holder = job.coordinator.holder

        def collect(faulty: Storage) -> object:
            return Retention(faulty, holder, 1).collect(frozenset())

        matter = "^(condemned|pins|.*/manifest$)"
        return (
            Process(storage, matter, lambda faulty: pin(faulty, 2, "reading")),
            Process(storage, matter, collect),
        )

    for schedule, pinner, collector in every_interleaving(start):
        granted = pinner.end(CheckpointCollectedError)
        collector.end()
        there = 2 in checkpoint_numbers(storage)
        outcomes[granted is not None, there] = outcomes.get((granted is not None, there), 0) + 1
        assert storage.list("condemned") == [], schedule
        if granted is None:
            assert storage.list("pins") == [], schedule
            if there:  # both saw each other: the next attempt has it
                granted = pin(storage, 2, "again")
        if granted is not None:
            assert isinstance(granted, Pin)
            assert verify(storage, read_checkpoint(storage, 2)).problems == (), schedule
    assert sum(outcomes.values()) > 50, outcomes
    assert outcomes.keys() == {(True, True), (False, False), (False, True)}, outcomes


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pinner_that_dies_at_any_call(when: str) -> None:
    """Catches: a collector that is confused by half a pin."""
    for operation in ("write_new", "list", "size"):
        job = job_with(2)
        plan = FaultPlan({})
        plan.kill_at(f"{when}-{operation}")
        with pytest.raises(SimulatedKill):
            pin(FaultyStorage(job.storage, plan), 3, "dying")
        job.feed("bob")
        held = bool(pins(job.storage))
        assert held is not (operation == "write_new" and when == "before")
        assert (3 in checkpoint_numbers(job.storage)) is held
        for left in pins(job.storage):
            left.release()
        job.open()
        assert 3 not in checkpoint_numbers(job.storage)


@pytest.mark.parametrize("operation", ["list", "size"])
def test_a_pinner_whose_storage_fails(operation: str) -> None:
    """Catches: a pin left behind by one who was told that it failed."""
    job = job_with(2)
    plan = FaultPlan({})
    plan.fail(5, operation=operation)
    with pytest.raises(StorageError):
        pin(FaultyStorage(job.storage, plan), 3, "failing")
    assert pins(job.storage) == []
