"""The coordinator's rules: which batch may run, what is fixed about it, and what becomes a checkpoint."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask, WrittenOutput, WrittenState
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.checkpoint.manifest.chain import Rewrite
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import FileRef, Manifest
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import ManualClock
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    EmberstateError,
    FencedError,
    LifecycleError,
    Place,
    RestoreRefusedError,
    StateDeclarationError,
    StorageError,
)
from emberstate.keygroups import KeySchema
from tests.checkpoint.counting import COUNTING, KEYS, OPERATOR, counting_job, expected_after, small_job
from tests.checkpoint.driver import Job
from tests.checkpoint.manifest.manifest_forgery import SUM
from tests.checkpoint.stored import SharedMemory, StorageBackend
from tests.patience import PATIENCE
from tests.raising import raising


def begun(job: Job, batch: int, **options: Any) -> Transaction | Redelivery:
    return job.coordinator.begin(batch, **{"query": "q", "source": str(batch), **options})


# -- which batch is this ------------------------------------------------------------------------------------------


def test_a_job_without_state_begins_with_batch_0_or_with_the_one_that_is_named() -> None:
    """Catches: a query in the middle whose state is gone counted from zero; a batch that is named and refused; a job
    with state that may begin anywhere."""
    storage = SharedMemory()
    counts = OperatorSpec(name="counts", key_schema=KeySchema.from_python(str))
    for first in (0, 7):
        coordinator = CheckpointCoordinator.open(storage, "clicks", [counts], first_batch=first)
        with raising(RestoreRefusedError, "starting_empty_at", batch=41):
            coordinator.begin(41, query="q", source="s")
    assert storage.list("intents") == []
    for batch in (7, 0):  # the one that is named; and one for a query from its beginning
        assert isinstance(coordinator.begin(batch, query="q", source="s"), Transaction)


def test_a_job_that_was_told_so_goes_on_from_any_batch() -> None:
    """Catches: a job that cannot be attached to a query which runs already."""
    job = counting_job(first_batch=41)
    assert isinstance(begun(job, 41), Transaction)
    job.run(2)
    assert job.coordinator.latest.batch is not None and job.coordinator.latest.batch.id == 42
    job.close()


def test_the_next_batch_runs_and_the_last_is_redelivered() -> None:
    """Catches: a batch that is computed twice, or whose output is not there to be delivered again."""
    job = counting_job(parallelism=2)
    manifest = job.run(3)
    for _ in range(2):
        again = begun(job, 2)
        assert isinstance(again, Redelivery) and again.manifest == manifest
    outputs = {output.slot: read_ref(job.storage, output.place) for output in manifest.outputs}
    assert outputs == {0: b"slot 0 batch 2", 1: b"slot 1 batch 2"}
    # And by a later incarnation, whose opening holds the same.
    later = counting_job(job.backend, 3)
    found = begun(later, 2)
    assert isinstance(found, Redelivery) and found.manifest.outputs == manifest.outputs
    assert found.manifest.kind == "opening"
    assert later.coordinator.statistics().redeliveries == 1
    assert isinstance(begun(later, 3), Transaction)
    for one in (job, later):
        one.close()


@pytest.mark.parametrize(
    ("batch", "changes", "differs"),
    [
        (2, {"source": "other"}, {"option": "source", "expected": "2", "found": "other"}),
        (4, {}, {"option": "batch", "expected": 3, "found": 4}),
        (1, {}, {"option": "batch", "expected": 3, "found": 1}),
        (0, {}, {"option": "batch", "expected": 3, "found": 0}),
        (3, {"query": "another"}, {"option": "query", "expected": "q", "found": "another"}),
        (0, {"query": "another"}, {"option": "query", "expected": "q", "found": "another"}),
        (2, {"query": "another"}, {"option": "query", "expected": "q", "found": "another"}),
    ],
)
def test_any_other_batch_is_refused(batch: int, changes: dict[str, Any], differs: Place) -> None:
    """Catches: input skipped or counted twice because two checkpoints are not of one piece."""
    job = counting_job()
    job.run(3)
    before = job.storage.list()
    expected: Place = {**differs, "batch": batch}
    with raising(RestoreRefusedError, **expected):
        begun(job, batch, **changes)
    assert job.storage.list() == before
    job.run(1)  # and the right one still runs
    assert job.content() == expected_after(4)
    job.close()


@pytest.mark.parametrize(
    "options",
    [{"query": 5}, {"source": None}, {"query": "\ud800"}, {"watermark": 2**63}, {"watermark": 1.5}],
    ids=str,
)
def test_what_no_batch_can_be(options: dict[str, Any]) -> None:
    """Catches: a batch whose checkpoint could not be read again."""
    job = counting_job()
    with pytest.raises(StateDeclarationError):
        begun(job, 0, **options)
    with pytest.raises(StateDeclarationError):
        begun(job, -1)
    job.run(1)
    job.close()


# -- intents ------------------------------------------------------------------------------------------------------


def test_a_rerun_gets_the_times_of_the_first_run() -> None:
    """Catches: a batch that is run again at another time, and gives another result."""
    clock = ManualClock(1_000)
    job = counting_job(clock=clock)
    first = job.begin(0, watermark=7)
    assert (first.batch.processing_time, first.batch.watermark) == (1_000, 7)
    clock.set(2_000)
    assert job.begin(0, watermark=99).batch == first.batch
    later = counting_job(job.backend, 2, clock=clock)
    assert later.begin(0, watermark=99).batch == first.batch
    assert all(task.batch == first.batch for task in later.begin(0).tasks)
    later.run()
    assert later.coordinator.latest.batch is not None
    assert later.coordinator.latest.batch.processing_time == 1_000
    for one in (job, later):
        one.close()


def test_a_rerun_with_other_input_is_refused() -> None:
    """Catches: the same batch with other rows, when the first run may have been committed elsewhere."""
    job = counting_job()
    job.run(1)
    job.begin(1)
    with raising(RestoreRefusedError, "savepoint", batch=1, option="source", expected="1", found="x"):
        job.begin(1, source="x")
    job.begin(1)
    fresh = counting_job()
    fresh.begin(0)
    with raising(RestoreRefusedError, "empty location", batch=0, option="query", expected="q", found="r"):
        fresh.begin(0, query="r")
    for one in (job, fresh):
        one.close()


def test_an_intent_of_another_lineage_is_not_found() -> None:
    """Catches: a job that goes back on purpose, and is held to what was begun from there before."""
    clock = ManualClock(1_000)
    job = counting_job(clock=clock, retained=20)
    back = job.run(2).number
    job.run(3)
    clock.set(9_000)
    again = counting_job(job.backend, clock=clock, start_from=back, retained=20)
    assert again.restored() == expected_after(2)
    again.close()
    again = counting_job(job.backend, clock=clock, start_from=back, retained=20)
    transaction = again.begin(2, source="other rows now")
    assert transaction.batch.processing_time == 9_000
    clock.set(9_500)
    # Started once more, without going back: the intent of this lineage is found, and none of the older.
    third = counting_job(job.backend, clock=clock)
    assert third.begin(2, source="other rows now").batch.processing_time == 9_000
    with raising(RestoreRefusedError, batch=2, option="source", expected="other rows now", found="2"):
        third.begin(2)
    for one in (job, again, third):
        one.close()


def test_going_on_from_the_newest_is_no_new_lineage() -> None:
    """Catches: a start that names the newest checkpoint and forgets what was begun from it."""
    clock = ManualClock(1_000)
    job = counting_job(clock=clock)
    newest = job.run(2).number
    job.begin(2)
    clock.set(5_000)
    again = counting_job(job.backend, clock=clock, start_from=newest)
    assert again.begin(2).batch.processing_time == 1_000
    with raising(CheckpointCollectedError, checkpoint=77, found=(1, again.coordinator.latest.number)):
        counting_job(job.backend, start_from=77)
    for one in (job, again):
        one.close()


def test_the_watermark_never_goes_back() -> None:
    """Catches: rows that are late in one batch and in time in the next."""
    job = counting_job()
    seen = []
    for batch, watermark in enumerate([None, -5, 10, None, 4, 11]):
        transaction = job.begin(batch, watermark=watermark)
        seen.append(transaction.batch.watermark)
        job.coordinator.commit(transaction, job.prepare(transaction))
        if batch == 3:  # through a restart
            job.close()
            job = counting_job(job.backend)
    assert seen == [None, -5, 10, 10, 10, 11]
    job.close()


def test_the_largest_event_time_is_that_of_all_batches_and_slots() -> None:
    """Catches: a watermark that is computed from the last batch alone."""
    job = counting_job(parallelism=2)
    for batch, times in enumerate([(None, None), (5, 3), (None, 4), (None, 9), (-1, None)]):
        transaction = job.begin(batch)
        acknowledgements = [
            msgspec.structs.replace(found, max_event_time=time)
            for found, time in zip(job.prepare(transaction), times, strict=True)
        ]
        manifest = job.coordinator.commit(transaction, acknowledgements)
        assert manifest.batch is not None
        assert manifest.batch.max_event_time == [None, 5, 5, 9, 9][batch]
    job.close()


# -- acknowledgements ---------------------------------------------------------------------------------------------

Change = Callable[[list[Acknowledgement]], list[Acknowledgement]]


def changed(**changes: Any) -> Change:
    return lambda found: [msgspec.structs.replace(found[0], **changes), *found[1:]]


def state(**changes: Any) -> Change:
    def change(found: list[Acknowledgement]) -> list[Acknowledgement]:
        written = found[-1].state
        assert written is not None
        return [*found[:-1], msgspec.structs.replace(found[-1], state=msgspec.structs.replace(written, **changes))]

    return change


BAD_PLACE = FileRef("../../etc/passwd", 1, SUM)
NONE_0: Place = {"operator": "counts", "slot": 0, "expected": 1, "found": 0}
NONE_1: Place = {"operator": "counts", "slot": 1, "expected": 1, "found": 0}
TWICE_0: Place = {"operator": "counts", "slot": 0, "expected": 1, "found": 2}
EXTRA_2: Place = {"operator": "counts", "slot": 2, "expected": 0, "found": 1}
OTHER_0: Place = {"operator": "counts", "slot": 0}
OUTSIDE: Place = {"path": BAD_PLACE.path}
BAD_ACKNOWLEDGEMENTS: dict[str, tuple[Change, type[EmberstateError], str, Place]] = {
    "none": (lambda found: [], LifecycleError, "", NONE_0),
    "one missing": (lambda found: found[:1], LifecycleError, "", NONE_1),
    "twice": (lambda found: [*found, found[0]], LifecycleError, "", TWICE_0),
    "unknown slot": (lambda found: [*found, msgspec.structs.replace(found[0], slot=2)], LifecycleError, "", EXTRA_2),
    "unknown operator": (changed(operator="x"), LifecycleError, "", NONE_0),
    "another checkpoint": (changed(number=99), LifecycleError, "99", OTHER_0),
    "another start": (changed(started_from="x"), LifecycleError, "'x'", OTHER_0),
    "no content": (state(content=None), CorruptionError, "content", {}),
    "a path outside": (state(content=None, place=BAD_PLACE), CorruptionError, "", OUTSIDE),
    "an output outside": (changed(outputs=(WrittenOutput("main", 1, None, BAD_PLACE),)), CorruptionError, "", OUTSIDE),
}


@pytest.mark.parametrize("case", BAD_ACKNOWLEDGEMENTS)
def test_acknowledgements_that_are_not_this_transactions(case: str) -> None:
    """Catches: a checkpoint that lacks a slot's changes, or has those of another attempt."""
    change, kind, word, place = BAD_ACKNOWLEDGEMENTS[case]
    job = counting_job(parallelism=2)
    job.run(2)
    before, latest = job.storage.list("checkpoints"), job.coordinator.latest
    transaction = job.begin()
    good = job.prepare(transaction)
    with raising(kind, word, **place):
        job.coordinator.commit(transaction, change(good))
    assert job.storage.list("checkpoints") == before and job.coordinator.latest is latest
    job.coordinator.commit(transaction, good)  # nothing was spoilt
    assert job.restored() == expected_after(3)
    job.close()


