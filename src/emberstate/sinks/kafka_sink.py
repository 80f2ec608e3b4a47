"""`kafka`: output as records of a topic, each once for readers that read committed records.

Every part of a batch is one transaction of Kafka, and the part's marker is written in it: an offset of a private group,
the number of the next batch. The id of the transactions is that of the delivery's origin, this sink and the part's
number, so of all producers for a part only the newest can commit (decision 40):

1. `init_transactions` ends what an older producer of the id has left open, and shuts that producer out.
2. Then the marker is read. If it says that the batch is there, there is nothing to do.
3. Rows and marker are written, and the transaction is committed: it fails if a newer producer came after step 1.

So a driver that was paused, a task that Spark repeats and a redelivered batch all add nothing.

Thread safety: one delivery at a time; parts are written in Spark's tasks, each by a producer of its own.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from emberstate.errors import StateDeclarationError
from emberstate.sinks.interface import Delivery, Sink, Start
from emberstate.sinks.kafka_records import check_column
from emberstate.sinks.kafka_topic import NEW, Topic
from emberstate.sinks.parts import Part

_log = logging.getLogger("emberstate.sinks")

#: Options that the sink itself sets.
_OWN: Final = ("bootstrap.servers", "transactional.id", "enable.idempotence", "group.id", "isolation.level")
_EXACTLY: Final = "exactly-once, slot by slot, for readers with isolation.level=read_committed"
_AT_LEAST: Final = "at-least-once: records of a batch that is delivered again are there again"


class KafkaSink(Sink):
    """Writes rows to a topic of Kafka."""

    def __init__(
        self, topic: str, servers: str, key: str | None, value: str | None, options: Mapping[str, Any], delivery: str
    ) -> None:
        for name, given in (("topic", topic), ("servers", servers)):
            if not isinstance(given, str) or not given:
                raise StateDeclarationError(f"{name}: expected a text, got {given!r}", option=name, found=given)
        if delivery not in ("exactly-once", "at-least-once"):
            raise StateDeclarationError(
                f"delivery: expected 'exactly-once' or 'at-least-once', got {delivery!r}",
                option="delivery", expected=("exactly-once", "at-least-once"), found=delivery,
            )  # fmt: skip
        if taken := sorted(set(options) & set(_OWN)):
            what = f"options: the sink itself sets {', '.join(taken)}; leave them out"
            raise StateDeclarationError(what, option="options", found=taken)
        self._target = Topic(topic, servers, key, value, dict(options))
        self._exactly = delivery == "exactly-once"
        self.promise = _EXACTLY if self._exactly else _AT_LEAST

    def check(self, start: Start) -> None:
        target = self._target
        check_column(start.row_type, target.key, "key")
        check_column(start.row_type, target.value, "value")
        target.check_topic()
        if self._exactly:
            target.rehearse()

    def deliver(self, delivery: Delivery) -> None:
        if not delivery.parts:
            return
        if not self._exactly:
            delivery.in_tasks(_Send(self._target))
            return
        found = delivery.in_tasks(_SendOnce(self._target, self._target.name_for(delivery.origin.id), delivery.batch))
        if delivery.batch and found[0] == NEW:
            _log.warning(
                "%r: Kafka has no marker of earlier batches of this query. This is the first batch with rows, or the "
                "marker was deleted: a broker keeps it for offsets.retention.minutes after the last batch. A batch "
                "that is delivered again after that is written again.", self,
            )  # fmt: skip

    def __repr__(self) -> str:
        target = self._target
        named = {"servers": target.servers, "key": target.key, "value": target.value}
        shown = "".join(f", {name}={value!r}" for name, value in named.items() if value is not None)
        return f"kafka({target.topic!r}{shown}{'' if self._exactly else ', delivery=' + repr('at-least-once')})"


def kafka(
    topic: str,
    *,
    servers: str,
    key: str | None = None,
    value: str | None = None,
    options: Mapping[str, Any] | None = None,
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once",
) -> KafkaSink:
    """A sink that writes every row to a topic of Kafka, exactly once for readers that read committed records.

    >>> import emberstate as es
    >>> es.sinks.kafka("totals", servers="localhost:9092", key="card")
    kafka('totals', servers='localhost:9092', key='card')

    Args:
        topic: An existing topic.
        servers: The addresses of brokers, `host:port`, separated by commas.
        key: A column of type string or binary. Rows of one key go to one partition, that of Java's producers.
        value: A column of type string or binary; without it the value is the whole row as JSON.
        options: Settings of librdkafka's producer, such as `{"security.protocol": "SASL_SSL", …}`. Tasks need them.
        delivery: "exactly-once": a transaction per slot and batch. Readers must set `isolation.level=read_committed`,
            and see the slots of a batch one after the other. Users need Write and Read on the topic, and on
            transactional ids and groups that begin with `emberstate-`. "at-least-once": plain records, sooner
            seen; a batch that is delivered again is written again.

    Rows of one slot keep their order within a partition. A marker is kept by the broker for `offsets.retention.minutes`
    (7 days, unless set) after the last batch: a batch that is delivered again after that is written again, and a
    warning in the log says that there was no marker. Needs the extra `kafka`, on the executors too.
    """
    return KafkaSink(topic, servers, key, value, options or {}, delivery)


@dataclasses.dataclass(frozen=True, slots=True)
class _SendOnce:
    """Runs in a task."""

    target: Topic
    name: str
    batch: int

    def __call__(self, part: Part) -> str:
        return self.target.send_once(part, self.name, self.batch)


@dataclasses.dataclass(frozen=True, slots=True)
class _Send:
    """Runs in a task."""

    target: Topic

    def __call__(self, part: Part) -> None:
        self.target.send(part)
