"""Bundles: how the captures of a node that cannot write to the store get there, through a coordinator.

A complete segment becomes one plain tar of its WARC files, their indexes, its three tables and the receipts of its
results (`drumlin.store.bundles`); then its parts are removed. The tar waits in the node's spool until a coordinator has
stored it. Both steps survive a kill: a tar is there and whole or not there, and one that was sent before is taken again
without change. One that a coordinator refuses for good is put aside and told of, and the next one is sent.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from drumlin.node.answers import Refusal
from drumlin.node.client import FOREVER, CoordinatorClient
from drumlin.store.bundles import RECEIPTS, TABLES
from drumlin.store.disk import PARTIAL_SUFFIX, remove, replace, translated_disk_errors, write_whole

SPOOL_BYTES_MAX = 4 * 1024**3
"""What may wait on disk to be sent, unless told otherwise."""
BUNDLE_SUFFIX = ".tar"
SHA256_HEADER = "X-Drumlin-Sha256"
LOOK_EVERY_S = 1.0
REFUSED_FOLDER = "refused"
# What a coordinator says of a bundle that none will ever store.
FOR_GOOD = frozenset({"not_a_bundle", "not_settled", "exists", "too_large", "bad_bundle_id"})


class BundleStored(msgspec.Struct):
    """The coordinator's answer."""

    status: str


def bundle_path(folder: Path, name: str) -> Path:
    return folder / (name + BUNDLE_SUFFIX)


def make_bundle(root: Path, folder: Path, name: str, warcs: Collection[str], receipts: Sequence[str]) -> None:
    """Put the files of a segment into one, in `folder`, and remove them from `root`. Where nothing counted, there is
    nothing to send: they are only removed."""
    members = list(_members(name, warcs))
    if receipts:
        _pack(root, members, "\n".join(receipts).encode(), bundle_path(folder, name))
    for member in members:
        remove(root / member)


def _pack(root: Path, members: Sequence[str], receipts: bytes, target: Path) -> None:
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    with translated_disk_errors(target.parent):
        with partial.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w") as bundle:
                for member in members:
                    bundle.add(root / member, member, filter=_plain)
                listed = tarfile.TarInfo(RECEIPTS)
                listed.size = len(receipts)
                bundle.addfile(listed, BytesIO(receipts))
            file.flush()
            # Once the parts are gone this is the only copy.
            os.fsync(file.fileno())
    replace(partial, target, sync=True)


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

        def stored(_: BundleStored) -> None:
            self._sent(file)
            remove(bundle)

        def refused(refusal: Refusal) -> bool:
            if refusal.code not in FOR_GOOD:
                return False
            self._sent(file)
            put_aside(bundle, refusal)
            return True

        self._client.upload(f"{self._path}/{name}", file, headers, BundleStored, stored, on_refused=refused)

    def _sent(self, file: BinaryIO) -> None:
        file.close()
        self._file = None


def put_aside(bundle: Path, refusal: Refusal) -> None:
    """Keep a bundle that no coordinator will store, for people to look at, and say why."""
    folder = bundle.parent / REFUSED_FOLDER
    folder.mkdir(exist_ok=True)
    write_whole(folder / f"{bundle.name}.txt", f"{refusal.code}: {refusal.message}\n".encode())
    replace(bundle, folder / bundle.name)
    sys.stderr.write(f"drumlin node: a bundle was refused and is kept in {folder}: {refusal.message}\n")
    sys.stderr.flush()
