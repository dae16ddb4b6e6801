"""Bundles: how the captures of a node that cannot write to the store get there, through a coordinator.

A complete segment becomes one plain tar of its WARC files, their indexes and its three tables; then its parts are
removed. The tar waits in the node's spool until a coordinator has stored it. Both steps survive a kill: a tar is there
and whole or not there, and one that was sent before is taken again without change.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from drumlin.node.client import FOREVER, CoordinatorClient
from drumlin.store.disk import PARTIAL_SUFFIX, remove, replace, translated_disk_errors

SPOOL_BYTES_MAX = 4 * 1024**3
"""What may wait on disk to be sent, unless told otherwise."""
BUNDLE_SUFFIX = ".tar"
SHA256_HEADER = "X-Drumlin-Sha256"
LOOK_EVERY_S = 1.0
TABLES = ("pages", "links", "fetches")


class BundleStored(msgspec.Struct):
    """The coordinator's answer."""

    status: str


def bundle_path(folder: Path, name: str) -> Path:
    return folder / (name + BUNDLE_SUFFIX)


def make_bundle(root: Path, folder: Path, name: str, warcs: Collection[str]) -> None:
    """Put the files of a segment into one, in `folder`, and remove them from `root`."""
    members = list(_members(name, warcs))
    target = bundle_path(folder, name)
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    with translated_disk_errors(folder):
        with partial.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w") as bundle:
                for member in members:
                    bundle.add(root / member, member, filter=_plain)
            file.flush()
            # Once the parts are gone this is the only copy.
            os.fsync(file.fileno())
    replace(partial, target, sync=True)
    for member in members:
        remove(root / member)


def _members(name: str, warcs: Collection[str]) -> Iterator[str]:
    for warc in sorted(warcs):
        yield f"warc/{warc}"
        yield f"warc/{warc.removesuffix('.warc.gz')}.cdxj"
    for table in TABLES:
        yield f"tables/{table}/{name}.parquet"


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nobody needs to know who made it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class BundleUploads:
    """Sends the bundles in a folder, one at a time, and removes each that is stored."""

    def __init__(self, node: str, client: CoordinatorClient, folder: Path) -> None:
        self._path = f"/api/v1/nodes/{node}/bundles"
        self._client = client
        self._folder = folder
        self._file: BinaryIO | None = None
        self._look_at = 0.0
        self.waiting_bytes = 0
        """What the bundles not yet stored take on disk, as of the last look."""

    def due(self) -> float:
        return FOREVER if self._file is not None else self._look_at

    def step(self, now: float) -> None:
        """Send the oldest bundle, if none is on its way."""
        if self._file is not None or now < self._look_at:
            return
        waiting = self.waiting()
        self.waiting_bytes = sum(path.stat().st_size for path in waiting)
        if waiting:
            self._send(waiting[0])
        else:
            self._look_at = now + LOOK_EVERY_S

    def waiting(self) -> list[Path]:
        return sorted(self._folder.glob("*" + BUNDLE_SUFFIX))

    def _send(self, bundle: Path) -> None:
        self._file = file = bundle.open("rb")
        headers = [f"{SHA256_HEADER}: {hashlib.file_digest(file, 'sha256').hexdigest()}"]
        name = bundle.name.removesuffix(BUNDLE_SUFFIX)
        self._client.upload(f"{self._path}/{name}", file, headers, BundleStored, lambda _: self._stored(bundle, file))

    def _stored(self, bundle: Path, file: BinaryIO) -> None:
        file.close()
        remove(bundle)
        self._file = None
