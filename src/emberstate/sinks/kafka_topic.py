"""A topic of Kafka, its producers and its markers, for the Kafka sink; travels to Spark's tasks.

How a part is written once is told in `kafka_sink`.

Thread safety: immutable; every call makes clients of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any, Final

from emberstate.errors import EmberstateError, SinkError
from emberstate.sinks.extras import needed
from emberstate.sinks.kafka_records import records
from emberstate.sinks.parts import Part

#: Seconds that a call waits for the broker.
_PATIENCE: Final = 60.0
#: How long a transaction may take, in milliseconds; a dead producer's holds readers up for as long.
_TRANSACTION: Final = 300_000
#: What a task found: no marker at all, an older one, or that of the batch.
NEW, OLDER, THERE = "new", "older", "there"

#: The first words of options that a consumer takes, too.
_SHARED: Final = frozenset({"security", "ssl", "sasl", "client", "socket", "broker", "metadata", "debug", "api", "log"})
_RIGHTS: Final = "Grant Write and Read on the topic, and on transactional ids and groups with the prefix emberstate-."
_ADVICE: Final = {
    "TOPIC_AUTHORIZATION_FAILED": _RIGHTS,
    "GROUP_AUTHORIZATION_FAILED": _RIGHTS,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _RIGHTS,
    "_FENCED": "Another driver or task writes the same part: it is done by that one, or by Spark's next attempt.",
    "MSG_SIZE_TOO_LARGE": "Raise max.message.bytes of the topic, and message.max.bytes in options.",
}
_USUAL: Final = "Nothing is lost: the batch is delivered when the query is started again, as soon as brokers answer."


@dataclasses.dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and how rows become its records; travels to tasks."""

    topic: str
    servers: str
    key: str | None
    value: str | None
    options: dict[str, Any]

    def name_for(self, origin: str) -> str:
        """The name of transactions and markers of an origin: another one for another sink of the same output."""
        sink = json.dumps([self.topic, self.key, self.value])
        return f"emberstate-{origin}-{hashlib.blake2b(sink.encode(), digest_size=6).hexdigest()}"

    def producer(self, **settings: Any) -> Any:
        """A new producer."""
        own = {"enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 20}
        return self._client("Producer", **{**own, **settings})

    def consumer(self, group: str) -> Any:
        """A consumer for the marker of a group; it sees only what is committed."""
        return self._client(
            "Consumer", **{"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
        )

    def _client(self, kind: str, **settings: Any) -> Any:
        library = _library()
        given = {"bootstrap.servers": self.servers, "log_level": 2, **settings}
        if kind == "Producer":
            given = {**given, **self.options}
        else:  # what is a producer's alone is none of a consumer's
            given |= {name: one for name, one in self.options.items() if name.split(".")[0] in _SHARED}
        try:
            return getattr(library, kind)(given)
        except library.KafkaException as error:
            raise SinkError(f"options: Kafka's client rejects them: {error.args[0].str()}", option="options") from None

    def check_topic(self) -> None:
        """Raise unless the brokers answer, and have a topic that may be seen."""
        library = _library()
        problems: list[str] = []
        client = self.producer(error_cb=lambda error: problems.append(error.str()))
        try:
            found = client.list_topics(self.topic, timeout=_PATIENCE / 2).topics[self.topic]
        except library.KafkaException as error:
            client.poll(0)
            why = "; ".join(dict.fromkeys([*problems, error.args[0].str()]))
            raise SinkError(
                f"no broker of {self.servers} answers: {why}. Check the addresses, that a broker runs, and the "
                f"options for encryption and credentials.",
                option="servers", found=self.servers,
            ) from None  # fmt: skip
        if found.error is not None:
            raise SinkError(
                f"topic {self.topic!r} cannot be used at {self.servers}: {found.error.str()}. Create it "
                f"(kafka-topics.sh --create --topic {self.topic} --partitions …), or have its owner grant Write and "
                f"Read on it.",
                option="topic", found=self.topic,
            )  # fmt: skip

    def rehearse(self) -> None:
        """Raise unless a transaction with a marker can be made; it is aborted."""
        name = f"emberstate-check-{uuid.uuid4().hex}"
        with self._naming("check"), self._marker(name) as (consumer, marker):
            producer = self.transaction(name)
            marker.offset = 0
            producer.send_offsets_to_transaction([marker], consumer.consumer_group_metadata(), _PATIENCE)
            producer.abort_transaction(_PATIENCE)

    def transaction(self, name: str) -> Any:
        """A producer in a new transaction; older producers of the name are shut out."""
        producer = self.producer(**{"transactional.id": name, "transaction.timeout.ms": _TRANSACTION})
        producer.init_transactions(_PATIENCE)
        producer.begin_transaction()
        return producer

    def send_once(self, part: Part, name: str, batch: int) -> str:
        """Write a part and its marker in a transaction, unless its marker says that it is there."""
        name = f"{name}-{part.number}"
        with self._naming(f"part {part.number} of batch {batch}"), self._marker(name) as (consumer, marker):
            producer = self.transaction(name)
            [found] = consumer.committed([marker], _PATIENCE)
            if found.error is not None:
                raise _library().KafkaException(found.error)
            if found.offset > batch:
                producer.abort_transaction(_PATIENCE)
                return THERE
            self.write(producer, part)
            marker.offset = batch + 1
            producer.send_offsets_to_transaction([marker], consumer.consumer_group_metadata(), _PATIENCE)
            producer.commit_transaction(_TRANSACTION / 1000)
            return NEW if found.offset < 0 else OLDER

    def send(self, part: Part) -> None:
        """Write a part; raises unless the brokers have all of it."""
        failed: list[Any] = []
        producer = self.producer()
        with self._naming(f"part {part.number}"):
            self.write(producer, part, lambda error, _: failed.append(error) if error is not None else None)
            producer.flush(_TRANSACTION / 1000)
            if failed:
                raise _library().KafkaException(failed[0])
            if len(producer):
                raise SinkError(f"{len(producer)} records were not acknowledged", option="servers")

    def write(self, producer: Any, part: Part, on_delivery: Any = None) -> None:
        """Give the rows of a part to a producer."""
        for batch in part.batches():
            for key, value in records(batch, self.key, self.value):
                while True:
                    try:
                        producer.produce(self.topic, value, key, on_delivery=on_delivery)
                        break
                    except BufferError:  # its queue is full
                        producer.poll(1)
            producer.poll(0)

    @contextlib.contextmanager
    def _marker(self, group: str) -> Iterator[tuple[Any, Any]]:
        """A consumer of a group, and the place of its marker: a topic has a partition 0."""
        consumer = self.consumer(group)
        try:
            yield consumer, _library().TopicPartition(self.topic, 0)
        finally:
            consumer.close()

    @contextlib.contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Turn an error of Kafka's client into one that says where it was and what to do."""
        try:
            yield
        except EmberstateError:
            raise
        except _library().KafkaException as error:
            found = error.args[0]
            raise SinkError(
                f"Kafka at {self.servers}, topic {self.topic!r}, {what}: {found.str()} ({found.name()}). "
                f"{_ADVICE.get(found.name(), _USUAL)}",
                option="topic", found=found.name(),
            ) from None  # fmt: skip


def _library() -> Any:
    return needed("confluent_kafka", "kafka")
