"""How a slot comes to where a transaction starts, and what it prepares."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.commit.coordinator import Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.errors import CorruptionError, LifecycleError, StateTypeError, StorageError
from emberstate.storage.interface import StorageOutcomeUnknownError
from tests.checkpoint.counting import COUNT, COUNTING, OPERATOR, counting_job, expected_after
from tests.checkpoint.driver import Job
from tests.patience import PATIENCE
from tests.raising import raising


def ran(slot: SlotCheckpoint, transaction: Transaction, rows: list[str] | None = None) -> tuple[str, Acknowledgement]:
    """Run a transaction of one slot; how it started, and what it acknowledged."""
    how = slot.start(transaction.tasks[0])
    COUNTING.apply(slot.backend, transaction.batch.id, COUNTING.rows(transaction.batch.id) if rows is None else rows)
    return how, slot.prepare()


def committed(job: Job, transaction: Transaction, acknowledgement: Acknowledgement) -> None:
    job.coordinator.commit(transaction, [acknowledgement])


def test_a_slot_goes_on_with_what_it_prepared() -> None:
    """Catches: a restore, or an undone batch, where the state is at hand."""
    job = counting_job()
    slot = job.slot(0)
    seen = []
    for _ in range(3):
        transaction = job.begin()
        how, acknowledgement = ran(slot, transaction)
        seen.append(how)
        committed(job, transaction, acknowledgement)
    assert seen == ["restored", "promoted", "promoted"]
    assert slot.statistics().starts == {"restored": 1, "promoted": 2}
    assert COUNTING.content(slot.backend) == expected_after(3) == job.restored()
    job.close()


def test_a_lost_acknowledgement() -> None:
    """Catches: a batch applied twice because nobody heard that it was prepared."""
    job = counting_job()
    job.run(2)
    slot, transaction = job.slot(0), job.begin()
    ran(slot, transaction)  # lost
    how, second = ran(slot, job.begin())
    assert how == "rolled back"
    committed(job, transaction, second)
    assert COUNTING.content(slot.backend) == expected_after(3) == job.restored()
    job.close()


def test_an_attempt_that_died_half_way() -> None:
    """Catches: half a batch that stays in the state."""
    job = counting_job()
    job.run(2)
    slot, transaction = job.slot(0), job.begin()
    slot.start(transaction.tasks[0])
    COUNTING.apply(slot.backend, 99, ["k0", "k1", "new"])
    how, acknowledgement = ran(slot, transaction)
    assert how == "rolled back"
    committed(job, transaction, acknowledgement)
    assert COUNTING.content(slot.backend) == expected_after(3)
    slot.roll_back()
    assert slot.start(job.begin().tasks[0]) == "restored"  # rolled back by the host, after it was prepared
    assert COUNTING.content(slot.backend) == expected_after(3)
    job.close()


def test_a_slot_that_was_rolled_back_by_its_host_is_hot() -> None:
    """Catches: a restore after a failure that was undone already."""
    job = counting_job()
    job.run(2)
    slot, transaction = job.slot(0), job.begin()
    slot.start(transaction.tasks[0])
    COUNTING.apply(slot.backend, 99, ["k0"])
    slot.roll_back()
    how, acknowledgement = ran(slot, transaction)
    assert how == "hot"
    committed(job, transaction, acknowledgement)
    assert job.restored() == expected_after(3)
    job.close()


def test_a_speculative_second_attempt() -> None:
    """Catches: the state of the attempt that lost taken for the committed one."""
    job = counting_job()
    job.run(2)
    one, transaction = job.slot(0), job.begin()
    other = job.make_slot()
    ran(one, transaction, ["wrong", "rows"])
    how, winner = ran(other, transaction)
    assert how == "restored"
    committed(job, transaction, winner)
    following = job.begin()
    assert one.start(following.tasks[0]) == "restored"  # what it prepared has lost
    assert other.start(following.tasks[0]) == "promoted"
    assert COUNTING.content(one.backend) == COUNTING.content(other.backend) == expected_after(3)
    other.close()
    job.close()


def test_a_slot_left_behind_by_several_batches() -> None:
    """Catches: a slot that wakes up on another executor and goes on with an old state."""
    job = counting_job()
    job.run(2)
    old = job.slot(0)
    job.slots = {}
    job.run(3)
    transaction = job.begin()
    assert old.start(transaction.tasks[0]) == "restored"
    assert COUNTING.content(old.backend) == expected_after(5)
    how, acknowledgement = ran(old, transaction)
    assert how == "rolled back"
    committed(job, transaction, acknowledgement)
    assert job.restored() == expected_after(6)
    old.close()
    job.close()


def test_a_slot_survives_a_restart_of_the_coordinator() -> None:
    """Catches: a restore of everything though only the driver was restarted."""
    job = counting_job()
    job.run(3)
    again = counting_job(job.backend)
    again.slots = job.slots
    assert again.slot(0).start(again.begin().tasks[0]) == "promoted"
    again.run(1)
    assert again.content() == expected_after(4)
    third = counting_job(job.backend, 2)  # other key groups: it must restore
    third.slots[OPERATOR, 0] = job.slot(0)
    assert third.slot(0).start(third.begin().tasks[0]) == "restored"
    third.run(1)
    assert third.content() == expected_after(5) == third.restored()
    third.close()


def test_a_restore_that_fails_leaves_nothing_and_can_be_repeated() -> None:
    """Catches: a half-filled state that the next start takes for whole."""
    job = counting_job()
    job.run(4)
    task = job.begin().tasks[0]
    slot = job.make_slot()
    broken = msgspec.structs.replace(task.chain.files[2], seal="0" * 32)
    files = (*task.chain.files[:2], broken, *task.chain.files[3:])
    damaged = msgspec.structs.replace(task, chain=msgspec.structs.replace(task.chain, files=files))
    for _ in range(2):
        with raising(CorruptionError, path=broken.place.path, expected=(broken.kind, broken.seal)):
            slot.start(damaged)
        with raising(LifecycleError, "start a task"):
            slot.backend
    with raising(LifecycleError, "prepare"):
        slot.prepare()
    assert slot.start(task) == "restored"
    assert COUNTING.content(slot.backend) == expected_after(4)
    slot.close()
    slot.close()
    job.close()


def test_prepare_belongs_to_a_start() -> None:
    """Catches: one batch's changes acknowledged twice, under two ids."""
    job = counting_job()
    slot = job.slot(0)
    with raising(LifecycleError, "prepare"):
        slot.prepare()
    ran(slot, job.begin())
    with raising(LifecycleError, "prepare"):
        slot.prepare()
    job.close()


