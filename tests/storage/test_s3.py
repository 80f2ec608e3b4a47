"""S3 when replies are lost, servers refuse, bodies break off, and stores do not keep the condition."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emberstate.errors import InstallationError, StorageError, StorageExistsError
from emberstate.storage.interface import StorageOutcomeUnknownError
from emberstate.storage.object_store import S3Storage
from tests.raising import raising
from tests.storage.s3_server import BUCKET, S3Server, s3_server

pytest.importorskip("moto")


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


@pytest.fixture
def server(running: S3Server) -> S3Server:
    running.reset()
    return running


@pytest.fixture
def storage(server: S3Server, tmp_path: Path) -> S3Storage:
    return open_s3(server, tmp_path)


def open_s3(server: S3Server, tmp_path: Path, attempts: int = 2, url: str | None = None) -> S3Storage:
    options = server.client_options(retries={"mode": "standard", "total_max_attempts": attempts})
    options["endpoint_url"] = url or server.url
    return S3Storage(BUCKET, tmp_path.name, client_options=options, pause=lambda seconds: None)


def first(times: int, method: str) -> Callable[[str, str], bool]:
    """True for the first so many requests of a method."""
    left = [times]

    def matches(called: str, path: str) -> bool:
        if called == method and left[0]:
            left[0] -= 1
            return True
        return False

    return matches


def puts(server: S3Server) -> int:
    return sum(method == "PUT" for method, _ in server.requests)


@pytest.mark.reliability(11)
def test_a_lost_reply(server: S3Server, storage: S3Storage) -> None:
    """Catches: a success whose reply was lost, and whose repetition got 412, taken for somebody else's."""
    server.lose_reply = first(1, "PUT")
    assert storage.create_if_absent("manifest", b"mine") is True
    assert puts(server) == 2
    server.lose_reply = first(1, "PUT")
    storage.write_new("file", b"data")
    assert (storage.read("manifest"), storage.read("file")) == (b"mine", b"data")
    assert storage.statistics().recovered == 2


@pytest.mark.reliability(11)
def test_every_reply_lost(server: S3Server, storage: S3Storage) -> None:
    """Catches: a commit that took place reported as failed when all retries end without an answer."""
    server.lose_reply = first(2, "PUT")
    assert storage.create_if_absent("manifest", b"mine") is True
    assert puts(server) == 2


@pytest.mark.reliability(11)
@pytest.mark.reliability(12)
def test_a_lost_reply_to_the_loser(server: S3Server, storage: S3Storage) -> None:
    """Catches: a writer that lost, and whose refusal was lost, taking the winner's file for its own."""
    storage.write_new("manifest", b"theirs")
    server.lose_reply = first(1, "PUT")
    assert storage.create_if_absent("manifest", b"mine") is False
    server.lose_reply = first(1, "PUT")
    with pytest.raises(StorageExistsError):
        storage.write_new("manifest", b"mine")
    assert storage.read("manifest") == b"theirs"


def test_a_refusal_at_once_is_taken_at_its_word(server: S3Server, storage: S3Storage) -> None:
    """Catches: a `write_new` that reads a large file back although nothing was repeated, or accepts it."""
    storage.write_new("file", b"data")
    server.requests.clear()
    with pytest.raises(StorageExistsError):
        storage.write_new("file", b"data")
    assert [method for method, _ in server.requests] == ["PUT"]


@pytest.mark.reliability(11)
def test_nobody_knows(server: S3Server, storage: S3Storage, tmp_path: Path) -> None:
    """Catches: "failed" said of a write that may have taken place, when the answer cannot be had."""
    server.refuse = lambda method, path: (503, "ServiceUnavailable")
    writes: dict[str, Callable[[], object]] = {
        "a": lambda: storage.create_if_absent("a", b"x"),
        "b": lambda: storage.write_new("b", b"x"),
    }
    for path, write in writes.items():
        with raising(StorageOutcomeUnknownError, path=path, found="ServiceUnavailable") as caught:
            write()
        assert "s3://checkpoints/" in str(caught.value)
    gone = open_s3(server, tmp_path, url="http://127.0.0.1:9")
    with raising(StorageOutcomeUnknownError, path="a", errno=errno.ECONNABORTED):
        gone.create_if_absent("a", b"x")
    with raising(StorageError, path="a", errno=errno.ECONNABORTED):
        gone.read("a")


