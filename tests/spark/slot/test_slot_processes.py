"""The processes of slots: how they start, what ends them, and that killing them costs time and nothing else."""

from __future__ import annotations

import os
import random
import secrets
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from emberstate.errors import SlotError
from emberstate.spark.slot.process_watch import ProcessId, ProcessWatch
from tests.patience import PATIENCE
from tests.raising import raising
from tests.spark.slot.slot_job import Rows, Sums, batch_of
from tests.spark.slot.slot_world import Say, World, heard, is_bound, open_world, slot_pids, wait_for_end
from tests.spark.spark_session import wait_for


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of the test's own."""
    with open_world(tmp_path) as world:
        yield world


# -- kills ------------------------------------------------------------------------------------------------------


@pytest.mark.reliability(2)
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_a_worker_killed_while_it_streams_leaves_nothing(world: World, kind: str) -> None:
    """Catches: half an input taken for a whole one, a slot that waits for a dead worker or dies with it."""
    job, sums = world.job(kind), Sums()
    rows: Rows = [("a", 1, ""), ("b", 2, "")]
    assert job.run(rows)[1] == sums.add(rows)
    pid = world.pid(job)
    for _ in range(3):
        request = job.request(job.begin())

        def stream(say: Say) -> None:
            def batches() -> Iterator[pa.RecordBatch]:
                yield batch_of([("a", 1000, "")] * 100)
                say("has sent")
                signal.pause()

            job.send(request, batches())  # noqa: B023

        worker, words = world.fork(stream)
        assert heard(words) == "has sent"
        world.kill(worker)
        answer, found = job.run(rows)
        assert found == sums.add(rows)
        assert answer.start in ("hot", "promoted", "rolled back") and world.pid(job) == pid


@pytest.mark.reliability(1)
@pytest.mark.reliability(2)
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_slots_killed_at_any_moment_are_restored_exactly(world: World, kind: str) -> None:
    """Catches: a batch lost or doubled by a slot's death, before, during and after its rows."""
    seed = secrets.randbits(32)
    rng = random.Random(seed)
    job, sums = world.job(kind), Sums()
    job.run([])
    for number in range(4):
        batches = [[(rng.choice("abc"), rng.randrange(9), "")] * 20 for _ in range(3)]
        at, pid = (number - 1, world.pid(job)) if number < 3 else (0, 0)
        timer = threading.Timer(rng.random() / 50, lambda: world.kill(world.pid(job)))

        def rows() -> Iterator[pa.RecordBatch]:
            for position, rows in enumerate(batches):  # noqa: B023
                if position == at and pid:  # noqa: B023
                    world.kill(pid)  # noqa: B023
                yield batch_of(rows)

        if at < 0:
            world.kill(pid)  # between two tasks: the next one starts another, and nobody notices
        if not pid:
            timer.start()  # whenever it falls
        while True:
            transaction = job.begin()
            try:
                answer = job.send(job.request(transaction), rows())
                break
            except SlotError as error:
                assert at >= 0 and "Nothing is lost" in str(error), f"seed {seed}"
                pid = 0
        if timer.is_alive():
            timer.join()
        assert job.commit(transaction, answer) == sums.add(*batches), f"seed {seed}"
    assert job.run([("d", 1, "")])[1] == sums.add([("d", 1, "")])


def test_a_slot_that_dies_of_a_row_says_so(world: World) -> None:
    """Catches: a crash in a library that looks like a lost connection."""
    job = world.job()
    job.run([("a", 1, "")])
    pid = world.pid(job)
    with raising(SlotError, f"process {pid} .*SIGKILL", batch=1):
        job.attempted([("a", 1, "die")])
    assert job.run([("a", 2, "")])[1] == {"a": 3}


# -- starting ---------------------------------------------------------------------------------------------------


