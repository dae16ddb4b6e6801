"""Whose store a prefix of a bucket is: an object, written once, has the id of the crawl that began to store there.

Two crawls in one prefix would have one manifest, and nobody could tell their pages apart again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from drumlin.errors import ConfigError
from drumlin.store.objects.address import Address
from drumlin.store.objects.bucket import PROBES
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


def check_not_founded(address: Address) -> None:
    """ConfigError if a crawl stores there: what it did not put there itself, it takes for rubbish and removes."""
    files = ObjectFiles.open_at(address)
    # A listing also notices a bucket that is not there.
    any(files.bucket.listed(PROBES))
    if files.bucket.head(FOUNDED) is not None:
        raise ConfigError(f"{files} is the store of a crawl.", "Name another prefix: s3://BUCKET/ANOTHER.")
