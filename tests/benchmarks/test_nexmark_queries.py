"""The queries of NEXMark on Spark, compared with DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.nexmark import kills
from benchmarks.nexmark.generator import Config, write_files
from benchmarks.nexmark.job import Job, local_session
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import QUERIES

from tests.spark.spark_session import end_jvm, environment

EVENTS, BATCHES = 3_000, 4
#: A slot of these is killed: two stages with timers; windows that merge; updates.
KILLED = ("q4", "q11", "q19")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 seconds, out of order by up to two."""
    folder = tmp_path_factory.mktemp("events")
    write_files(folder, Config(seed=11, rate=EVENTS / 100, out_of_order=64), EVENTS, BATCHES)
    return folder


@pytest.fixture(scope="module")
def oracle(files: Path) -> Oracle:
    return Oracle(files)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session for all queries."""
    patch = pytest.MonkeyPatch()
    for name, value in environment(tmp_path_factory.mktemp("temporary")).items():
        patch.setenv(name, value)
    end_jvm()
    session = local_session()
    yield session
    session.stop()
    patch.undo()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_exact(spark: Any, files: Path, oracle: Oracle, tmp_path: Path, name: str) -> None:
    """Catches: a row that is lost, comes twice or is wrong, in any kind of state, window or timer; by a kill, too."""
    killer = kills.SlotKiller(tmp_path / "job", seed=1, longest_delay=0.0, batches=BATCHES)

    def after_batch(batch: int) -> None:
        if name in KILLED and batch == 1:
            killer.kill()

    job = Job(spark, QUERIES[name], files, tmp_path / "job", after_batch=after_batch)
    measured = job.emberstate()

    assert len(measured.seconds) == BATCHES, "a batch is a file"
    assert oracle.differences(QUERIES[name], job.output) == []
    assert killer.kills == (name in KILLED)
