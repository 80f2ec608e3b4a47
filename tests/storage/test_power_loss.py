"""Power loss, kill -9 and failing system calls at every step of a local write."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from emberstate.errors import StorageError
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import KILL_POINT, FaultPlan, SimulatedKill
from emberstate.testing.faulty_file_system import FaultyFileSystem
from tests.patience import PATIENCE
from tests.raising import raising

DATA = b"the whole content"
PATH = "chk/deep/file"
WRITES: dict[str, Callable[[Storage], object]] = {
    "write_new": lambda storage: storage.write_new(PATH, [DATA[:5], DATA[5:]]),
    "create_if_absent": lambda storage: storage.create_if_absent(PATH, DATA),
}
ERRNOS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EACCES, errno.EROFS]


def run_until(root: Path, write: Callable[[Storage], object], plan: FaultPlan) -> FaultyFileSystem:
    """What is on the disk when the plan has killed the writer, or the write has returned."""
    disk = FaultyFileSystem(root, plan)
    try:
        write(LocalStorage(root, file_system=disk))
    except SimulatedKill:
        assert plan.dead
    return disk


def count_calls(root: Path, write: Callable[[Storage], object]) -> int:
    return len(run_until(root, write, FaultPlan()).plan.calls)


def old_root(parent: Path, name: str) -> Path:
    root = parent / name
    (root / "chk").mkdir(parents=True)
    (root / "chk/old").write_bytes(b"old")
    return root


@pytest.mark.reliability(3)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh-root", "old-root"])
@pytest.mark.parametrize("write", WRITES)
def test_power_loss_at_every_call(tmp_path: Path, write: str, fresh: bool) -> None:
    """Catches: a missing or misplaced sync of file, directory or new parent; a file that appears in part."""
    calls = count_calls(tmp_path / "count" if fresh else old_root(tmp_path, "count"), WRITES[write])
    trees = 0
    for number, when in itertools.product(range(1, calls + 1), ("before", "after")):
        name = f"{number}-{when}"
        plan = FaultPlan()
        plan.fail(SimulatedKill(), nth=number, when="before" if when == "before" else "after")
        root = tmp_path / name if fresh else old_root(tmp_path, name)
        for tree in run_until(root, WRITES[write], plan).every_crash():
            trees += 1
            assert tree.get(PATH) in (None, DATA), name
            assert fresh or tree["chk/old"] == b"old"
    disk = run_until(tmp_path / "all" if fresh else old_root(tmp_path, "all"), WRITES[write], FaultPlan())
    for tree in disk.every_crash():
        assert tree[PATH] == DATA
        assert fresh or tree["chk/old"] == b"old"
    assert trees > 50, "the model left next to nothing open: it does not test much"


@pytest.mark.reliability(3)
@pytest.mark.parametrize("forgotten", ["fsync", "fsync_directory"])
def test_the_model_sees_a_missing_sync(tmp_path: Path, forgotten: str) -> None:
    """Catches: a power-loss model that would let a protocol without syncs pass."""
    disk = FaultyFileSystem(tmp_path / "root")
    setattr(disk, forgotten, lambda _: None)
    LocalStorage(tmp_path / "root", file_system=disk).write_new(PATH, DATA)
    left = {tree.get(PATH) for tree in disk.every_crash()}
    assert left - {DATA}
    assert (left - {DATA} == {None}) == (forgotten == "fsync_directory")


@pytest.mark.reliability(3)
@pytest.mark.parametrize("trusting", [False, True], ids=["as-it-is", "trusting-what-exists"])
def test_a_directory_that_a_dead_process_made(tmp_path: Path, trusting: bool) -> None:
    """Catches: a directory taken for durable because it exists, though its maker died before the sync.

    With a storage that is made to trust it the loss must show, else this tests nothing.
    """
    root = tmp_path / "root"
    plan = FaultPlan()
    plan.kill_at("after-make_directory", path="deep$")
    disk = run_until(root, WRITES["write_new"], plan)
    assert plan.dead and (root / "chk/deep").is_dir()
    disk.plan = FaultPlan()  # the next process, on the same disk
    storage = LocalStorage(root, file_system=disk)
    if trusting:
        storage._durable.update([root, root / "chk", root / "chk/deep"])
    storage.write_new(PATH, DATA)
    lost = [tree for tree in disk.every_crash() if tree.get(PATH) != DATA]
    assert bool(lost) is trusting


@pytest.mark.reliability(3)
def test_ensure_durable(tmp_path: Path) -> None:
    """Catches: a commit that a restart reads and acts on, and that the next power loss takes back."""
    root = tmp_path / "root"
    plan = FaultPlan()
    plan.kill_at("after-link")
    disk = run_until(root, WRITES["create_if_absent"], plan)
    disk.plan = FaultPlan()
    storage = LocalStorage(root, file_system=disk)
    assert storage.read(PATH) == DATA
    assert any(PATH not in tree for tree in disk.every_crash())
    storage.ensure_durable(PATH)
    assert all(tree[PATH] == DATA for tree in disk.every_crash())


@pytest.mark.reliability(3)
@pytest.mark.parametrize("unsynced", ["lost", "kept", "either"])
@pytest.mark.parametrize("seed", range(12))
def test_power_loss_after_many_calls(
    tmp_path: Path, seed: int, unsynced: Literal["lost", "kept", "either"]
) -> None:
    """Catches: a sync that one call leaves to a later one; a deletion that comes back after it returned."""
    rng = random.Random(f"{seed} {unsynced}")
    root = tmp_path / "root"
    plan = FaultPlan()
    plan.fail(SimulatedKill(), nth=rng.randrange(1, 250))
    disk = FaultyFileSystem(root, plan)
    storage = LocalStorage(root, file_system=disk)
    model: dict[str, bytes] = {}
    path, whole = "", b""  # what is under way
    try:
        for number in range(40):
            path = f"{rng.choice('ab')}/{rng.randrange(8)}"
            whole = model.get(path) or b"%d" % number * 20
            if path in model:
                storage.delete(path)
                del model[path]
            else:
                storage.create_if_absent(path, whole)
                model[path] = whole
        path = ""
    except SimulatedKill:
        pass
    disk.crash(tmp_path / "left", rng, unsynced)
    left = LocalStorage(tmp_path / "left")
    found = {name: left.read(name) for name in left.list()}
    assert not path or found.pop(path, whole) == whole
    assert found == {name: data for name, data in model.items() if name != path}


CHILD = """
import sys
from pathlib import Path
from emberstate.testing.faulty_file_system import FaultyFileSystem
from emberstate.storage.local import LocalStorage
root = Path(sys.argv[1])
storage = LocalStorage(root, writer="child", file_system=FaultyFileSystem(root))
storage.create_if_absent("chk/deep/file", b"the whole content")
"""
POINTS = [
    f"{when}-{operation}"
    for operation in ("create", "write", "fsync", "link", "unlink")
    for when in ("before", "after")
]


@pytest.mark.reliability(2)
@pytest.mark.parametrize("point", [*POINTS, "before-fsync_directory:5", "after-fsync_directory:5"])
def test_kill_at_a_named_point(tmp_path: Path, point: str) -> None:
    """Catches: a file half there after kill -9; a leftover that stops the next writer or is never removed."""
    root = tmp_path / "root"
    environment = {**os.environ, KILL_POINT: point}
    done = subprocess.run([sys.executable, "-c", CHILD, str(root)], env=environment, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL
    storage = LocalStorage(root)
    linked = POINTS.index("after-link") <= POINTS.index(point) if point in POINTS else True
    assert storage.list() == ([PATH] if linked else [])
    assert not linked or storage.read(PATH) == DATA
    temporary = point not in ("before-create", "after-unlink")
    assert storage.remove_leftovers(lambda writer: writer != "child") == temporary
    assert storage.create_if_absent(PATH, DATA) is True
    assert storage.create_if_absent(PATH, b"other") is False


def test_the_kill_point_is_for_tests_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an environment variable that could kill a production process."""
    monkeypatch.setenv(KILL_POINT, "after-link")
    LocalStorage(tmp_path / "root").write_new("file", b"x")
    monkeypatch.setenv(KILL_POINT, "sometime")
    with pytest.raises(ValueError, match="sometime"):
        FaultPlan()


