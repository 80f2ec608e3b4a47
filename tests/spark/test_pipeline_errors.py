"""What reaches a person when something fails: the cause first, short, and named."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import emberstate as es
from emberstate.errors import CorruptionError, StateDeclarationError, StorageError, UserFunctionError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, slot_for_key_group
from emberstate.spark import session
from emberstate.spark.slot.failure import cause_first
from tests.patience import PATIENCE
from tests.raising import raising
from tests.spark.pipeline_functions import TOTALS, Totals, Waiting, events, totals
from tests.spark.spark_session import environment
from tests.spark.streams import Kept, Stream, at, wait_in

RATIO = "key string, ratio bigint"


class Ratio(es.KeyedProcessFunction):
    """Does not like zero."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        yield row.key, 10 // row.value


def slot_of(key: str) -> int:
    """The slot that has the key."""
    group = es.KeySchema(["string"]).key_group(key, DEFAULT_MAX_PARALLELISM)
    return slot_for_key_group(DEFAULT_MAX_PARALLELISM, 2, group)


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one for one in caplog.records if one.name.startswith("emberstate")]
    return [one.getMessage() for one in found if one.levelno >= logging.ERROR]


@pytest.mark.spark
def test_the_users_error_comes_first(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: 5,700 characters with the cause at their end, a log without a line that says it, and no way to ask."""
    stream.add([("a", at(0), 1)], [("a", at(1), 0)])
    kept = Kept()
    pipeline = stream.pipeline().key_by("key").process("ratio", Ratio(), RATIO).sink(kept)
    with pytest.raises(StreamingQueryException) as caught:
        stream.drain(pipeline)
    own = str(caught.value).partition("Return Message: ")[2]
    said = "operator 'ratio', Ratio.process_element raised ZeroDivisionError: integer division or modulo by zero"
    assert own.startswith(f"emberstate.errors.UserFunctionError: {said}\n  key: 'a'\n")
    assert len(own.partition("\n === Streaming Query")[0]) < 3500
    assert "py4j" not in own.partition("The above exception")[0]
    assert isinstance(pipeline.last_error, UserFunctionError) and str(pipeline.last_error).startswith(said)
    assert pipeline.last_error.place == {"operator": "ratio", "key": "a", "batch": 1, "slot": slot_of("a")}
    assert "test_pipeline_errors.py" in str(pipeline.last_error), "the user's own line"
    (line,) = errors_of(caplog)
    assert line.startswith(f"pipeline 'job', batch 1 failed: UserFunctionError: {said}; key: 'a'") and "\n" not in line
    by_hand = stream.pipeline("memory").key_by("key").process("ratio", Ratio(), RATIO).sink(kept)
    with raising(UserFunctionError, r"row: Row\(", operator="ratio", batch=0):
        by_hand(stream.static(), 0)
    by_hand(stream.static().filter("value > 0"), 0)
    assert by_hand.last_error is None


@pytest.mark.spark
def test_a_sink_that_raises_is_named_with_its_batch(stream: Stream) -> None:
    """Catches: a failure of one of several sinks that could have been anybody's, and no word about the batch."""
    given = events(20)
    stream.add(given)
    kept = Kept()

    def full_disk(df: Any, batch_id: int) -> None:
        raise OSError("no space left")

    def made(sink: Any) -> es.Pipeline:
        return stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(sink)

    failing = made(full_disk)
    with pytest.raises(StreamingQueryException, match="OSError"):
        stream.drain(failing)
    error = failing.last_error
    assert isinstance(error, UserFunctionError) and isinstance(error.__cause__, OSError)
    assert error.place == {"operator": "totals", "batch": 0}
    where = f"pipeline 'job', batch 0: sink {full_disk.__qualname__!r} of output 'main' of stage 'totals'"
    assert str(error).startswith(f"{where} raised OSError: no space left\n")
    assert "is committed" in str(error) and "in full_disk" in str(error)
    stream.drain(made(kept))
    assert sorted(kept.rows) == sorted(totals(given))


@pytest.mark.spark
def test_a_query_that_is_stopped_has_not_failed(
    stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: an ERROR in the log, at which somebody is woken, for a query that was stopped on purpose."""
    gate, entered = tmp_path / "gate", tmp_path / "entered"
    gate.touch()
    stream.add(events(10))
    stage = stream.pipeline().key_by("key").process("totals", Waiting(gate, entered), TOTALS)
    with caplog.at_level(logging.INFO, "emberstate.spark"):
        query = stream.start(stage.sink(Kept()))
        wait_in(query, entered.exists, "a batch")
        query.stop()
        gate.unlink()
    assert errors_of(caplog) == []


def test_sinks_and_listeners_are_checked_when_the_pipeline_is_built() -> None:
    """Catches: a sink that fails, or does nothing at all, only when the first batch was committed."""
    pipeline = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").process("totals", Totals(), TOTALS)

    class Sinks:
        def __call__(self, df: Any, batch_id: int, mode: str = "append") -> None: ...

        def one(self, df: Any) -> None: ...

        async def later(self, df: Any, batch_id: int) -> None: ...

        def rows(self, df: Any, batch_id: int) -> Iterator[Any]:
            yield df

    sinks = Sinks()
    goods: list[Any] = [sinks, lambda df, batch_id: None, lambda *given: None, print, map]
    for good in goods:
        pipeline.sink(good)
    for bad in (sinks.one, lambda: None, lambda df, batch_id, more: None, lambda df, *, batch_id: None, 7, None):
        with raising(StateDeclarationError, r"sink\(df, batch_id\)", option="sink"):
            pipeline.sink(bad)  # type: ignore[arg-type]
    for idle in (sinks.later, sinks.rows):
        with raising(StateDeclarationError, option="sink", found="async or a generator"):
            pipeline.sink(idle)
    with raising(StateDeclarationError, r"Sinks\.one\(df", option="sink"):
        pipeline.sink(sinks.one)  # type: ignore[arg-type]
    with raising(StateDeclarationError, option="listener"):
        pipeline.listener(lambda: None)  # type: ignore[misc, arg-type]


def test_spark_connect_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an AttributeError about _jsparkSession, or a lock that cannot be pickled, where it should say why."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe", "isStreaming": True})()
    pipeline = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").process("totals", Totals(), TOTALS)
    pipeline = pipeline.sink(lambda df, batch_id: None)
    for call in (
        lambda: pipeline.start(frame, checkpoint="nowhere"),
        lambda: pipeline.run(frame),
        lambda: pipeline.inputs(frame),
        lambda: pipeline(frame, 0),
        lambda: pickle.dumps(pipeline),
    ):
        with raising(StateDeclarationError, found="Spark Connect"):
            call()
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with raising(StateDeclarationError, option="SPARK_REMOTE"):
        session("job")


def test_what_spark_is_told_has_the_class_number_and_place_of_the_error() -> None:
    """Catches: a caller of a pipeline that cannot tell a full disk from damage any more."""
    full = cause_first(StorageError(28, "writing x: no space left", path="x"), "here")
    assert isinstance(full.__cause__, StorageError) and full.__cause__.path == "x"
    assert isinstance(full, StorageError) and (full.errno, full.strerror) == (28, "here: writing x: no space left")
    assert str(full.__cause__) == "[Errno 28] writing x: no space left"
    damage = cause_first(CorruptionError("bad"), "here")
    assert isinstance(damage, CorruptionError) and str(damage) == "here: bad"
    foreign = KeyError("x")
    assert cause_first(foreign, "here") is foreign


JOB = """
from rates import Rate, SCHEMA

import emberstate as es
from emberstate.spark import session

spark = session("rates", master="local[2]", settings={"spark.ui.enabled": "false"})
pipeline = es.Pipeline("rates", es.MemoryStateBackend(), parallelism=2).key_by("key").process("rate", Rate(), SCHEMA)
seen = []
pipeline = pipeline.sink(lambda df, batch_id: seen.extend(df.collect()))
pipeline.run(spark.createDataFrame([("a", 2), ("b", 5)], "key string, value int"))
print("rates:", sorted(tuple(row) for row in seen))
spark.stop()
"""
RATES = """
import emberstate as es

SCHEMA = "key string, rate bigint"

class Rate(es.KeyedProcessFunction):
    def process_element(self, row, ctx):
        yield row.key, 10 // row.value
"""


@pytest.mark.spark
@pytest.mark.long
def test_a_script_finds_the_module_beside_it_from_another_directory(tmp_path: Path) -> None:
    """Catches: `python jobs/job.py`, which fails on one machine as slots look for modules elsewhere than drivers do."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.py").write_text(JOB, encoding="utf-8")
    (tmp_path / "jobs" / "rates.py").write_text(RATES, encoding="utf-8")
    given = {**os.environ, **environment(tmp_path)}
    del given["PYTHONPATH"]  # the package is installed; nothing else is to be found
    done = subprocess.run(
        [sys.executable, "jobs/job.py"], cwd=tmp_path, env=given, timeout=PATIENCE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "rates: [('a', 5), ('b', 2)]" in done.stdout
