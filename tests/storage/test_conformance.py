"""What every storage promises, on every storage: local files, memory, S3, and a faulty one without faults."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from emberstate.errors import CorruptionError, StorageError, StorageExistsError, StorageNotFoundError
from emberstate.storage.base import BaseStorage
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.storage.object_store import S3Storage
from emberstate.testing.faults import FaultyStorage
from tests.patience import PATIENCE
from tests.raising import raising
from tests.storage.s3_server import BUCKET, S3Server, s3_server

KINDS = ["local", "memory", "s3", "faulty"]
BAD_PATHS = [
    "",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "a\0b",
    "a\nb",
    "\ud800",
    ".tmp",
    ".tmp/x",
    "x" * 256,
    "ü" * 128,
    "/".join(["abc"] * 200),
]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    kind = request.param
    if kind == "memory":
        return MemoryStorage()
    if kind == "s3":
        if find_spec("moto") is None:
            pytest.skip("moto is not installed")
        running: S3Server = request.getfixturevalue("server")
        return S3Storage(BUCKET, f"some prefix/{tmp_path.name}", client_options=running.client_options())
    local = LocalStorage(tmp_path / "root")
    return FaultyStorage(local) if kind == "faulty" else local


def test_what_is_written_is_read(storage: Storage) -> None:
    """Catches: bytes lost, added or reordered between pieces; sizes and counters that do not follow."""
    storage.write_new("a/one", b"hello")
    storage.write_new("a/many", [b"he", bytearray(b"l"), memoryview(b"lo"), b""])
    storage.write_new("empty", b"")
    storage.write_new("a/large", bytes(range(256)) * 8192)

    assert storage.read("a/one") == storage.read("a/many") == b"hello"
    assert storage.read("empty") == b"" and storage.size("empty") == 0
    assert storage.read("a/large") == bytes(range(256)) * 8192
    assert storage.size("a/large") == 256 * 8192
    found = storage.statistics()
    assert (found.writes, found.failures, found.recovered) == (4, 0, 0)
    assert found.bytes_written == 10 + 256 * 8192
    assert found.bytes_read == found.bytes_written


def test_buffers_of_other_shapes(storage: Storage) -> None:
    """Catches: a buffer of wider items, an Arrow buffer say, counted or cut by items instead of bytes."""
    pyarrow = pytest.importorskip("pyarrow")
    wide = memoryview(b"01234567").cast("Q")
    storage.write_new("wide", wide)
    storage.write_new("arrow", [pyarrow.py_buffer(b"arrow"), wide])

    assert storage.read("wide") == b"01234567"
    assert storage.read("arrow") == b"arrow01234567"


def test_a_name_is_written_once(storage: Storage) -> None:
    """Catches: a second writer overwriting silently, or an equal file taken for success by `write_new`."""
    storage.write_new("a/file", b"first")
    for data in (b"second", b"first"):
        with pytest.raises(StorageExistsError) as caught:
            storage.write_new("a/file", data)
        assert caught.value.errno == errno.EEXIST
        assert caught.value.path == "a/file" and storage.describe() in str(caught.value)
    assert storage.read("a/file") == b"first"
    assert storage.list() == ["a/file"]


@pytest.mark.reliability(11)
def test_conditional_create(storage: Storage) -> None:
    """Catches: two winners; a loser that overwrites; a retry of the winner taken for a loser."""
    assert storage.create_if_absent("claims/1", b"mine") is True
    assert storage.create_if_absent("claims/1", b"yours") is False
    assert storage.create_if_absent("claims/1", b"mine and more") is False
    assert storage.create_if_absent("claims/1", b"mine") is True
    assert storage.read("claims/1") == b"mine"
    assert storage.statistics().recovered == 1
    with raising(StorageError, path="claims/2", errno=errno.EINVAL):
        storage.create_if_absent("claims/2", b"")


def test_reading_what_is_not_there(storage: Storage) -> None:
    """Catches: a missing file reported as another error, or as empty; a directory taken for a file."""
    storage.write_new("folder/file", b"x")
    calls: list[Callable[[str], object]] = [
        storage.read,
        storage.size,
        lambda path: storage.read_range(path, 0, 0),
        storage.ensure_durable,
    ]
    for call in calls:
        for path in ("nothing", "folder", "folder/nothing", "nowhere/nothing"):
            with pytest.raises(StorageNotFoundError) as caught:
                call(path)
            assert caught.value.path == path and storage.describe() in str(caught.value)


def test_read_limit(storage: Storage) -> None:
    """Catches: a hostile, huge file read into memory before anybody looks at its size."""
    storage.write_new("file", b"12345")
    assert storage.read("file", limit=5) == b"12345"
    with raising(StorageError, path="file", expected=4, found=5, errno=errno.EFBIG):
        storage.read("file", limit=4)
    assert storage.statistics().bytes_read == 5


@pytest.mark.reliability(7)
def test_ranges(storage: Storage) -> None:
    """Catches: off-by-one ends, a truncated file returned as if it were whole, numbers beyond 64 bits."""
    storage.write_new("file", b"0123456789")
    assert storage.read_range("file", 0, 10) == b"0123456789"
    assert storage.read_range("file", 3, 4) == b"3456"
    assert storage.read_range("file", 9, 1) == b"9"
    assert storage.read_range("file", 10, 0) == b""
    for offset, length in [(0, 11), (9, 2), (10, 1), (11, 0), (0, 1 << 63), (1 << 63, 1 << 63)]:
        with raising(CorruptionError, path="file", expected=offset + length, found=10):
            storage.read_range("file", offset, length)
    for offset, length in [(-1, 1), (1, -1)]:
        with raising(StorageError, path="file", errno=errno.EINVAL):
            storage.read_range("file", offset, length)


def test_listing(storage: Storage) -> None:
    """Catches: a prefix that matches half a name, unsorted or missing names, temporary files listed."""
    names = ["chk/2", "chk/10", "chk/deep/er/3", "chk2/1", "chk.old/1", "other", "ü/é", "chk-1"]
    for name in names:
        storage.write_new(name, name.encode())
    assert storage.list() == storage.list("") == sorted(names)
    assert storage.list("chk") == storage.list("chk/") == ["chk/10", "chk/2", "chk/deep/er/3"]
    assert storage.list("chk/deep") == ["chk/deep/er/3"]
    assert storage.list("nowhere") == storage.list("other") == []


def test_listing_an_empty_storage(storage: Storage) -> None:
    """Catches: an error where there is nothing yet."""
    assert storage.list() == storage.list("chk") == []


def test_deleting(storage: Storage) -> None:
    """Catches: an error for what is gone already; a neighbour deleted; a name that cannot be used again."""
    for name in ("a/1", "a/2", "a/3", "b"):
        storage.write_new(name, b"x")
    storage.delete("a/1")
    storage.delete("a/1")
    storage.delete("nowhere/nothing")
    storage.delete_all(["a/3", "b", "nothing"])
    storage.delete_all([])
    assert storage.list() == ["a/2"]
    assert storage.create_if_absent("a/1", b"again")


@pytest.mark.reliability(7)
@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_lead_elsewhere(storage: Storage, path: str) -> None:
    """Catches: a manifest that names a file outside the storage, or a name no other storage could hold."""
    calls: list[Callable[[], object]] = [
        lambda: storage.write_new(path, b"x"),
        lambda: storage.create_if_absent(path, b"x"),
        lambda: storage.read(path),
        lambda: storage.read_range(path, 0, 1),
        lambda: storage.size(path),
        lambda: storage.delete(path),
        lambda: storage.delete_all([path]),
        lambda: storage.ensure_durable(path),
    ]
    if path not in ("", "a/"):  # a listing takes both
        calls.append(lambda: storage.list(path))
    for call in calls:
        with raising(StorageError, path=path[:200], errno=errno.EINVAL) as caught:
            call()
        assert len(str(caught.value)) < 1000
    assert storage.list() == []


@pytest.mark.reliability(30)
@pytest.mark.parametrize("path", ["with  blanks", "ünïcode/漢字/🙂", "a%20b/c+d&e=f", "~", "x" * 255])
def test_unusual_names(storage: Storage, path: str) -> None:
    """Catches: names that are quoted, normalised or split on their way to the storage and back."""
    storage.write_new(path, b"x")
    assert storage.list() == [path]
    assert storage.read(path) == b"x"
    assert storage.read_range(path, 0, 1) == b"x"
    storage.delete(path)
    assert storage.list() == []


@pytest.mark.reliability(13)
def test_threads_racing_to_create(storage: Storage) -> None:
    """Catches: look-then-write, which lets two threads win one name."""
    rounds, racers = 12, 4
    barrier = threading.Barrier(racers)
    wins: list[list[int]] = [[] for _ in range(rounds)]

    def race(me: int) -> None:
        for number in range(rounds):
            barrier.wait(PATIENCE)
            if storage.create_if_absent(f"race/{number}", f"racer {me}".encode()):
                wins[number].append(me)

    threads = [threading.Thread(target=race, args=(me,)) for me in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [len(winners) for winners in wins] == [1] * rounds
    for number, (winner,) in enumerate(wins):
        assert storage.read(f"race/{number}") == f"racer {winner}".encode()


def test_the_probe_leaves_nothing(storage: Storage) -> None:
    """Catches: a start-up check that fails on a good storage, or leaves files behind."""
    storage.check_conditional_create()
    storage.check_conditional_create()
    assert storage.list() == []
    assert storage.remove_leftovers(lambda writer: False) == 0


def test_leftovers_of_the_dead_are_removed(storage: Storage) -> None:
    """Catches: temporary files of a live writer removed, or those of a dead one kept for ever."""
    inner = storage.inner if isinstance(storage, FaultyStorage) else storage
    assert isinstance(inner, BaseStorage)
    for name in ("dead-1~a", "dead-2~b", "live~c"):
        inner._put_new(f".tmp/{name}", [memoryview(b"x")])
    seen = []

    def is_live(writer: str) -> bool:
        seen.append(writer)
        return writer == "live"

    assert storage.remove_leftovers(is_live) == 2
    assert sorted(seen) == ["dead-1", "dead-2", "live"]
    assert storage.remove_leftovers(is_live) == 0
    assert storage.remove_leftovers(lambda writer: False) == 1


@pytest.mark.parametrize("seed", [20240711])
def test_against_a_dict(storage: Storage, seed: int) -> None:
    """Catches: any sequence of calls after which a storage and a dict disagree."""
    rng = random.Random(seed)
    model: dict[str, bytes] = {}
    for number in range(150):
        path = f"{rng.choice('ab')}/{rng.randrange(12)}"
        data = b"%d" % number
        match rng.randrange(5):
            case 0:
                if path in model:
                    with pytest.raises(StorageExistsError):
                        storage.write_new(path, data)
                else:
                    storage.write_new(path, data)
                    model[path] = data
            case 1:
                assert storage.create_if_absent(path, data) is (path not in model)
                model.setdefault(path, data)
            case 2:
                storage.delete(path)
                model.pop(path, None)
            case 3:
                folder = rng.choice("ab")
                assert storage.list(folder) == sorted(p for p in model if p.startswith(folder))
            case _:
                if path in model:
                    assert storage.read(path) == model[path]
                else:
                    with pytest.raises(StorageNotFoundError):
                        storage.size(path)
    assert {path: storage.read(path) for path in storage.list()} == model
