"""State as a Spark table, on a real Spark: read, planned, refused; and savepoints written from DataFrames."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

import emberstate as es
from emberstate.checkpoint.manifest.catalogue import read_savepoint, savepoint_names, verify
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.errors import EmberstateError, Place, StateDeclarationError, StorageExistsError
from emberstate.keygroups import KeySchema
from emberstate.spark import bootstrap_savepoint, register_tables
from emberstate.spark.java import ensure_java
from emberstate.spark.tables.source import EmberstateDataSource
from emberstate.storage.local import LocalStorage
from emberstate.testing import Harness
from tests.raising import raising
from tests.runtime.bootstrap.test_bootstrap import CARD_TYPE, COLUMNS, OUTPUT, SCHEMA, T0, Cards, cards_table, started

FEW = 300


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that knows the tables."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Tokyo")
        .getOrCreate()
    )
    register_tables(session)
    register_tables(session)
    yield session
    session.stop()


class Shops(es.KeyedProcessFunction):
    seen = es.map_state(str, int, ttl=timedelta(hours=1))
    at = es.list_state(datetime.datetime)
    total = es.value_state(float, default=0.0)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        self.seen[row.merchant] = self.seen.get(row.merchant, 0) + 1
        self.at.add(row.ts)
        self.total.update(self.total.value() + 1)
        ctx.timers.register_processing_time("quiet", ctx.processing_time + timedelta(minutes=5))

    def on_timer(self, timer: Any, ctx: es.FunctionContext) -> None: ...


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a job has three checkpoints: an opening, a large batch, a small one; and a savepoint."""
    location = tmp_path_factory.mktemp("job")
    backend = es.FsStateBackend(str(location))
    with Harness(
        Shops(), schema="card string, merchant string, ts timestamp", key="card", name="shops", state_backend=backend
    ) as harness:
        harness.process_batch([(f"c{n}", f"m{n % 3}", T0 + timedelta(seconds=n)) for n in range(FEW)])
        harness.process_batch([("c7", "m9", T0), ("new", "m0", T0)])
    return location


def table(spark: SparkSession, location: Path, **options: Any) -> DataFrame:
    return spark.read.format("emberstate").options(**options).load(str(location))


def rows(found: DataFrame | pa.Table) -> list[dict[str, Any]]:
    """The rows as plain data, times in UTC, in one order."""
    arrow = found.toArrow() if isinstance(found, DataFrame) else found
    return sorted(arrow.to_pylist(), key=repr)


# -- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("state", ["seen", "at", "timers/processing-time timers"])
def test_a_table_has_what_the_checkpoint_has(spark: SparkSession, job: Path, state: str) -> None:
    """Catches: rows that are lost, doubled or changed on their way into Spark; times in another zone."""
    expected = es.read_state(job, state)
    found = table(spark, job, state=state, partitions=3)
    assert rows(found) == rows(expected)
    if state == "seen":
        assert found.rdd.getNumPartitions() == 3


@pytest.mark.spark
def test_some_keys_and_columns_only(spark: SparkSession, job: Path) -> None:
    """Catches: options that are not heeded; a filter that stays for later queries."""
    group = KeySchema(["string"]).key_group("c7", 128)
    one = table(spark, job, state="seen", key='"c7"')
    assert sorted(row.user_key for row in one.collect()) == ["m1", "m9"]
    assert one.rdd.getNumPartitions() == 1
    some = table(spark, job, state="total", key_groups=f"{group}")
    assert rows(some) == rows(es.read_state(job, "total", key_groups=[group]))
    assert table(spark, job, state="total", key='"nobody"').count() == 0
    every = table(spark, job, state="total")
    assert every.filter("key = 'c7'").count() == 1
    assert every.count() == FEW + 1
    chosen = spark.read.format("emberstate").schema("value double, key string").option("state", "total").load(str(job))
    assert chosen.columns == ["value", "key"]
    assert chosen.filter("key = 'c7'").collect() == [(2.0, "c7")]


@pytest.mark.long
@pytest.mark.spark
def test_any_checkpoint_and_what_changed(spark: SparkSession, job: Path) -> None:
    """Catches: another checkpoint than asked for; a change feed that is not one."""
    assert table(spark, job, state="total", checkpoint=2).count() == FEW
    assert table(spark, job, state="total", checkpoint="latest").count() == FEW + 1
    changed = table(spark, job, state="total", changes_since=2)
    assert sorted((row.key, row.change, row.old, row.new) for row in changed.collect()) == [
        ("c7", "changed", 1.0, 2.0),
        ("new", "added", None, 1.0),
    ]


