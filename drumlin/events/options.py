"""What a process was told of Kafka, checked before it begins: the addresses, and the file with credentials."""

from __future__ import annotations

from pathlib import Path

import msgspec

from drumlin.config import ProcessConfig
from drumlin.config.kafka import parse_kafka
from drumlin.errors import ConfigError
from drumlin.events.broker import BrokerConsumer, BrokerProducer, check_installed, read_properties
from drumlin.events.sender import Producer


class EventsOptions(msgspec.Struct, frozen=True):
    """Where events go, and how much may wait for the broker."""

    address: str
    config: Path | None
    bytes_max: int

    @classmethod
    def of(cls, process: ProcessConfig) -> EventsOptions | None:
        """None without `--events`; ConfigError if the client or the file with credentials is missing or wrong."""
        if not process.events:
            _check_needed(process)
            return None
        check_installed(process.events)
        options = cls(process.events, _file(process), process.events_max_bytes)
        options.producer()
        return options

    def producer(self) -> Producer:
        return BrokerProducer(parse_kafka(self.address), read_properties(self.config))


class SeedsOptions(msgspec.Struct, frozen=True):
    """From where seeds come. If `idle_s` is not None, the crawl ends when nothing has come for so long and nothing is
    left to fetch."""

    address: str
    config: Path | None
    idle_s: float | None = None

    @classmethod
    def of(cls, process: ProcessConfig) -> SeedsOptions | None:
        """None without `--seeds-from`; ConfigError as above."""
        if not process.seeds_from:
            _check_not_idle(process)
            return None
        check_installed(process.seeds_from)
        read_properties(_file(process))
        return cls(process.seeds_from, _file(process), process.seeds_idle_s)

    def consumer(self, crawl: str) -> BrokerConsumer:
        """A consumer in the group of this crawl, unless the file names another."""
        return BrokerConsumer(parse_kafka(self.address), read_properties(self.config), f"drumlin-seeds-{crawl}")


def _file(process: ProcessConfig) -> Path | None:
    return Path(process.events_config).absolute() if process.events_config else None


def _check_not_idle(process: ProcessConfig) -> None:
    if process.seeds_idle_s is not None:
        hint = "Give --seeds-from too, or leave it out: without a topic a crawl ends when nothing is left."
        raise ConfigError("--seeds-idle is about the topic of --seeds-from, and there is none.", hint)


def _check_needed(process: ProcessConfig) -> None:
    if process.events_config and not process.seeds_from:
        raise ConfigError("--events-config says how to reach Kafka, and nothing is sent there.", "Give --events too.")
