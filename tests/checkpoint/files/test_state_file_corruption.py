"""Damaged files: whatever happened to the bytes, our error or exactly what was written."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from emberstate.checkpoint.files import reader as state_file_reader
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.errors import CorruptionError, RestoreRefusedError
from tests.checkpoint.files.state_file_small import LIMITS, outcome, small_files


def range_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: data[offset : offset + length]


def read(read_range: Callable[[int, int], bytes], size: int) -> Any:
    """All that a restore sees of a file, or the error class if it is one of ours."""
    try:
        reader = StateFileReader(read_range, size, LIMITS)
        return reader.meta, reader.entries, [batch for _, batch in reader.batches()]
    except (CorruptionError, RestoreRefusedError) as error:
        return type(error)


@pytest.mark.reliability(5)
@pytest.mark.reliability(6)
@pytest.mark.parametrize(
    "damaged", [pytest.param(0, id="base", marks=pytest.mark.long), pytest.param(1, id="delta")]
)
def test_every_flipped_bit_is_found_or_harmless(damaged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a bit that changes what is restored, crashes Arrow, or raises another error than ours."""
    monkeypatch.setattr(state_file_reader, "_FIRST_READ", 10)
    *files, expected = small_files()
    size = len(files[damaged])
    used: set[int] = set()

    def recording(offset: int, length: int) -> bytes:
        used.update(range(offset, offset + length))
        return files[damaged][offset : offset + length]

    unharmed = read(recording, size)
    for position in used:
        for bit in range(8):
            data = bytearray(files[damaged])
            data[position] ^= 1 << bit
            found = read(range_of(bytes(data)), size)
            if isinstance(found, type):
                assert found in (CorruptionError, RestoreRefusedError)
            else:
                assert found == unharmed, (position, bit)  # and so is what is restored of it
    # What is never read cannot matter: the file's beginning and the end of its stream, for Arrow's own
    # readers.
    first_batch = StateFileReader.of_bytes(files[damaged])._blocks[0][0]
    assert len(set(range(first_batch, size)) - used) == 8
    blank = bytes(byte if position in used else 0 for position, byte in enumerate(files[damaged]))
    assert outcome(*[blank if i == damaged else file for i, file in enumerate(files)]) == expected


@pytest.mark.reliability(4)
@pytest.mark.reliability(7)
def test_every_truncation_is_found() -> None:
    """Catches: half a file taken for a whole one; an empty file that raises something else."""
    base, delta, _ = small_files()
    for data in (base, delta):
        for length in range(len(data)):
            assert outcome(data[:length]) is CorruptionError, length
            assert outcome(data[length + 1 :]) is CorruptionError, length


@pytest.mark.reliability(6)
def test_random_damage_under_valid_checksums() -> None:
    """Catches: a parser that is safe only because checksums shield it: here they fit the damage."""
    base, _, expected = small_files()
    reader = StateFileReader.of_bytes(base)
    rng = random.Random(7)
    for _ in range(2000):
        data = bytearray(base)
        offset, length = reader._blocks[rng.randrange(len(reader._blocks))]
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(offset, offset + length)] = rng.randrange(256)
        found = outcome(with_valid_checksums(bytes(data)))
        assert found is CorruptionError or found is RestoreRefusedError or same_types(found, expected)


@pytest.mark.reliability(6)
def test_random_damage_to_the_footer_under_a_valid_checksum() -> None:
    """Catches: offsets and sizes in the footer or its JSON that are believed."""
    base, _, expected = small_files()
    (length,) = struct.unpack("<i", base[-10:-6])
    rng = random.Random(8)
    for _ in range(3000):
        data = bytearray(base)
        start = len(base) - 10 - length
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(start + 16, len(base) - 10)] = rng.randrange(256)
        found = outcome(with_valid_footer(data))
        assert found is CorruptionError or found is RestoreRefusedError or same_types(found, expected)


def with_valid_footer(data: bytearray) -> bytes:
    (length,) = struct.unpack("<i", data[-10:-6])
    start = len(data) - 10 - length
    struct.pack_into("<I", data, start + 8, zlib.crc32(data[start + 16 : -10]))
    return bytes(data)


def with_valid_checksums(data: bytes) -> bytes:
    """The file with the batches' checksums in the index, and the footer's, made to fit."""
    reader = StateFileReader.of_bytes(data)
    changed = bytearray(data)
    for entry, (offset, length) in zip(reader.entries, reader._blocks, strict=True):
        old, new = str(entry.checksum).encode(), str(zlib.crc32(data[offset : offset + length])).encode()
        if old != new:
            place = changed.rindex(b"," + old + b"]")
            if len(new) > len(old):
                return data  # does not fit; the checksum stays wrong
            changed[place + 1 : place + 1 + len(old)] = new.rjust(len(old))  # JSON allows the space
    return with_valid_footer(changed)


def same_types(found: Any, expected: Any) -> bool:
    """Values may be others, types may not."""
    for table in found:
        for key, namespace, value in table:
            assert type(key) is str and type(namespace) is str
            assert isinstance(value, (str, list, dict))
            parts = value if isinstance(value, list) else [*value.values()] if isinstance(value, dict) else []
            assert all(type(part) in (int, bool) for part in parts)
    return len(found) == len(expected)


@pytest.mark.reliability(7)
def test_a_read_that_comes_short() -> None:
    """Catches: a storage layer's short read taken for content."""
    base, *_ = small_files()
    for lie in (lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"):
        fake: Callable[[bytes], bytes] = lie
        with pytest.raises(CorruptionError):
            StateFileReader(lambda offset, length, fake=fake: fake(base[offset : offset + length]), len(base))  # type: ignore[misc]
