"""Stored outputs that are damaged, or made to do harm: they cost little, and end in our error."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from emberstate.errors import CorruptionError
from emberstate.runtime.rows.arrow_rows import arrow_schema, batch_of
from emberstate.runtime.rows.outputs import output_batches, read_output, write_output
from emberstate.runtime.rows.row import RowType
from tests.raising import raising

WIDE = RowType.of(
    "a bigint not null, b string, c array<string>, d map<string, int>, e struct<x: double, y: binary>, f boolean, "
    "g decimal(9,2), h timestamp, i void"
)


def wide_rows() -> list[tuple[Any, ...]]:
    return [
        (1, "ann", ["x", None, "yy"], {"k": 1}, (1.5, b"z"), True, None, None, None),
        (2, None, None, {}, None, None, None, None, None),
        (3, "bob", [], None, (None, None), False, None, None, None),
    ]


def stored() -> bytes:
    return write_output([batch_of(wide_rows(), WIDE), batch_of(wide_rows()[:1], WIDE)], WIDE)


def stream_of(batches: list[pa.RecordBatch], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def outcome(content: bytes, row_type: RowType = WIDE) -> Any:
    """The rows, or the class of our error; anything else fails the test."""
    try:
        return read_output(content, row_type)
    except CorruptionError:
        return CorruptionError


def test_what_was_written_is_read() -> None:
    """Catches: a check that refuses what the writer writes, empty outputs and slices included."""
    assert [tuple(row)[:2] for row in outcome(stored())] == [(1, "ann"), (2, None), (3, "bob"), (1, "ann")]
    assert outcome(write_output([], WIDE)) == []
    assert outcome(write_output([batch_of(wide_rows(), WIDE).slice(1, 1)], WIDE))[0].a == 2
    nothing = RowType.of("i void")
    assert len(outcome(write_output([batch_of([(None,)] * 100_000, nothing)], nothing), nothing)) == 100_000


@pytest.mark.reliability(27)
def test_a_compressed_output_is_refused_before_it_unfolds() -> None:
    """Catches: 15 KB that become hundreds of MiB in the driver."""
    schema = RowType.of("b string")
    bomb = stream_of(
        [pa.record_batch([pa.array(["\0" * (64 * 1024 * 1024)])], schema=arrow_schema(schema))], compression="zstd"
    )
    assert len(bomb) < 15_000
    allocated = pa.total_allocated_bytes()
    with raising(CorruptionError, "compressed"):
        list(output_batches(bomb, schema))
    assert pa.total_allocated_bytes() - allocated < 2**20


@pytest.mark.reliability(27)
def test_offsets_that_lead_astray() -> None:
    """Catches: Arrow's own error, or memory that is not the output's, where offsets point beyond the values."""
    schema = RowType.of("b string")
    for offsets in ([0, 2**31 - 1], [2, 0], [-5, 3], [0, 9]):
        good = bytearray(stream_of([pa.record_batch([pa.array(["abc"])], schema=arrow_schema(schema))]))
        place = good.rindex(struct.pack("<2i", 0, 3))
        struct.pack_into("<2i", good, place, *offsets)
        assert outcome(bytes(good), schema) is CorruptionError, offsets


@pytest.mark.reliability(27)
def test_rows_that_take_no_bytes() -> None:
    """Catches: a few hundred bytes that declare billions of nulls, as rows or in a list."""
    rows = RowType.of("i void")
    good = bytearray(stream_of([pa.record_batch([pa.nulls(77_777)], schema=arrow_schema(rows))]))
    for count in (2**40, 2**62, -1):
        changed = bytes(good).replace(struct.pack("<q", 77_777), struct.pack("<q", count))
        assert changed != good and outcome(changed, rows) is CorruptionError, count
    lists = RowType.of("c array<void>")
    array = pa.ListArray.from_arrays([0, 77_777], pa.nulls(77_777))
    good = bytearray(stream_of([pa.record_batch([array], schema=arrow_schema(lists))]))
    changed = bytes(good).replace(struct.pack("<q", 77_777), struct.pack("<q", 2**31 - 1))
    changed = changed.replace(struct.pack("<2i", 0, 77_777), struct.pack("<2i", 0, 2**31 - 1))
    assert outcome(changed, lists) is CorruptionError


@pytest.mark.parametrize("other", ["a bigint", "b string, a bigint", "a string, b string", "a bigint, b string, c int"])
def test_other_columns_than_expected(other: str) -> None:
    """Catches: values of one column read as those of another."""
    found = RowType.of(other)
    content = write_output([], found)
    with raising(CorruptionError, expected="a bigint, b string"):
        list(output_batches(content, RowType.of("a bigint, b string")))


@pytest.mark.reliability(27)
def test_what_else_an_arrow_stream_may_hold() -> None:
    """Catches: dictionaries, nulls where there are none, bytes behind the end, text that is no Unicode."""
    words = RowType.of("b string")
    schema = arrow_schema(words)
    dictionary = pa.record_batch({"b": pa.array(["x", "y"]).dictionary_encode()})
    assert outcome(stream_of([dictionary]), words) is CorruptionError
    required = RowType.of("b string not null")
    nulls = pa.record_batch([pa.array([None], pa.string())], names=["b"])
    forged = stream_of([pa.RecordBatch.from_arrays(nulls.columns, schema=arrow_schema(required))])
    assert outcome(forged, required) is CorruptionError
    good = write_output([batch_of([("abc",)], words)], words)
    assert outcome(good + b"\0", words) is CorruptionError
    assert outcome(good + good, words) is CorruptionError
    assert outcome(good.replace(b"abc", b"a\xff\xfe"), words) is CorruptionError
    assert outcome(good[: len(schema.serialize().to_pybytes())], words) is CorruptionError
    for nothing in (b"", b"no Arrow", good[-8:]):
        assert outcome(nothing, words) is CorruptionError


@pytest.mark.reliability(5)
@pytest.mark.reliability(27)
def test_every_truncation_and_flipped_bits_in_every_byte() -> None:
    """Catches: damage under a right checksum that crashes Arrow, raises another error, or takes memory."""
    content, chance = stored(), random.Random(5)
    for length in range(len(content)):
        assert outcome(content[:length]) is CorruptionError, length
    allocated = pa.total_allocated_bytes()
    for position in range(len(content)):
        for bit in chance.sample(range(8), 2):
            data = bytearray(content)
            data[position] ^= 1 << bit
            outcome(bytes(data))
    assert pa.total_allocated_bytes() - allocated < 2**20


@pytest.mark.reliability(27)
def test_every_number_set_to_extremes_and_random_damage() -> None:
    """Catches: an offset, length or count that is used before it is checked."""
    content, chance = stored(), random.Random(7)
    for place in range(0, len(content) - 8, 4):
        for extreme in (2**63 - 1, -(2**63), -1, 2**32 - 1, 2**31, 0, 1, 2**40):
            data = bytearray(content)
            struct.pack_into("<q", data, place, extreme)
            outcome(bytes(data))
    for _ in range(2000):
        data = bytearray(content)
        for _ in range(chance.randrange(1, 9)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        outcome(bytes(data))