def test_a_conflict_is_tried_again(server: S3Server, storage: S3Storage) -> None:
    """Catches: 409, S3's "another request is under way", taken for success, for a loss or for an error."""
    conflicts = first(3, "PUT")
    server.refuse = lambda method, path: (409, "ConditionalRequestConflict") if conflicts(method, path) else None
    assert storage.create_if_absent("manifest", b"mine") is True
    assert puts(server) == 4
    server.refuse = lambda method, path: (409, "ConditionalRequestConflict") if method == "PUT" else None
    with raising(StorageError, path="other", found="ConditionalRequestConflict"):
        storage.create_if_absent("other", b"mine")


@pytest.mark.reliability(8)
@pytest.mark.parametrize(
    ("status", "code", "number"),
    [
        (403, "AccessDenied", errno.EACCES),
        (404, "NoSuchBucket", errno.ENOENT),
        (501, "NotImplemented", errno.ENOTSUP),
    ],
)
def test_refusals(server: S3Server, storage: S3Storage, status: int, code: str, number: int) -> None:
    """Catches: a missing right or bucket reported as a missing file, as unknown, or without its reason."""
    server.refuse = lambda method, path: (status, code)
    for call in (
        lambda: storage.write_new("a", b"x"),
        lambda: storage.read("a"),
        storage.list,
        storage.check_conditional_create,
    ):
        with raising(StorageError, found=code, errno=number) as caught:
            call()
        assert type(caught.value) is StorageError


def test_a_store_that_ignores_the_condition(server: S3Server, storage: S3Storage) -> None:
    """Catches: a store that overwrites accepted at start, where two drivers would undo each other's work."""

    def strip(params: dict[str, Any], **_: Any) -> None:
        params["headers"].pop("If-None-Match")

    storage._client.meta.events.register("before-call.s3.PutObject", strip)
    with raising(StorageError, errno=errno.ENOTSUP):
        storage.check_conditional_create()
    assert storage.remove_leftovers(lambda _: False) == 0


def test_listing_many_pages(server: S3Server, storage: S3Storage) -> None:
    """Catches: only the first page of a listing seen, so that newer checkpoints look absent."""

    def short_pages(params: dict[str, Any], **_: Any) -> None:
        params["MaxKeys"] = 3

    storage._client.meta.events.register("before-parameter-build.s3.ListObjectsV2", short_pages)
    names = [f"chk/{number:02}" for number in range(10)]
    for name in names:
        storage.write_new(name, b"x")
    server.requests.clear()
    assert storage.list("chk") == names
    assert len(server.requests) == 4


def test_folders_of_the_console(server: S3Server, storage: S3Storage, tmp_path: Path) -> None:
    """Catches: a folder marker, or a key that no storage could have written, listed as a file."""
    for key in ("chk/", "chk/a//b", "chk/../c"):
        storage._client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/{key}", Body=b"")
    storage.write_new("chk/file", b"x")
    assert storage.list() == ["chk/file"]


class BrokenBody:
    """A body whose connection breaks."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self) -> bytes:
        raise self.error

    def close(self) -> None:
        pass


def test_a_body_that_breaks_off(server: S3Server, storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: half a body returned, or a restore that dies of one broken connection."""
    storage.write_new("file", b"0123456789")
    real, failures = storage._client.get_object, storage._failures
    broken = [0]

    def break_off(times: int) -> None:
        broken[0] = times

    def get_object(**options: Any) -> Any:
        answer = real(**options)
        if broken[0]:
            broken[0] -= 1
            answer["Body"] = BrokenBody(failures.IncompleteReadError(actual_bytes=1, expected_bytes=10))
        return answer

    monkeypatch.setattr(storage._client, "get_object", get_object)
    break_off(2)
    assert storage.read("file") == b"0123456789"
    break_off(2)
    assert storage.read_range("file", 2, 3) == b"234"
    break_off(100)
    with raising(StorageError, path="file", errno=errno.ECONNABORTED):
        storage.read("file")


def test_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a bare ImportError where the message should say what to install."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InstallationError, match=r"emberstate\[s3\]"):
        S3Storage("bucket")


def test_prefixes() -> None:
    """Catches: a prefix that escapes its place or leaves no room for the paths below it."""
    client = object()
    assert S3Storage("bucket", "/a/b/", client=client).describe() == "s3://bucket/a/b"
    assert S3Storage("bucket", client=client).describe() == "s3://bucket"
    for prefix in ("a/../b", "a//b", "x/" * 256 + "x"):
        with raising(StorageError, path=prefix[:200], errno=errno.EINVAL):
            S3Storage("bucket", prefix, client=client)