def test_a_stale_transaction_is_refused() -> None:
    """Catches: a commit on top of a checkpoint that it does not start from."""
    job = counting_job()
    old = job.begin()
    acknowledgements = job.prepare(old)
    job.coordinator.commit(old, acknowledgements)
    with raising(RestoreRefusedError, batch=0, checkpoint=old.number):
        job.coordinator.commit(old, acknowledgements)
    job.close()


@pytest.mark.parametrize("seal", ["", "x", SUM + "\n", SUM[:-1]])
def test_messages_that_make_no_sense_are_refused_on_arrival(seal: str) -> None:
    """Catches: a damaged message that becomes part of a manifest, which then cannot be read."""
    job = counting_job()
    transaction = job.begin()
    (good,) = job.prepare(transaction)
    (bad,) = state(seal=seal)([good])
    with raising(CorruptionError, "Acknowledgement", field="$.state.seal"):
        Acknowledgement.from_bytes(bad.to_bytes())
    whole = good.to_bytes()
    for data in (b"", b"\xc1", b"\x93" * 100_000, whole[:-1], whole + b"\0", transaction.tasks[0].to_bytes()):
        with pytest.raises(CorruptionError):
            Acknowledgement.from_bytes(data)
    with pytest.raises(CorruptionError):
        SlotTask.from_bytes(good.to_bytes())
    job.close()


