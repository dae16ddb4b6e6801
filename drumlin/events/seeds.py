"""What a message of a seed topic says: a URL a line, or a JSON document with `url` and, if it likes, `priority`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, NewURLs
from drumlin.urls import by_host, canonical

MESSAGE_BYTES_MAX: Final = 1_000_000
SEEDS_PER_MESSAGE_MAX: Final = 1_000
SEEDS_AT_ONCE: Final = 2_000


class Seed(msgspec.Struct, frozen=True):
    """A canonical URL, and how soon it is to be fetched."""

    url: str
    priority: int


class _Document(msgspec.Struct):
    url: str
    priority: Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = PRIORITY_DEFAULT


def read_message(value: bytes | None) -> tuple[list[Seed], int]:
    """The seeds in a message, and how many others it has that are no web addresses or too
    many, or 1 if it cannot be read."""
    if not value or len(value) > MESSAGE_BYTES_MAX:
        return [], 1
    try:
        if value.lstrip()[:1] == b"{":
            documents = [msgspec.json.decode(value, type=_Document)]
        else:
            lines = [line.strip() for line in value.decode().splitlines()]
            documents = [_Document(line) for line in lines if line and not line.startswith("#")]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [], 1
    urls = [(canonical(document.url), document.priority) for document in documents[:SEEDS_PER_MESSAGE_MAX]]
    seeds = [Seed(url, priority) for url, priority in urls if url]
    return seeds, len(documents) - len(seeds)


class Part(msgspec.Struct):
    """What some messages name: URLs by host, the most urgent first, how many seeds, and how many others."""

    messages: Sequence[Any]
    new: list[NewURLs]
    seeds: int
    bad: int


def read_part(messages: Sequence[Any]) -> Part:
    """Read the first of these messages: as many as it takes to have `SEEDS_AT_ONCE`, or all of them."""
    seeds: list[Seed] = []
    bad = count = 0
    while count < len(messages) and len(seeds) < SEEDS_AT_ONCE:
        named, others = read_message(messages[count].value())
        seeds += named
        bad += others
        count += 1
    return Part(messages[:count], list(_by_priority(seeds)), len(seeds), bad)


def _by_priority(seeds: Sequence[Seed]) -> Iterator[NewURLs]:
    for priority in sorted({seed.priority for seed in seeds}, reverse=True):
        for host, urls in by_host(seed.url for seed in seeds if seed.priority == priority).items():
            yield NewURLs(host, urls, priority)
