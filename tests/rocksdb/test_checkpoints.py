"""Whole jobs with working state in RocksDB: coordinator and slots, through failures, restarts, rescaling, savepoints
and a full disk; and changed over to the heap and back.
"""

from __future__ import annotations

import json
import pickle
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate import FsStateBackend, RocksDBStateBackend
from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.manifest.catalogue import verify
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.errors import StateDeclarationError
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.storage.interface import Storage
from emberstate.testing.faults import FaultPlan, FaultyStorage, Gate
from tests.checkpoint.counting import KEYS, counting_job, expected_after
from tests.checkpoint.driver import Job, over_the_wire
from tests.effort import examples
from tests.patience import PATIENCE
from tests.raising import raising
from tests.rocksdb.conftest import LIMIT
from tests.rocksdb.test_local_files import started

#: Every few commits a base of everything is written in the background.
BASES = ChainPolicy(rewrite_at=3, small_bytes=0, base_ratio=0.0)


def in_rocksdb(place: Path) -> RocksDBStateBackend:
    """Checkpoints in `place`, working files beside it; sent to where it is used."""
    backend = RocksDBStateBackend(place / "checkpoints", memory=LIMIT, local_directory=place / "local")
    copy: RocksDBStateBackend = pickle.loads(pickle.dumps(backend))
    return copy


def on_the_heap(place: Path) -> FsStateBackend:
    """The same place, without RocksDB."""
    return FsStateBackend(place / "checkpoints")


BACKENDS: dict[str, Callable[[Path], StateBackend]] = {"heap": on_the_heap, "rocksdb": in_rocksdb}


def attempt_in_vain(job: Job) -> None:
    """Prepare a batch of wrong rows that is never committed."""
    job.prepare(job.begin(), rows=["wrong", "k1", "rows"])


def test_a_job_is_rescaled(tmp_path: Path) -> None:
    """Catches: state lost, doubled or given to the wrong slot by a restart at another parallelism."""
    done = 0
    for parallelism in (1, 3, 2):
        job = counting_job(in_rocksdb(tmp_path), parallelism)
        job.run(4)
        attempt_in_vain(job)
        job.run(3)
        done += 7
        assert all(isinstance(slot.backend, RocksDBKeyedStateBackend) for slot in job.slots.values())
        assert job.content() == job.restored() == expected_after(done)
        assert verify(job.storage, job.coordinator.latest).problems == ()
        job.close()
        assert list((tmp_path / "local").iterdir()) == []


def test_a_failed_attempt_is_rolled_back_and_a_committed_one_is_kept(tmp_path: Path) -> None:
    """Catches: rows of an attempt that failed in the next one's delta, and restores where none is needed."""
    job = counting_job(in_rocksdb(tmp_path))
    job.run(3)
    slot = job.slot()
    for _ in range(3):
        attempt_in_vain(job)
    assert slot.start(over_the_wire(job.begin().tasks[0])) == "rolled back"
    assert job.content() == expected_after(3)
    job.run(2)
    assert job.content() == job.restored() == expected_after(5)
    assert slot.statistics().starts == {"restored": 1, "promoted": 4, "rolled back": 4}
    job.close()


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(
        st.sampled_from(["commit", "commit", "fail", "lose the slots", "restart 1", "restart 3", "change over"]),
        max_size=20,
    )
)
def test_any_history_on_either_backend(history: list[str]) -> None:
    """Catches: a history of failures, restarts and changes between heap and RocksDB after which state differs from
    that of the committed batches; a checkpoint of one backend that the other reads differently.
    """
    with tempfile.TemporaryDirectory() as directory:
        backends = [make(Path(directory)) for make in BACKENDS.values()]
        job = counting_job(backends[1], 2, policy=BASES)
        for event in history:
            match event:
                case "commit":
                    job.run(1)
                case "fail":
                    attempt_in_vain(job)
                case "lose the slots":
                    job.close()
                case _:
                    job.close()
                    backends.reverse()
                    if event != "change over":
                        backends.reverse()
                    job = counting_job(backends[1], int(event[-1]) if event[-1].isdigit() else 2, policy=BASES)
        assert job.restored() == expected_after(job.next_batch)
        job.run(1)
        assert job.content() == expected_after(job.next_batch)
        job.close()


