"""A Kafka broker for the tests of this folder; they skip if it cannot be had."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tools.jars import Unavailable, broker_jars, connector_jars

if TYPE_CHECKING:
    from tests.integration.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker, which runs until the end of the tests."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: run `make integration`")
    from tests.integration.kafka.broker import Broker

    try:
        jars = broker_jars()
        connector_jars()
    except Unavailable as missing:
        pytest.skip(str(missing))
    made = Broker(tmp_path_factory.mktemp("kafka"), jars)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Makes a topic of its own for a test."""
    return lambda partitions=1: broker.create(f"t-{uuid.uuid4().hex[:12]}", partitions)
