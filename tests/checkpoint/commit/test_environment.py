"""Other machines, zones, clocks and disks: a checkpoint means the same everywhere."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.manifest.catalogue import read_checkpoint, verify
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import FileRef
from emberstate.checkpoint.manifest.open_files import open_state_file, read_ref, verify_ref
from emberstate.clock import ManualClock
from emberstate.errors import CorruptionError, RestoreRefusedError, StorageError
from emberstate.storage.checksums import checksum
from emberstate.storage.local import LocalStorage
from tests.checkpoint.counting import counting_job, expected_after, file_job
from tests.checkpoint.manifest.manifest_forgery import forge
from tests.checkpoint.stored import StorageBackend
from tests.patience import PATIENCE
from tests.raising import raising

ROOT = Path(__file__).parents[3]

WRITER = """
import sys
from tests.checkpoint.counting import file_job
job = file_job(sys.argv[1], 2)
job.run(int(sys.argv[2]))
job.close()
"""


def run_child(
    code: str, *arguments: str, prefix: tuple[str, ...] = (), environment: dict[str, str] | None = None
) -> None:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.reliability(30)
@pytest.mark.parametrize(
    "environment",
    [
        {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "1"},
        {"TZ": "America/St_Johns", "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"},
        {"TZ": "UTC", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "77", "EMBERSTATE_INTERPRETED": "1"},
    ],
    ids=["india", "ascii", "interpreted"],
)
def test_written_there_and_read_here(environment: dict[str, str], tmp_path: Path) -> None:
    """Catches: local time, the locale or the hash seed in a checkpoint."""
    place = tmp_path / "ключ é"
    run_child(WRITER, str(place), "3", environment=environment)
    job = file_job(place)
    before = job.coordinator.latest.parent
    assert before is not None
    writer = read_checkpoint(job.storage, before.number).writer
    assert writer.started.endswith("+00:00")
    assert job.restored() == expected_after(3)
    job.run(2)
    assert job.content() == job.restored() == expected_after(5)
    job.close()


@pytest.mark.reliability(30)
def test_clocks_that_disagree_and_go_back(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: order that rests on a clock: the newest checkpoint or holder found by its time."""
    backend, clock = StorageBackend(), ManualClock(10**15)
    numbers = []
    for start, step in enumerate((0, -(10**14), 5, -(10**15) - 10**12, 2 * 10**15)):
        clock.advance(step)
        job = counting_job(backend, 1 + start % 2, clock=clock)
        assert job.coordinator.holder.incarnation == start + 1
        for _ in range(2):
            clock.advance(-7)
            numbers.append(job.run(1).number)
        assert job.content() == expected_after(2 * start + 2)
        job.close()
    assert numbers == sorted(numbers)
    job = counting_job(backend, clock=clock)
    assert job.restored() == expected_after(10)
    job.close()


READ_ONLY = """
import errno, subprocess, sys
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.backends import FsStateBackend
from emberstate.errors import StorageError
from tests.checkpoint.counting import counting_job, expected_after
from tests.raising import raising
mount = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], check=True)
job = counting_job(FsStateBackend(mount + "/root"), 2)
job.run(3)
transaction = job.begin()
subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
for call in (lambda: job.coordinator.commit(transaction, job.prepare(transaction)), lambda: counting_job(job.backend)):
    try:
        call()
    except StorageError as error:
        assert error.errno == errno.EROFS and "Mount it writable" in str(error), error
    else:
        raise SystemExit("a read-only root was written")
storage = job.backend.open_storage()
latest = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
assert verify(storage, latest).problems == () and latest.batch.id == 2
assert job.stored(storage, latest) == expected_after(3)
subprocess.run(["mount", "-o", "remount,rw", mount], check=True)
job.run(2)
assert job.content() == expected_after(5)
"""


@pytest.mark.reliability(30)
def test_a_read_only_root(tmp_path: Path) -> None:
    """Catches: a checkpoint that cannot be read where it cannot be written; state lost with a failed commit."""
    prefix = ("unshare", "-m")
    try:
        run_child("", prefix=prefix)
    except (AssertionError, FileNotFoundError):
        pytest.skip("no right to mount; the same errors are injected in other tests")
    run_child(READ_ONLY, str(tmp_path), prefix=prefix)


