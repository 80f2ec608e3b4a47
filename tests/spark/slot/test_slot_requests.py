"""Requests to slots that live: what they answer, in which order they are served, and who is refused."""

from __future__ import annotations

import dataclasses
import os
import random
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from emberstate.errors import FencedError, RowTypeError, SlotError
from emberstate.runtime.rows.times import MAX_TIME
from emberstate.spark.slot import client as slot_client
from emberstate.spark.slot.address import address_of, peer_of
from emberstate.spark.slot.frames import ConnectionEndedError, FrameType, receive_frame, send_frame
from emberstate.spark.slot.messages import HELLO_SIZE, Hello, SlotAnswer, SlotEnd, SlotFailure
from emberstate.spark.slot.spawn import spawn
from tests.patience import PATIENCE
from tests.raising import raising
from tests.spark.slot.slot_functions import Both, Noting
from tests.spark.slot.slot_job import SCHEMA, Job, Rows, Sums, acknowledgements, batch_of, stream_of
from tests.spark.slot.slot_world import Say, World, heard, is_bound, open_world, wait_for_end
from tests.spark.spark_session import wait_for


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of the test's own."""
    with open_world(tmp_path) as world:
        yield world


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job whose slot is hot, for tests that leave it so."""
    with open_world(tmp_path_factory.mktemp("shared")) as world:
        job = world.job()
        job.run([("a", 1, "")])
        yield job


def random_rows(rng: random.Random, most: int = 60) -> Rows:
    return [(rng.choice("abcdefgh"), rng.randrange(-9, 10), rng.choice(["", "x"])) for _ in range(rng.randrange(most))]


@pytest.mark.parametrize("kind", ["fs", "rocksdb", "memory"])
def test_batches_on_hot_state_are_exact(world: World, kind: str) -> None:
    """Catches: rows lost or doubled on the way, state that does not stay, a program sent again and again."""
    seed = secrets.randbits(32)
    rng = random.Random(seed)
    job, sums = world.job(kind), Sums()
    pids = set()
    for number in range(8):
        batches = [random_rows(rng) for _ in range(rng.randrange(4))]
        answer, rows = job.run(*batches)
        assert rows == sums.add(*batches), f"seed {seed}"
        assert answer.start == ("promoted" if number else "restored")
        pids.add(world.pid(job))
    assert len(pids) == job.programs == 1
    assert {"start", "transport", "user", "state", "prepare", "output", "gc", "total"} <= answer.micros.keys()
    assert answer.statistics["prepared"] == 8 and answer.statistics["rss_bytes"] > 1 << 20


def test_an_attempt_that_nobody_commits_leaves_nothing(world: World) -> None:
    """Catches: a speculative or lost attempt whose changes show in the next, and a function that remembers it."""
    job = world.job()
    job.run([("a", 1, "")])
    assert job.attempted([("a", 10, "")]).start == "promoted"
    answer, rows = job.run([("a", 100, "calls")])
    assert answer.start == "rolled back" and rows == {"a": 101, "calls": 1}


def test_a_large_batch_passes_a_small_socket_buffer(world: World) -> None:
    """Catches: a batch that is larger than what a socket holds, cut, mixed up or stuck."""
    job = world.job()
    rows = [(f"key {number % 7}", number, "x" * 100) for number in range(40_000)]
    _, found = job.run(rows, rows)
    assert found == Sums().add(rows, rows)


def test_broadcast_rows_come_first_and_the_end_of_time_last(world: World) -> None:
    """Catches: broadcast rows behind keyed ones, a broadcast state that is not acknowledged, timers left at the end."""
    job = world.job(function=Noting())
    notes = stream_of([pa.record_batch({"note": ["one", "two"]}), pa.record_batch({"note": ["three"]})])
    answer, rows = job.run([("a", 0, "")], broadcast_rows=notes)
    assert rows == {"a": 3} and len(answer.acknowledgements) == 2
    _, rows = job.run([("a", 0, "")], end_watermark=MAX_TIME)
    assert rows == {"a": 6, "a at the end": 6}


@pytest.mark.reliability(28)
def test_null_keys_are_dropped_and_counted_or_refused(world: World) -> None:
    """Catches: a null key that is taken for a key, or is dropped in silence."""
    rows: Rows = [(None, 1, ""), ("a", 2, ""), (None, 4, "")]
    job = world.job(drop_null_keys=True)
    answer, found = job.run(rows, [(None, 8, "")])
    assert found == {"a": 2}
    assert acknowledgements(answer)[0].counts["null_keys"] == 3
    job.drop_null_keys = False
    job.open()
    with raising(RowTypeError, column="key", batch=1):
        job.attempted(rows)


def test_null_keys_of_two_inputs(world: World) -> None:
    """Catches: the absent row of the other input, which is null as a whole, taken for a null key."""
    job = world.job(function=Both(), drop_null_keys=True)
    struct = pa.struct(SCHEMA)

    def row(key: str | None, value: int) -> dict[str, object]:
        return {"key": key, "value": value, "command": ""}

    batch = pa.record_batch(
        {
            "__input": pa.array([0, 1, 0, 1], pa.int32()),
            "__row0": pa.array([row("a", 5), None, row(None, 1), None], struct),
            "__row1": pa.array([None, row("a", 2), None, row(None, 1)], struct),
        }
    )
    transaction = job.begin()
    answer = job.send(job.request(transaction), iter([batch]))
    assert job.commit(transaction, answer) == {"a": 3}
    assert acknowledgements(answer)[0].counts["null_keys"] == 2


@pytest.mark.parametrize("cut", ["in a batch", "after a batch", "before END", "END tells of more"])
def test_a_stream_without_its_end_is_not_answered(shared: Job, cut: str) -> None:
    """Catches: the rows that came before a worker died, taken for all rows and acknowledged."""
    job = shared
    request = job.request(job.begin())
    with socket.socket(socket.AF_UNIX) as task:
        task.connect(job.address)
        task.sendall(Hello.of(job.token, request).to_bytes())
        assert receive_frame(task)[0] is FrameType.WELCOME
        send_frame(task, FrameType.REQUEST, request.to_bytes())
        assert receive_frame(task)[0] is FrameType.GO
        content = stream_of([batch_of([("a", 1, "x" * 100)] * 10)])
        task.sendall(content[: {"in a batch": -300, "after a batch": -8}.get(cut, len(content))])
        if cut == "END tells of more":
            send_frame(task, FrameType.END, SlotEnd(2, 20).to_bytes())
            kind, payload = receive_frame(task)
            assert kind is FrameType.FAILURE and SlotFailure.from_bytes(payload).error == "InvariantError"
        else:
            task.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionEndedError):
                receive_frame(task)
    assert job.attempted([("a", 1, "")]).start == "hot", "it was rolled back at once"


# -- order ------------------------------------------------------------------------------------------------------


class Streaming:
    """A task whose rows stop after the first batch until it is told to go on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.request = job.request(job.begin())
        self.started, self.go_on = threading.Event(), threading.Event()
        self.outcome: SlotAnswer | Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)  # does not hold a run that failed
        self._thread.start()
        assert self.started.wait(PATIENCE)

    def _run(self) -> None:
        try:
            self.outcome = self.job.send(self.request, self._batches())
        except Exception as error:
            self.outcome = error
        self.started.set()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield batch_of([("a", 1000, "")] * 50)
        self.started.set()
        self.go_on.wait(PATIENCE)
        yield batch_of([("a", 1000, "")] * 50)

    def ended(self) -> SlotAnswer | Exception | None:
        """Let it go on, to its end."""
        self.go_on.set()
        self._thread.join(PATIENCE)
        return self.outcome


