"""Files that are not what the manifest means: exchanged, missing, empty, too many, led elsewhere, or made to do
harm."""

from __future__ import annotations

import errno
import pickle
import zlib
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pytest

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.files.batches import SCHEMA, write_message
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.catalogue import read_checkpoint, verify
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import StateFile
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.errors import (
    CorruptionError,
    EmberstateError,
    Place,
    StateDeclarationError,
    StorageError,
    StorageNotFoundError,
)
from emberstate.storage.checksums import checksum
from tests.checkpoint.counting import GROUPS, KEYS, counting_job, expected_after, file_job
from tests.checkpoint.driver import Job
from tests.checkpoint.files.state_file_forgery import file_of, metadata, state
from tests.checkpoint.manifest.manifest_forgery import Exploit, forge, replace
from tests.raising import raising

TIMERS = {"kind": "tuple", "items": [{"kind": "int"}, {"kind": "str"}, {"kind": "str"}]}
STATES = [
    state("count", type={"kind": "int"}),
    state("log", kind="list", type={"kind": "int"}),
    state("seen", kind="map", type={"kind": "int"}, user_key={"kind": "str"}),
    state("event", kind="timers", type=None, user_key=TIMERS),
]


def stored_job(path: Path, batches: int = 4) -> Job:
    """A job whose every delta is a file of its own."""
    job = file_job(path, retained=20)
    job.slot(0)._inline_bytes = 0
    job.run(batches)
    return job


def files_of(job: Job) -> tuple[StateFile, ...]:
    return job.coordinator.latest.operators[0].slots[0].files


def restore_fails(job: Job, error: type[EmberstateError], **expected: Unpack[Place]) -> None:
    """A new start finds the damage when its slot restores, and `verify` before that; what the storage refuses is
    the storage's error there too."""
    latest = job.coordinator.latest
    if error is StorageError:
        with raising(error, **expected):
            verify(job.storage, latest)
    else:
        assert verify(job.storage, latest).problems
    again = counting_job(job.backend)
    with raising(error, **expected):
        again.slot(0).start(again.begin().tasks[0])
    again.close()


@pytest.mark.reliability(7)
@pytest.mark.parametrize("whole", [True, False], ids=["read whole", "read in parts"])
def test_exchanged_files_of_equal_size(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: two sound files under each other's names, which change the order of what happened."""
    if not whole:
        monkeypatch.setattr("emberstate.checkpoint.manifest.open_files.WHOLE_BYTES", 0)
    job = stored_job(tmp_path, 8)
    by_size: dict[int, list[StateFile]] = {}
    for file in files_of(job):
        by_size.setdefault(file.place.size, []).append(file)
    one, other = next(found for found in by_size.values() if len(found) > 1)[:2]
    first, second = job.storage.read(one.place.path), job.storage.read(other.place.path)
    assert first != second
    replace(job.storage, one.place.path, second)
    replace(job.storage, other.place.path, first)
    restore_fails(job, CorruptionError, path=one.place.path)
    assert len(verify(job.storage, job.coordinator.latest).problems) == 2
    job.close()


@pytest.mark.reliability(7)
def test_a_missing_an_empty_and_a_short_file(tmp_path: Path) -> None:
    """Catches: state that is gone and taken for empty."""
    job = stored_job(tmp_path)
    path = files_of(job)[1].place.path
    data = job.storage.read(path)
    job.storage.delete(path)
    restore_fails(job, StorageNotFoundError, path=path)
    for part in (b"", data[:-1]):
        replace(job.storage, path, part)
        restore_fails(job, CorruptionError, path=path, expected=len(data), found=len(part))
    replace(job.storage, path, data + b"\0")  # what stands behind it is not looked at, as in a bundle
    assert verify(job.storage, job.coordinator.latest).problems == ()
    job.close()


@pytest.mark.reliability(7)
def test_extra_files_change_nothing(tmp_path: Path) -> None:
    """Catches: a listing that decides what state is."""
    job = stored_job(tmp_path)
    content, latest = job.content(), job.coordinator.latest
    data = job.storage.read(files_of(job)[0].place.path)
    for path in (
        "state/000001/extra.arrow", "state/x", "output/zzz", "checkpoints/000000000099/bundle-x",
        "checkpoints/manifest", "checkpoints/99/manifest", "checkpoints/000000000099x/manifest",
        "checkpoints/000000000099/manifest.bak", "savepoints/x", "else/where",
    ):  # fmt: skip
        job.storage.write_new(path, data)
    again = counting_job(job.backend)
    assert again.coordinator.latest.parent is not None
    assert again.coordinator.latest.parent.number == latest.number
    assert again.restored() == content
    for one in (job, again):
        one.close()


@pytest.mark.reliability(7)
def test_symbolic_links_out_of_the_root(tmp_path: Path) -> None:
    """Catches: a checkpoint that makes a reader read any file of the machine, or a writer write one."""
    job = stored_job(tmp_path / "root")
    path = tmp_path / "root" / files_of(job)[0].place.path
    outside = tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)  # even to the very same bytes
    restore_fails(job, StorageError, path=str(path))
    path.unlink()
    outside.rename(path)
    assert verify(job.storage, job.coordinator.latest).problems == ()
    manifest = tmp_path / "root" / manifest_path(job.coordinator.latest.number)
    manifest.rename(outside)
    manifest.symlink_to(outside)
    with raising(StorageError, path=str(manifest), errno=errno.EPERM):
        counting_job(job.backend)
    manifest.unlink()
    outside.rename(manifest)
    job.close()
    job = stored_job(tmp_path / "root", 1)
    (tmp_path / "elsewhere").mkdir()
    for folder, written in (("state", "state/000003"), ("claims", "claims")):
        (tmp_path / "root" / folder).rename(tmp_path / "elsewhere" / folder)
        (tmp_path / "root" / folder).symlink_to(tmp_path / "elsewhere" / folder)
        with raising(StorageError, path=str(tmp_path / "root" / written), errno=errno.EPERM):
            job.run()
        (tmp_path / "root" / folder).unlink()
        (tmp_path / "elsewhere" / folder).rename(tmp_path / "root" / folder)
    job.close()


