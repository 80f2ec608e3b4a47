"""The test double itself: a fault that does not happen makes every test that relies on it worthless."""

from __future__ import annotations

import errno
import threading

import pytest

from emberstate.checkpoint.faulty_storage import FaultPlan, FaultyStorage, Gate, SimulatedKill
from emberstate.checkpoint.memory_storage import MemoryStorage
from emberstate.checkpoint.storage import StorageOutcomeUnknownError
from emberstate.errors import StorageError


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(MemoryStorage(), FaultPlan({}))


@pytest.mark.reliability(8)
def test_errors_before_the_effect(storage: FaultyStorage) -> None:
    """Catches: an injected error that comes too late, at another call, more than once, or not as ours."""
    storage.plan.fail(errno.ENOSPC, operation="write_new", path=r"chk/", nth=2)
    storage.write_new("other/1", b"x")
    storage.write_new("chk/1", b"x")
    with pytest.raises(StorageError, match="Free space") as caught:
        storage.write_new("chk/2", b"x")
    assert type(caught.value) is StorageError and caught.value.errno == errno.ENOSPC
    assert storage.list() == ["chk/1", "other/1"]
    storage.write_new("chk/2", b"x")


def test_any_call_and_for_ever(storage: FaultyStorage) -> None:
    """Catches: a rule for the n-th call of any kind that counts per kind, or that stops too early."""
    storage.plan.fail(errno.EIO, nth=3, forever=True)
    storage.write_new("a", b"x")
    assert storage.read("a") == b"x"
    for call in (storage.list, lambda: storage.read("a"), lambda: storage.delete("a")):
        with pytest.raises(StorageError):
            call()
    called = [operation for operation, _ in storage.plan.calls]
    assert called == ["write_new", "read", "list", "read", "delete"]
    assert storage.inner.list() == ["a"]


@pytest.mark.reliability(11)
def test_a_lost_reply(storage: FaultyStorage) -> None:
    """Catches: a lost reply without the effect, or reported as a plain failure."""
    storage.plan.fail(errno.ETIMEDOUT, operation="create_if_absent", when="after")
    with pytest.raises(StorageOutcomeUnknownError) as caught:
        storage.create_if_absent("manifest", b"mine")
    assert caught.value.errno == errno.ETIMEDOUT
    assert storage.create_if_absent("manifest", b"mine") is True
    assert storage.create_if_absent("manifest", b"yours") is False


@pytest.mark.reliability(4)
def test_a_torn_write(storage: FaultyStorage) -> None:
    """Catches: a torn write that leaves everything or nothing."""
    storage.plan.tear(3, operation="write_new")
    storage.plan.tear(2, operation="create_if_absent")
    with pytest.raises(StorageError):
        storage.write_new("a", [b"01", b"2345"])
    with pytest.raises(StorageError):
        storage.create_if_absent("b", b"abcdef")
    assert (storage.read("a"), storage.read("b")) == (b"012", b"ab")


@pytest.mark.reliability(10)
def test_a_held_call(storage: FaultyStorage) -> None:
    """Catches: a gate that does not hold, or holds the calls of others too."""
    gate = Gate()
    storage.plan.hold(gate, operation="write_new", path="slow")
    thread = threading.Thread(target=lambda: storage.write_new("slow", b"x"))
    thread.start()
    assert gate.reached.wait(60)
    storage.write_new("fast", b"x")
    assert storage.list() == ["fast"]
    gate.opened.set()
    thread.join(60)
    assert storage.list() == ["fast", "slow"]
    storage.plan.hold(Gate(seconds=0.01), operation="read")
    with pytest.raises(StorageError, match="nobody opened the gate"):
        storage.read("slow")


@pytest.mark.reliability(2)
@pytest.mark.parametrize("point", ["before-write_new", "after-write_new"])
def test_a_killed_process_does_nothing_more(storage: FaultyStorage, point: str) -> None:
    """Catches: clean-up code that runs after a simulated kill, which a real one would never let run."""
    storage.write_new("old", b"x")
    storage.plan.kill_at(point, path="new")
    with pytest.raises(SimulatedKill):
        storage.write_new("new", b"x")
    for call in (lambda: storage.delete("old"), lambda: storage.write_new("more", b"x"), storage.list):
        with pytest.raises(SimulatedKill):
            call()
    assert storage.inner.list() == (["old"] if point == "before-write_new" else ["new", "old"])


def test_deleting_fails_half_way(storage: FaultyStorage) -> None:
    """Catches: a collection of garbage that can only be failed as a whole."""
    for name in "abc":
        storage.write_new(name, b"x")
    storage.plan.fail(errno.EIO, operation="delete", nth=2)
    with pytest.raises(StorageError):
        storage.delete_all(["a", "b", "c"])
    assert storage.list() == ["b", "c"]