@pytest.mark.long
@pytest.mark.spark
def test_the_states_are_listed(spark: SparkSession, job: Path) -> None:
    """Catches: a user who cannot find out what there is."""
    found = table(spark, job)
    assert [row.state for row in found.orderBy("state").collect()] == [
        "at", "seen", "timers/event-time timers", "timers/processing-time timers", "total",
    ]  # fmt: skip
    (seen,) = table(spark, job, operator="shops").filter("state = 'seen'").collect()
    assert (seen.kind, seen.user_key_type, seen.value_type, seen.ttl) == ("map", "str", "int", timedelta(hours=1))


@pytest.mark.long
@pytest.mark.spark
def test_a_dataframe_shows_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Catches: a DataFrame whose rows are of another checkpoint each time; one that is gone, unnamed."""
    backend = es.FsStateBackend(str(tmp_path))
    with Harness(
        Shops(), schema="card string, merchant string, ts timestamp", key="card", state_backend=backend
    ) as harness:
        harness.process(("ann", "a", T0))
        found = table(spark, tmp_path, state="total")
        assert found.collect()[0].value == 1.0
        harness.process(("ann", "b", T0))
        assert found.collect()[0].value == 1.0
        assert table(spark, tmp_path, state="total").collect()[0].value == 2.0
        with CheckpointReader.open(tmp_path, pin_for="a report") as pinned:
            kept = table(spark, tmp_path, state="total", checkpoint=pinned.manifest.number)
            for _ in range(6):
                harness.process(("ann", "c", T0))
            assert kept.collect()[0].value == 2.0
        with pytest.raises(PythonException, match=r"CheckpointCollectedError.*collected"):
            found.collect()


def refusal(said: str | Place) -> AbstractContextManager[Any]:
    """Expect an error with these attributes, or with this word if it has none."""
    return raising(EmberstateError, said) if isinstance(said, str) else raising(EmberstateError, **said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"state": "seem"}, {"operator": "shops", "state": "seem"}),
        ({"sate": "seen"}, {"option": "sate", "expected": "state"}),
        ({"state": "seen", "operator": "x"}, {"operator": "x"}),
        ({"state": "seen", "key": "c7"}, "'c7'"),
        ({"state": "seen", "key_groups": "128"}, {"operator": "shops"}),
        ({"state": "seen", "checkpoint": "99"}, {"checkpoint": 99}),
        ({"state": "seen", "savepoint": "s"}, {"path": "savepoints/s/manifest"}),
        ({"state": "seen", "savepoint": "s", "checkpoint": "2"}, {"option": "savepoint"}),
        ({"state": "seen", "savepoint": "s", "changes_since": "2"}, {"option": "changes_since"}),
        ({"key": '"c7"'}, {"option": "state"}),
        ({"path": ""}, {"option": "path"}),
        ({"path": "gs://x/y"}, "gs"),
        ({"path": "/nowhere/at/all", "state": "seen"}, "/nowhere/at/all"),
    ],
)
def test_mistakes_are_found_when_a_read_is_planned(job: Path, options: dict[str, str], said: str | Place) -> None:
    """Catches: a mistake that shows when tasks fail, or not at all."""
    with refusal(said):
        EmberstateDataSource({"path": str(job), **options}).schema()


@pytest.mark.spark
def test_mistakes_are_errors_of_load(spark: SparkSession, job: Path) -> None:
    """Catches: a message that does not reach the user, or not before an action."""
    with pytest.raises(AnalysisException, match=r"StateDeclarationError.*'seem'"):
        table(spark, job, state="seem")


# -- writing by the format --------------------------------------------------------------------------------------


WRITE = {"savepoint": "boot", "job": "cards", "operator": "cards", "state": "s", "key": "card", "value": "s"}


def write(frame: DataFrame, location: Path, **options: Any) -> None:
    frame.write.format("emberstate").options(**{**WRITE, **options}).mode("append").save(str(location))


def files(location: Path) -> list[str]:
    return [str(file) for file in location.rglob("*") if file.is_file()] if location.exists() else []


@pytest.mark.long
@pytest.mark.spark
def test_a_savepoint_is_written_by_format(spark: SparkSession, tmp_path: Path) -> None:
    """Catches: rows that are lost between tasks; types that are not the column's."""
    frame = spark.range(1000).repartition(2).select(
        F.concat(F.lit("k"), "id").alias("card"),
        F.col("id").alias("s"),
        F.array(F.col("id"), F.col("id")).alias("l"),
        F.create_map(F.lit("a"), F.timestamp_seconds("id")).alias("m"),
        F.concat(F.lit("u"), F.col("id") % 2).alias("u"),
    )  # fmt: skip
    write(frame, tmp_path)
    found = {row["key"]: row["value"] for row in es.read_state(tmp_path, "s", savepoint="boot").to_pylist()}
    assert found == {f"k{n}": n for n in range(1000)}
    storage = LocalStorage(tmp_path)
    assert verify(storage, read_savepoint(storage, "boot")).problems == ()
    write(frame, tmp_path, savepoint="l", kind="list", value="l", key="card,s", max_parallelism=32)
    lists = es.read_state(tmp_path, "s", savepoint="l", key=("k7", 7)).to_pylist()
    assert [row["value"] for row in lists] == [7, 7]
    write(frame, tmp_path, savepoint="m", kind="map", value="m")
    (row,) = es.read_state(tmp_path, "s", savepoint="m", key="k7").to_pylist()
    assert (row["user_key"], row["value"]) == ("a", datetime.datetime(1970, 1, 1, second=7, tzinfo=UTC))
    pairs = frame.select((F.col("s") / 2).cast("int").alias("card"), "u", "s")
    write(pairs, tmp_path, savepoint="u", user_key="u")
    both = es.read_state(tmp_path, "s", savepoint="u", key=7).to_pylist()
    assert {row["user_key"]: row["value"] for row in both} == {"u0": 14, "u1": 15}
    assert table(spark, tmp_path, state="s", savepoint="u").count() == 1000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value": "x"}, {"column": "x"}),
        ({"value": ""}, {"option": "value", "found": ""}),
        ({"job": ""}, {"option": "job", "found": ""}),
        ({"value": "p"}, {"found": "struct<id:bigint>"}),
        ({"kind": "list"}, {"column": "s", "expected": "array", "found": "bigint"}),
        ({"kind": "value", "user_key": "card"}, {"option": "user_key"}),
        ({"savepoint": "../x"}, "savepoint"),
        ({"key": "p"}, "struct<id:bigint>"),
        ({"max_parallelism": "x"}, {"option": "max_parallelism", "found": "x"}),
        ({"mode": "overwrite"}, {"option": "mode"}),
        ({"vaule": "s"}, {"option": "vaule", "expected": "value"}),
    ],
)
def test_a_write_that_cannot_work_writes_nothing(tmp_path: Path, options: dict[str, str], said: str | Place) -> None:
    """Catches: a mistake that shows after the work is done."""
    schema = StructType().add("card", LongType()).add("s", LongType()).add("p", StructType().add("id", LongType()))
    given = {**WRITE, "path": str(tmp_path / "x"), **options}
    source = EmberstateDataSource({name: value for name, value in given.items() if name != "mode"})
    with refusal(said):
        source.writer(schema, overwrite="mode" in options)
    assert files(tmp_path / "x") == []