def test_a_value_of_a_wrong_type_fails_the_prepare_and_no_more() -> None:
    """Catches: a bad value that poisons the slot for the batches after it."""
    job = counting_job()
    job.run(2)
    slot, transaction = job.slot(0), job.begin()
    slot.start(transaction.tasks[0])
    slot.backend.set_current_key("k0")
    with pytest.raises(StateTypeError):
        slot.backend.get_partitioned_state(COUNT).update("text")
        slot.prepare()
    how, acknowledgement = ran(slot, transaction)
    assert how == "rolled back"
    committed(job, transaction, acknowledgement)
    assert job.restored() == expected_after(3)
    job.close()


# -- long chains --------------------------------------------------------------------------------------------------


def test_a_full_chain_without_a_rewrite_ends_in_a_base() -> None:
    """Catches: a chain that grows beyond any bound because nobody shortens it."""
    never, short = ChainPolicy(rewrite_at=10**9), ChainPolicy(most_files=5)
    job = counting_job(policy=never)
    job.policy = short  # of the slot
    lengths = []
    for _ in range(12):
        files = job.run(1).operators[0].slots[0].files
        lengths.append(sum(file.kind == "delta" for file in files))
    assert max(lengths) == 5 and lengths[5] == 0
    assert job.slot(0).statistics().waits == 2
    assert job.content() == expected_after(12) == job.restored()
    job.close()


