"""One local Spark per test process, looked at for what it leaves behind when it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.spark_session import MARK, check_nothing_left, end_jvm, environment, local_session, slot_pids
from tests.spark.streams import Stream


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; when it ends no slot process, socket or file of it may be left."""
    temporary = tmp_path_factory.mktemp("temporary")
    given = environment(temporary)
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    end_jvm()
    session = local_session("tests", temporary)
    try:
        yield session
        session.stop()
        check_nothing_left(given[MARK], temporary)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
