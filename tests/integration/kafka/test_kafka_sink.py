"""The Kafka sink on a real broker: what it promises, what it refuses, what it writes."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import SinkError, StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.sinks import KafkaSink, Origin, Start
from emberstate.sinks.kafka_topic import Topic
from emberstate.testing.sinks import LocalDelivery, check_sink
from tests.integration.kafka.broker import Broker
from tests.integration.processes import free_ports
from tests.raising import raising

pytestmark = pytest.mark.spark

MakeTopic = Callable[..., str]
ROWS = RowType.of("key string, value bigint")
ORIGIN = Origin("f00d", "job", "query", "totals", "main")


def make_sink(servers: str, mark: str, delivery: str, name: str) -> KafkaSink:
    """A sink of a topic, which is made if it is not there; for other processes, too."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    with contextlib.suppress(Exception):  # it is there
        admin.create_topics([NewTopic(f"{mark}-{name}", 2, 1)])[f"{mark}-{name}"].result(60)
    return es.sinks.kafka(f"{mark}-{name}", servers=servers, key="key", delivery=delivery)  # type: ignore[arg-type]


def start(row_type: RowType = ROWS) -> Start:
    return Start(None, "job", "totals", "main", row_type, None)  # type: ignore[arg-type]


def values(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(one.value()) for one in broker.records(topic)]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_it_holds_its_promise(broker: Broker, tmp_path: Path, delivery: str) -> None:
    """Catches: rows lost or written twice by deaths, pauses, redeliveries; a new query that is skipped."""
    mark = uuid.uuid4().hex[:8]

    def read(name: str) -> list[tuple[str, int]]:
        return [(one["key"], one["value"]) for one in values(broker, f"{mark}-{name}")]

    make = functools.partial(make_sink, broker.servers, mark, delivery)
    check_sink(make, read, tmp_path, atomic="part", kills=3)


def test_records_are_what_the_rows_are(broker: Broker, topic: MakeTopic, tmp_path: Path) -> None:
    """Catches: a value that JSON changes; rows of a key that lose their order."""
    wide = RowType.of(
        "id string, flag boolean, n bigint, x double, d decimal(38,10), t timestamp, day date, raw binary, "
        "list array<bigint>, inner struct<a: string, b: double>"
    )
    moment = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
    rows = [
        ("ä\0\n", True, 2**62, 0.1, Decimal("12345678901234567890.0123456789"), moment, date(2026, 5, 4), b"\xff\0",
         [1, 2], {"a": "x", "b": -math.inf}),
        (None, None, None, math.nan, None, None, None, None, None, None),
    ]  # fmt: skip
    name = topic(4)
    sink = es.sinks.kafka(name, servers=broker.servers, key="id")
    sink.check(start(wide))

    sink.deliver(LocalDelivery(tmp_path, ORIGIN, 0, wide, [rows]))

    found = {one.key(): one.value() for one in broker.records(name)}
    full = json.loads(found["ä\0\n".encode()], parse_float=str)
    assert full == {
        "id": "ä\0\n", "flag": True, "n": 2**62, "x": "0.1", "d": "12345678901234567890.0123456789",
        "t": "2026-05-04T12:00:00.123456+00:00", "day": "2026-05-04", "raw": "/wA=", "list": [1, 2],
        "inner": {"a": "x", "b": "-Infinity"},
    }  # fmt: skip
    empty = json.loads(found[None])
    assert empty.pop("x") == "NaN" and set(empty.values()) == {None}

    plain_topic = topic(3)
    plain = es.sinks.kafka(plain_topic, servers=broker.servers, key="key", value="value")
    text = RowType.of("key string, value binary")
    many = [(f"k{n % 5}", b"%d" % n) for n in range(1000)]
    plain.deliver(LocalDelivery(tmp_path, ORIGIN, 0, text, [many]))
    records = broker.records(plain_topic)
    by_key = {key: [one.value() for one in records if one.key() == key.encode()] for key, _ in many}
    assert by_key == {key: [value for other, value in many if other == key] for key, _ in many}