def test_bases_do_not_fill_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a large state, whose base is many files, written whole again in every batch."""
    monkeypatch.setattr("emberstate.checkpoint.commit.background_writer.BASE_FILE_BYTES", 1)
    policy = ChainPolicy(most_files=8, rewrite_at=3, small_bytes=1)
    job = counting_job(policy=policy)
    job.run(4)
    slot = job.slot(0)
    assert slot._writer is not None and slot._writer.wait(PATIENCE)
    manifest = job.run(1)
    kinds = [file.kind for file in manifest.operators[0].slots[0].files]
    assert kinds.count("base") == 8 and kinds.count("delta") >= 1  # one for every key group
    monkeypatch.undo()
    before = slot.statistics().waits
    job.run(2)
    assert slot.statistics().waits == before
    assert job.content() == expected_after(7) == job.restored()
    job.close()


@pytest.mark.reliability(14)
def test_a_rewrite_that_failed_is_said_once_and_tried_again() -> None:
    """Catches: a chain that silently grows for hours."""
    job = counting_job()
    job.run(12)
    slot, transaction = job.slot(0), job.begin()
    assert slot._writer is not None
    real = slot._writer._storage

    class Full:
        def write_new(self, path: str, data: Any) -> None:
            raise StorageError(28, "no space left")

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    slot._writer._storage = Full()  # type: ignore[assignment]
    slot.start(transaction.tasks[0])
    assert slot._writer.wait(PATIENCE)
    slot._writer._storage = real
    with raising(StorageError, "background", errno=errno.ENOSPC, operator=OPERATOR, slot=0):
        slot.prepare()
    how, acknowledgement = ran(slot, transaction)
    assert how == "rolled back"
    committed(job, transaction, acknowledgement)
    job.run(1)
    assert slot._writer.wait(PATIENCE)
    job.run(1)
    rewrites = slot.statistics().rewrites
    assert rewrites is not None and (rewrites.failed, rewrites.finished) == (1, 1)
    assert job.coordinator.statistics().adopted == 1
    assert job.content() == expected_after(15) == job.restored()
    job.close()


def test_a_restore_while_a_rewrite_runs() -> None:
    """Catches: a background rewrite that reads a state which its slot has thrown away."""
    job = counting_job()
    job.run(12)
    slot, transaction = job.slot(0), job.begin()
    slot.start(transaction.tasks[0])
    order = transaction.tasks[0].rewrite
    assert order is not None
    other = job.make_slot()
    _, acknowledgement = ran(other, transaction)
    committed(job, transaction, msgspec.structs.replace(acknowledgement, rewrite=None, rewriting=order.id))
    following = job.begin()
    assert following.tasks[0].rewrite == order
    assert slot.start(following.tasks[0]) == "restored"
    assert slot._writer is not None and slot._writer.wait(PATIENCE)
    COUNTING.apply(slot.backend, following.batch.id, COUNTING.rows(following.batch.id))
    acknowledgement = slot.prepare()
    assert acknowledgement.rewrite is not None  # made from an ancestor of what is committed: good
    committed(job, following, acknowledgement)
    assert job.coordinator.statistics().adopted == 1
    assert job.restored() == expected_after(14)
    other.close()
    job.close()


def test_large_contents_are_files_and_small_ones_travel() -> None:
    """Catches: megabytes in an acknowledgement, or a file for every few bytes."""
    job = counting_job()
    slot = job.slot(0)
    transaction = job.begin()
    slot.start(transaction.tasks[0])
    COUNTING.apply(slot.backend, 0, [f"key-{i}" for i in range(5000)])
    acknowledgement = slot.prepare([("small", 1, b"s" * 65536), ("large", 9, b"l" * 65537)])
    assert acknowledgement.state is not None and acknowledgement.state.content is None
    small, large = acknowledgement.outputs
    assert small.place is None and large.content is None and large.place is not None
    assert large.place.path.startswith("output/000001/") and job.storage.size(large.place.path) == 65537
    manifest = job.coordinator.commit(transaction, [acknowledgement])
    assert [output.place.path.split("/")[0] for output in manifest.outputs] == ["checkpoints", "output"]
    assert len(job.restored()) == 5000
    job.close()


def test_a_write_that_failed_or_is_unknown_fails_the_prepare() -> None:
    """Catches: an acknowledgement of a delta that is not there."""
    for error in (StorageError(28, "no space"), StorageOutcomeUnknownError(5, "who knows")):
        job = counting_job()
        job.run(1)
        slot, transaction = job.slot(0), job.begin()
        slot._inline_bytes = 0
        real = slot._storage

        class Failing:
            def write_new(self, path: str, data: Any, error: Exception = error) -> None:
                raise error

        slot._storage = Failing()  # type: ignore[assignment]
        with raising(type(error), errno=error.errno):
            ran(slot, transaction)
        slot._storage = real
        how, acknowledgement = ran(slot, transaction)
        assert how == "rolled back"
        committed(job, transaction, acknowledgement)
        assert job.restored() == expected_after(2)
        job.close()
