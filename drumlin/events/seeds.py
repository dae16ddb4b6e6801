"""What a message of a seed topic says: a URL a line, or a JSON document with `url` and, if it likes, `priority`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN
from drumlin.urls import canonical

MESSAGE_BYTES_MAX: Final = 1_000_000


class Seed(msgspec.Struct, frozen=True):
    """A canonical URL, and how soon it is to be fetched."""

    url: str
    priority: int


class _Document(msgspec.Struct):
    url: str
    priority: Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = PRIORITY_DEFAULT


def read_message(value: bytes | None) -> tuple[list[Seed], int]:
    """The seeds in a message, and how many others it has that are no web addresses, or 1 if it cannot be read."""
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
    urls = [(canonical(document.url), document.priority) for document in documents]
    seeds = [Seed(url, priority) for url, priority in urls if url]
    return seeds, len(urls) - len(seeds)
