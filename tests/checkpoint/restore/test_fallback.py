"""What a start makes of damage: it fails by default, goes back if asked to, and says what is lost."""

from __future__ import annotations

import errno
import logging

import pytest

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.errors import CorruptionError, StorageError, StorageNotFoundError
from emberstate.testing.faults import FaultPlan, FaultyStorage
from tests.checkpoint.profiles import POLICY, Oracle, check_stored, profiles_job
from tests.checkpoint.stored import SharedMemory
from tests.raising import raising

SEED = 38
BATCHES = 6


@pytest.fixture
def storage() -> SharedMemory:
    """A storage with some batches, whose last checkpoint has a file of its own."""
    made = SharedMemory()
    job = profiles_job(made, seed=SEED)
    job.open(retained=10)
    job.run_until(BATCHES)
    job.close()
    return made


def damage(storage: SharedMemory, path: str, how: str, at: int = 100) -> None:
    data = storage.read(path)
    storage.delete(path)
    if how == "flipped":
        storage.write_new(path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif how == "torn":
        storage.write_new(path, data[:at])
    elif how == "empty":
        storage.write_new(path, b"")
    else:
        assert how == "missing"


def own_state(storage: SharedMemory, number: int) -> tuple[str, int]:
    """A file that only one checkpoint names, and where a state stands in it."""
    place = next(
        file.place
        for operator in read_checkpoint(storage, number).operators
        for slot in operator.slots
        for file in slot.files
        if file.number == number
    )
    return place.path, place.offset + place.size // 2


@pytest.mark.reliability(16)
@pytest.mark.parametrize("how", ["flipped", "torn", "empty"])
def test_a_damaged_manifest(storage: SharedMemory, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: damage that is passed over in silence, or that cannot be passed over at all."""
    oracle = Oracle(SEED)
    newest = checkpoint_numbers(storage)[-1]
    damage(storage, manifest_path(newest), how)
    before = storage.list()
    job = profiles_job(storage, seed=SEED)
    with raising(CorruptionError, path=manifest_path(newest), checkpoint=newest, option="on_corruption"):
        job.open()
    assert storage.list() == before, "a start that failed has changed something"
    with caplog.at_level(logging.WARNING):
        job.open(on_corruption="previous")
    warning = next(record.getMessage() for record in caplog.records if "are lost" in record.getMessage())
    assert f"checkpoint {newest}:" in warning and f"after batch {BATCHES - 2}" in warning
    assert job.next_batch == BATCHES - 1
    assert job.coordinator.latest.number == newest + 1
    job.run_until(BATCHES + 3)
    check_stored(storage, oracle, [BATCHES + 2])
    assert job.content() == oracle.content(BATCHES + 2)
    again = profiles_job(storage, seed=SEED)
    again.open()  # the newest is sound again
    again.run_until(BATCHES + 4)
    check_stored(storage, oracle, [BATCHES + 3])
    job.close()
    again.close()


@pytest.mark.reliability(16)
@pytest.mark.parametrize("how", ["flipped", "torn", "empty", "missing"])
def test_a_damaged_state_file(storage: SharedMemory, how: str) -> None:
    """Catches: state that is restored from damaged files; a fallback that looks at manifests alone."""
    oracle = Oracle(SEED)
    newest = checkpoint_numbers(storage)[-1]
    path, at = own_state(storage, newest)
    damage(storage, path, how, at)
    job = profiles_job(storage, seed=SEED)
    job.open()
    with pytest.raises((CorruptionError, StorageNotFoundError)) as caught:
        job.run_batch()
    assert path in str(caught.value)
    with pytest.raises((CorruptionError, StorageNotFoundError)):  # nothing half restored is used
        job.run_batch()
    job = profiles_job(storage, seed=SEED)
    job.open(on_corruption="previous")
    assert job.next_batch == BATCHES - 1
    job.run_until(BATCHES + 3)
    check_stored(storage, oracle, [BATCHES + 2])
    job.close()


@pytest.mark.reliability(16)
def test_several_damaged_ones(storage: SharedMemory) -> None:
    """Catches: a fallback that stops at the second."""
    oracle = Oracle(SEED)
    numbers = checkpoint_numbers(storage)
    damage(storage, manifest_path(numbers[-1]), "torn")
    damage(storage, own_state(storage, numbers[-2])[0], "missing")
    damage(storage, manifest_path(numbers[-3]), "flipped")
    job = profiles_job(storage, seed=SEED, parallelism=3)
    job.open(on_corruption="previous")
    assert job.next_batch == BATCHES - 3
    job.run_until(BATCHES)
    check_stored(storage, oracle, [BATCHES - 1])
    job.close()


@pytest.mark.reliability(16)
def test_all_are_damaged(storage: SharedMemory) -> None:
    """Catches: a job that starts from nothing because nothing can be read."""
    numbers = checkpoint_numbers(storage)
    for number in numbers:
        damage(storage, manifest_path(number), "flipped")
    before = storage.list()
    with pytest.raises(CorruptionError) as caught:
        profiles_job(storage, seed=SEED).open(on_corruption="previous")
    message = str(caught.value)
    assert f"all {len(numbers)} checkpoints" in message and "savepoint" in message
    assert all(f"checkpoint {number}: " in message for number in numbers)
    assert storage.list() == before


@pytest.mark.reliability(16)
@pytest.mark.parametrize("number", [errno.EMFILE])
def test_a_storage_that_cannot_be_read_is_not_damage(storage: SharedMemory, number: int) -> None:
    """Catches: batches that are given up because of an error that passes: a network, a limit of open files."""
    oracle = Oracle(SEED)
    reads = 0
    for nth in range(1, 100):
        faulty = FaultyStorage(storage.copy(), FaultPlan({}))
        faulty.plan.fail(number, operation="read_range", nth=nth)
        job = profiles_job(faulty, seed=SEED, policy=POLICY)
        try:
            job.open(on_corruption="previous")
        except StorageError as error:
            assert error.errno == number
            reads += 1
            job.open(on_corruption="previous")
        assert job.next_batch == BATCHES
        if reads < nth:
            break
    assert reads > 4
    check_stored(storage, oracle, [BATCHES - 1])
