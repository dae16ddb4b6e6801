"""A real Kafka broker for tests: one process in KRaft mode, with data in a folder of its own; ended with the test.

The program comes from Maven Central (`mvn`, 45 jars, about 20 s) and is kept in the user's cache folder for the next
time. Where there is no Java or Maven, or Maven Central cannot be reached, tests that need a broker are skipped.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.events.schema import EVENTS, Event
from tests.harness.redis import free_port, wait_for

VERSION = "4.1.0"
GET_S_MAX = 280.0
START_S_MAX = 60.0
CONSUME_S_MAX = 60.0
JOIN_S = 10.0
QUIET_S = 2.0
PARTITIONS = 3
MEMORY = "-Xmx400m"
POM = f"""<project><modelVersion>4.0.0</modelVersion><groupId>drumlin</groupId><artifactId>kafka</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>
"""


@functools.cache
def kafka_program() -> Path:
    """The folder with Kafka's jars; skips the test if it cannot be had."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install '.[kafka]'")
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("a Kafka broker needs Java and Maven: apt-get install default-jre-headless maven")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drumlin-tests"
    folder = cache / f"kafka-{VERSION}"
    if not folder.exists():
        _get(folder)
    return folder


def _get(folder: Path) -> None:
    """Have Maven copy the jars into a folder, which gets its name when it is complete: other tests may do the same."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    (partial / "pom.xml").write_text(POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    try:
        subprocess.run(command, cwd=partial, check=True, capture_output=True, timeout=GET_S_MAX)
        if not folder.exists():
            partial.rename(folder)
    except (subprocess.SubprocessError, OSError) as cause:
        pytest.skip(f"Kafka cannot be had from Maven Central: {cause}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class KafkaBroker:
    """One broker. It may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._jars = kafka_program() / "lib"
        self._folder = folder
        self.port, control = free_port(), free_port()
        self._settings = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self._settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{control}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{control}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}\n"
            f"controller.listener.names=CONTROLLER\nlog.dirs={folder / 'data'}\n"
            "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\noffsets.topic.num.partitions=1\n"
            f"num.partitions={PARTITIONS}\ngroup.initial.rebalance.delay.ms=0\n"
        )
        cluster = urlsafe_b64encode(uuid.UUID(int=7).bytes).decode().rstrip("=")
        self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)).wait(START_S_MAX)

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["java", MEMORY, "-XX:+UseSerialGC", "-cp", f"{self._jars}/*", *arguments]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def address(self, name: str) -> str:
        return f"kafka://{self.brokers}/{name}"

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", str(self._settings))
        try:
            wait_for(self._answers, START_S_MAX, "starting Kafka")
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self._folder / "log").read_text()[-2000:])
        try:
            admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": "0"})
            return bool(admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def make_topic(self, topic: str, config: dict[str, str]) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.brokers})
        made = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, config=config)])
        made[topic].result(START_S_MAX)

    def produce(self, topic: str, values: list[bytes]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.brokers})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(CONSUME_S_MAX) == 0

    def consume(self, *topics: str) -> list[tuple[str, str, bytes]]:
        """Everything in some topics, until nothing has come for a while: topic, key and value."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": self.brokers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(list(topics))
        found: list[tuple[str, str, bytes]] = []
        last = time.monotonic()
        while time.monotonic() < last + (QUIET_S if found else QUIET_S + JOIN_S):
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                found.append((message.topic() or "", (message.key() or b"").decode(), message.value() or b""))
                last = time.monotonic()
        consumer.close()
        return found

    def events(self, prefix: str, topic: str) -> list[tuple[str, Any]]:
        """The events in one of a crawl's topics, with their keys, checked against the schema."""
        kinds: Any = EVENTS[topic][0]
        for kind in EVENTS[topic][1:]:
            kinds = kinds | kind
        decode = msgspec.json.Decoder(kinds).decode
        return [(key, decode(value)) for _, key, value in self.consume(f"{prefix}.{topic}")]


@contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def ids_of(events: list[tuple[str, Event]]) -> list[str]:
    return [event.id for _, event in events]
