"""One local Spark per test process, looked at for what it leaves behind when it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.spark_session import MARK, only_session, slot_pids
from tests.spark.streams import Stream


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; when it ends no slot process, socket or file of it may be left."""
    with only_session("tests", tmp_path_factory.mktemp("temporary")) as session:
        yield session


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Iterator[Stream]:
    """A place for one job: input files, Spark's checkpoint, state. Queries that still run are stopped."""
    made = Stream(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def slots(spark: Any) -> Any:
    """The pids of the session's slots, asked anew each time."""
    return lambda: slot_pids(os.environ[MARK])