@pytest.mark.reliability(7)
@pytest.mark.parametrize("change", ["kind", "key groups", "size", "offset", "seal", "checksum"])
def test_a_manifest_that_means_another_file(change: str, tmp_path: Path) -> None:
    """Catches: what the manifest says about a file and the file about itself, never compared."""
    job = stored_job(tmp_path)

    def forged(plain: dict[str, Any]) -> None:
        slot = plain["operators"][0]["slots"][0]
        found = slot["files"][0]
        if change == "kind":
            found["kind"] = "base"
        elif change == "key groups":  # of twice as many key groups as there were
            slot["groups"] = found["groups"] = [0, 15]
            plain["operators"][0]["max_parallelism"] = 16
        elif change == "size":
            found["place"]["size"] -= 1
        elif change == "offset":
            found["place"]["offset"] = 1
        else:
            holder = found if change == "seal" else found["place"]
            holder[change] = checksum(b"another")

    forge(job.storage, job.coordinator.latest.number, forged)
    file = read_checkpoint(job.storage, job.coordinator.latest.number).operators[0].slots[0].files[0]
    with raising(CorruptionError, path=file.place.path):
        open_state_file(job.storage, file)
    job.close()


# -- hostile state files -----------------------------------------------------------------------------------------


def put_instead(job: Job, data: bytes) -> None:
    """Put a file in the place of the chain, with everything in the manifest made to fit."""
    job.storage.write_new("state/000001/hostile.arrow", data)

    def change(plain: dict[str, Any]) -> None:
        slot = plain["operators"][0]["slots"][0]
        where = {"path": "state/000001/hostile.arrow", "size": len(data), "checksum": checksum(data)}
        slot["files"] = [{**slot["files"][0], "place": where, "seal": StateFileReader.of_bytes(data).seal}]

    forge(job.storage, job.coordinator.latest.number, change)


