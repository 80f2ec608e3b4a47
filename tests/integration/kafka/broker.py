"""A real Kafka broker: one node with KRaft, its data in a folder, killed and started again at the same addresses.

It keeps records for ever: retention goes by their timestamps, which are of any time in tests. Anybody may do anything
through its plain listener. At the other one users say who they are: `guest` may do nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.integration.processes import free_ports, kill_server, start_server
from tests.patience import PATIENCE

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_guest="guest";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={data}
log.retention.ms=-1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
"""
_QUIET = {"log_level": 0}


class Broker:
    """A broker below a folder."""

    def __init__(self, root: Path, jars: list[Path]) -> None:
        self.root = root
        plain, guarded, controller = free_ports(3)
        self.servers = f"127.0.0.1:{plain}"
        self.guarded = f"127.0.0.1:{guarded}"
        settings = _SETTINGS.format(plain=plain, guarded=guarded, controller=controller, data=root / "data")
        (root / "server.properties").write_text(settings, encoding="utf-8")
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
        assert java is not None
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._java = [java, *options, "-cp", os.pathsep.join(map(str, jars))]
        storage = ["kafka.tools.StorageTool", "format", "-t", "ZW1iZXJzdGF0ZS10ZXN0cw", "-c"]
        subprocess.run([*self._java, *storage, str(root / "server.properties")], check=True, capture_output=True)
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = start_server(
            [*self._java, "kafka.Kafka", str(self.root / "server.properties")], self.root / "broker.log"
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self._process.poll() is None, (self.root / "broker.log").read_text(encoding="utf-8")[-3000:]
            try:
                self.admin().list_topics(timeout=1)
                return
            except KafkaException:
                assert time.monotonic() < deadline, "waited for the broker"

    def kill(self) -> None:
        """End it at once."""
        kill_server(self._process)

    def admin(self) -> Any:
        """A client that makes topics and groups."""
        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def create(self, topic: str, partitions: int = 1) -> str:
        """Make a topic; returns its name."""
        admin = self.admin()
        _all(admin.create_topics([NewTopic(topic, partitions, 1)]))
        return topic

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self.admin()
        _all(admin.create_partitions([NewPartitions(topic, partitions)]))

    def send(self, topic: str, records: Iterable[dict[str, Any]]) -> None:
        """Write records (key, value, headers, partition, timestamp in ms) and wait until they are there."""
        failed: list[Any] = []
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, **_QUIET})
        for record in records:
            producer.produce(topic, on_delivery=lambda error, _: failed.append(error) if error else None, **record)
        assert producer.flush(PATIENCE) == 0 and not failed, failed

    def records(self, topic: str) -> list[Any]:
        """All committed records of a topic, by partition and offset."""
        options = {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "tests", **options, **_QUIET})
        try:
            partitions = list(consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found, ended = [], set[int]()
            while len(ended) < len(partitions):
                message = consumer.poll(PATIENCE)
                assert message is not None, f"waited for the end of {topic}"
                if message.error() is None:
                    found.append(message)
                else:
                    ended.add(message.partition())
            return sorted(found, key=lambda one: (one.partition(), one.offset()))
        finally:
            consumer.close()


def _all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(PATIENCE)