def test_a_slot_that_changed_nothing_adds_nothing() -> None:
    """Catches: chains that grow though nothing happens."""
    job = counting_job(parallelism=2)
    job.run(1)
    for batch in range(1, 5):
        transaction = job.begin(batch)
        manifest = job.coordinator.commit(transaction, job.prepare(transaction, rows=[]))
    assert [len(slot.files) for slot in manifest.operators[0].slots] == [1, 1]
    assert job.restored() == expected_after(1)
    job.close()


def test_what_travelled_is_stored_once_for_all_slots() -> None:
    """Catches: a file per slot and batch for a few bytes each."""
    job = counting_job(parallelism=4)
    before = job.storage.statistics().writes
    manifest = job.run(1)
    assert job.storage.statistics().writes == before + 3  # intent, bundle, manifest
    paths = {ref.path.rpartition("-")[0] for ref in manifest.file_refs()}
    assert paths == {f"checkpoints/{manifest.number:012}/bundle"}
    ends = sorted((ref.offset, ref.offset + ref.size) for ref in manifest.file_refs())
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ends))
    job.close()


# -- rewrites -----------------------------------------------------------------------------------------------------


def with_order() -> tuple[Job, Transaction]:
    """A job whose chain has just become long enough for a rewrite to be ordered, and the transaction."""
    job = counting_job()
    job.run(12)
    transaction = job.begin()
    assert transaction.tasks[0].rewrite is not None
    return job, transaction