@pytest.mark.reliability(12)
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_a_later_attempt_takes_over_from_one_that_streams(world: World, kind: str) -> None:
    """Catches: a retry that waits for a task which Spark has given up, or that sees its changes."""
    job = world.job(kind)
    job.run([("a", 1, "")])
    zombie = Streaming(job)
    _, rows = job.run([("a", 2, "")])
    assert rows == {"a": 3}
    outcome = zombie.ended()
    assert isinstance(outcome, SlotError) and "task attempt 3 for batch 1 has taken over" in str(outcome)
    assert job.run([("a", 4, "")])[1] == {"a": 7}


@pytest.mark.reliability(12)
def test_an_older_or_equal_attempt_is_refused_and_disturbs_nobody(world: World) -> None:
    """Catches: a zombie task that rolls back or takes the place of the attempt that is wanted."""
    job = world.job()
    job.run([("a", 1, "")])
    wanted = Streaming(job)
    older = job.request(job.begin(), task_attempt=1)
    equal = job.request(job.begin(), task_attempt=wanted.request.task_attempt)
    for request in (older, equal):
        with pytest.raises(SlotError) as caught:
            job.send(request, iter([batch_of([("a", 1, "")])]))
        assert (caught.value.operator, caught.value.slot, caught.value.batch) == ("sums", 0, 1)
    answer = wanted.ended()
    assert isinstance(answer, SlotAnswer)
    assert job.commit(job.begin(), answer) == {"a": 100_001}


