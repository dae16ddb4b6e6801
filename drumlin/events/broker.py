"""The only place that knows the client library (confluent-kafka, around librdkafka). It is loaded where it is used.

Credentials come from a file of librdkafka's properties; no value of it is ever logged or put into a message. What
librdkafka itself would print goes to our log, at the level of details.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drumlin.config.kafka import KafkaAddress
from drumlin.errors import ConfigError
from drumlin.events.schema import Message

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

LIBRARY: Final = "confluent_kafka"
FILE_BYTES_MAX: Final = 100_000
SECRET_CHARS_MIN: Final = 3
CLIENT: Final = "drumlin"

# Every message is confirmed by all replicas that are in step, stays in the producer's queue until then, and is written
# once however often the producer has to repeat itself. Only failures are reported one by one.
PRODUCING: Final[dict[str, str | bool]] = {
    "enable.idempotence": "true",
    "acks": "all",
    "message.timeout.ms": "0",
    "delivery.report.only.error": True,
}
# Offsets are committed by us, when the frontier has the URLs.
CONSUMING: Final = {"enable.auto.commit": "false", "enable.auto.offset.store": "false"}
# These may be set otherwise in the file.
PRODUCING_DEFAULTS: Final = {"linger.ms": "20", "compression.type": "lz4"}
CONSUMING_DEFAULTS: Final = {"auto.offset.reset": "earliest", "session.timeout.ms": "10000"}

ANSWER_S: Final = 2.0
NO_ANSWER: Final = "the broker does not answer"
# What librdkafka adds to its sentences, and nobody needs: "(after 0ms in state CONNECT, 1 identical error(s) …)".
_DETAILS: Final = re.compile(r" \(after \d+ms in state \w+.*\)$|(?<=\d)/bootstrap|ipv[46]#")
_SECRET: Final = re.compile("password|secret|key|token|pem|oauth")

log = logging.getLogger("drumlin.kafka")


class _ClientLog:
    """Takes what librdkafka says of itself. It calls much of what it repeats by itself a warning or an error; what
    matters to people is said by us, once."""

    def log(self, level: int, message: str, *arguments: object) -> None:
        log.debug(message, *arguments)


def check_installed(wanted: str | None) -> None:
    """ConfigError if Kafka is wanted and its client is not installed."""
    if wanted and importlib.util.find_spec(LIBRARY) is None:
        hint = "Install it (`pip install '.[kafka]'` in drumlin's clone), or leave out --events and --seeds-from."
        raise ConfigError("Kafka needs the library confluent-kafka, which is not installed.", hint)


def read_properties(path: Path | None) -> dict[str, str]:
    """The properties in a file, a line each: `name=value`. ConfigError names the line, never its value."""
    if path is None:
        return {}
    try:
        text = path.read_bytes()[:FILE_BYTES_MAX].decode()
    except OSError as cause:
        raise ConfigError(
            f"Cannot read {path}: {cause.strerror}.", "Check the path given to --events-config."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.", "Write one librdkafka property a line: name=value.") from None
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():
            raise ConfigError(f"{path}, line {number} is not a property.", "Write name=value, or # before a remark.")
        properties[name.strip()] = value.strip()
    for name in (*PRODUCING, *CONSUMING, "bootstrap.servers"):
        if name in properties:
            hint = f"Remove it from {path}: without it, events or seeds could be lost, or go elsewhere."
            raise ConfigError(f"drumlin itself sets {name}.", hint)
    return properties


class BrokerProducer:
    """Hands messages to librdkafka, and tells whether all of them have arrived."""

    def __init__(self, address: KafkaAddress, properties: Mapping[str, str]) -> None:
        from confluent_kafka import Producer

        self._address, self._secrets = address, secrets_in(properties)
        self._topics: dict[str, str] = {}
        self.error = ""
        """The last thing that went wrong, until `forget_error`."""
        self.failed = 0
        """How many messages were refused since the last call of `forget_error`."""
        self.too_large: list[Message] = []
        """What the client may not send because of its size (`message.max.bytes`)."""
        self.refused_large: list[Message] = []
        """What the broker has refused because of its size. It refuses all that came in one batch."""
        own = {**PRODUCING_DEFAULTS, **properties, **PRODUCING, "bootstrap.servers": address.brokers}
        self._producer: Producer = _made(Producer, own, properties, self._on_error, self._on_delivery)

    def send(self, messages: Sequence[Message]) -> None:
        """Queue messages; `unconfirmed` says how many are still on their way."""
        from confluent_kafka import KafkaError, KafkaException

        produce, topics = self._producer.produce, self._topics
        for message in messages:
            topic = topics.get(message.topic) or topics.setdefault(message.topic, self._address.topic(message.topic))
            try:
                produce(topic, message.value, message.key.encode("utf-8", "replace"))
            except (KafkaException, BufferError) as refused:
                if isinstance(refused, KafkaException) and refused.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    self.too_large.append(message)
                    continue
                self.failed, self.error = self.failed + 1, self._said(f"{refused} (topic {topic})")
                return

    def poll(self) -> None:
        """Hear of failures."""
        self._producer.poll(0)

    @property
    def unconfirmed(self) -> int:
        return len(self._producer)

    def forget_error(self) -> None:
        self.error, self.failed = "", 0

    def _on_error(self, error: Any) -> None:
        self.error = self._said(str(error.str()))

    def _on_delivery(self, error: Any, message: Any) -> None:
        from confluent_kafka import KafkaError

        if error is None:
            return
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            topic = next(name for name, full in self._topics.items() if full == message.topic())
            self.refused_large.append(Message(topic, message.key().decode(), message.value()))
        else:
            self.failed += 1
            self.error = self._said(f"{error.str()} (topic {message.topic()})")

    def _said(self, error: str) -> str:
        return without_values(plainly(error), self._secrets)


class BrokerConsumer:
    """Reads a topic in a consumer group."""

    def __init__(self, address: KafkaAddress, properties: Mapping[str, str], group: str) -> None:
        from confluent_kafka import Consumer

        self.error = ""
        self._topic, self._secrets = address.name, secrets_in(properties)
        own = {"group.id": group, **CONSUMING_DEFAULTS, **properties, **CONSUMING, "bootstrap.servers": address.brokers}
        self._consumer: Consumer = _made(Consumer, own, properties, self._on_error)
        self._consumer.subscribe([address.name])

    def take(self, count: int, bytes_max: int, wait_s: float) -> list[Any]:
        """Messages as they come, with a value and a place each; errors are kept in `error`."""
        taken = []
        for message in polled(self._consumer.poll, count, bytes_max, wait_s):
            error = message.error()
            if error is None:
                taken.append(message)
            else:
                self._on_error(error)
        if taken or (self.error and self.assigned and self.answers()):
            self.error = ""
        return taken

    def answers(self) -> bool:
        """Whether the broker can be asked about the topic; otherwise `error` says so. A member of a group does not
        notice by itself that nobody answers it any more, and takes the silence for an empty topic."""
        from confluent_kafka import KafkaException

        try:
            self._consumer.list_topics(self._topic, timeout=ANSWER_S)
        except KafkaException:
            self.error = self.error or NO_ANSWER
            return False
        return True

    def commit(self, taken: Sequence[Any]) -> None:
        """Note in the broker that these, and all before them, need not be read again. KafkaException if it fails."""
        from confluent_kafka import TopicPartition

        ends: dict[tuple[str, int], int] = {}
        for message in taken:
            place = message.topic(), message.partition()
            ends[place] = max(ends.get(place, 0), message.offset() + 1)
        offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    @property
    def assigned(self) -> bool:
        """Whether it has joined its group, so messages come if there are any."""
        return bool(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()

    def _on_error(self, error: Any) -> None:
        self.error = without_values(plainly(str(error.str())), self._secrets)


def polled(poll: Callable[[float], Any], count: int, bytes_max: int, wait_s: float) -> Iterator[Any]:
    """What is there, one message at a time, up to `count` or until they have `bytes_max`; waits for the first only."""
    size = 0
    for number in range(count):
        message = poll(0.0 if number else wait_s)
        if message is None:
            return
        yield message
        size += len(message.value() or b"")
        if size >= bytes_max:
            return


def _made(
    kind: Callable[..., Any],
    own: Mapping[str, str | bool],
    properties: Mapping[str, str],
    on_error: Callable[[Any], None],
    on_delivery: Callable[[Any, Any], None] | None = None,
) -> Any:
    from confluent_kafka import KafkaException

    called: dict[str, Any] = {"client.id": CLIENT, **own, "error_cb": on_error}
    if on_delivery is not None:
        called["on_delivery"] = on_delivery
    try:
        return kind(called, logger=_ClientLog())
    except (KafkaException, TypeError, ValueError) as refused:
        error = refused.args[0]
        said = without_values(str(error if isinstance(error, str) else error.str()), properties)
        raise ConfigError(f"Kafka's client refuses its settings: {said}.", "Look into --events-config.") from None


def plainly(said: str) -> str:
    """A sentence of librdkafka without its details."""
    return _DETAILS.sub("", said).rstrip(".")


def is_kafka_error(error: BaseException) -> bool:
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException)


def secrets_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Those properties whose values nobody may see: a broker may repeat them in what it says."""
    return {name: value for name, value in properties.items() if _SECRET.search(name)}


def without_values(said: str, properties: Mapping[str, str]) -> str:
    """A sentence of librdkafka without the values of the user's file, which may be secret."""
    for value in sorted(properties.values(), key=len, reverse=True):
        if len(value) >= SECRET_CHARS_MIN:
            said = said.replace(value, "***")
    return said