def rewritten(job: Job, transaction: Transaction) -> Acknowledgement:
    """An acknowledgement of the transaction that holds its rewrite."""
    slot = job.slot(0)
    slot.start(transaction.tasks[0])
    assert slot._writer is not None and slot._writer.wait(PATIENCE)
    (found,) = job.prepare(transaction)
    assert found.rewrite is not None
    return found


def test_a_rewrite_is_adopted_and_what_came_after_stays() -> None:
    """Catches: a chain that loses the delta of the batch in which the rewrite came."""
    job, transaction = with_order()
    manifest = job.coordinator.commit(transaction, [rewritten(job, transaction)])
    assert [file.kind for file in manifest.operators[0].slots[0].files] == ["delta", "delta"]
    assert job.coordinator.statistics().adopted == 1 and not job.coordinator.unfinished
    assert job.restored() == expected_after(13)
    job.close()


@pytest.mark.parametrize("case", ["not ordered", "another lineage", "partly replaced"])
def test_a_rewrite_that_does_not_fit_changes_nothing(case: str) -> None:
    """Catches: files in the chain that were made from another state, or that somebody may have collected."""
    job, transaction = with_order()
    acknowledgement = rewritten(job, transaction)
    rewrite = acknowledgement.rewrite
    assert rewrite is not None
    if case == "not ordered":
        rewrite = msgspec.structs.replace(rewrite, order="elsewhere")
    elif case == "another lineage":
        rewrite = msgspec.structs.replace(rewrite, replaces=(("x", (0, 7)), *rewrite.replaces[1:]))
    else:  # a base was put in the place of half of it meanwhile
        rewrite = Rewrite(rewrite.order, (*rewrite.replaces, ("later", (0, 7))), rewrite.files)
    files = transaction.tasks[0].chain.files
    manifest = job.coordinator.commit(transaction, [msgspec.structs.replace(acknowledgement, rewrite=rewrite)])
    assert manifest.operators[0].slots[0].files[:-1] == files
    assert job.coordinator.statistics().rejected == 1
    assert job.restored() == expected_after(13)
    later = job.begin()
    assert later.tasks[0].rewrite is not None  # and it is ordered anew
    assert later.tasks[0].rewrite.id != rewrite.order
    job.close()


