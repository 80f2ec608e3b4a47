"""What a task learns when its slot cannot do what it is asked: the right error, once, and state that is right."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from emberstate.errors import (
    CorruptionError,
    EmberstateError,
    InstallationError,
    RowTypeError,
    SlotError,
    StorageError,
    UserFunctionError,
)
from emberstate.spark.slot.failure import emberstate_error, failure_of, noting_place, raised
from emberstate.spark.slot.messages import program_digest
from tests.raising import raising
from tests.spark.slot.slot_job import Job, batch_of
from tests.spark.slot.slot_world import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of the test's own."""
    with open_world(tmp_path) as world:
        yield world


@pytest.mark.reliability(28)
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_a_poisoned_row_names_itself_and_leaves_nothing(world: World, kind: str) -> None:
    """Catches: an exception whose key, row and place are lost on the way, or whose attempt leaves changes behind."""
    job = world.job(kind)
    job.run([("a", 1, "")])
    pid = world.pid(job)
    with pytest.raises(UserFunctionError) as caught:
        job.attempted([("b", 5, "")], [("a", 7, ""), ("a", 3, "raise")])
    text = str(caught.value)
    assert text.startswith("operator 'sums', Adding.process_element raised ZeroDivisionError: no more of 3\n")
    assert "\n  key: 'a'\n  row: Row(key='a', value=3, command='raise')\n" in text
    assert f"\n  in: slot 0 of operator 'sums' of job '{job.name}', batch 1\nTraceback" in text
    assert text.endswith("ZeroDivisionError: no more of 3")
    frames = [line.split(", in ")[1] for line in text.splitlines() if line.startswith("  File ")]
    assert frames == ["process_element", "refuse"], "only the user's own"
    answer, rows = job.run([("a", 100, "calls"), ("b", 0, "")])
    assert rows == {"a": 101, "b": 0, "calls": 1} and answer.start == "hot"
    assert world.pid(job) == pid, "a failure is no reason to lose the state"


@pytest.mark.reliability(28)
def test_other_ways_to_fail_keep_their_class(world: World) -> None:
    """Catches: errors that a caller cannot tell apart, and a function that ends the process by sys.exit()."""
    job = world.job()
    job.run([("a", 1, "")])
    pid = world.pid(job)
    with raising(UserFunctionError, r"(?s)SystemExit: 3\n.*in process_element", operator="sums", slot=0, batch=1):
        job.attempted([("a", 1, "exit")])
    with raising(UserFunctionError, state="total", key="a", batch=1):
        job.attempted([("a", 1, "wrong type")])
    with raising(RowTypeError, column="key", batch=1):
        job.send(job.request(job.begin()), iter([pa.record_batch({"other": [1]})]))
    assert job.run([("a", 2, "")])[1] == {"a": 3} and world.pid(job) == pid


def test_a_failure_reaches_a_task_that_has_much_more_to_send(world: World) -> None:
    """Catches: two sides that wait for each other's reading, and a failure lost since its reader was still writing."""
    job = world.job()
    rows = [("a", 1, "shout")] + [("a", 1, "x" * 200)] * 30_000
    batch = batch_of(rows)
    sent = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal sent
        for _ in range(1000):  # some GB, if nobody stops it
            sent += 1
            yield batch

    for _ in range(2):
        with raising(UserFunctionError, "ValueError: xxx", key="a", batch=0) as caught:
            job.send(job.request(job.begin()), batches())
        assert 1_000_000 < len(str(caught.value)) < 1_200_000
        assert "characters left out" in str(caught.value)
    assert sent < 20
    assert job.run([("a", 2, "")])[1] == {"a": 2}


def test_input_that_fails_is_the_tasks_own_error(world: World) -> None:
    """Catches: a fetch failure, which Spark must see as it is, dressed up; and half of an input taken for all of it."""
    job = world.job()
    job.run([("a", 1, "")])

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of([("a", 10, "")])
        raise LookupError("a shuffle file is gone")

    with pytest.raises(LookupError, match="shuffle"):
        job.send(job.request(job.begin()), batches())
    assert job.run([("a", 2, "")])[1] == {"a": 3}


# -- programs ---------------------------------------------------------------------------------------------------


def with_program(job: Job, program: bytes) -> Job:
    job.program = program
    return job


