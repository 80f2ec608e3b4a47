"""The local files of a backend: its own, gone with it, reclaimed after a kill, and what happens on a full disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from emberstate.errors import StateDeclarationError, StorageError
from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.rocksdb.local_directory import LocalDirectory, reclaim
from emberstate.state.descriptors import ValueStateDescriptor
from tests.patience import PATIENCE
from tests.raising import raising
from tests.rocksdb.conftest import LIMIT
from tests.state.support import BackendFactory

TOTAL = ValueStateDescriptor("total", int)


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Another Python process, running `script`."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def first_line(process: subprocess.Popen[str]) -> str:
    """What a process printed first."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


OPEN_AND_WAIT = """
    import sys
    from emberstate.keygroups import KeySchema
    from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
    from emberstate.state.descriptors import ValueStateDescriptor
    backend = RocksDBKeyedStateBackend(KeySchema.from_python(str), sys.argv[1])
    backend.set_current_key("ann")
    backend.get_partitioned_state(ValueStateDescriptor("total", int)).update(1)
    print(backend.local_path, flush=True)
    sys.stdin.read()
"""


def test_every_backend_has_files_of_its_own_and_removes_them(make_backend: BackendFactory) -> None:
    """Catches: backends of one process, or of several slots of one machine, that get into each other's files."""
    one, other = make_backend(), make_backend()
    assert one.local_path != other.local_path
    assert one.local_path.parent == other.local_path.parent
    one.close()
    assert not one.local_path.exists()
    other.set_current_key("ann")
    state = other.get_partitioned_state(TOTAL)
    state.update(1)
    assert state.value() == 1
    other.close()
    assert list(other.local_path.parent.iterdir()) == []


def test_a_snapshot_is_read_to_its_end_after_close(make_backend: BackendFactory) -> None:
    """Catches: files deleted under a reader, or never."""
    backend = make_backend()
    state = backend.get_partitioned_state(TOTAL)
    for number in range(2000):
        backend.set_current_key(f"k{number}")
        state.update(number)
    snapshot, second = backend.snapshot(), backend.snapshot()
    entries = snapshot.entries("total", 0)
    seen = [next(entries)]
    backend.close()
    assert backend.local_path.exists()
    second.release()
    seen += entries
    for group in range(1, 128):
        seen += snapshot.entries("total", group)
    assert len(seen) == 2000
    assert backend.local_path.exists()
    snapshot.release()
    assert not backend.local_path.exists()


