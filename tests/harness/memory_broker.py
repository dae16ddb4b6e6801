"""A broker in memory, for tests of what is sent and when. A real one is in tests/slow/test_kafka.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from drumlin.events.options import EventsOptions
from drumlin.events.schema import EVENTS, Message


class MemoryBroker:
    """A broker in memory: it confirms what it is sent while it is `up`, and refuses while it is `refusing`.
    Its clients may not send values of more than `bytes_max`, and it takes no batch of more than `takes_max`."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.up, self.refusing = True, False
        self.bytes_max = self.takes_max = 10**6

    def producer(self) -> MemoryProducer:
        return MemoryProducer(self)


class MemoryProducer:
    """A producer for it."""

    def __init__(self, at: MemoryBroker) -> None:
        self._broker = at
        self._queue: list[Message] = []
        self.error, self.failed = "", 0
        self.too_large: list[Message] = []
        self.refused_large: list[Message] = []

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            (self._queue if len(message.value) <= self._broker.bytes_max else self.too_large).append(message)

    def poll(self) -> None:
        if not self._broker.up:
            self.error = "connection refused"
            return
        if self._broker.refusing:
            self.failed, self.error = len(self._queue), "not authorized"
        elif sum(len(message.value) for message in self._queue) > self._broker.takes_max:
            self.refused_large += self._queue
        else:
            self._broker.taken += self._queue
        self._queue = []

    @property
    def unconfirmed(self) -> int:
        return len(self._queue)

    def forget_error(self) -> None:
        self.error, self.failed = "", 0


class MemoryOptions(EventsOptions, frozen=True):
    """The options of a process whose events go to such a broker."""

    broker: MemoryBroker

    @classmethod
    def at(cls, broker: MemoryBroker, bytes_max: int = 10**9) -> MemoryOptions:
        return cls("kafka://memory:1/x", None, bytes_max, broker)

    def producer(self) -> MemoryProducer:
        return self.broker.producer()


def decode(message: Message) -> Any:
    kinds: Any = EVENTS[message.topic][0]
    for kind in EVENTS[message.topic][1:]:
        kinds = kinds | kind
    return msgspec.json.decode(message.value, type=kinds)
