"""The writer and the reader of the history, on a storage: failures, other drivers, readers beside, damage, kills."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.reader import HistoryReader
from emberstate.checkpoint.history.writer import HistoryWriter
from emberstate.checkpoint.manifest.layout import claim_path
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.testing.faults import KILL_POINT, FaultPlan, FaultyStorage
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[3]


class FullStorage(MemoryStorage):
    """A storage that has room, or none."""

    full = False

    def _put_new(self, path: str, parts: Sequence[memoryview]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super()._put_new(path, parts)


def claimed(storage: Storage) -> Storage:
    """A location that a job has, as far as the history asks."""
    storage.create_if_absent(claim_path(1), b"claim")
    return storage


def batch(number: int) -> HistoryRecord:
    """The record of a batch."""
    return HistoryRecord(kind="batch", job="cards", time=number, batch=number)


def add(writer: HistoryWriter, *numbers: int) -> None:
    """Write records, a segment each."""
    for number in numbers:
        writer.add(batch(number))
        assert writer.flush(PATIENCE)


def read(storage: Storage, last: int | None = None) -> list[int | None]:
    """The batches of the history, with no damage."""
    found = HistoryReader(storage).read(last)
    assert found.damaged == ()
    return [record.batch for record in found.records]


def test_records_of_runs_one_after_the_other_and_at_once() -> None:
    """Catches: a start that overwrites the records of the run before, or numbers them again; a driver that was
    overtaken and writes on, whose records replace those of the other."""
    storage = claimed(MemoryStorage())
    first = HistoryWriter(storage, 1)
    add(first, *range(40))
    second = HistoryWriter(storage, 2)
    add(second, 40, 41)
    add(first, 100)
    add(second, 42)
    assert sorted(read(storage), key=str) == sorted([*range(43), 100], key=str)
    assert read(storage, 1) in ([42], [100]) and read(storage, 0) == [] and len(read(storage, 20)) == 20
    found = HistoryReader(storage).read().records
    assert [record.number for record in found] == sorted(record.number for record in found)
    assert {record.incarnation for record in found} == {1, 2}
    counts = first.statistics()
    assert (counts.records, counts.written, counts.dropped, counts.failures) == (41, 41, 0, 0) and counts.merges == 2


def test_a_storage_that_fails_costs_no_batch_and_no_record_that_can_wait(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: an error of the history that reaches the batch, fills the memory, or is not said."""
    storage = FullStorage()
    claimed(storage)
    storage.full = True
    writer = HistoryWriter(storage, 1)
    with caplog.at_level(logging.WARNING):
        for number in range(1200):
            writer.add(batch(number))
        for _ in range(3):
            assert not writer.flush(PATIENCE)
    assert len([one for one in caplog.records if one.name == "emberstate.history"]) == 1
    counts = writer.statistics()
    assert counts.failures >= 3 and counts.dropped == 200 and counts.written == 0
    storage.full = False
    assert writer.flush(PATIENCE)
    assert read(storage) == list(range(200, 1200))


def test_a_lost_reply_leaves_no_record_twice() -> None:
    """Catches: records that are written again under other numbers since nobody knows whether they are there."""
    plan = FaultPlan()
    storage = FaultyStorage(claimed(MemoryStorage()), plan)
    writer = HistoryWriter(storage, 1)
    plan.fail(errno.EIO, operation="write_new", when="after")
    writer.add(batch(1))
    writer.flush(PATIENCE)
    add(writer, 2)
    assert read(storage) == [1, 2]


def test_a_deleted_location_is_not_made_again() -> None:
    """Catches: a folder with nothing but history where the user has just deleted everything."""
    storage = claimed(MemoryStorage())
    writer = HistoryWriter(storage, 1)
    add(writer, 1)
    storage.delete_all(storage.list())
    add(writer, 2)
    assert storage.list() == [] and writer.statistics().dropped == 1


def test_a_reader_beside_a_writer_that_merges(tmp_path: Path) -> None:
    """Catches: a reader that fails on a segment which was merged meanwhile, or misses or repeats its records."""
    storage = claimed(LocalStorage(tmp_path))
    writer = HistoryWriter(storage, 1)
    reader, seen, ended = HistoryReader(storage), [0], threading.Event()
    problems: list[str] = []

    def look() -> None:
        while not ended.is_set():
            found = [record.batch for record in reader.read().records]
            if found != list(range(len(found))) or len(found) < seen[-1]:
                problems.append(f"{found} after {seen[-1]}")
            seen.append(len(found))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        add(writer, *range(300))
    finally:
        ended.set()
        thread.join()
    assert problems == [] and read(storage) == list(range(300))


def test_a_damaged_segment_is_named_skipped_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: one flipped bit that ends the history, or is merged away without a word."""
    storage = claimed(LocalStorage(tmp_path))
    writer = HistoryWriter(storage, 1)
    add(writer, *range(5))
    path = sorted(path for path in storage.list("history"))[2]
    file = tmp_path / path
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    add(writer, *range(5, 40))
    found = HistoryReader(storage).read()
    assert [record.batch for record in found.records] == [*range(2), *range(3, 40)]
    assert len(found.damaged) == 1 and path in found.damaged[0]
    assert writer.statistics().damaged == 1 and path in caplog.text


def run_until_killed(root: str) -> None:
    """Write records for ever, each flushed; say which are durable. For a process that is killed at a point."""
    storage = FaultyStorage(LocalStorage(root), FaultPlan())
    writer = HistoryWriter(storage, 1)
    for number in range(1_000):
        writer.add(batch(number))
        if writer.flush(PATIENCE):
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        *(f"{when}-write_new:{nth}" for when in ("before", "after") for nth in (1, 16, 17, 18, 289, 290)),
        *(f"{when}-delete:{nth}" for when in ("before", "after") for nth in (1, 2, 16, 17)),
        *(f"before-{what}" for what in ("list:1", "list:2", "read:1", "read:20")),
    ],
)
def test_killed_at_any_point(tmp_path: Path, point: str) -> None:
    """Catches: a record that was written and is gone, or there twice, or a history that cannot be read or continued,
    after a kill between any two steps of a write or a merge."""
    storage = claimed(LocalStorage(tmp_path))
    program = f"from tests.checkpoint.history.test_writer import *; run_until_killed({str(tmp_path)!r})"
    died = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, KILL_POINT: point}, timeout=PATIENCE,
        capture_output=True, text=True,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr
    durable = len(died.stdout.splitlines())
    found = read(storage)
    assert found in (list(range(durable)), list(range(durable + 1)))
    add(HistoryWriter(storage, 2), *range(1000, 1040))
    assert read(storage) == [*found, *range(1000, 1040)]