def test_what_a_killed_process_left_is_reclaimed_and_nothing_else(tmp_path: Path) -> None:
    """Catches: disks that fill up with every kill, files of a living process deleted, and old state taken over."""
    killed, living = started(OPEN_AND_WAIT, str(tmp_path)), None
    try:
        left = Path(first_line(killed))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.is_dir()
        bystander = tmp_path / "emberstate-rocksdb-notes"
        bystander.mkdir()
        living = started(OPEN_AND_WAIT, str(tmp_path))  # its opening reclaims
        theirs = Path(first_line(living))
        assert not left.exists()
        backend = RocksDBKeyedStateBackend(KeySchema.from_python(str), tmp_path, memory_limit=LIMIT)
        assert theirs.is_dir()
        assert bystander.is_dir()
        assert backend.number_of_entries() == 0
        backend.close()
    finally:
        for process in (killed, living):
            if process is not None:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
    assert reclaim(tmp_path) == (theirs.name,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["emberstate-rocksdb-notes"]


def test_a_name_that_was_reclaimed_between_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a directory whose lock somebody deleted between its creation and its locking."""
    import fcntl

    flock = fcntl.flock
    deleted: list[Path] = []

    def late(lock: int, how: int) -> None:
        if not deleted:
            deleted.append(next(tmp_path.glob("*.lock")))
            deleted[0].unlink()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", late)
    directory = LocalDirectory(tmp_path)
    assert directory.path.name != deleted[0].stem
    assert directory.path.with_name(directory.path.name + ".lock").exists()
    directory.remove()


def test_a_forked_child_deletes_nothing(tmp_path: Path) -> None:
    """Catches: a worker that was forked off and closes what it inherited, under its parent."""
    directory = LocalDirectory(tmp_path)
    child = os.fork()
    if child == 0:
        directory.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert directory.path.is_dir()
    directory.remove()
    assert not directory.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_another_user_left_is_left_alone() -> None:
    """Catches: a shared temporary directory in which one user's killed process stops all others from starting."""
    shared = Path(tempfile.mkdtemp())  # pytest's own is for its owner only
    try:
        shared.chmod(0o1777)
        theirs = LocalDirectory(shared)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setuid(65_534)
                mine = LocalDirectory(shared)
                mine.remove()
                code = 0 if mine.reclaimed == () and not mine.path.exists() else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert theirs.path.is_dir()
        theirs.remove()
    finally:
        shutil.rmtree(shared)


def test_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    """Catches: a bare exception of rocksdict's, or of the system's, that does not say which option is meant."""
    (tmp_path / "file").write_text("")
    with raising(StorageError, path=str(tmp_path / "file")):
        RocksDBKeyedStateBackend(KeySchema.from_python(str), tmp_path / "file")


@pytest.mark.parametrize("limit", [0, 1024, 15 * 1024 * 1024, 64.0, "64 MiB", True])
def test_a_memory_limit_that_cannot_work_is_refused(tmp_path: Path, limit: Any) -> None:
    """Catches: a limit in the wrong unit that is found out as a crash, or not at all."""
    with raising(StateDeclarationError, option="memory"):
        RocksDBKeyedStateBackend(KeySchema.from_python(str), tmp_path, memory_limit=limit)
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
    import json, os, resource, sys
    from emberstate.checkpoint.restore.load import restore
    from emberstate.checkpoint.files.writer import BaseWriter
    from emberstate.checkpoint.files.reader import StateFileReader
    from emberstate.errors import StorageError
    from emberstate.keygroups import KeySchema
    from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
    from emberstate.state.descriptors import ValueStateDescriptor

    def opened():
        backend = RocksDBKeyedStateBackend(KeySchema.from_python(int), sys.argv[1], memory_limit=int(sys.argv[2]))
        return backend, backend.get_partitioned_state(ValueStateDescriptor("v", bytes))

    def refusal(use):
        try:
            use()
        except StorageError as error:
            return str(error)
        return ""

    backend, state = opened()
    for number in range(100):
        backend.set_current_key(number)
        state.update(b"committed")
    committed = backend.snapshot()
    checkpoint = b"".join(BaseWriter(backend, committed))
    plenty = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, plenty[1]))  # no file grows beyond this: writes fail

    def fill():
        for number in range(1_000_000):
            backend.set_current_key(number)
            state.update(os.urandom(1000))

    found = [refusal(fill)]
    found += [refusal(use) for use in (backend.snapshot, lambda: backend.changes(committed),
                                       lambda: backend.roll_back(committed))]
    committed.release()
    backend.close()
    left = os.listdir(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, plenty)  # somebody made room
    backend, state = opened()
    restore([StateFileReader.of_bytes(checkpoint)], backend)
    values = set()
    for number in range(100):
        backend.set_current_key(number)
        values.add(state.value().decode())
    entries = backend.number_of_entries()
    backend.close()
    print(json.dumps({"found": found, "left": left, "values": sorted(values), "entries": entries}))
"""


def test_a_disk_that_takes_no_more_is_a_clear_error_and_the_checkpoint_restores(tmp_path: Path) -> None:
    """Catches: a write that is lost in silence or waits for ever, a commit after it, and files left behind."""
    process = started(FULL_DISK, str(tmp_path), str(LIMIT))
    output, _ = process.communicate(timeout=PATIENCE)
    result = json.loads(output.splitlines()[-1])
    assert len(result["found"]) == 4
    for message in result["found"]:
        assert "File too large" in message
        assert "Is the disk full or broken?" in message
        assert "restores from the last checkpoint" in message
    assert result["left"] == []
    assert result["values"] == ["committed"]
    assert result["entries"] == 100