class HeldBackend(RocksDBStateBackend):
    """Whose slots' files wait at a gate."""

    def __init__(self, place: Path, gate: Gate) -> None:
        super().__init__(place / "checkpoints", memory=LIMIT, local_directory=place / "local")
        self._plan = FaultPlan({})
        self._plan.hold(gate, operation="write_new", path="^state/")

    def open_slot_storage(self) -> Storage:
        return FaultyStorage(self.open_storage(), self._plan)


def test_a_base_is_written_in_the_background_while_the_owner_goes_on(tmp_path: Path) -> None:
    """Catches: a base with rows of later batches, or of a failed one; an owner that waits for it."""
    gate = Gate()
    job = counting_job(HeldBackend(tmp_path, gate), policy=BASES)
    slot = job.slot()
    while slot.statistics().rewrites.begun == 0:  # type: ignore[union-attr]
        job.run(1)
    assert gate.reached.wait(PATIENCE)
    for _ in range(5):  # deltas travel; what waits at the gate is the base
        attempt_in_vain(job)
        job.run(1)
    assert slot.backend.statistics().live_snapshots == 2
    assert job.content() == expected_after(job.next_batch)
    assert {file.kind for file in job.coordinator.latest.operators[0].slots[0].files} == {"delta"}
    gate.opened.set()
    assert slot._writer is not None and slot._writer.wait(PATIENCE)
    while job.coordinator.statistics().adopted == 0:
        job.run(1)
    assert job.coordinator.latest.operators[0].slots[0].files[0].kind == "base"
    assert job.content() == job.restored() == expected_after(job.next_batch)
    job.close()
    again = counting_job(on_the_heap(tmp_path), 3)
    assert again.restored() == expected_after(again.next_batch)
    again.close()


@pytest.mark.parametrize(("one", "other"), [("heap", "rocksdb"), ("rocksdb", "heap"), ("rocksdb", "rocksdb")])
def test_a_savepoint_of_one_backend_starts_a_job_on_the_other(one: str, other: str, tmp_path: Path) -> None:
    """Catches: a savepoint that ties a job to the backend it was written by."""
    job = counting_job(BACKENDS[one](tmp_path / "one"), 2, policy=BASES)
    job.run(9)
    job.coordinator.savepoint("moving")
    job.run(2)  # which the savepoint knows nothing of
    new = counting_job(BACKENDS[other](tmp_path / "other"), 3, savepoint=(job.storage, "moving"))
    job.close()
    assert new.restored() == expected_after(9)
    new.run(4)
    assert new.content() == new.restored() == expected_after(13)
    new.close()


FULL_DISK = """
    import json, os, resource, sys
    from pathlib import Path
    from emberstate.errors import StorageError
    from tests.checkpoint.counting import COUNT, LOG, counting_job, expected_after
    from tests.rocksdb.test_checkpoints import in_rocksdb

    def refusal(use):
        try:
            use()
        except StorageError as error:
            return str(error)
        return ""

    job = counting_job(in_rocksdb(Path(sys.argv[1])))
    job.run(3)
    slot = job.slot()
    task = job.begin().tasks[0]
    slot.start(task)
    plenty = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, plenty[1]))  # no file grows beyond this: writes fail

    def fill():
        seen = slot.backend.get_internal_state(LOG)
        for number in range(1_000_000):
            slot.backend.set_current_key(os.urandom(500).hex())
            seen.add(number)

    found = [refusal(fill), refusal(slot.prepare), refusal(slot.roll_back)]
    resource.setrlimit(resource.RLIMIT_FSIZE, plenty)  # somebody made room
    how = slot.start(task)
    after = job.content() == expected_after(3)
    job.run(2)
    went_on = job.content() == job.restored() == expected_after(5)
    job.close()
    again = counting_job(in_rocksdb(Path(sys.argv[1])))
    restored = again.restored() == expected_after(5)
    again.close()
    left = os.listdir(Path(sys.argv[1]) / "local")
    print(json.dumps([found, how, after, went_on, restored, left]))
"""


