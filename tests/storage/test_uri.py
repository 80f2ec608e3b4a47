"""What users write down as the place of their checkpoints, and the clock."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from emberstate.clock import Clock, ManualClock, SystemClock
from emberstate.errors import StorageError
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.storage.object_store import S3Storage
from emberstate.storage.uri import open_storage
from tests.raising import raising


@pytest.mark.reliability(30)
@pytest.mark.parametrize("name", ["plain", "with blanks", "ünïcode 漢字", "50%20", "a:b", "#x?y"])
def test_local_places(tmp_path: Path, name: str) -> None:
    """Catches: a path that is quoted, unquoted or cut on its way, so that a restart looks somewhere else."""
    place = tmp_path / name
    for uri in (str(place), place, place.as_uri(), place.as_uri().replace("file://", "file:")):
        storage = open_storage(uri)
        assert isinstance(storage, LocalStorage)
        assert storage.describe() == str(place)
        assert storage.create_if_absent("file", b"x")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert open_storage(open_storage(place).describe()).read("file") == b"x"


def test_relative_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a relative place that moves when the process changes its directory."""
    monkeypatch.chdir(tmp_path)
    storage = open_storage("some/place")
    named = open_storage("a:b")
    monkeypatch.chdir("/")
    storage.write_new("file", b"x")
    assert (tmp_path / "some/place/file").exists()
    assert named.describe() == str(tmp_path / "a:b")


def test_other_places() -> None:
    """Catches: bucket and prefix mixed up; two memory storages that share files by accident."""
    pytest.importorskip("boto3")
    options = {"region_name": "us-east-1"}
    for uri, described in [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a b/ü/", "s3://bucket/a b/ü"),
    ]:
        storage = open_storage(uri, client_options=options)
        assert isinstance(storage, S3Storage)
        assert storage.describe() == described
    memory = open_storage("memory://", writer="me")
    assert isinstance(memory, MemoryStorage) and memory.writer == "me"
    memory.write_new("file", b"x")
    assert open_storage("memory://").list() == []


@pytest.mark.parametrize(
    ("uri", "number", "word"),
    [
        ("", errno.EINVAL, "empty"),
        ("gs://bucket/x", errno.ENOTSUP, "gs"),
        ("hdfs://name/x", errno.ENOTSUP, "hdfs"),
        ("abfss://name/x", errno.ENOTSUP, "abfss"),
        ("s3a://bucket/x", errno.EINVAL, "write s3://"),
        ("ftp://host/x", errno.ENOTSUP, "ftp"),
        ("s3:bucket/x", errno.EINVAL, "slashes"),
        ("s3://", errno.EINVAL, "bucket"),
        ("s3:///x", errno.EINVAL, "bucket"),
        ("s3://bucket/x?endpoint=y", errno.EINVAL, "client_options"),
        ("file://host/x", errno.EINVAL, "'host'"),
        ("file:x", errno.EINVAL, "absolute"),
        ("memory://name", errno.EINVAL, "no name"),
        ("memory:", errno.EINVAL, "slashes"),
    ],
)
def test_refused_places(uri: str, number: int, word: str) -> None:
    """Catches: a mistyped or unsupported place that becomes a local directory of that name."""
    with raising(StorageError, word, option="uri", found=uri, errno=number):
        open_storage(uri, client_options={"region_name": "us-east-1"})


def test_a_prefix_that_leads_outside_its_bucket() -> None:
    """Catches: `..` in a URI that reaches the objects of another prefix."""
    with raising(StorageError, path="../x", errno=errno.EINVAL):
        open_storage("s3://bucket/../x", client_options={"region_name": "us-east-1"})


def test_writers() -> None:
    """Catches: a writer's name that would break the names of temporary files."""
    for writer in ("", "a/b", "a~b", "a b", "x" * 101):
        with raising(StorageError, option="writer", found=writer, errno=errno.EINVAL):
            MemoryStorage(writer=writer)
    assert MemoryStorage().writer != MemoryStorage().writer


def test_clocks() -> None:
    """Catches: seconds or nanoseconds where microseconds are meant; a manual clock that moves by itself."""
    system: Clock = SystemClock()
    assert abs(system.now_micros() - time.time() * 1e6) < 60e6
    manual = ManualClock(5)
    manual.advance(10)
    assert (manual.now_micros(), manual.now_micros()) == (15, 15)
    manual.set(3)
    assert manual.now_micros() == 3
