"""Kafka as a source, on a real broker: values, event time, offsets; a broker or a driver that dies; more partitions."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.kafka_orders import orders, pipeline
from pyspark.errors import StreamingQueryException

import emberstate as es
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.errors import RestoreRefusedError
from tests.integration.kafka.broker import Broker
from tests.integration.kafka.orders import records, some_orders, totals
from tests.spark.driver_process import Driver
from tests.spark.killed_driver import deliveries
from tests.spark.streams import Kept, query_failing, wait_in

pytestmark = pytest.mark.spark

MakeTopic = Callable[..., str]


@pytest.fixture(autouse=True)
def _stopped(spark: Any) -> Iterator[None]:
    """Queries that still run are stopped."""
    yield
    for query in spark.streams.active:
        query.stop()


def job(root: Path, kept: Kept, state: str = "state", **options: Any) -> es.Pipeline:
    return pipeline(es.FsStateBackend(root / state), **{"parallelism": 2, **options}).sink(kept)


def drain(made: es.Pipeline, frame: Any, checkpoint: Path) -> None:
    made.start(frame, checkpoint=str(checkpoint), trigger={"availableNow": True}).awaitTermination()


def test_records_become_rows_in_order_of_their_time(spark: Any, broker: Broker, topic: MakeTopic) -> None:
    """Catches: a key, header, value or timestamp that does not arrive; back-pressure that cuts nothing."""
    given = some_orders(50)
    name = topic(3)
    broker.send(name, records(given, 3))
    rows = orders(spark, broker.servers, name)
    seen = Kept()

    query = rows.writeStream.foreachBatch(seen).trigger(availableNow=True).start()
    query.awaitTermination()

    assert sorted((row[0], row[3], row[4]) for row in seen.rows) == sorted(given)
    assert {row[1] for row in seen.rows} == {"north"}
    middle = json.dumps({name: {"0": 5, "1": 0, "2": -2}})
    capped = orders(spark, broker.servers, name, maxOffsetsPerTrigger="20", startingOffsets=middle)
    cut = Kept()
    capped.writeStream.foreachBatch(cut).trigger(availableNow=True).start().awaitTermination()
    assert len(cut.rows) == 45 and len(cut.batches) >= 3


def test_a_value_that_is_no_json_fails_the_batch(
    spark: Any, broker: Broker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Catches: a broken record that becomes an order of nulls."""
    name = topic()
    broker.send(name, [{"key": "c0", "value": '{"order": 1, "amount": 2}'}, {"key": "c1", "value": '{"order":'}])
    kept = Kept()

    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        drain(job(tmp_path, kept), orders(spark, broker.servers, name), tmp_path / "query")
    assert kept.rows == []


def test_the_broker_dies_and_comes_back(spark: Any, broker: Broker, topic: MakeTopic, tmp_path: Path) -> None:
    """Catches: rows lost or counted twice while the broker is away."""
    given, kept = some_orders(90), Kept()
    name = topic(2)
    broker.send(name, records(given[:30], 2))
    made = job(tmp_path, kept)

    def start() -> Any:
        return made.start(orders(spark, broker.servers, name), checkpoint=str(tmp_path / "query"))

    queries = [start()]

    def wait(rows: int) -> None:
        while len(kept.rows) < rows:
            try:
                wait_in(queries[-1], lambda: len(kept.rows) >= rows, "the rows so far")
            except StreamingQueryException:  # Spark gave up while there was no broker
                queries.append(start())

    for end in (30, 60):
        wait(end)
        broker.kill()
        broker.start()
        broker.send(name, records(given[end : end + 30], 2))
    wait(90)

    assert sorted(kept.rows) == totals(given)


def test_partitions_that_are_added_are_read(spark: Any, broker: Broker, topic: MakeTopic, tmp_path: Path) -> None:
    """Catches: rows of a new partition that are not seen, in a running query or after a restart."""
    given, kept = some_orders(90), Kept()
    name = topic(1)
    broker.send(name, records(given[:30], 1))
    made = job(tmp_path, kept)
    query = made.start(orders(spark, broker.servers, name), checkpoint=str(tmp_path / "query"))
    wait_in(query, lambda: len(kept.rows) >= 30, "the rows of one partition")
    broker.widen(name, 2)
    broker.send(name, [{**one, "partition": 1} for one in records(given[30:60], 1)])
    wait_in(query, lambda: len(kept.rows) >= 60, "the rows of a new partition")
    query.stop()
    broker.widen(name, 3)
    broker.send(name, [{**one, "partition": 2} for one in records(given[60:], 1)])

    drain(job(tmp_path, kept, parallelism=3), orders(spark, broker.servers, name), tmp_path / "query")

    assert sorted(kept.rows) == totals(given)


def test_a_savepoint_continues_at_its_offsets(spark: Any, broker: Broker, topic: MakeTopic, tmp_path: Path) -> None:
    """Catches: a new query that begins at the end of the topic, Kafka's default, though the savepoint is older."""
    given, kept = some_orders(60), Kept()
    name = topic(2)
    broker.send(name, records(given[:30], 2))
    made = job(tmp_path, kept)
    drain(made, orders(spark, broker.servers, name), tmp_path / "query")
    made.savepoint("moved")
    broker.send(name, records(given[30:], 2))
    saved = read_savepoint(es.FsStateBackend(tmp_path / "state").open_storage(), "moved").times
    assert saved is not None and saved.source is not None
    stored = json.loads(saved.source)
    offsets = next(text for text in stored if text and name in text)
    rest = Kept()
    moved = job(tmp_path, rest, "moved state").from_savepoint(
        "moved", location=es.FsStateBackend(tmp_path / "state"), source_position=saved.source
    )

    for number, wrong in enumerate(("earliest", "latest")):
        frame = orders(spark, broker.servers, name, startingOffsets=wrong)
        with query_failing(moved, RestoreRefusedError, option="startingOffsets", expected=json.loads(offsets)):
            drain(moved, frame, tmp_path / f"wrong {number}")
    broker.widen(name, 3)
    with_new = json.dumps({name: {**json.loads(offsets)[name], "2": -2}})
    drain(moved, orders(spark, broker.servers, name, startingOffsets=with_new), tmp_path / "new query")

    assert sorted(kept.rows + rest.rows) == totals(given)


@pytest.mark.reliability(2)
def test_the_driver_is_killed_and_restarts_with_other_slots(
    spark: Any, broker: Broker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Catches: offsets and state that part company when the driver dies: rows lost, or counted twice."""
    given = some_orders(140)
    name = topic(3)
    broker.send(name, records(given, 3))
    started: list[Driver] = []

    def run(slots: int, *death: str) -> int:
        module = "tests.integration.kafka.killed_driver"
        started.append(Driver(tmp_path, broker.servers, name, str(slots), *death, module=module))
        return started[-1].wait()

    try:
        for slots, *death in ((2, "prepared", "1"), (3, "committed", "2"), (1, "in the sink", "3")):
            assert run(slots, *death) == -signal.SIGKILL, started[-1].printed()
        assert run(4) == 0, started[-1].printed()
    finally:
        for driver in started:
            driver.kill()

    found = deliveries(tmp_path, "kafka")
    assert all(rows == times[0] for times in found.values() for rows in times)
    rows = sorted(tuple(row) for times in found.values() for row in times[0])
    assert rows == [(*row[:3], str(row[3])) for row in totals(given)]
