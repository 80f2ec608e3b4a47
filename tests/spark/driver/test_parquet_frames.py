"""Parquet outputs as DataFrames that Spark reads by itself: the same rows as through Python, and nothing damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import emberstate as es
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.layout import new_id, output_path
from emberstate.checkpoint.manifest.model import PARQUET_OUTPUTS, FileRef
from emberstate.checkpoint.manifest.open_files import store_file
from emberstate.errors import CorruptionError, EmberstateError, StorageError
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.outputs import write_output
from emberstate.runtime.rows.parquet_outputs import write_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.spark.driver import outputs as output_frames
from emberstate.spark.driver.memory_frame import memory_frame
from emberstate.spark.driver.outputs import output_frame
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from tests.runtime.rows.test_parquet_outputs import ALL, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.long]

WORDS = RowType.of("word string, n int not null")
#: Settings of a session under which Spark's readers skip, shift or rename what they find.
LAX = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.maxPartitionBytes": "100",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.parquet.binaryAsString": "true",
}


@pytest.fixture
def lax(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session with these settings, in which no output is small enough for the driver's memory."""
    monkeypatch.setattr(output_frames, "DRIVER_BYTES", 0)
    session = spark.newSession()
    for name, value in LAX.items():
        session.conf.set(name, value)
    yield session


class Unreachable(es.FsStateBackend):
    """A location whose files Spark does not reach."""

    def open_storage(self) -> Storage:
        storage = LocalStorage(self.uri)
        storage.directory = None
        return storage


def stored(backend: es.FsStateBackend, rows: list[Any], row_type: RowType) -> StoredOutput:
    """An output that was stored as a slot stores it."""
    content = write_parquet([batch_of(rows, row_type)], row_type)
    return StoredOutput(store_file(backend.open_storage(), output_path(1, new_id()), [content]), "parquet")


def numbered(count: int, start: int = 0) -> list[Any]:
    return [(f"w{n}" * 5, n) for n in range(start, start + count)]


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_same_rows_as_through_python(lax: Any, tmp_path: Path, data: Any) -> None:
    """Catches: a type that Spark reads from Parquet as something else (old dates, wall clocks, decimals, nulls within
    values), another schema, settings of the session that change what is read, and outputs of earlier versions, which
    are Arrow streams, that are not delivered; the same of rows in the driver's memory."""
    rows = [row for _ in range(6) for row in data.draw(ROWS)]
    outputs = [stored(es.FsStateBackend(tmp_path), rows[n::2], ALL) for n in range(2)]
    native = output_frame(lax, outputs, ALL, es.FsStateBackend(tmp_path))
    python = output_frame(lax, outputs, ALL, Unreachable(tmp_path))
    assert "Python" not in plan_of(native) and "MapInArrow" in plan_of(python)
    assert native.schema.jsonValue() == python.schema.jsonValue()
    expected = pa.Table.from_batches([batch_of(rows[n::2], ALL) for n in range(2)])
    assert native.toArrow().cast(expected.schema).equals(expected)
    assert python.toArrow().cast(expected.schema).equals(expected)
    streams = [write_output([batch_of(rows[n::2], ALL)], ALL) for n in range(2)]
    storage = LocalStorage(tmp_path)
    earlier = [StoredOutput(store_file(storage, output_path(1, new_id()), [stream])) for stream in streams]
    found = output_frame(lax, earlier, ALL, es.FsStateBackend(tmp_path))
    assert found.schema.jsonValue() == native.schema.jsonValue()
    assert found.toArrow().cast(expected.schema).equals(expected)
    for large in ("false", "true"):
        lax.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
        kept = memory_frame(lax, expected.to_batches(), ALL)
        assert kept.schema.jsonValue() == native.schema.jsonValue()
        assert kept.toArrow().cast(expected.schema).equals(expected)
    lax.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_one_partition_per_file_in_order(lax: Any, tmp_path: Path) -> None:
    """Catches: files that are split, packed or sorted by their size; rows of small outputs beside them lost; a place
    whose name means something in a URI."""
    backend = es.FsStateBackend(tmp_path / "a b%20#c:d é")
    sizes = [3000, 40_000, 1000, 20_000]
    outputs = [stored(backend, numbered(size, 100_000 * n), WORDS) for n, size in enumerate(sizes)]
    frame = output_frame(lax, outputs, WORDS, backend)
    found = [[row.n for row in part] for part in frame.rdd.glom().collect()]
    assert found == [list(range(100_000 * n, 100_000 * n + size)) for n, size in enumerate(sizes)]
    assert frame.count() == sum(sizes) and frame.where("n < 10").count() == 10
    output_frames.DRIVER_BYTES = 10_000  # type: ignore[misc]  # the fixture sets it back
    small = StoredOutput(write_output([batch_of([("small", 7)], WORDS)], WORDS))
    both = output_frame(lax, [small, *outputs], WORDS, backend)
    assert both.count() == sum(sizes) + 1 and both.where("word = 'small'").count() == 1
    assert both.schema == frame.schema and "Python" not in plan_of(both)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + path.with_name("other").read_bytes())


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def exchanged(path: Path) -> None:
    path.write_bytes(path.with_name("other").read_bytes())


