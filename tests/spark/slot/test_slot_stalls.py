"""Slots that do not go on: stopped, or stuck in a call. They are ended by whoever waits for them, and no others are."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from emberstate.errors import SlotError
from emberstate.spark.slot.peer import SlotPeer
from emberstate.spark.slot.progress import ProgressPage, read_progress
from emberstate.spark.slot.watch import StalledError, WatchedConnection
from tests.raising import raising
from tests.spark.slot.slot_job import batch_of
from tests.spark.slot.slot_world import Say, World, heard, open_world, wait_for_end
from tests.spark.spark_session import wait_for

LIMIT = 300.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of the test's own."""
    with open_world(tmp_path) as world:
        yield world


class TimeWhile:
    """A clock that goes on only while something is so, and then by more than any slot may be without progress."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        self.condition = condition
        self.now = 0.0

    def __call__(self) -> float:
        if self.condition():
            self.now += 2 * LIMIT
        return self.now


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# -- before WELCOME ---------------------------------------------------------------------------------------------


def test_a_stopped_slot_is_ended_by_a_worker_that_did_not_start_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: tasks that wait for ever, or fail again and again, since only a worker that is gone may end the slot."""
    job = world.job()
    request = job.request(job.begin())

    def start(say: Say) -> None:
        say(job.send(request, iter([batch_of([("a", 1, "")])])).start)

    _, words = world.fork(start)
    assert heard(words) == "restored"
    pid = world.pid(job)
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: is_stopped(pid), "its stop")
    job.clock = TimeWhile(lambda: is_stopped(pid))
    answer, rows = job.run([("a", 2, "")])
    assert rows == {"a": 2} and answer.start == "restored", "the same task goes on in another slot"
    wait_for_end(pid)
    assert world.pid(job) != pid
    assert f"process {pid}, state T (stopped)) made no progress for 300 s and was killed" in caplog.text
    assert "What it was doing: it has not answered" in caplog.text


# -- after GO ---------------------------------------------------------------------------------------------------


def test_a_slot_that_is_stopped_among_its_rows_is_ended_and_the_batch_is_exact(world: World) -> None:
    """Catches: a task that waits for ever for a process that is stopped."""
    job = world.job()
    job.run([("a", 1, "")])
    pid = world.pid(job)
    job.clock = TimeWhile(lambda: is_stopped(pid))

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of([("a", 10, "")])
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(pid), "its stop")

    with raising(SlotError, r"state T \(stopped\)", slot=0, batch=1) as caught:
        job.send(job.request(job.begin()), batches())
    assert (caught.value.operator, caught.value.slot, caught.value.batch) == ("sums", 0, 1)
    wait_for_end(pid)
    answer, rows = job.run([("a", 10, "")])
    assert rows == {"a": 11} and answer.start == "restored"


@pytest.mark.parametrize("more", [0, 200_000], ids=["waiting for the answer", "sending rows"])
def test_a_call_that_never_returns_is_told_and_ended(world: World, more: int) -> None:
    """Catches: a stuck function that holds its task for ever, at any point of the stream; a message that does not say
    which row it was, and where in the function."""
    job = world.job()
    job.run([("a", 1, "")])
    pid, hangs = world.pid(job), world.root / "hangs"
    job.clock = TimeWhile(lambda: hangs.exists() and lives(pid) and told(pid))
    rows = [("a", 1, ""), ("b", 2, f"hang at {hangs}"), ("c", 3, "")]
    batches = [batch_of(rows), *([batch_of([("d", 1, "x" * 100)] * more)] if more else [])]
    with pytest.raises(SlotError) as caught:
        job.send(job.request(job.begin()), iter(batches))
    text = str(caught.value)
    for part in (
        f"process {pid}, state ",
        "made no progress for 300 s and was killed",
        "batch 1: handling rows",
        "at row 2 of 3, key 'b'",
        "in process_element (slot_functions.py:",
        "give the pipeline a longer slot_stall",
    ):
        assert part in text
    wait_for_end(pid)
    assert job.run([("a", 1, ""), ("b", 2, "")])[1] == {"a": 2, "b": 2}


