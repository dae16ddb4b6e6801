"""Where nodes without credentials put their bundles: `incoming/`, one object each, by a signed URL.

Nothing in it is part of the store. A coordinator fetches what has arrived, checks it like any bundle, publishes its
files and removes the object; what nobody asks for is collected after a while.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drumlin.store.files import Place
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.signing import LENGTH_HEADER, body_headers, signed_url

INCOMING: Final = "incoming"
VALID_S: Final = 3600


class BucketInbox:
    """The inbox of a store of objects."""

    valid_s: float = VALID_S

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def place(self, name: str, size: int, digest: str, now: float) -> Place:
        bucket, headers = self._bucket, body_headers(size, digest)
        url = signed_url(
            bucket.access, bucket.address, "PUT", _name(name, digest), now=now, valid_s=VALID_S, headers=headers
        )
        # The length is sent by whoever sends a body.
        return Place(url, {key: value for key, value in headers.items() if key != LENGTH_HEADER})

    def fetch(self, name: str, digest: str, path: Path, bytes_max: int) -> str:
        return self._bucket.fetch(_name(name, digest), path, bytes_max)

    def discard(self, name: str, digest: str) -> None:
        self._bucket.delete([_name(name, digest)])


def _name(name: str, digest: str) -> str:
    return f"{INCOMING}/{name}-{digest}.tar"
