"""Who may read what was stored: its owner, and whom the directory says."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emberstate.errors import StorageError
from emberstate.storage.local import LocalStorage

OTHER_USER, OTHER_GROUP, STRANGERS_GROUP = 65_534, 54_321, 54_322


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may go through; pytest's own are their owner's only."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 0", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the process was started with."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """The permissions of everything from the root on."""
    found = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): f"{stat.S_IMODE(path.stat().st_mode):04o}" for path in found}


@pytest.mark.usefixtures("umask")
def test_what_is_made_is_its_owners_only(place: Path) -> None:
    """Catches: state of a job that every user of the machine can read, since the umask was wide or the default."""
    root = place / "new" / "state"
    LocalStorage(root).write_new("a/b/file", b"secret")
    assert modes(root) == {".": "0700", ".tmp": "0700", "a": "0700", "a/b": "0700", "a/b/file": "0600"}
    assert modes(place)["new"] == "0700"


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("given", "folder", "file"),
    [
        (0o2770, "2770", "0640"),
        (0o750, "0750", "0640"),
        (0o755, "0755", "0644"),
        (0o711, "0711", "0600"),
        (0o700, "0700", "0600"),
    ],
)
def test_a_directory_that_says_otherwise_is_followed(place: Path, given: int, folder: str, file: str) -> None:
    """Catches: a directory that was opened for a group, and files in it that the group cannot read; setgid lost."""
    root = place / "state"
    root.mkdir()
    root.chmod(given)
    storage = LocalStorage(root)
    storage.write_new("a/file", b"x")
    assert modes(root) == {".": folder, ".tmp": folder, "a": folder, "a/file": file}
    (root / "a").chmod(0o700)  # and any directory below may say otherwise again
    storage.write_new("a/b/other", b"x")
    below = modes(root)
    assert (below["a/b"], below["a/b/other"]) == ("0700", "0600")


def as_user(uid: int, gid: int, work: Callable[[], None]) -> int:
    """What becomes of it in a process of another user: 0 if it did not raise, 1 if that was refused."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            work()
            code = 0
        except StorageError as error:
            code = 1 if isinstance(error, PermissionError) or "ermission" in str(error) else 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_users_of_one_group_share_a_job_and_strangers_do_not(place: Path) -> None:
    """Catches: driver and executors of different users who cannot read, write or delete each other's files though the
    directory is their group's; and a stranger who can read them."""
    root = place / "state"
    root.mkdir()
    os.chown(root, 0, OTHER_GROUP)
    root.chmod(0o2770)
    before = os.umask(0o077)
    try:
        LocalStorage(root).write_new("jobs/driver", b"d")

        def share() -> None:
            storage = LocalStorage(root)
            assert storage.read("jobs/driver") == b"d"
            storage.write_new("jobs/slots/mine", b"s")
            storage.delete("jobs/driver")

        assert as_user(OTHER_USER, OTHER_GROUP, share) == 0
        assert LocalStorage(root).read("jobs/slots/mine") == b"s"
        LocalStorage(root).write_new("jobs/slots/driver", b"d")

        def look() -> None:
            LocalStorage(root).read("jobs/slots/mine")

        assert as_user(OTHER_USER + 1, STRANGERS_GROUP, look) == 1
    finally:
        os.umask(before)