def test_an_order_holds_until_it_is_done_or_given_up() -> None:
    """Catches: a second order while a slot writes, whose result would be thrown away."""
    job, transaction = with_order()
    order = transaction.tasks[0].rewrite
    assert order is not None and job.coordinator.unfinished == {order.id}
    assert job.begin().tasks[0].rewrite == order  # a rerun
    slot = job.slot(0)
    slot.start(transaction.tasks[0])
    acknowledgement = msgspec.structs.replace(job.prepare(transaction)[0], rewrite=None, rewriting=order.id)
    job.coordinator.commit(transaction, [acknowledgement])
    again = job.begin()
    assert again.tasks[0].rewrite == order  # it goes on
    gone = msgspec.structs.replace(job.prepare(again)[0], rewrite=None, rewriting="")
    job.coordinator.commit(again, [gone])
    third = job.begin().tasks[0].rewrite
    assert third is not None and third.id != order.id  # the slot has lost it
    job.close()


# -- openings -----------------------------------------------------------------------------------------------------


def opened(storage: SharedMemory, *specs: OperatorSpec, **options: Any) -> CheckpointCoordinator:
    return CheckpointCoordinator.open(storage, "job", specs, **options)


def test_operators_are_matched_by_name() -> None:
    """Catches: state lost with a renamed operator, or given to another."""
    job = counting_job()
    job.run(2)
    storage = job.storage
    assert isinstance(storage, SharedMemory)
    counts = OperatorSpec(name=OPERATOR, key_schema=KEYS, max_parallelism=8)
    other = OperatorSpec(name="sums", key_schema=KEYS, max_parallelism=8)
    with raising(RestoreRefusedError, "drop_operators", operator=OPERATOR):
        opened(storage, other)
    with raising(RestoreRefusedError, operator=OPERATOR, expected=(("string",), 8), found=(("string",), 16)):
        opened(storage, OperatorSpec(name=OPERATOR, key_schema=KEYS, max_parallelism=16))
    with raising(RestoreRefusedError, operator=OPERATOR, expected=(("string",), 8), found=(("bigint",), 8)):
        opened(storage, OperatorSpec(name=OPERATOR, key_schema=KeySchema.from_python(int), max_parallelism=8))
    assert storage.list("claims") == ["claims/000001"]  # none of them took the job over
    both = opened(storage, other, counts)
    assert [len(op.slots[0].files) for op in both.latest.operators] == [0, 2]
    dropped = opened(storage, other, drop_operators=[OPERATOR])
    assert [op.name for op in dropped.latest.operators] == ["sums"]
    job.close()


def test_an_opening_is_the_same_state_under_a_new_incarnation() -> None:
    """Catches: an opening that changes what it opens."""
    job = counting_job(parallelism=2)
    before = job.run(3)
    again = counting_job(job.backend, 2)
    now = again.coordinator.latest
    assert (now.kind, now.number, now.writer.incarnation) == ("opening", before.number + 1, 2)
    assert now.parent is not None and (now.parent.number, now.parent.id) == (before.number, before.id)
    assert (now.operators, now.outputs, now.batch, now.origin) == (
        before.operators, before.outputs, before.batch, before.origin,
    )  # fmt: skip
    with raising(FencedError, "host .*, pid ", path="claims/000002", expected=1, found=2):
        job.run()
    assert again.restored() == expected_after(3)
    for one in (job, again):
        one.close()