@pytest.mark.reliability(30)
def test_a_bundle_of_two_terabytes(tmp_path: Path) -> None:
    """Catches: positions and sizes in 32 bits, or read from the beginning: the state is at 2 TB of a sparse file."""
    job = file_job(tmp_path)
    job.run(3)
    latest = job.coordinator.latest
    far = 2**41 + 12345
    path = "checkpoints/000000000099/bundle-far"
    (tmp_path / path).parent.mkdir(parents=True)
    parts = [read_ref(job.storage, file.place) for file in latest.operators[0].slots[0].files]
    places = []
    with (tmp_path / path).open("wb") as bundle:
        bundle.seek(far)
        for part in parts:
            places.append(FileRef(path, len(part), checksum(part), bundle.tell()))
            bundle.write(part)
    assert (tmp_path / path).stat().st_size > 2**41
    assert (tmp_path / path).stat().st_blocks * 512 < 2**20

    def move(plain: dict[str, Any]) -> None:
        for file, place in zip(plain["operators"][0]["slots"][0]["files"], places, strict=True):
            file["place"] = msgspec.to_builtins(place)

    forge(job.storage, latest.number, move)
    again = file_job(tmp_path)
    assert verify(again.storage, again.coordinator.latest).problems == ()
    assert again.restored() == expected_after(3)
    for one in (job, again):
        one.close()


@pytest.mark.reliability(30)
def test_sizes_of_terabytes_in_plans() -> None:
    """Catches: sums of sizes that overflow, and a base in more files than there are key groups."""
    from emberstate.checkpoint.commit.background_writer import _parts
    from emberstate.checkpoint.manifest.chain import RewriteOrder, plan_rewrite
    from emberstate.checkpoint.manifest.model import SlotChain, StateFile

    sums = "0" * 32
    files = tuple(
        StateFile(str(i), "delta", (0, 127), FileRef(f"state/1/{i}", 2**41, sums, 2**61), sums, 1) for i in range(12)
    )
    order = plan_rewrite(SlotChain((0, 127), "a", files), 1)
    assert order is not None and order.merge == ()
    assert [(part.start, part.end) for part in _parts(order)] == [(group, group) for group in range(128)]
    light = SlotChain((0, 127), "a", (msgspec.structs.replace(files[0], kind="base"),))
    assert len(_parts(RewriteOrder("o", 1, light))) == 128
    assert plan_rewrite(light, 1) is None


@pytest.mark.reliability(27)
def test_a_large_file_is_verified_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: verifying a checkpoint that takes as much memory as its largest file."""
    monkeypatch.setattr("emberstate.checkpoint.manifest.open_files._CHUNK_BYTES", 1000)
    storage = LocalStorage(tmp_path)
    data = bytes(range(256)) * 40
    storage.write_new("state/1/x", b"before" + data)
    reads: list[int] = []
    real = storage._get_range

    def counted(path: str, offset: int, length: int) -> bytes:
        reads.append(length)
        return real(path, offset, length)

    monkeypatch.setattr(storage, "_get_range", counted)
    good = FileRef("state/1/x", len(data), checksum(data), 6)
    verify_ref(storage, good)
    assert max(reads) == 1000 and sum(reads) == len(data)
    verify_ref(storage, FileRef("state/1/x", 0, checksum(b""), 3))
    for bad in (
        msgspec.structs.replace(good, offset=5),
        msgspec.structs.replace(good, checksum=checksum(b"")),
        msgspec.structs.replace(good, size=len(data) + 1),
    ):
        with pytest.raises(CorruptionError):
            verify_ref(storage, bad)


@pytest.mark.reliability(30)
def test_a_root_that_is_a_file_or_is_gone(tmp_path: Path) -> None:
    """Catches: a location that is no directory, taken for an empty one."""
    (tmp_path / "file").write_text("x")
    with raising(StorageError, errno=errno.ENOTDIR):
        file_job(tmp_path / "file")
    job = file_job(tmp_path / "root")
    job.run(2)
    (tmp_path / "root").rename(tmp_path / "moved")
    again = file_job(tmp_path / "moved")  # nothing in it knows where it stands
    assert again.restored() == expected_after(2)
    for one in (job, again):
        one.close()


@pytest.mark.reliability(24)
def test_an_operator_of_another_max_parallelism_is_told_from_damage() -> None:
    """Catches: a changed setting that is reported as a damaged checkpoint."""
    job = counting_job()
    job.run(1)
    with raising(RestoreRefusedError, expected=(("string",), 8), found=(("string",), 16)):
        counting_job(job.backend, groups=16)
    assert manifest_path(2) in job.storage.list()
    file = job.coordinator.latest.operators[0].slots[0].files[0]
    assert open_state_file(job.storage, file).meta.max_parallelism == 8
    job.close()