def page_of(pid: int) -> int:
    """What a slot says of itself, opened here."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it closes the connection of its last task meanwhile
            if "emberstate-slot-progress" in str(entry.readlink()):
                return os.open(entry, os.O_RDONLY)
    raise AssertionError("it has no page")


def told(pid: int) -> bool:
    """Whether a slot has said where it hangs, and not only where it was before."""
    page = page_of(pid)
    try:
        progress, calls = read_progress(page)
        return "at row 2 of 3" in progress and calls.startswith("process_element ")
    finally:
        os.close(page)


def test_a_slow_function_that_goes_forward_is_never_ended(world: World) -> None:
    """Catches: a limit on how long a batch takes, and progress that is counted by record batch, not by row."""
    job = world.job()
    job.run([("a", 1, "")])
    steps = [world.root / f"step {number}" for number in range(6)]
    page = page_of(world.pid(job))

    class ARowAtATime:
        """Almost the limit passes for every row; the next may go when the slot has said that it is there."""

        def __init__(self) -> None:
            self.now, self.passed = 0.0, 0

        def __call__(self) -> float:
            if f"at row {self.passed + 1} of {len(steps)}" in read_progress(page)[0]:
                self.now += 0.9 * LIMIT
                steps[self.passed].touch()
                self.passed += 1
            return self.now

    clock = job.clock = ARowAtATime()
    assert job.run([("a", 1, f"wait for {step}") for step in steps])[1] == {"a": 7}
    assert clock.now > 5 * LIMIT and clock.passed == len(steps)
    os.close(page)


# -- the parts --------------------------------------------------------------------------------------------------


def test_time_counts_only_without_progress_and_only_while_it_is_waited() -> None:
    """Catches: a limit that counts from the start of the task, or time that the task itself takes to get its rows."""
    here, there = socket.socketpair()
    page = ProgressPage(lambda: progress)
    progress, now = "0 rows", 0.0
    looks = 0

    def clock() -> float:
        nonlocal looks, now, progress
        looks += 1
        if looks in (2, 3, 4):  # of the wait; it goes forward, slowly
            now += 0.9 * LIMIT
            progress = f"{looks} rows"
            page.update()
        if looks == 4:
            there.send(b"x")
        return now

    class Nobody:
        def close(self) -> None:
            pass

    connection = WatchedConnection(here, Nobody(), LIMIT, clock)  # type: ignore[arg-type]
    socket.send_fds(there, [b"w"], [page.descriptor])
    memory = memoryview(bytearray(1))
    assert connection.recv_into(memory) == 1 and memory.tobytes() == b"w"
    now += 10 * LIMIT  # the task's own
    assert connection.recv_into(memory) == 1 and memory.tobytes() == b"x" and looks >= 4
    looks = 10
    connection._clock = TimeWhile(lambda: True)
    with pytest.raises(StalledError, match="4 rows"):
        connection.recv_into(memory)
    connection.close()
    there.close()
    os.close(page.descriptor)


def test_only_the_slots_own_process_is_ended(world: World) -> None:
    """Catches: some other process that listens there, or has got the pid since, killed in the slot's place."""
    job, other = world.job(), world.job()
    job.run([("a", 1, "")])
    pid = world.pid(job)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(job.address)
        wrong = SlotPeer(connection, other.slot_id)
        assert (wrong.pid, wrong.uid) == (pid, os.getuid()) and not wrong.kill()
        right = SlotPeer(connection, job.slot_id)
    with socket.socketpair()[0] as mine:
        assert not SlotPeer(mine, job.slot_id).kill(), "this process is no slot"
    assert job.run([("a", 1, "")])[1] == {"a": 2}
    assert right.kill()
    wait_for_end(pid)
    assert right.kill(), "a second time does nothing"
    right.close()
    wrong.close()