def test_two_operators_make_one_checkpoint() -> None:
    """Catches: a commit with one stage's changes and not the other's."""
    storage = SharedMemory()
    backend = StorageBackend(storage)
    specs = [OperatorSpec(name=name, key_schema=KEYS, parallelism=2, max_parallelism=8) for name in ("one", "two")]
    coordinator = CheckpointCoordinator.open(storage, "job", specs)
    transaction = coordinator.begin(0, query="q", source="0")
    assert isinstance(transaction, Transaction)
    where = [(task.operator, task.slot) for task in transaction.tasks]
    assert where == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    found = []
    for task in transaction.tasks:
        slot = backend.make_slot(KEYS, COUNTING.declare, max_parallelism=8)
        slot.start(task)
        COUNTING.apply(slot.backend, 0, ["a", "b", "c", "d"])
        found.append(slot.prepare([(task.operator, 1, b"x")]))
        slot.close()
    with raising(LifecycleError, operator="two", slot=0, expected=1, found=0):
        coordinator.commit(transaction, found[:2])
    manifest = coordinator.commit(transaction, list(reversed(found)))
    assert [output.operator for output in manifest.outputs] == ["one", "one", "two", "two"]
    assert all(len(slot.files) == 1 for op in manifest.operators for slot in op.slots)


@pytest.mark.reliability(11)
def test_a_commit_that_landed_after_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a process that takes its own commit for that of another, and stops for good."""
    job = counting_job()
    job.run(2)
    transaction = job.begin()
    acknowledgements = job.prepare(transaction)
    manifest: list[Manifest] = []
    real = job.coordinator._create

    def create(made: Manifest) -> bool:  # the commit arrives, and nobody hears of it
        assert real(made)
        manifest.append(made)
        raise StorageError(errno.EIO, "no answer")

    with monkeypatch.context() as patched, raising(StorageError, errno=errno.EIO):
        patched.setattr(job.coordinator, "_create", create)
        job.coordinator.commit(transaction, acknowledgements)
    found = begun(job, 2)
    assert isinstance(found, Redelivery) and found.manifest == manifest[0]
    job.run(2)
    assert job.content() == expected_after(5) == job.restored()
    job.close()


def test_written_states_have_one_of_two_kinds() -> None:
    """Catches: a third kind that a reader would not know."""
    with pytest.raises(CorruptionError):
        WrittenState.from_bytes(WrittenState("i", "full", (0, 7), SUM, b"").to_bytes())  # type: ignore[arg-type]


# -- the identity of a location --------------------------------------------------------------------------------


def test_a_location_keeps_its_identity_until_it_is_deleted() -> None:
    """Catches: an identity that a start makes anew, that savepoints carry to other places, or that outlives the
    files: slots that serve it would lend the state of one job to another."""
    job = small_job(SharedMemory())
    first = job.open().latest.location
    assert first and job.feed("ann").location == first
    coordinator = job.open()
    assert coordinator.latest.location == first
    coordinator.savepoint("s")
    assert read_savepoint(job.storage, "s").location == ""
    other = small_job(SharedMemory())
    assert other.open(savepoint=(job.storage, "s")).latest.location not in ("", first)
    job.storage.delete_all(job.storage.list())
    assert job.open().latest.location not in ("", first)


def test_a_location_without_an_identity_gets_one() -> None:
    """Catches: what an earlier version wrote, left without an identity for good."""
    job = small_job(SharedMemory())
    old = msgspec.structs.replace(job.open().latest, location="")
    job.storage.delete(manifest_path(1))
    job.storage.write_new(manifest_path(1), old.to_bytes())
    given = job.open().latest.location
    assert given and job.feed("ann").location == job.open().latest.location == given
