"""Addresses of Kafka: `kafka://HOST:PORT,HOST:PORT/NAME`, where NAME is a topic, or what the names of topics begin
with. Nothing secret belongs there: credentials are in the file of `--events-config`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SCHEME: Final = "kafka://"
NAME_CHARS_MAX: Final = 200
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}", re.ASCII)
_BROKER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}", re.ASCII)


class KafkaAddress(NamedTuple):
    """Brokers as librdkafka takes them, and a topic or a prefix of topics."""

    brokers: str
    name: str

    def topic(self, end: str) -> str:
        return f"{self.name}.{end}"


def parse_kafka(text: str) -> KafkaAddress:
    """Read an address; ValueError says how one is written, without repeating a password that stood in it."""
    brokers, _, name = text.removeprefix(SCHEME).partition("/")
    listed = brokers.split(",")
    well_formed = text.startswith(SCHEME) and all(map(_BROKER.fullmatch, listed)) and _NAME.fullmatch(name)
    if not well_formed or name in (".", ".."):
        raise ValueError("kafka://HOST:PORT[,HOST:PORT...]/NAME, such as kafka://127.0.0.1:9092/crawl")
    return KafkaAddress(brokers, name)
