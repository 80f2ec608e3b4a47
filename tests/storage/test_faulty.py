"""The test double itself: a fault that does not happen makes every test that relies on it worthless."""

from __future__ import annotations

import errno
import gc
import random
import threading
import time
from pathlib import Path

import pytest

from emberstate.errors import StorageError
from emberstate.storage.interface import StorageOutcomeUnknownError
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, Gate, SimulatedKill
from emberstate.testing.faulty_file_system import FaultyFileSystem
from tests.checkpoint.threads import Thread
from tests.patience import PATIENCE
from tests.raising import raising


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(MemoryStorage(), FaultPlan({}))


@pytest.mark.reliability(8)
def test_errors_before_the_effect(storage: FaultyStorage) -> None:
    """Catches: an injected error that comes too late, at another call, more than once, or not as ours."""
    storage.plan.fail(errno.ENOSPC, operation="write_new", path=r"chk/", nth=2)
    storage.write_new("other/1", b"x")
    storage.write_new("chk/1", b"x")
    with raising(StorageError, path="chk/2", errno=errno.ENOSPC) as caught:
        storage.write_new("chk/2", b"x")
    assert type(caught.value) is StorageError
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
    assert gate.reached.wait(PATIENCE)
    storage.write_new("fast", b"x")
    assert storage.list() == ["fast"]
    gate.opened.set()
    thread.join(PATIENCE)
    assert storage.list() == ["fast", "slow"]
    storage.plan.hold(Gate(seconds=0.01), operation="read")
    with raising(StorageError, path="slow", errno=errno.ETIMEDOUT):
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


def test_a_disk_that_threads_share(tmp_path: Path) -> None:
    """Catches: a name added to the record while another thread goes through it; a write that the record misses."""
    disk = FaultyFileSystem(tmp_path / "root", FaultPlan({}))
    storage = LocalStorage(tmp_path / "root", file_system=disk)
    together = threading.Barrier(4)

    def write(writer: int) -> None:
        together.wait(PATIENCE)
        for number in range(20):
            storage.write_new(f"state/{writer}-{number}", f"{writer} {number}".encode())

    def change_places(*_: object) -> None:
        time.sleep(1e-5)  # another thread's turn

    threshold = gc.get_threshold()
    gc.callbacks.append(change_places)
    gc.set_threshold(20)  # in the middle of everything: whatever allocates may collect
    try:
        for thread in [Thread(lambda writer=writer: write(writer)) for writer in range(4)]:  # type: ignore[misc]
            thread.join()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(change_places)
    disk.crash(tmp_path / "left", random.Random(1), "lost")
    left = {path.name: path.read_text() for path in (tmp_path / "left" / "state").iterdir()}
    assert left == {f"{writer}-{number}": f"{writer} {number}" for writer in range(4) for number in range(20)}


def test_a_file_that_was_removed_keeps_its_bytes(tmp_path: Path) -> None:
    """Catches: a name whose removal a power loss undoes, and which then has the bytes of a later file: inodes are
    used again."""
    disk = FaultyFileSystem(tmp_path / "root", FaultPlan({}))
    storage = LocalStorage(tmp_path / "root", file_system=disk)
    storage.write_new("old/1", b"first")
    disk.unlink(tmp_path / "root" / "old" / "1")
    for number in range(20):
        storage.write_new(f"new/{number}", b"later")
    disk.crash(tmp_path / "left", random.Random(1), "lost")
    assert (tmp_path / "left" / "old" / "1").read_bytes() == b"first"