@pytest.mark.reliability(5)
@pytest.mark.parametrize("damage", [truncated, longer, flipped, exchanged, Path.unlink])
def test_damage_is_named_and_no_row_is_used(lax: Any, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Catches: rows that vanish, or come from another file, because Spark skips or takes what it finds."""
    backend = es.FsStateBackend(tmp_path)
    good, bad = (stored(backend, numbered(5000, start), WORDS) for start in (0, 5000))
    assert isinstance(bad.place, FileRef)
    path = tmp_path / bad.place.path
    path.with_name("other").write_bytes(write_parquet([batch_of(numbered(5000, 20_000), WORDS)], WORDS))
    before = output_frame(lax, [good, bad], WORDS, backend)
    assert before.count() == 10_000
    damage(path)
    with pytest.raises((CorruptionError, StorageError)) as caught:
        output_frame(lax, [good, bad], WORDS, backend)
    assert isinstance(caught.value, EmberstateError) and caught.value.place.get("path") == bad.place.path
    if damage in (flipped, Path.unlink):  # after the frame was made, Spark itself finds what is gone or damaged
        with pytest.raises(Exception, match=path.name):
            before.collect()


def test_a_spark_that_differs_reads_in_python(
    lax: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: a batch that fails because Spark's inner classes have changed."""
    from emberstate.spark.driver import parquet_frame

    backend = es.FsStateBackend(tmp_path)
    outputs = [stored(backend, numbered(100), WORDS)]
    monkeypatch.setattr(parquet_frame, "_broken", set())
    monkeypatch.setattr(parquet_frame, "_OPTIONS", None)  # the JVM refuses it, as it would a class that is not there
    with caplog.at_level(logging.WARNING, "emberstate.spark"):
        frames = [output_frame(lax, outputs, WORDS, backend) for _ in range(2)]
    assert [frame.count() for frame in frames] == [100, 100]
    assert all("MapInArrow" in plan_of(frame) for frame in frames)
    assert len([one for one in caplog.records if "cannot be read by this version" in one.getMessage()]) == 1


class Copies(es.KeyedProcessFunction):
    """Emits every row twice."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.key, row.n
        yield row.key, -row.n


def test_a_pipeline_with_large_outputs(spark: Any, tmp_path: Path) -> None:
    """Catches: a large output that sinks or the next stage get through Python, with rows lost, or in another order when
    it is delivered again; a manifest that an older version would misread."""
    given = spark.range(0, 60_000).selectExpr("id % 1000 AS key", "id + 1 AS n")
    got: list[tuple[list[Any], str]] = []
    backend = es.FsStateBackend(tmp_path)

    def pipeline() -> Any:
        stage = es.Pipeline("job", backend, parallelism=2).key_by("key")
        stage = stage.process("first", Copies(), "key bigint, n bigint").key_by("key")
        built = stage.process("second", Copies(), "key bigint, n bigint")
        return built.sink(lambda frame, batch: got.append((frame.collect(), plan_of(frame))))

    pipeline()(given, 0)
    pipeline()(given, 0)
    (rows, plan), (again, _) = got
    assert rows == again and "Python" not in plan and "MapInArrow" not in plan
    assert sorted((row.key, row.n) for row in rows) == sorted(
        (n % 1000, sign * (n + 1)) for n in range(60_000) for sign in (1, -1, 1, -1)
    )
    storage = backend.open_storage()
    manifest = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
    assert manifest.requires == (PARQUET_OUTPUTS,) and {one.format for one in manifest.outputs} == {"parquet"}
    path = tmp_path / manifest.outputs[-1].place.path
    flipped(path)
    with pytest.raises(CorruptionError) as caught:
        pipeline()(given, 0)
    assert caught.value.place.get("path") == manifest.outputs[-1].place.path and len(got) == 2
