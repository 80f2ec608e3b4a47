"""The backends that users choose: whole jobs on each, through pickles, processes and object storage."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, StateBackend
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, verify
from emberstate.errors import FencedError, Place, StateDeclarationError, StorageError
from emberstate.state.descriptors import ValueStateDescriptor
from tests.checkpoint.counting import COUNTING, GROUPS, KEYS, counting_job, expected_after
from tests.checkpoint.driver import Job
from tests.checkpoint.states import States, put
from tests.checkpoint.work import Content
from tests.raising import raising
from tests.storage.s3_server import BUCKET, S3Server, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def run_with_rescaling(backend: StateBackend, batches: int, *parallelisms: int) -> Job:
    """The job at several parallelisms, one after the other; the last is left open."""
    done = 0
    for parallelism in parallelisms:
        job = counting_job(backend, parallelism)
        assert job.next_batch == done
        job.run(batches)
        done += batches
        assert job.content() == expected_after(done)
        job.close()
    job = counting_job(backend, 2)
    assert job.restored() == expected_after(done)
    job.run(1)
    return job


# -- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.reliability(21)
def test_a_job_in_memory() -> None:
    """Catches: checkpoints in memory that lose or double state on the way through tasks."""
    job = run_with_rescaling(MemoryStateBackend(), 14, 1, 3, 1)
    assert max(len(chain.files) for chain in job.coordinator.latest.operators[0].slots) <= 13
    assert verify(job.storage, job.coordinator.latest).problems == ()
    job.close()


BIG = ValueStateDescriptor("big", bytes)
SMALL = ValueStateDescriptor("small", int)


def big_job() -> Job:
    """A job whose states may have 100,000 bytes."""
    job = Job(MemoryStateBackend(max_state_size=100_000), States(BIG, SMALL))
    job.open()
    return job


def write(job: Job, values: dict[str, bytes]) -> None:
    """Commit a batch that writes values, and their lengths."""
    rows: list[Any] = [(key, put(BIG, value)) for key, value in values.items()]
    job.feed(*rows, *((key, put(SMALL, len(value))) for key, value in values.items()))


TOO_LARGE: Place = {"operator": "op", "slot": 0, "state": "big", "option": "max_state_size", "expected": 100_000}


def test_a_state_larger_than_memory_takes_is_named() -> None:
    """Catches: a driver that runs out of memory; an error that leaves open which state, or what to do."""
    job = big_job()
    write(job, {"a": b"x" * 60_000})
    with raising(StorageError, "FsStateBackend", **TOO_LARGE):
        write(job, {"b": b"y" * 60_000})
    write(job, {"b": b"y" * 30_000})  # the batch is run again, with less
    with raising(StorageError, "FsStateBackend", **TOO_LARGE):
        write(job, {f"k{i}": b"z" * 100 for i in range(500)})
    write(job, {"a": b"x"})
    write(job, {"c": b"x" * 60_000})  # superseded bytes do not count


def test_the_limit_counts_bytes_before_compression() -> None:
    """Catches: zeros that compress to nothing and fill the memory once they are restored."""
    job = big_job()
    with raising(StorageError, "FsStateBackend", **TOO_LARGE):
        write(job, {"a": bytes(200_000)})
    write(job, {"a": bytes(90_000)})
    for _ in range(30):  # a chain of rewrites of one value: never more than one of them counts
        write(job, {"a": bytes(90_000)})


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "5 MB", None])
def test_a_limit_that_is_none(size: Any) -> None:
    """Catches: a limit that is never reached, or always."""
    with raising(StateDeclarationError, option="max_state_size", found=size):
        MemoryStateBackend(size)


def run_in_slot(backend: bytes, task: bytes) -> tuple[bytes, Content]:
    """A slot in a process of its own: what it acknowledges and holds."""
    slot = pickle.loads(backend).make_slot(KEYS, COUNTING.declare, max_parallelism=GROUPS)
    found = SlotTask.from_bytes(task)
    slot.start(found)
    COUNTING.apply(slot.backend, found.batch.id, COUNTING.rows(found.batch.id))
    return slot.prepare().to_bytes(), COUNTING.content(slot.backend)


def test_slots_in_other_processes_are_served_through_their_tasks() -> None:
    """Catches: a backend whose checkpoints do not travel, and slots that look for them where they are."""
    backend = MemoryStateBackend(max_state_size=1234567)
    job = counting_job(backend, 2)
    job.run(5)
    copy = pickle.loads(pickle.dumps(backend))
    assert repr(copy) == repr(backend) == "MemoryStateBackend(max_state_size=1234567)"
    assert copy.open_storage().list() == [] and copy.open_slot_storage() is None
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        for batch in (5, 6):
            transaction = job.begin(batch)
            done = [pool.submit(run_in_slot, pickle.dumps(backend), task.to_bytes()) for task in transaction.tasks]
            results = [future.result(120) for future in done]
            assert {**results[0][1], **results[1][1]} == expected_after(batch + 1)
            job.coordinator.commit(transaction, [Acknowledgement.from_bytes(data) for data, _ in results])
    assert job.restored() == expected_after(7)
    job.close()


# -- files --------------------------------------------------------------------------------------------------------


@pytest.mark.reliability(21)
@pytest.mark.reliability(30)
@pytest.mark.parametrize("name", ["plain", "with blanks and ünïcödé ключ", "a:b", "50%20off", "#1?x=y"])
def test_a_job_in_files(name: str, tmp_path: Path) -> None:
    """Catches: a location with an odd name that is written to one place and looked for in another."""
    place = tmp_path / name
    backend = pickle.loads(pickle.dumps(FsStateBackend(place if ":" in name else str(place))))
    job = run_with_rescaling(backend, 2, 1, 3, 8, 1) if name == "plain" else counting_job(backend, 2)
    job.run(2)
    job.close()
    assert checkpoint_numbers(FsStateBackend(place).open_storage()) and place.is_dir()
    again = counting_job(FsStateBackend(place), 1)
    assert again.restored() == expected_after(again.next_batch)
    again.close()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_file_uri_and_a_path_are_the_same_place(tmp_path: Path) -> None:
    """Catches: a job that starts anew because its location is written differently."""
    place = tmp_path / "with blanks é"
    job = counting_job(FsStateBackend(place.as_uri()))
    job.run(2)
    job.close()
    assert "%20" in place.as_uri()
    for uri in (place, str(place), f"file://localhost{place.as_uri()[7:]}"):
        again = counting_job(FsStateBackend(uri))
        assert again.next_batch == 2 and again.restored() == expected_after(2)
        again.close()


def test_locations_that_no_slot_reaches() -> None:
    """Catches: a backend that seems to work until a slot looks for its state."""
    with raising(StateDeclarationError, "MemoryStateBackend", option="uri", found="memory://"):
        FsStateBackend("memory://")
    with raising(StorageError, option="uri", found="gs://bucket/x"):
        FsStateBackend("gs://bucket/x")


# -- S3 -----------------------------------------------------------------------------------------------------------


def s3(server: S3Server, name: str) -> FsStateBackend:
    return FsStateBackend(f"s3://{BUCKET}/{name}", client_options=server.client_options())


@pytest.mark.reliability(11)
@pytest.mark.reliability(21)
def test_a_job_in_s3(server: S3Server) -> None:
    """Catches: a whole job, with rescaling, that object storage serves otherwise than files do."""
    backend = pickle.loads(pickle.dumps(s3(server, "whole job/é")))
    job = run_with_rescaling(backend, 1, 1, 3)
    job.slot(0)._inline_bytes = job.slot(1)._inline_bytes = 0
    manifest = job.run(2)
    assert {ref.path.split("/")[0] for ref in manifest.file_refs()} >= {"state", "output"}
    assert verify(job.storage, manifest).problems == ()
    assert job.content() == job.restored() == expected_after(5)
    job.close()


@pytest.mark.reliability(11)
@pytest.mark.reliability(13)
def test_fencing_in_s3(server: S3Server) -> None:
    """Catches: two drivers that both commit to one bucket."""
    backend = s3(server, "fencing")
    old = counting_job(backend)
    old.run(2)
    transaction = old.begin()
    acknowledgements = old.prepare(transaction)
    new = counting_job(backend)
    with raising(FencedError, path="claims/000002", expected=1, found=2):
        old.coordinator.commit(transaction, acknowledgements)
    with pytest.raises(FencedError):
        old.coordinator.check_holder()
    new.run(2)
    assert new.content() == new.restored() == expected_after(4)
    for job in (old, new):
        job.close()


@pytest.mark.reliability(11)
def test_a_commit_whose_reply_is_lost_in_s3(server: S3Server) -> None:
    """Catches: a commit that was made, taken for another's or made again."""
    job = counting_job(s3(server, "lost"))
    job.run(1)
    lost: list[str] = []

    def lose(method: str, path: str) -> bool:
        if method == "PUT" and path.endswith("/manifest") and len(lost) < 3:
            lost.append(path)
            return True
        return False

    server.lose_reply = lose
    try:
        job.run(1)
    finally:
        server.reset()
    assert lost and job.coordinator.statistics().commits == 2
    job.run(1)
    assert job.restored() == expected_after(3)
    job.close()
