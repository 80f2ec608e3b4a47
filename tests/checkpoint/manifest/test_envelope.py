"""Manifests, claims and intents as files: one that lost, gained or changed a bit is never opened."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.manifest import envelope
from emberstate.checkpoint.manifest.envelope import FORMAT_VERSION, open_sealed, parse, seal
from emberstate.checkpoint.manifest.incarnation import newest
from emberstate.checkpoint.manifest.intent import Intent
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import manifest_path, number_in
from emberstate.checkpoint.manifest.model import Batch, Holder
from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError, StorageError
from emberstate.storage.checksums import checksum
from tests.checkpoint.counting import counting_job
from tests.checkpoint.manifest.manifest_forgery import body, body_of, sealed
from tests.checkpoint.stored import SharedMemory
from tests.raising import raising

Open = Callable[[bytes], Any]


def small_files() -> dict[str, tuple[bytes, Open]]:
    """A file of every sort as a job writes it, and what opens it."""
    job = counting_job()
    job.run()
    storage, number = job.storage, job.coordinator.latest.number
    found: dict[str, tuple[bytes, Open]] = {
        "manifest": (storage.read(manifest_path(number)), lambda data: open_manifest(data, "m"))
    }
    for what, type_ in (("claim", Holder), ("intent", Intent)):
        (path,) = storage.list(f"{what}s")
        found[what] = (storage.read(path), lambda data, what=what, type_=type_: open_sealed(what, data, type_))  # type: ignore[misc]
    job.close()
    return found


def described(body: bytes) -> tuple[int, str]:
    return len(body), checksum(body)


SORTS = ("manifest", "claim", "intent")


@pytest.fixture(scope="module")
def files() -> dict[str, tuple[bytes, Open]]:
    return small_files()


@pytest.mark.reliability(5)
@pytest.mark.parametrize("sort", SORTS)
def test_every_flipped_bit_is_found(sort: str, files: dict[str, tuple[bytes, Open]]) -> None:
    """Catches: a bit of a small file that no checksum covers."""
    data, open_ = files[sort]
    open_(data)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises((CorruptionError, RestoreRefusedError)) as found:
                open_(bytes(damaged))
            # Only a changed version may be taken for what it says, and that is refused as well.
            assert found.type is CorruptionError or b" 1 " not in damaged[:30]


@pytest.mark.reliability(4)
@pytest.mark.parametrize("sort", SORTS)
def test_every_truncation_and_addition_is_found(sort: str, files: dict[str, tuple[bytes, Open]]) -> None:
    """Catches: half a file taken for a whole one; bytes behind the end that nobody looks at."""
    data, open_ = files[sort]
    for length in range(len(data)):
        for part in (data[:length], data[length + 1 :]):
            with pytest.raises(CorruptionError):
                open_(part)
    body = data.partition(b"\n")[2]
    for more in (b"\n", b" ", b"{}", data):
        with raising(CorruptionError, expected=described(body), found=described(body + more)):
            open_(data + more)


@pytest.mark.reliability(7)
def test_a_file_of_one_sort_is_not_another(files: dict[str, tuple[bytes, Open]]) -> None:
    """Catches: a claim under a manifest's name."""
    for sort, (_, open_) in files.items():
        for other, (data, _) in files.items():
            if sort != other:
                with raising(CorruptionError, expected=sort, found=data[:40]):
                    open_(data)


@pytest.mark.reliability(24)
@pytest.mark.parametrize("sort", SORTS)
def test_a_later_version_is_refused_by_name(sort: str, files: dict[str, tuple[bytes, Open]]) -> None:
    """Catches: a file of the future that is called damaged, or read by the rules of the present."""
    data, open_ = files[sort]
    later = [
        sealed({**body_of(data), "library": "9.1.2"}, sort, FORMAT_VERSION + 1),
        f'emberstate {sort} 7 another form of head\n{{"library":"9.1.2","new":[]}}'.encode(),
    ]
    for future in later:
        with raising(RestoreRefusedError, r"9\.1\.2", expected=FORMAT_VERSION):
            open_(future)
    for garbage in (b"", b"\xff\xfe", b'{"library":5}', b"[" * 100_000):
        with raising(RestoreRefusedError, "unknown", expected=FORMAT_VERSION, found=999999999):
            open_(f"emberstate {sort} 999999999 x\n".encode() + garbage)


