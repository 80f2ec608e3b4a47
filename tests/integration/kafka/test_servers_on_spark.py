"""A job on Spark that delivers to a topic and to a table of PostgreSQL, through kills of its driver."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.kafka.broker import Broker
from tests.integration.postgres.server import server
from tests.spark.driver_process import Driver
from tests.spark.pipeline_functions import events, totals
from tests.spark.streams import Stream

pytestmark = pytest.mark.spark

MODULE = "tests.integration.kafka.servers_driver"


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """Drivers that are ended with the test."""
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def test_every_row_is_in_topic_and_table_once(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, drivers: list[Driver]
) -> None:
    """Catches: a sink that works in a test's process and not in Spark's tasks; a row that is there twice or not at all
    since the driver died when a sink had the batch, and another delivered it again, at another parallelism."""
    psycopg = pytest.importorskip("psycopg")
    given, name = events(4_000, keys=300), topic(3)
    Stream(None, tmp_path).add(*(given[n : n + 1_000] for n in range(0, 4_000, 1_000)))
    with server() as dsn:
        with psycopg.connect(dsn) as db:
            db.execute("CREATE TABLE totals (key text, total bigint, seen bigint)")
        for parallelism, *killed in (("2", "kafka", "1"), ("1", "postgres", "2"), ("3",)):
            driver = Driver(tmp_path, parallelism, name, broker.servers, dsn, *killed, module=MODULE)
            drivers.append(driver)
            assert driver.wait() == (-signal.SIGKILL if killed else 0), driver.printed()
        with psycopg.connect(dsn) as db:
            in_table = sorted(db.execute("SELECT key, total, seen FROM totals"))

    records = [json.loads(record.value()) for record in broker.records(name)]
    expected = sorted(totals(given))
    assert sorted((one["key"], one["total"], one["seen"]) for one in records) == expected
    assert in_table == expected