@pytest.mark.reliability(8)
@pytest.mark.parametrize("number", ERRNOS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("write", WRITES)
def test_an_error_at_every_call(tmp_path: Path, write: str, number: int) -> None:
    """Catches: an error that is swallowed, loses its errno, sticks, or leaves a temporary or half a file."""
    calls = count_calls(tmp_path / "count", WRITES[write])
    for nth in range(1, calls + 1):
        plan = FaultPlan()
        plan.fail(number, nth=nth)
        root = tmp_path / str(nth)
        storage = LocalStorage(root, file_system=FaultyFileSystem(root, plan))
        try:
            WRITES[write](storage)
            failed = False
        except StorageError as error:
            failed = True
            assert error.errno == number
            assert os.strerror(number) in str(error) and str(root) in str(error) and PATH in str(error)
            assert str(error).endswith(".") and storage.list() == (
                [PATH] if isinstance(error, StorageOutcomeUnknownError) else []
            )
        operation, where = plan.calls[nth - 1]
        harmless = operation == "unlink" or (operation == "close" and "~" not in where)
        assert failed is not harmless, (nth, operation)
        if storage.list():
            assert storage.read(PATH) == DATA
        assert storage.remove_leftovers(lambda _: False) == (operation == "unlink")
        storage.write_new("chk/deep/next", b"next")
        assert storage.read("chk/deep/next") == b"next"


@pytest.mark.reliability(9)
def test_a_failed_fsync_is_final(tmp_path: Path) -> None:
    """Catches: fsync asked again after it failed, which says yes though the pages are gone."""
    plan = FaultPlan()
    plan.fail(errno.EIO, operation="fsync")
    storage = LocalStorage(tmp_path, file_system=FaultyFileSystem(tmp_path, plan))
    with pytest.raises(StorageError) as caught:
        storage.write_new("file", DATA)
    assert caught.value.errno == errno.EIO
    assert storage.list() == []
    assert len([call for call in plan.calls if call[0] == "fsync"]) == 1
    storage.write_new("file", DATA)
    first, second = [path for operation, path in plan.calls if operation == "create"]
    assert first != second
    assert [path for operation, path in plan.calls if operation == "fsync"] == [first, second]


@pytest.mark.reliability(9)
def test_a_failed_sync_of_a_directory_is_final(tmp_path: Path) -> None:
    """Catches: "durable" said of a name whose directory failed to sync, because a later sync went well."""
    plan = FaultPlan()
    disk = FaultyFileSystem(tmp_path, plan)
    storage = LocalStorage(tmp_path, file_system=disk)
    storage.write_new("chk/old", b"old")
    plan.fail(errno.EIO, operation="fsync_directory", path="chk$")
    for _ in range(2):
        with raising(StorageOutcomeUnknownError, path="chk/new", errno=errno.EIO):
            storage.create_if_absent("chk/new", DATA)
    assert storage.read("chk/new") == DATA
    assert LocalStorage(tmp_path, file_system=disk).create_if_absent("chk/new", DATA) is True
    storage.write_new("chk/other", b"a new entry is a new sync")