@pytest.mark.reliability(24)
def test_an_old_version_is_read_by_a_later_reader(
    files: dict[str, tuple[bytes, Open]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a first line that is compared with what the reader itself would write."""
    monkeypatch.setattr(envelope, "FORMAT_VERSION", 2)
    for data, open_ in files.values():
        open_(data)


@pytest.mark.parametrize("version", [0, "01", "+1", "1_0", "-1"])
def test_versions_that_never_were(version: Any) -> None:
    """Catches: a first line that is read more generously than it is written."""
    with pytest.raises(CorruptionError):
        open_manifest(sealed(b"{}", version=version), "m")


def test_the_error_says_which_file_and_what_was_found() -> None:
    """Catches: a message that leaves open what is damaged."""
    good = sealed({"x": 1}, "claim")
    body = good.partition(b"\n")[2]
    with raising(CorruptionError, path="claims/000007", expected=described(body), found=described(body[:-1])):
        open_sealed("claim", good[:-1], Holder, name="claims/000007")
    with raising(CorruptionError, "`incarnation`", path="claims/000007"):
        open_sealed("claim", good, Holder, name="claims/000007")


@pytest.mark.reliability(27)
def test_nothing_is_written_that_no_reader_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a checkpoint too large to be read again, which ends a job for good."""
    monkeypatch.setattr(envelope, "MAX_BYTES", 1000)
    holder = Holder(1, "h", 1, "s", "t")
    seal("claim", holder)
    with raising(StorageError, errno=errno.EFBIG, expected=1000):
        seal("claim", Holder(1, "h" * 1000, 1, "s", "t"))
    with raising(StateDeclarationError, found=repr("\ud800")):
        seal("claim", Holder(1, "\ud800", 1, "s", "t"))


@pytest.mark.reliability(6)
@pytest.mark.parametrize("text", [b"", b"null", b"[]", b'"x"', b"[" * 10**6, b'{"a":' * 10**5, b"\xff", b"{}{}", b"1"])
def test_a_content_that_makes_no_sense(text: bytes) -> None:
    """Catches: a decoder's own error, or a crash of the stack, that gets through."""
    with pytest.raises(CorruptionError):
        parse(text, Holder, "here")
    with pytest.raises(CorruptionError):
        open_sealed("claim", sealed(text, "claim"), Holder)


def test_unknown_fields_are_ignored() -> None:
    """Catches: a reader that takes a later minor addition for damage."""
    plain = {"incarnation": 1, "host": "h", "pid": 1, "started": "s", "token": "t"}
    more = {**plain, "color": {"deep": [1, {"x": None}]}}
    assert parse(body(more), Holder, "x") == parse(body(plain), Holder, "x")


@pytest.mark.reliability(7)
def test_files_beside_the_claims_fence_nobody() -> None:
    """Catches: a backup copy or a stray file that is taken for the claim of a newer incarnation."""
    job = counting_job()
    for name in ("claims/999999.bak", "claims/000099~", "claims/5", "claims/x", "claims/000077/more"):
        job.storage.write_new(name, b"stray")
    assert newest(job.storage) == 1
    job.run(2)
    job.close()


def test_numbers_in_paths() -> None:
    """Catches: a path that is no path of ours and still gives a number, or the other way round."""
    assert number_in("claims/000003") == 3
    assert number_in("checkpoints/000000000017/manifest") == 17
    assert number_in("intents/00000000000000000042-start") is not None
    assert [number_in(path) for path in ("claims", "claims/", "claims/x1", "")] == [None] * 4


def test_intents_hold_what_a_batch_can_be() -> None:
    """Catches: an intent that is written and cannot be read again, so that its batch never runs."""
    from emberstate.checkpoint.manifest.intent import fix

    for batch in (
        Batch(-1, "q", "s", 0),
        Batch(2**63, "q", "s", 0),
        Batch(1, "q", "s", 2**63),
        Batch(1, 5, "s", 0),  # type: ignore[arg-type]
        Batch(1, "q", None, 0),  # type: ignore[arg-type]
        Batch(1, "q", "\udcff", 0),
        Batch(1, "q", "s", 0, watermark=0.5),  # type: ignore[arg-type]
        Batch(True, "q", "s", 0),
    ):
        storage = SharedMemory()
        with pytest.raises(StateDeclarationError):
            fix(storage, Intent(batch, "", 1, "t"))
        assert storage.list() == []
    storage = SharedMemory()
    large = Intent(Batch(1, "q", "s" * (20 * 2**20), 0), "", 1, "t")
    assert fix(storage, large) == fix(storage, msgspec.structs.replace(large, token="u"))