def test_a_missing_module_says_which_and_how_to_ship_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a bare ModuleNotFoundError, and a module that stays missing after it was shipped."""
    folder = world.root / "shipped"
    folder.mkdir()
    (folder / "rules_of_mine.py").write_text(
        "from tests.spark.slot.slot_functions import Adding\n\n\nclass Mine(Adding):\n    pass\n"
    )
    with monkeypatch.context() as here:
        here.syspath_prepend(str(folder))
        job = world.job(function=importlib.import_module("rules_of_mine").Mine())
    with raising(InstallationError, "--py-files", operator="sums", found="rules_of_mine") as caught:
        job.attempted([("a", 1, "")])
    assert (caught.value.operator, caught.value.slot, caught.value.batch) == ("sums", 0, 0)
    monkeypatch.syspath_prepend(str(folder))
    assert job.run([("a", 1, "")])[1] == {"a": 1}, "the path comes with the program"


def test_a_program_that_cannot_be_loaded_is_refused_with_its_reason(world: World) -> None:
    """Catches: a slot that dies of a program, or runs another than the one it was asked for."""
    job = world.job()
    good = job.program
    for program, found, word in (
        (b"no pickle", "UnpicklingError", ""),
        (b"ctests.spark.slot.slot_functions\nRenamed\n.", "AttributeError", "Renamed"),
        (b"N.", "NoneType", "SlotProgram"),
    ):
        with raising(InstallationError, word, operator="sums", slot=0, found=found):
            with_program(job, program).attempted([("a", 1, "")])
    with raising(CorruptionError, "digest", slot=0):
        job.attempted([("a", 1, "")], program=program_digest(good))
    assert with_program(job, good).run([("a", 1, "")])[1] == {"a": 1}


def test_a_slot_that_cannot_start_says_what_it_printed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a task that waits for a process which is dead, or an error that does not say why it is."""
    folder = world.root / "broken"
    folder.mkdir()
    (folder / "msgspec.py").write_text("raise RuntimeError('this module is broken')\n")
    job = world.job()
    monkeypatch.syspath_prepend(str(folder))
    with raising(SlotError, "this module is broken", slot=0, batch=0):
        job.attempted([("a", 1, "")])
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", str(folder / "no python"))
    with raising(SlotError, "no python", slot=0):
        job.attempted([("a", 1, "")])


@pytest.mark.parametrize(
    "error",
    [
        StorageError(28, "writing x:\nno room", path="x", slot=1),
        CorruptionError("bad\n  place: {'slot': 2}", state="sum", key=("ann", 7)),
        UserFunctionError("no attributes"),
    ],
)
def test_the_text_of_a_traceback_becomes_the_error_again(error: EmberstateError) -> None:
    """Catches: an error that has lost its number, or its place, between a task and the driver."""
    with pytest.raises(type(error)) as caught, noting_place():
        raise error
    shown = "".join(traceback.format_exception(caught.value))
    found = emberstate_error(RuntimeError(f"Job aborted: {shown}\n\tat org.apache.spark\n\nDriver stacktrace:"), "here")
    assert type(found) is type(error) and str(found) == str(error)
    assert found.place == error.place and getattr(found, "errno", None) == getattr(error, "errno", None)


def test_errors_keep_class_number_and_place_on_their_way() -> None:
    """Catches: an OSError whose number is lost or said twice, a subclass that the task does not know, and a key whose
    repr raises, so that the task hears of that instead."""

    class Unshown:
        def __repr__(self) -> str:
            raise ValueError("no")

    class Private(StorageError):
        """Known to the slot alone."""

    error = raised(failure_of(Private(28, "no room"), "slot 1"))
    assert type(error) is StorageError and error.errno == 28 and str(error) == "[Errno 28] slot 1: no room"
    damage = CorruptionError("bad", path="a", state="sum", key=("ann", b"1"), key_group=0)
    assert raised(failure_of(damage, "slot 1")).place == damage.place
    assert raised(failure_of(CorruptionError("bad", key=date(2026, 1, 2)), "slot 1")).key == "datetime.date(2026, 1, 2)"
    for strange, shown in ((10**5000, "int"), ("x" * 5000, "'" + "x" * 999), (Unshown(), "Unshown")):
        assert raised(failure_of(CorruptionError("bad", key=strange), "slot 1")).key == shown
    error = raised(failure_of(OSError(5, os.strerror(5)), "slot 1"))
    assert type(error) is UserFunctionError and str(error).startswith("OSError: [Errno 5]")