@pytest.mark.reliability(12)
@pytest.mark.reliability(13)
def test_a_later_incarnation_gets_a_new_process_and_an_older_one_is_fenced(world: World) -> None:
    """Catches: changed modules of the user's that stay imported, and a job that two starts drive in turns."""
    job = world.job()
    job.run([("a", 1, "")])
    first, old = world.pid(job), job.coordinator.holder.incarnation
    zombie = Streaming(job)
    job.open()
    answer, rows = job.run([("a", 2, "")])
    assert answer.start == "restored" and rows == {"a": 3}
    wait_for_end(first)
    outcome = zombie.ended()
    assert isinstance(outcome, SlotError) and f"superseded by incarnation {old + 1}" in str(outcome)
    assert world.pid(job) != first
    with raising(FencedError, f"incarnation {old + 1} .* incarnation {old}", slot=0, batch=2):
        job.attempted([("a", 4, "")], incarnation=old)
    assert job.run([("a", 8, "")])[1] == {"a": 11}


# -- who is refused ---------------------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_and_changes_nothing(world: World) -> None:
    """Catches: a process that drives a slot, ends it by a later incarnation, or holds it up by saying nothing."""
    job = world.job()
    job.run([("a", 1, "")])
    pid = world.pid(job)
    wanted = Streaming(job)
    for changes in ({}, {"incarnation": 99}):
        request = job.request(job.begin(), **changes)
        with socket.socket(socket.AF_UNIX) as guessing:  # by somebody who has seen the name
            guessing.connect(job.address)
            guessing.sendall(Hello.of("guessed", request).to_bytes())
            kind, payload = receive_frame(guessing)
        failure = SlotFailure.from_bytes(payload)
        assert (kind, failure.error) == (FrameType.FAILURE, "SlotError")
        assert "does not have the token" in failure.message
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as babbling:
        silent.connect(job.address)
        silent.sendall(b"EMB")
        babbling.connect(job.address)
        babbling.sendall(b"x" * HELLO_SIZE)
        kind, payload = receive_frame(babbling)
        assert kind is FrameType.FAILURE and SlotFailure.from_bytes(payload).error == "SlotError"
    answer = wanted.ended()
    assert isinstance(answer, SlotAnswer)
    assert job.commit(job.begin(), answer) == {"a": 100_001} and world.pid(job) == pid


def test_a_name_cannot_be_guessed(world: World) -> None:
    """Catches: a user of the host who binds the name of a slot before it is started, and has the job refused."""
    job = world.job()
    name = job.address
    assert job.token.encode() not in name
    for token in ("", "guessed"):
        with socket.socket(socket.AF_UNIX) as squatter:
            squatter.bind(address_of(dataclasses.replace(job.slot_id, token=token), job.executor))
            assert job.run([("a", 1, "")])[0].start in ("restored", "promoted")
    assert job.address == name and is_bound(name), "whoever has the token finds it again"


def test_a_name_that_is_held_and_never_answers_is_passed_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a job that is refused for as long as somebody holds a name, without even listening there."""
    job = world.job()
    incarnation = job.coordinator.holder.incarnation
    started = spawn(job.slot_id, address_of(job.slot_id, job.executor, 1), job.executor, incarnation)
    assert started is not None
    wait_for(lambda: _listens(address_of(job.slot_id, job.executor, 1)), "the slot")
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(job.address)
        monkeypatch.setattr(slot_client, "START_SECONDS", 0.5)
        assert job.run([("a", 1, "")])[1] == {"a": 1}
        assert world.pid(job) == started.pid
    os.kill(started.pid, signal.SIGTERM)
    started.fate(PATIENCE)  # no zombie
    started.close()


def _listens(address: bytes) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(address) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_is_refused_on_both_sides(world: World) -> None:
    """Catches: a slot that serves whoever finds its name; a task that sends its rows to whoever holds it, or is
    refused for as long as somebody does who saw the name and took it when the slot had ended."""
    job, other = world.job(), world.job()
    job.run([("a", 1, "")])
    address, others = job.address, other.address  # of this user

    def intrude(say: Say) -> None:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as intruder:
            intruder.connect(address)
            kind, payload = receive_frame(intruder)
            say(f"{kind.name} {SlotFailure.from_bytes(payload).message}")

    _, words = world.fork(intrude)
    assert heard(words) == "FAILURE request refused: the slot belongs to user 0, the caller is 65534"

    def squat(say: Say) -> None:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as squatter:
            squatter.bind(others)
            squatter.listen()
            say("listens")
            for _ in range(2):
                connection, _ = squatter.accept()
                say(f"{peer_of(connection)[1]} {connection.recv(100)!r}")

    squatter, words = world.fork(squat)
    assert heard(words) == "listens"
    for total in (1, 2):  # one slot, by its second name
        assert other.run([("a", 1, "")])[1] == {"a": total}
        assert heard(words) == "0 b''"
    assert world.pid(other)
    world.kill(squatter)
    assert other.run([("a", 1, "")])[1] == {"a": 3}, "the first name is free again, and another slot has it"
