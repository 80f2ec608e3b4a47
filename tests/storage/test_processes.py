"""Local files between processes, on full and read-only disks, and at the limits of a process."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from emberstate.storage.local import LocalStorage
from tests.patience import PATIENCE

ROUNDS = 200


def run_child(code: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def race(root: str, me: str, start: Barrier, wins: Queue[tuple[str, list[int]]]) -> None:
    storage = LocalStorage(root, writer=me)
    won = []
    for number in range(ROUNDS):
        start.wait(PATIENCE)
        if storage.create_if_absent(f"incarnations/{number:08}", me.encode()):
            won.append(number)
    wins.put((me, won))


@pytest.mark.reliability(13)
def test_two_processes_racing(tmp_path: Path) -> None:
    """Catches: two processes that both take themselves for the holder of one incarnation."""
    context = multiprocessing.get_context("spawn")
    start, wins = context.Barrier(2), context.Queue()
    racers = [context.Process(target=race, args=(str(tmp_path), me, start, wins)) for me in ("one", "two")]
    for racer in racers:
        racer.start()
    won = dict(wins.get(timeout=PATIENCE) for _ in racers)
    for racer in racers:
        racer.join(PATIENCE)
        assert racer.exitcode == 0
    assert sorted(won["one"] + won["two"]) == list(range(ROUNDS))
    storage = LocalStorage(tmp_path)
    for me, numbers in won.items():
        assert all(storage.read(f"incarnations/{number:08}") == me.encode() for number in numbers)


FULL = """
import errno, os, subprocess, sys
from emberstate.storage.local import LocalStorage
from emberstate.errors import StorageError
mount = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], check=True)
storage = LocalStorage(mount + "/root")
storage.write_new("chk/1", b"1" * 1000)
try:
    storage.write_new("chk/2", b"2" * 1_000_000)
except StorageError as error:
    assert error.errno == errno.ENOSPC, error
    assert "Free space" in str(error) and "untouched" in str(error) and "chk/2" in str(error), error
else:
    raise SystemExit("the disk was not full")
assert storage.list() == ["chk/1"] and os.listdir(os.path.join(mount, "root", ".tmp")) == []
assert storage.read("chk/1") == b"1" * 1000
storage.write_new("chk/2", b"2" * 1000)
subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
reader = LocalStorage(mount + "/root")
assert reader.read("chk/1") == b"1" * 1000 and reader.list() == ["chk/1", "chk/2"]
for call in (lambda: reader.write_new("chk/3", b"3"), reader.check_conditional_create,
             lambda: reader.create_if_absent("new/3", b"3"), lambda: reader.delete("chk/1")):
    try:
        call()
    except StorageError as error:
        assert error.errno == errno.EROFS and "Mount it writable" in str(error), error
    else:
        raise SystemExit("a read-only root was written")
"""


@pytest.mark.reliability(8)
@pytest.mark.reliability(30)
def test_a_full_and_a_read_only_disk(tmp_path: Path) -> None:
    """Catches: a real ENOSPC that leaves half a file or a temporary one; a read-only root nobody can read.

    In a mount namespace of its own. Where that is not allowed the same calls are tested by injected errors,
    and a limit of file sizes in the next test.
    """
    if run_child("", prefix=("unshare", "-m")).returncode != 0:
        pytest.skip("no right to mount")
    done = run_child(FULL, str(tmp_path), prefix=("unshare", "-m"))
    assert done.returncode == 0, done.stderr


LIMITED = """
import errno, os, resource, sys
from emberstate.storage.local import LocalStorage
from emberstate.errors import StorageError
storage = LocalStorage(sys.argv[1])
storage.write_new("a/1", b"1")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
try:
    storage.write_new("a/large", b"x" * 100_000)
except StorageError as error:
    assert error.errno == errno.EFBIG and "ulimit -f" in str(error), error
else:
    raise SystemExit("no limit of file sizes")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
failed = 0
for spare in range(4):
    names = ["a/%d-%d" % (spare, number) for number in range(2)]
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for _ in range(spare):
            os.close(held.pop())
    for call in (lambda: storage.write_new(names[0], b"x"), lambda: storage.create_if_absent(names[1], b"x"),
                 lambda: storage.read("a/1"), storage.list):
        try:
            call()
        except StorageError as error:
            failed += 1
            assert error.errno == errno.EMFILE and "ulimit -n" in str(error), error
    for file in held:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(storage.list("a")) <= {"a/1", *("a/%d-%d" % (s, n) for s in range(4) for n in range(2))}
    assert os.listdir(sys.argv[1] + "/.tmp") == []
assert failed >= 4, failed
storage.write_new("a/2", b"2")
assert storage.read("a/2") == b"2"
"""


@pytest.mark.reliability(8)
def test_limits_of_files_and_sizes(tmp_path: Path) -> None:
    """Catches: running out of descriptors or file size after the name is visible; leaks of descriptors."""
    done = run_child(LIMITED, str(tmp_path))
    assert done.returncode == 0, done.stderr
