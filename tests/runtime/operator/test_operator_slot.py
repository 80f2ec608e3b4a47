"""A slot of an operator: where a task starts, and what becomes of attempts that nobody finished."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, StateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.errors import CorruptionError, InvariantError, LifecycleError
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.declared_states import broadcast_state, value_state
from emberstate.runtime.functions.function import KeyedBroadcastProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.operator.slot import OperatorSlot, broadcast_operator_name
from tests.raising import raising

KEYS = KeySchema.from_python(str)


class Noted(KeyedBroadcastProcessFunction):
    """Counts rows in state, in broadcast state, and where it must not: in an attribute."""

    seen = value_state(int, default=0)
    notes = broadcast_state(str, int)

    def __init__(self) -> None:
        self.cached = 0

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.cached += 1
        self.seen.update(self.seen.value() + 1)
        yield self.seen.value(), self.cached, len(self.notes)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        self.notes[row[0]] = 1


class Job:
    """One slot and its coordinator."""

    def __init__(self, backend: StateBackend | None = None) -> None:
        self.backend = MemoryStateBackend() if backend is None else backend
        self.coordinator = CheckpointCoordinator.open(
            self.backend.open_storage(),
            "job",
            [
                OperatorSpec(name="op", key_schema=KEYS, max_parallelism=4),
                OperatorSpec(name=broadcast_operator_name("op"), key_schema=KEYS, max_parallelism=1),
            ],
        )
        self.slot = self.new_slot()
        self.batch = 0

    def new_slot(self) -> OperatorSlot:
        return OperatorSlot(
            lambda backend: KeyedOperator("op", Noted(), backend, output="seen int, cached int, notes int"),
            self.backend, KEYS, max_parallelism=4,
        )  # fmt: skip

    def begin(self) -> Transaction:
        transaction = self.coordinator.begin(self.batch, query="q", source=str(self.batch))
        assert isinstance(transaction, Transaction)
        return transaction

    def rows(self, *keys: str, note: str | None = None) -> None:
        if note is not None:
            self.slot.operator.process_broadcast((note,))
        for key in keys:
            self.slot.operator.process(key, (key,))

    def commit(self, transaction: Transaction, attempt: str) -> list[Any]:
        result, acknowledgements = self.slot.prepare(attempt)
        self.coordinator.commit(transaction, acknowledgements)
        self.batch += 1
        return result.main


def test_progress_is_rows_timers_and_bytes_of_state(tmp_path: Path) -> None:
    """Catches: a slot that restores, handles rows or writes for long, and is taken for one that hangs."""
    job = Job(FsStateBackend(tmp_path / "state"))
    seen = [job.slot.progress()]
    transaction = job.begin()
    job.slot.start(*transaction.tasks)
    job.rows(note="n")
    seen.append(job.slot.progress())
    for _ in range(2):
        job.rows("a")
        seen.append(job.slot.progress())
    job.rows(*(secrets.token_hex(40) for _ in range(4000)))  # more than an acknowledgement takes along
    seen.append(job.slot.progress())
    job.commit(transaction, "first")
    seen.append(job.slot.progress())
    job.slot = job.new_slot()
    seen.append(job.slot.progress())
    transaction = job.begin()
    assert job.slot.start(*transaction.tasks) == "restored"
    seen.append(job.slot.progress())
    assert len(set(seen)) == len(seen) - 1, seen  # but for the two that have done nothing
    assert seen[0] == seen[-2] == "0 bytes of state read and written"
    job.slot.close()


def test_hot_from_commit_to_commit() -> None:
    """Catches: state that is restored though it is there, or not taken for committed when it is."""
    job = Job()
    assert not job.slot.is_hot
    with raising(LifecycleError, option="start"):
        job.slot.operator.process("a", ("a",))
    for number, how in enumerate(["restored", "promoted", "promoted"], start=1):
        transaction = job.begin()
        assert job.slot.start(*transaction.tasks) == how
        job.rows("a", note=str(number))
        assert job.commit(transaction, f"attempt {number}") == [(number, number, number)]
    assert job.slot.statistics().starts == {"restored": 1, "promoted": 2}


@pytest.mark.parametrize("prepared", [False, True])
def test_an_attempt_that_nobody_finished_is_undone(prepared: bool) -> None:
    """Catches: keyed or broadcast state, or attributes, of an attempt that was given up, in the one that follows."""
    job = Job()
    first = job.begin()
    job.slot.start(*first.tasks)
    job.rows("a", note="1")
    job.commit(first, "attempt 1")
    second = job.begin()
    job.slot.start(*second.tasks)
    job.rows("a", "a", note="lost")
    if prepared:
        job.slot.prepare("attempt 2")

    assert job.slot.start(*second.tasks) == "rolled back"
    job.rows("a", note="2")
    assert job.commit(second, "attempt 3") == [(2, 1, 2)]  # the function is new


def test_roll_back_undoes_what_was_started() -> None:
    """Catches: a roll-back that forgets the broadcast state, or that makes a prepared attempt count."""
    job = Job()
    transaction = job.begin()
    job.slot.start(*transaction.tasks)
    job.rows("a", note="1")
    job.slot.prepare("attempt 1")
    job.slot.roll_back()
    assert job.slot.start(*transaction.tasks) == "hot"
    job.rows("a")
    assert job.commit(transaction, "attempt 2") == [(1, 1, 0)]


def test_a_restore_that_fails_leaves_a_slot_that_can_restore() -> None:
    """Catches: a slot that is of no use any more after it was given a damaged file, or that goes on half filled."""
    job = Job()
    for number in (1, 2):
        transaction = job.begin()
        job.slot.start(*transaction.tasks)
        job.rows("a", note=str(number))
        job.commit(transaction, f"attempt {number}")
    transaction = job.begin()
    keyed, broadcast = transaction.tasks
    job.slot.close()
    job.slot.close()
    contents = {ident: content[:-1] + b"x" for ident, content in keyed.contents.items()}
    damaged: SlotTask = msgspec.structs.replace(keyed, contents=contents)
    with pytest.raises(CorruptionError):
        job.slot.start(damaged, broadcast)
    assert not job.slot.is_hot
    job.slot.roll_back()  # there is nothing to undo

    assert job.slot.start(keyed, broadcast) == "restored"
    job.rows("a")
    assert job.commit(transaction, "attempt 3") == [(3, 1, 2)]


def test_broadcast_state_and_task_go_together() -> None:
    """Catches: broadcast state that is silently not stored because its task was forgotten."""
    job = Job()
    with pytest.raises(InvariantError) as caught:
        job.slot.start(job.begin().tasks[0])
    assert caught.value.operator == "op"
