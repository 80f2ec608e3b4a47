"""Outputs as Parquet files, without Spark: what fits, what was written, and damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import emberstate as es
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.model import PARQUET_OUTPUTS
from emberstate.errors import CorruptionError
from emberstate.runtime.rows.arrow_rows import arrow_schema, batch_of
from emberstate.runtime.rows.outputs import read_output
from emberstate.runtime.rows.parquet_outputs import check_parquet, fits_parquet, parquet_batches, write_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.storage.local import LocalStorage
from emberstate.testing import Harness
from tests.raising import raising
from tests.runtime.rows.test_arrow_rows import values

#: Every type that Parquet takes, alone and nested.
ALL = RowType.of(
    "a bigint not null, b string, c array<string>, d map<string, decimal(9,2)>, e struct<x: double, y: binary>, "
    "f boolean, g decimal(9,2), h timestamp, i timestamp_ntz, j date, k tinyint, l smallint, m int, n float, "
    "o decimal(18,0), p decimal(38,18), q array<array<struct<t: timestamp_ntz, d: date>>>, "
    "r map<int, array<timestamp>>, s struct<m: map<string, string>, u: struct<v: smallint>>, `t u.v` decimal(10,0)"
)
ROWS = st.lists(st.tuples(*(values(column.type, column.nullable) for column in ALL.columns)), max_size=30)


@given(ROWS, st.integers(0, 30))
def test_what_was_written_is_read(rows: list[Any], cut: int) -> None:
    """Catches: a type that Parquet changes; rows lost or out of order where batches meet; slices taken whole."""
    batch = batch_of(rows, ALL)
    content = write_parquet([batch.slice(0, cut), batch.slice(cut)], ALL)
    found = pa.Table.from_batches(parquet_batches(content, ALL), arrow_schema(ALL))
    assert found.equals(pa.Table.from_batches([batch]))
    assert [tuple(row) for row in read_output(content, ALL, "parquet")] == [tuple(row) for row in rows]


@pytest.mark.parametrize(
    "schema",
    [
        "a void",
        "a interval day to second",
        "a array<void>",
        "a int, A int",
        "s struct<x: int, X: int>",
        "s array<struct<x: int not null>>",
        "m map<string, interval day to second>",
    ],
)
def test_what_does_not_fit(schema: str) -> None:
    """Catches: columns that Spark refuses to read, or takes for others, in a file that is committed."""
    assert not fits_parquet(RowType.of(schema))
    assert fits_parquet(ALL)


def test_other_columns_and_compression_are_damage() -> None:
    """Catches: a column that the file does not have read as nulls; a few KB that become hundreds of MiB."""
    words = RowType.of("word string")
    content = write_parquet([batch_of([("x",)], words)], words)
    for other in ("word bigint", "word string not null", "words string", "word string, more int"):
        with raising(CorruptionError, path="output/x", expected=RowType.of(other).schema):
            check_parquet(content, RowType.of(other), "output/x")
    table = pa.table({"word": ["\0" * 2**20] * 3})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    with raising(CorruptionError, "compressed", path="output/x"):
        check_parquet(sink.getvalue().to_pybytes(), words, "output/x")


class Repeats(es.KeyedProcessFunction):
    """Emits a row many times, to two outputs."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        for number in range(row.times):
            ctx.output("side", (number, None))
            yield row.key, number


def test_what_a_slot_stores(tmp_path: Path) -> None:
    """Catches: small outputs as files of their own; a large one that Parquet does not hold refused, or changed; rows
    lost on the way; a manifest that says nothing of it, or too much."""
    backend = es.FsStateBackend(tmp_path / "state")
    with Harness(
        Repeats(),
        schema="key string, times int",
        key="key",
        output="key string, n int",
        side_outputs={"side": "n int, nothing void"},
        state_backend=backend,
    ) as harness:
        for times, formats, requires in (
            (10, {"main": "arrow", "side": "arrow"}, ()),
            (20_000, {"main": "parquet", "side": "arrow"}, (PARQUET_OUTPUTS,)),
        ):
            assert harness.process(("ann", times)) == [("ann", number) for number in range(times)]
            [location] = tmp_path.glob("*/checkpoints")
            storage = LocalStorage(location.parent)
            manifest = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
            assert {one.name: one.format for one in manifest.outputs} == formats
            assert manifest.requires == requires
            assert open_manifest(manifest.to_bytes(), "m") == manifest
            assert all(one.format == "arrow" or one.place.path.startswith("output/") for one in manifest.outputs)


@pytest.mark.reliability(27)
def test_damage_under_a_right_checksum() -> None:
    """Catches: a damaged file that crashes Arrow, raises another error, or takes memory."""
    row_type = RowType.of("a bigint not null, b string, c array<string>")
    content = write_parquet([batch_of([(1, "ann", ["x", None]), (2, None, None), (3, "bob", [])], row_type)], row_type)
    chance, allocated = random.Random(5), pa.total_allocated_bytes()

    def outcome(data: bytes) -> Any:
        try:
            return read_output(data, row_type, "parquet")
        except CorruptionError:
            return CorruptionError

    for length in range(len(content)):
        assert outcome(content[:length]) is CorruptionError, length
    for position in range(len(content)):
        data = bytearray(content)
        data[position] ^= 1 << chance.randrange(8)
        outcome(bytes(data))
    assert pa.total_allocated_bytes() - allocated < 2**20