@pytest.mark.reliability(13)
def test_workers_that_race_get_one_process(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Catches: two processes for one slot, or a worker that fails since another was faster."""
    job = world.job()
    transaction = job.begin()
    gate, opened = os.pipe()
    requests = [job.request(transaction) for _ in range(4)]

    def race(number: int, say: Say) -> None:
        os.close(opened)
        os.read(gate, 1)  # until all are there
        try:
            say(job.send(requests[number], iter([batch_of([("a", 1, "")])])).start)
        except SlotError:
            say("refused")

    words = [world.fork(lambda say, number=number: race(number, say))[1] for number in range(4)]  # type: ignore[misc]
    os.close(gate)
    os.close(opened)
    outcomes = [heard(one) for one in words]
    assert set(outcomes) <= {"restored", "rolled back", "hot", "refused"}
    assert outcomes[3] != "refused", "the latest attempt is the one that is wanted"
    assert capfd.readouterr().err.count("Started as process") == 1
    assert job.run([("a", 1, "")])[1] == {"a": 1}


def test_secrets_are_not_seen_and_names_are(world: World) -> None:
    """Catches: a token in the arguments or the environment, and a process that ps cannot tell from others."""
    job = world.job()
    job.run([("a", 1, "")])
    proc = Path(f"/proc/{world.pid(job)}")
    arguments = (proc / "cmdline").read_bytes().decode().split("\0")
    assert arguments[-7:-1] == ["--job", job.name, "--operator", "sums", "--slot", "0"]
    for file in ("cmdline", "environ"):
        assert job.token.encode() not in (proc / file).read_bytes()
    assert os.getpgid(world.pid(job)) == os.getpgid(0), "Spark ends the group"


# -- ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["executor", "daemon"])
def test_a_slot_ends_with_its_executor_and_with_pysparks_daemon(world: World, victim: str) -> None:
    """Catches: slots that outlive Spark, with their memory."""
    executor, jvm, daemon = world.stand_in()
    job = world.job("rocksdb", executor=executor)
    job.run([("a", 1, "")])
    pid = world.pid(job)
    (jvm if victim == "executor" else daemon).kill()
    wait_for_end(pid)
    assert not is_bound(job.address)


def test_an_idle_slot_ends_and_the_next_batch_starts_another(world: World) -> None:
    """Catches: slots of jobs that are over, kept for ever; and a task that meets one which is about to end."""
    job = world.job("rocksdb", idle_seconds=1.0)
    for number in range(1, 4):
        answer, rows = job.run([("a", 1, "")])
        assert rows == {"a": number} and (number > 1 or answer.start == "restored")
        if number != 2:  # once it is waited for, once not
            for pid in slot_pids(job.name):
                wait_for_end(pid)
            assert slot_pids(job.name) == [] and not is_bound(job.address)


def test_signals_end_a_slot_cleanly(world: World) -> None:
    """Catches: local files left behind, Ctrl-C that ends slots, and a batch lost to an end in between."""
    job = world.job("rocksdb")
    job.run([("a", 1, "")])
    pid = world.pid(job)
    os.kill(pid, signal.SIGINT)
    assert job.run([("a", 1, "")])[0].start == "promoted" and world.pid(job) == pid
    for number, total in ((signal.SIGTERM, 3), (signal.SIGHUP, 4)):
        os.kill(world.pid(job), number)
        wait_for_end(pid)
        assert not [*world.root.rglob("emberstate-rocksdb-*")]
        assert job.run([("a", 1, "")])[1] == {"a": total}
        pid = world.pid(job)


@pytest.mark.parametrize("how", ["SIGTERM", "a later attempt"])
def test_a_function_that_never_returns_holds_neither_process_nor_batch(world: World, how: str) -> None:
    """Catches: a slot that nothing ends but SIGKILL, and a retry that waits for ever behind what it retries."""
    job = world.job(stuck_seconds=0.1)
    job.run([("a", 1, "")])
    pid = world.pid(job)
    request = job.request(job.begin())
    hangs = world.root / "hangs"
    outcome: list[str] = []

    def run() -> None:
        try:
            job.send(request, iter([batch_of([("a", 1, f"hang at {hangs}")])]))
        except SlotError:
            outcome.append("died")

    thread = threading.Thread(target=run, daemon=True)  # does not hold a run that failed
    thread.start()
    wait_for(hangs.exists, "the function")
    if how == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
        wait_for_end(pid)
    assert job.run([("a", 2, "")])[1] == {"a": 3}
    thread.join(PATIENCE)
    assert outcome == ["died"]
    wait_for_end(pid)


def test_a_child_of_the_users_keeps_nothing_of_its_slot(world: World) -> None:
    """Catches: a task that never hears of its slot's death, and a name that stays taken, since a fork has both."""
    job = world.job()
    job.run([("a", 1, "")])
    pid = world.pid(job)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of([("a", 1, "fork")])
        while len(slot_pids(job.name)) < 2:  # until it was processed
            pass
        world.kill(pid)

    with pytest.raises(SlotError):
        job.send(job.request(job.begin()), batches())
    (child,) = slot_pids(job.name)
    answer, rows = job.run([("a", 2, "")])
    assert rows == {"a": 3} and answer.start == "restored"
    world.kill(child)


def test_a_pid_that_was_used_again_is_not_the_process() -> None:
    """Catches: a slot that lives on since some other process has got the pid of its executor."""
    me = ProcessId.of(os.getpid())
    assert me is not None
    other = ProcessId(me.pid, me.started - 1)
    watch = ProcessWatch([me, other, ProcessId(2**22 + 1, 0)])
    assert watch.gone == [other, ProcessId(2**22 + 1, 0)] and len(watch.descriptors) == 1
    watch.close()