def test_a_full_local_disk_fails_the_batch_and_the_last_checkpoint_restores(tmp_path: Path) -> None:
    """Catches: a commit of what could not be written, a slot that is of no use ever after, and lost state."""
    process = started(FULL_DISK, str(tmp_path))
    output, _ = process.communicate(timeout=PATIENCE)
    found, how, after, went_on, restored, left = json.loads(output.splitlines()[-1])
    assert len(found) == 3
    for message in found:
        assert "Is the disk full or broken?" in message
        assert "restores from the last checkpoint" in message
    assert (how, after, went_on, restored, left) == ("restored", True, True, True, [])


# -- the declaration ----------------------------------------------------------------------------------------------


def test_options_reach_the_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a limit or directory that is declared and not used, and local state that others can read."""
    chosen = pickle.loads(pickle.dumps(RocksDBStateBackend(tmp_path / "c", memory="64 MiB", local_directory=tmp_path)))
    assert repr(chosen) == f"RocksDBStateBackend('{tmp_path}/c', memory=67108864)"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for backend, parent in ((chosen, tmp_path), (RocksDBStateBackend(tmp_path / "c", memory=LIMIT), None)):
        keyed: Any = backend.make_keyed_backend(KEYS, max_parallelism=4)
        assert keyed.local_path.parent == (parent or tmp_path / "temporary")
        assert stat.S_IMODE(keyed.local_path.stat().st_mode) == 0o700
        assert keyed.statistics().store.memory_limit == backend.memory
        assert keyed.context.max_parallelism == 4
        keyed.close()


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, None, "", "256", "256 apples", "-1 MiB", "1 KiB", "1e3 MiB"])
def test_a_memory_that_is_none_is_refused_where_it_is_declared(memory: Any, tmp_path: Path) -> None:
    """Catches: a limit that is found out in a slot, or taken for another unit."""
    with raising(StateDeclarationError, option="memory"):
        RocksDBStateBackend(tmp_path, memory=memory)


def test_locations_that_no_slot_reaches(tmp_path: Path) -> None:
    """Catches: a job whose slots look for its checkpoints where there are none."""
    with raising(StateDeclarationError, option="uri"):
        RocksDBStateBackend("memory://", local_directory=tmp_path)


WITHOUT_ROCKSDICT = """
    import sys
    sys.modules["rocksdict"] = None  # as if it were not installed
    import emberstate
    print(emberstate.FsStateBackend(sys.argv[1]))
    try:
        emberstate.RocksDBStateBackend(sys.argv[1])
    except emberstate.errors.InstallationError as error:
        print(error)
"""


def test_without_the_extra_all_else_works_and_the_error_says_what_to_install(tmp_path: Path) -> None:
    """Catches: a package that needs RocksDB to be imported, and a bare ImportError from deep inside."""
    process = started(WITHOUT_ROCKSDICT, str(tmp_path))
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    first, second = output.splitlines()
    assert first.startswith("FsStateBackend(")
    assert "pip install emberstate[rocksdb]" in second


def test_the_coordinator_has_no_local_files(tmp_path: Path) -> None:
    """Catches: a RocksDB that the driver opens, which holds no state, or a slot before its first task."""
    job = counting_job(in_rocksdb(tmp_path), 2)
    job.begin()
    assert not (tmp_path / "local").exists()
    job.close()