@pytest.mark.long
@pytest.mark.spark
def test_a_write_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Catches: a key that comes twice in two tasks; files without a savepoint; a savepoint that is changed."""
    twice = spark.range(200).repartition(2).select((F.col("id") % 199).alias("card"), F.col("id").alias("s"))
    with pytest.raises(Exception, match=r"StateTypeError.*key 0"):
        write(twice, tmp_path)
    assert savepoint_names(LocalStorage(tmp_path)) == []  # a task that outlived the abort may have left a file
    # One task: others that still run when one has failed may leave files, which the next success removes.
    broken = (
        spark.range(200)
        .coalesce(1)
        .select(F.col("id").alias("card"), F.array(F.when(F.col("id") != 150, F.col("id"))).alias("s"))
    )
    with pytest.raises(Exception, match="StateTypeError: key 150"):
        write(broken, tmp_path, kind="list")
    assert savepoint_names(LocalStorage(tmp_path)) == []
    good = twice.filter("s < 199")
    write(good, tmp_path)
    before = files(tmp_path)
    with pytest.raises(AnalysisException, match="StorageExistsError"):
        write(good, tmp_path)
    assert files(tmp_path) == before


# -- bootstrapping ----------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_job_starts_from_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """Catches: state of a function's own classes that is not what the function would have written."""
    chosen = cards_table().drop(["other"])
    frame = spark.createDataFrame(chosen.to_pandas(maps_as_pydicts="strict"), schema=spark_types(chosen.schema))
    manifest = bootstrap_savepoint(
        frame, tmp_path / "boot", "boot", job="cards", operator="cards", states=Cards(), key="card",
        columns=COLUMNS, written_at=T0,
    )  # fmt: skip
    assert manifest.operators[0].parallelism == 2
    for state in COLUMNS:
        expected = tmp_path / "expected"
        if not expected.exists():
            es.bootstrap_savepoint(
                cards_table(), expected, "boot", job="cards", operator="cards", states=Cards(), key="card",
                columns=COLUMNS, written_at=T0,
            )  # fmt: skip
        assert es.read_state(tmp_path / "boot", state, savepoint="boot") == es.read_state(
            expected, state, savepoint="boot"
        )
    backend = started(tmp_path / "job", tmp_path / "boot")
    with Harness(
        Cards(), schema=SCHEMA, key="card", output=OUTPUT, name="cards", state_backend=backend, processing_time=T0
    ) as harness:
        (row,) = harness.process(("ann", "cafe", 4.0))
        assert tuple(row[1:4]) == ("Ann", 4, {"cafe": 3, "shop": 1})