def one_row(value: bytes, key: bytes = b"\xa1a", op: int = 1, user_key: bytes | None = None, st: int = 0) -> bytes:
    group = KEYS.key_group("a", 8)
    columns: list[Any] = [[group], [st], [key], [b"\xa0"], [op], [user_key], [value], [None]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    message, _ = write_message(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    meta = metadata(max_parallelism=8, key_groups=[0, 7], states=STATES)
    return file_of(meta, [message], entries=[[group, group, 1, zlib.crc32(message)]])


def test_a_forged_file_restores_if_it_is_sound(tmp_path: Path) -> None:
    """Catches: a helper whose files are refused for another reason than the one under test."""
    job = stored_job(tmp_path)
    put_instead(job, one_row(b"\x07"))
    again = counting_job(job.backend)
    again.slot(0).start(again.begin().tasks[0])
    with again.slot(0).backend.snapshot() as snapshot:
        values = [value for group in range(GROUPS) for _, _, value in snapshot.entries("count", group)]
    assert values == [7]
    again.close()
    job.close()


@pytest.mark.reliability(26)
@pytest.mark.parametrize("where", ["key", "value", "user key", "list element"])
def test_a_pickle_in_a_state_file_is_never_run(where: str, tmp_path: Path) -> None:
    """Catches: bytes of a checkpoint that reach pickle."""
    marker = tmp_path / "executed"
    payload = pickle.dumps(Exploit(marker))
    job = stored_job(tmp_path / "root")
    files = {
        "key": lambda: one_row(b"\x07", key=payload),
        "value": lambda: one_row(payload),
        "user key": lambda: one_row(b"\x07", op=3, user_key=payload, st=2),
        "list element": lambda: one_row(payload, op=5, st=1),
    }
    put_instead(job, files[where]())
    again = counting_job(job.backend)
    with pytest.raises(CorruptionError):
        again.slot(0).start(again.begin().tasks[0])
    assert not marker.exists()
    again.close()
    job.close()


@pytest.mark.reliability(27)
def test_a_decompression_bomb_that_a_manifest_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a small file that a manifest vouches for and that fills the memory."""
    from emberstate.checkpoint.files.limits import FileLimits

    limits = FileLimits(batch_bytes=2**20)
    defaults: Any = open_state_file.__kwdefaults__
    monkeypatch.setitem(defaults, "limits", limits)
    job = stored_job(tmp_path)
    bomb = one_row(b"\xc6\x04\x00\x00\x00" + bytes(64 * 2**20))
    assert len(bomb) < 100_000
    put_instead(job, bomb)
    again = counting_job(job.backend)
    allocated = pa.total_allocated_bytes()
    with raising(CorruptionError, path="state/000001/hostile.arrow", expected=2**20):
        again.slot(0).start(again.begin().tasks[0])
    assert pa.total_allocated_bytes() - allocated < 2**20
    again.close()
    job.close()


@pytest.mark.reliability(27)
@pytest.mark.parametrize("size", [2**31, 2**41, 2**62])
def test_huge_sizes_are_not_allocated(size: int, tmp_path: Path) -> None:
    """Catches: a size in a manifest for which memory is taken before the file is looked at."""
    job = stored_job(tmp_path)

    def change(plain: dict[str, Any]) -> None:
        plain["operators"][0]["slots"][0]["files"][0]["place"]["size"] = size
        plain["outputs"][0]["place"] = {"path": "output/000001/x", "size": size, "checksum": checksum(b"")}

    job.storage.write_new("output/000001/x", b"small")
    forge(job.storage, job.coordinator.latest.number, change)
    latest = read_checkpoint(job.storage, job.coordinator.latest.number)
    problems = verify(job.storage, latest).problems
    assert len(problems) == 2 and all("is damaged: expected 0 bytes" in problem for problem in problems)
    with raising(CorruptionError, path=files_of(job)[0].place.path, expected=size):
        open_state_file(job.storage, latest.operators[0].slots[0].files[0])
    job.close()


@pytest.mark.reliability(16)
def test_previous_passes_over_whatever_is_damaged(tmp_path: Path) -> None:
    """Catches: a sort of damage that the search for a sound checkpoint does not survive."""
    job = stored_job(tmp_path, 1)
    content, sound = job.content(), job.coordinator.latest.number
    damages = [b"", b"\0" * 2**20, b"emberstate manifest 1 x", bytes(65 * 2**20)]
    for data in damages:
        job.run()
        replace(job.storage, manifest_path(job.coordinator.latest.number), data)
    job.run()
    job.storage.delete(files_of(job)[-1].place.path)
    again = counting_job(FsStateBackend(tmp_path), on_corruption="previous", retained=20)
    parent = again.coordinator.latest.parent
    assert parent is not None and parent.number == sound
    assert again.restored() == content == expected_after(1)
    for one in (job, again):
        one.close()


@pytest.mark.reliability(27)
def test_names_of_jobs_and_operators() -> None:
    """Catches: a name that a manifest could not hold, found out at the first commit."""
    from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
    from emberstate.checkpoint.restore.operators import OperatorSpec
    from tests.checkpoint.stored import SharedMemory

    spec = OperatorSpec(name="ok", key_schema=KEYS)
    for job, name in (("", "ok"), ("x" * 201, "ok"), ("a\x00b", "ok"), ("\ud800", "ok"), ("job", ""), ("job", "a\nb")):
        storage = SharedMemory()
        option, wrong = ("job", job) if job != "job" else ("operator", name)
        with raising(StateDeclarationError, option=option, found=f"{wrong!r:.100}"):
            CheckpointCoordinator.open(storage, job, [OperatorSpec(name=name, key_schema=KEYS)])
        assert storage.list() == []
    with raising(StateDeclarationError, option="operators", found=("ok", "ok")):
        CheckpointCoordinator.open(SharedMemory(), "job", [spec, spec])
    for odd in ("../x", "a/b", "ключ", "a b", "x" * 200):  # names are not paths
        coordinator = CheckpointCoordinator.open(SharedMemory(), odd, [OperatorSpec(name=odd, key_schema=KEYS)])
        assert coordinator.latest.operators[0].name == odd