def test_what_cannot_be_is_refused_at_the_start(broker: Broker, topic: MakeTopic) -> None:
    """Catches: a wrong address, topic, column, right or password that is found out after the first commit."""
    name = topic()
    nobody = f"127.0.0.1:{free_ports(1)[0]}"

    def check(topic: str = name, servers: str = broker.servers, **options: Any) -> None:
        es.sinks.kafka(topic, servers=servers, **options).check(start())

    check()
    with raising(SinkError, option="servers", found=nobody):
        check(servers=nobody)
    with raising(SinkError, option="topic", found="missing"):
        check("missing")
    with raising(SinkError, option="key", column="no"):
        check(key="no")
    with raising(SinkError, option="value", found="bigint"):
        check(value="value")
    guarded = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "guest"}
    with raising(SinkError, option="servers"):
        check(servers=broker.guarded, options={**guarded, "sasl.password": "wrong"})
    with raising(SinkError, option="topic", found=name):
        check(servers=broker.guarded, options={**guarded, "sasl.password": "guest"})
    with raising(SinkError, option="options"):
        check(options={"no.such.setting": 1})
    for wrong in ({"options": {"transactional.id": "x"}}, {"delivery": "twice"}, {"servers": ""}):
        with raising(StateDeclarationError, option=next(iter(wrong))):
            check(**wrong)
    secret = es.sinks.kafka(name, servers="s", options={"sasl.password": "secret"})
    assert "secret" not in repr(secret)


def test_a_marker_that_is_gone_is_told(
    broker: Broker, topic: MakeTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: a broker that has forgotten the marker, and rows written twice without a word."""
    sink = es.sinks.kafka(topic(), servers=broker.servers)
    sink.check(start())
    with caplog.at_level(logging.WARNING, "emberstate.sinks"):
        for batch in (0, 1, 1):
            sink.deliver(LocalDelivery(tmp_path, ORIGIN, batch, ROWS, [[("a", batch)]]))
        assert not caplog.records
        sink.deliver(LocalDelivery(tmp_path, Origin("f00d", "job", "other", "t", "main"), 5, ROWS, [[("a", 5)]]))
        assert "offsets.retention.minutes" in caplog.text


def test_a_broker_that_dies_loses_nothing(broker: Broker, topic: MakeTopic, tmp_path: Path) -> None:
    """Catches: a part that is taken for written because its broker did not answer."""
    name = topic()
    sink = es.sinks.kafka(name, servers=broker.servers)
    sink.check(start())

    def kill(when: str, part: int) -> None:
        if (when, part) == ("after", 0):
            broker.kill()
            broker.start()

    rows = [[("a", 1)], [("b", 2)]]
    with contextlib.suppress(SinkError):  # or the client waits until the broker is back
        sink.deliver(LocalDelivery(tmp_path, ORIGIN, 0, ROWS, rows, around=kill))
    sink.deliver(LocalDelivery(tmp_path, ORIGIN, 0, ROWS, rows))

    assert sorted(one["value"] for one in values(broker, name)) == [1, 2]


def test_a_driver_that_is_paused_in_its_transaction_adds_nothing(
    broker: Broker, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a driver that wakes up after another has taken over, and commits what it had begun."""
    name = topic()
    first, second = (es.sinks.kafka(name, servers=broker.servers) for _ in range(2))
    first.check(start())
    write, paused = Topic.write, [True]

    def delivery(batch: int) -> LocalDelivery:
        return LocalDelivery(tmp_path, ORIGIN, batch, ROWS, [[("a", batch)]])

    def write_then_pause(self: Topic, *given: Any) -> None:
        write(self, *given)
        if paused.pop():
            paused.append(False)
            for batch in (0, 1, 2):
                second.deliver(delivery(batch))
        else:
            paused.append(False)

    monkeypatch.setattr(Topic, "write", write_then_pause)
    with raising(SinkError, option="topic"):
        first.deliver(delivery(0))

    assert [one["value"] for one in values(broker, name)] == [0, 1, 2]
    first.deliver(delivery(2))
    assert [one["value"] for one in values(broker, name)] == [0, 1, 2]