def spark_types(schema: pa.Schema) -> Any:
    from emberstate.spark.tables.types import spark_schema

    assert schema.field("state_of_card").type == CARD_TYPE
    return spark_schema(schema)


@pytest.mark.spark
def test_rows_reach_the_task_of_their_key_group(spark: SparkSession, tmp_path: Path) -> None:
    """Catches: Spark and Python that do not agree on a key's group."""
    keys = {
        "a": "cast(id as string)", "b": "cast(id as int)", "c": "cast(-id as float)", "d": "cast(id as decimal(10,2))",
        "e": "timestamp_seconds(id)", "f": "date_add(date'2026-01-01', cast(id as int))", "g": "id % 2 = 0",
        "h": "cast(cast(id as string) as binary)", "i": "cast(timestamp_seconds(id) as timestamp_ntz)",
    }  # fmt: skip
    frame = spark.range(-50, 50).selectExpr(*(f"{made} as {name}" for name, made in keys.items()), "id as s")
    made = bootstrap_savepoint(
        frame, tmp_path, "boot", job="j", operator="o", states=[es.ValueStateDescriptor("s", int)], key=list(keys),
        partitions=5,
    )  # fmt: skip
    assert made.operators[0].parallelism == 5
    found = es.read_state(tmp_path, "s", savepoint="boot")
    assert sorted(row["value"] for row in found.to_pylist()) == list(range(-50, 50))
    one = found.slice(3, 1).drop(["namespace", "value"]).to_pylist()[0]
    assert es.read_state(tmp_path, "s", savepoint="boot", key=tuple(one.values())) == found.slice(3, 1)


@pytest.mark.spark
def test_a_bootstrap_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Catches: half a savepoint; a key that comes twice; an empty DataFrame that fails."""
    states = [es.ValueStateDescriptor("s", int)]
    given: dict[str, Any] = {"job": "j", "operator": "o", "states": states, "key": "k", "partitions": 1}
    frame = spark.range(100).selectExpr("id % 99 as k", "id as s")
    with pytest.raises(PythonException, match=r"StateTypeError.*key 0"):
        bootstrap_savepoint(frame, tmp_path, "boot", **given)
    with pytest.raises(PythonException, match="RowTypeError"):
        bootstrap_savepoint(frame.selectExpr("nullif(k, 5) as k", "s").filter("s < 99"), tmp_path, "boot", **given)
    with raising(StateDeclarationError, "collate"):
        bootstrap_savepoint(frame.selectExpr("collate('a', 'UTF8_LCASE') as k", "s"), tmp_path, "boot", **given)
    with raising(StateDeclarationError, option="location"):
        bootstrap_savepoint(frame, "memory://", "boot", **given)
    assert savepoint_names(LocalStorage(tmp_path)) == []
    bootstrap_savepoint(frame.filter("false"), tmp_path, "boot", **given)
    assert savepoint_names(LocalStorage(tmp_path)) == ["boot"]
    assert table(spark, tmp_path, state="s", savepoint="boot").count() == 0
    with pytest.raises(StorageExistsError):
        bootstrap_savepoint(frame, tmp_path, "boot", **given)
