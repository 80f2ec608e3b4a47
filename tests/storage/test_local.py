"""Local files with links, pipes, late writers and file systems that do not do what they should."""

from __future__ import annotations

import errno
import gc
import os
import threading
from pathlib import Path

import pytest

from emberstate.errors import StorageError, StorageNotFoundError
from emberstate.storage.file_system import FileSystem
from emberstate.storage.interface import StorageOutcomeUnknownError
from emberstate.storage.local import WRITES, LocalStorage
from emberstate.testing.faults import FaultPlan, Gate
from emberstate.testing.faulty_file_system import FaultyFileSystem
from tests.patience import PATIENCE
from tests.raising import raising


def held() -> tuple[int, int]:
    """How many descriptors and threads this process has; those of other tests may end meanwhile."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@pytest.mark.reliability(30)
def test_nothing_grows(tmp_path: Path) -> None:
    """Catches: descriptors, threads or temporary files that are left by writes that went well or failed."""
    plan = FaultPlan()
    storage = LocalStorage(tmp_path, file_system=FaultyFileSystem(tmp_path, plan))
    storage.write_new("a/first", b"x")
    gc.collect()  # what other tests left
    before = held()
    for number in range(60):
        plan.fail(errno.EIO, operation=["write", "fsync", "link", "fsync_directory"][number % 4])
        with pytest.raises(StorageError):
            storage.write_new(f"a/{number}", b"x")
        with pytest.raises(StorageNotFoundError):
            storage.read("a/nothing")
        storage.write_new(f"b/{number}", b"x")
        storage.read(f"b/{number}")
        storage.delete(f"b/{number}")
    after = held()
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.reliability(30)
def test_sizes_beyond_32_bits(tmp_path: Path) -> None:
    """Catches: sizes or offsets that are cut to 32 bits, and a sparse file that is read whole by accident."""
    size = 2 << 40
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size - 4)
        file.seek(size - 4)
        file.write(b"tail")
    storage = LocalStorage(tmp_path)
    assert storage.size("sparse") == size
    assert storage.read_range("sparse", size - 6, 6) == b"\0\0tail"
    with raising(StorageError, path="sparse", expected=1000, found=size):
        storage.read("sparse", limit=1000)


@pytest.mark.reliability(7)
def test_links_that_lead_outside(tmp_path: Path) -> None:
    """Catches: a checkpoint directory whose links make a restore read, or a writer change, foreign files."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    storage = LocalStorage(root)
    storage.write_new("chk/file", b"x")
    (root / "chk/leak").symlink_to(outside / "secret")
    (root / "away").symlink_to(outside)
    (root / "up").symlink_to(tmp_path)
    (root / "dangling").symlink_to(outside / "nothing")
    for path in ("chk/leak", "away/secret", "up/outside/secret", "dangling"):
        for call in (storage.read, storage.size, storage.ensure_durable):
            with raising(StorageError, path=str(root / path), errno=errno.EPERM):
                call(path)
    for path in ("away/new", "away/deep/new", "up/new"):
        with raising(StorageError, path=str(root / path.split("/")[0]), errno=errno.EPERM):
            storage.write_new(path, b"x")
    with pytest.raises(StorageError):
        storage.create_if_absent("dangling", b"x")
    for folder, link in (("chk", "chk/leak"), ("away", "away"), ("up", "up")):
        with raising(StorageError, path=str(root / link), errno=errno.EPERM):
            storage.list(folder)
    with raising(StorageError, errno=errno.EPERM):  # which of the links it meets first is the system's choice
        storage.list()
    with raising(StorageError, path=str(root / "away"), errno=errno.EPERM):
        storage.delete("away/secret")
    storage.delete("chk/leak")
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert storage.list("chk") == ["chk/file"]


def test_links_that_stay_inside(tmp_path: Path) -> None:
    """Catches: a root that is reached by a link refused; a link within the root that cannot be read."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    storage = LocalStorage(tmp_path / "link")
    storage.write_new("chk/file", b"x")
    (tmp_path / "real/chk/same").symlink_to("file")
    assert storage.read("chk/same") == b"x"
    assert storage.list() == ["chk/file", "chk/same"]
    (tmp_path / "real/loop").symlink_to(tmp_path / "real/chk")
    with raising(StorageError, path=str(tmp_path / "real/loop"), errno=errno.EPERM):
        storage.write_new("loop/new", b"x")
    with raising(StorageError, path=str(tmp_path / "real/loop"), errno=errno.EPERM):
        storage.list()


def test_a_temporary_directory_elsewhere(tmp_path: Path) -> None:
    """Catches: temporary files written through a link, outside the root."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.tmp").symlink_to(tmp_path / "outside")
    with raising(StorageError, path=str(tmp_path / "root/.tmp"), errno=errno.EPERM):
        LocalStorage(tmp_path / "root").write_new("file", b"x")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.reliability(7)
