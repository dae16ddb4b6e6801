"""What a message of a seed topic says: a URL a line, or a JSON document with `url` and, if it likes, `priority`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, NewURLs
from drumlin.urls import by_host, canonical

MESSAGE_BYTES_MAX: Final = 1_000_000
SEEDS_PER_MESSAGE_MAX: Final = 1_000
SEEDS_AT_ONCE: Final = 2_000

NO_ADDRESS: Final = "no web address"
BAD_PRIORITY: Final = f"a priority that is no whole number from {PRIORITY_MIN} to {PRIORITY_MAX}"
UNREADABLE: Final = "neither URLs, one a line, nor a JSON document with `url`"
EMPTY: Final = "empty"
TOO_LARGE: Final = f"a message of more than {MESSAGE_BYTES_MAX:,} bytes"
TOO_MANY: Final = f"beyond the first {SEEDS_PER_MESSAGE_MAX:,} of a message"


class Seed(msgspec.Struct, frozen=True):
    """A canonical URL, and how soon it is to be fetched."""

    url: str
    priority: int


class _Document(msgspec.Struct):
    url: str
    priority: Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = PRIORITY_DEFAULT


def read_message(value: bytes | None) -> tuple[list[Seed], Counter[str]]:
    """The seeds in a message, and what else is in it, by what is wrong with it; a message that cannot be read counts as
    one."""
    if not value:
        return [], Counter([EMPTY])
    if len(value) > MESSAGE_BYTES_MAX:
        return [], Counter([TOO_LARGE])
    try:
        if value.lstrip()[:1] == b"{":
            documents = [msgspec.json.decode(value, type=_Document)]
        else:
            lines = [line.strip() for line in value.decode().splitlines()]
            documents = [_Document(line) for line in lines if line and not line.startswith("#")]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        # The last is of a document that is nested too deeply. Whatever a message is, those behind it must be read.
        return [], Counter([BAD_PRIORITY if "`$.priority`" in str(broken) else UNREADABLE])
    urls = [(canonical(document.url), document.priority) for document in documents[:SEEDS_PER_MESSAGE_MAX]]
    seeds = [Seed(url, priority) for url, priority in urls if url]
    return seeds, +Counter({NO_ADDRESS: len(urls) - len(seeds), TOO_MANY: len(documents) - len(urls)})


class Part(msgspec.Struct):
    """What some messages name: URLs by host, the most urgent first, how many seeds, and how many others by what is
    wrong with them."""

    messages: Sequence[Any]
    new: list[NewURLs]
    seeds: int
    bad: Counter[str]


def read_part(messages: Sequence[Any]) -> Part:
    """Read the first of these messages: as many as it takes to have `SEEDS_AT_ONCE`, or all of them."""
    seeds: list[Seed] = []
    bad, count = Counter[str](), 0
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
