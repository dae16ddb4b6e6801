"""Whose store a prefix of a bucket is: an object, written once, has the id of the crawl that began to store there.

Two crawls in one prefix would have one manifest, and nobody could tell their pages apart again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from drumlin.errors import ConfigError
from drumlin.store.objects.files import ObjectFiles

FOUNDED: Final = "founded.json"


class Founded(msgspec.Struct, frozen=True):
    """What the object says."""

    crawl: str


def found_store(files: ObjectFiles, crawl: str) -> None:
    """Make this the store of a crawl; ConfigError if it is that of another one."""
    if files.bucket.create(FOUNDED, msgspec.json.encode(Founded(crawl))):
        return
    other = founder_of(files)
    hint = "Choose another prefix: --store s3://BUCKET/ANOTHER."
    raise ConfigError(f"{files} is the store of another crawl ({other}).", hint)


def founder_of(files: ObjectFiles) -> str:
    """The id of the crawl that stores here; empty if there is none."""
    try:
        return msgspec.json.decode(files.bucket.get(FOUNDED), type=Founded).crawl
    except FileNotFoundError:
        return ""