def test_what_is_not_a_file(tmp_path: Path) -> None:
    """Catches: a restore that hangs on a pipe; a directory or a file in the way that gives a raw error."""
    os.mkfifo(tmp_path / "pipe")
    storage = LocalStorage(tmp_path)
    with pytest.raises(StorageNotFoundError):
        storage.read("pipe")
    assert storage.list() == []
    storage.write_new("file", b"x")
    with raising(StorageError, path="file/below", errno=errno.ENOTDIR):
        storage.write_new("file/below", b"x")
    with pytest.raises(StorageNotFoundError):
        storage.read("file/below")


def test_reading_makes_nothing(tmp_path: Path) -> None:
    """Catches: a reader that creates the directory it was to look into."""
    storage = LocalStorage(tmp_path / "nowhere")
    assert storage.list() == []
    storage.delete("a/b")
    assert storage.remove_leftovers(lambda _: False) == 0
    assert list(tmp_path.iterdir()) == []


def test_no_hard_links(tmp_path: Path) -> None:
    """Catches: a file system without hard links found out at the first commit, or worked around unsafely."""
    for number in (errno.EPERM, errno.EOPNOTSUPP):
        plan = FaultPlan()
        plan.fail(number, operation="link", forever=True)
        storage = LocalStorage(tmp_path, file_system=FaultyFileSystem(tmp_path, plan))
        with raising(StorageError, "hard links", errno=number):
            storage.check_conditional_create()
        assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_link_that_overwrites(tmp_path: Path) -> None:
    """Catches: a probe that would pass a file system on which a second writer overwrites the first."""

    class Overwriting(FileSystem):
        def link(self, source: Path, target: Path) -> None:
            target.write_bytes(source.read_bytes())

    class PretendingToRefuse(Overwriting):
        def link(self, source: Path, target: Path) -> None:
            there = target.exists()
            super().link(source, target)
            if there:
                raise FileExistsError(errno.EEXIST, "it is there, but now it is another")

    for disk in (Overwriting(), PretendingToRefuse()):
        with raising(StorageError, errno=errno.ENOTSUP):
            LocalStorage(tmp_path, file_system=disk).check_conditional_create()


@pytest.mark.reliability(9)
def test_a_sync_that_fails_for_two(tmp_path: Path) -> None:
    """Catches: a thread told "durable" though the sync that held its name failed in another thread."""
    plan = FaultPlan()
    storage = LocalStorage(tmp_path, file_system=FaultyFileSystem(tmp_path, plan))
    storage.write_new("chk/0", b"0")
    gate, caught = Gate(), []
    plan.hold(gate, operation="fsync_directory", path="chk$")
    plan.fail(errno.EIO, operation="fsync_directory", path="chk$", nth=2)

    def write() -> None:
        try:
            storage.write_new("chk/1", b"1")
        except StorageOutcomeUnknownError as error:
            caught.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert gate.reached.wait(PATIENCE)
    with pytest.raises(StorageOutcomeUnknownError):
        storage.write_new("chk/2", b"2")
    gate.opened.set()
    thread.join(PATIENCE)
    assert len(caught) == 1


@pytest.mark.reliability(12)
def test_a_writer_that_wakes_up_late(tmp_path: Path) -> None:
    """Catches: a zombie's file appearing over the one that its successor has committed meanwhile."""
    plan = FaultPlan()
    zombie = LocalStorage(tmp_path, file_system=FaultyFileSystem(tmp_path, plan))
    gate, results = Gate(), []
    plan.hold(gate, operation="link")
    thread = threading.Thread(target=lambda: results.append(zombie.create_if_absent("chk/7", b"zombie")))
    thread.start()
    assert gate.reached.wait(PATIENCE)
    successor = LocalStorage(tmp_path)
    assert successor.create_if_absent("chk/7", b"successor") is True
    gate.opened.set()
    thread.join(PATIENCE)
    assert results == [False]
    assert successor.read("chk/7") == b"successor"


@pytest.mark.parametrize("times", [1, 2, WRITES])
def test_leftovers_taken_from_under_a_writer(tmp_path: Path, times: int) -> None:
    """Catches: a writer whose temporary file a start removed reporting success falsely, giving up, or a raw error."""
    plan = FaultPlan()
    storage = LocalStorage(tmp_path, writer="old", file_system=FaultyFileSystem(tmp_path, plan))
    gates = [Gate() for _ in range(times)]
    caught = []
    for nth, gate in enumerate(gates, start=1):
        plan.hold(gate, operation="link", nth=nth)

    def write() -> None:
        try:
            storage.write_new("chk/1", b"x")
        except StorageError as error:
            caught.append(error.errno)

    thread = threading.Thread(target=write)
    thread.start()
    for gate in gates:
        assert gate.reached.wait(PATIENCE)
        assert LocalStorage(tmp_path).remove_leftovers(lambda writer: writer == "new") == 1
        gate.opened.set()
    thread.join(PATIENCE)
    assert caught == ([errno.ENOENT] if times == WRITES else [])
    assert LocalStorage(tmp_path).list() == ([] if times == WRITES else ["chk/1"])
