"""One local Spark for all integration tests, with the jars of Spark's Kafka connector if they can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.jars import Unavailable, connector_jars

from tests.spark.spark_session import only_session
from tests.spark.streams import Stream


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; when it ends no slot process, socket or file of it may be left."""
    try:
        jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    except Unavailable:
        jars = {}  # tests that need them ask for `kafka`, which skips
    with only_session("integration tests", tmp_path_factory.mktemp("temporary"), **jars) as session:
        yield session


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Iterator[Stream]:
    """A place for one job: input files, Spark's checkpoint, state. Queries that still run are stopped."""
    made = Stream(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()
