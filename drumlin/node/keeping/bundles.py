"""Bundles: how the captures of a node whose store is elsewhere get there.

A complete segment becomes one plain tar of its WARC files, their indexes, its three tables and the receipts of its
results (`drumlin.store.bundles`); then its parts are removed. The tar waits in the node's spool folder until a
coordinator has stored it. A kill at any moment does no harm: the tar exists as a whole or not at all, and if one is
sent a second time, the coordinator changes nothing. If a coordinator refuses a bundle for good, it is put aside, a line
says so, and the next one is sent.

A node that writes to the bucket itself (`bucket_uploads`) needs no tar: its bundles are folders with the same files,
which are linked there and not copied. If the node is started without credentials later, each becomes a tar when it is
its turn.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from drumlin.config import NodeConfig
from drumlin.disk import (
    remove,
    replace,
    scratch_folder,
    sync_directory,
    sync_file,
    write_whole,
)
from drumlin.lines import one_line, tell
from drumlin.node.calling.answers import Refusal
from drumlin.node.calling.client import FOREVER, UPLOAD_TIMEOUT_S, CoordinatorClient
from drumlin.protocol import BundleOffer, BundlePlace, BundleStored, paths
from drumlin.protocol.refusals import NEVER_STORED, RefusalCode
from drumlin.store.bundles import RECEIPTS, TABLES, NotABundle, check_names
from drumlin.store.names import node_of_segment

SPOOL_BYTES_MAX = NodeConfig().spool_max_bytes
"""How much may wait on disk to be sent, by default."""
TAR_SUFFIX = ".tar"
FOLDER_SUFFIX = ".bundle"
SIZES = "sizes"
"""Of the files in a folder. It is read here only, and not sent."""
BUNDLE_SUFFIXES = (TAR_SUFFIX, FOLDER_SUFFIX)
LOOK_EVERY_S = 1.0
REFUSED_FOLDER = "refused"

log = logging.getLogger("drumlin.node")


def has_bundle(folder: Path, name: str) -> bool:
    return any((folder / (name + suffix)).exists() for suffix in BUNDLE_SUFFIXES)


def bundles_in(folder: Path) -> list[Path]:
    """The bundles in a folder, oldest first. Links, and names that are not those of segments, are ignored."""
    found = (path for suffix in BUNDLE_SUFFIXES for path in folder.glob("*" + suffix))
    return sorted(path for path in found if node_of_segment(path.stem) and not path.is_symlink())


def members_of(bundle: Path) -> dict[str, Path]:
    """The files of a bundle that is a folder, by their paths in the store; its receipts are among them. Links are none
    of its files, and what cannot be read is not taken for missing."""
    found = [Path(folder, name) for folder, _, names in os.walk(bundle, onerror=_raise) for name in names]
    files = (path for path in found if stat.S_ISREG(path.lstat().st_mode))
    return {str(path.relative_to(bundle)): path for path in sorted(files)}


def whole_members(bundle: Path) -> dict[str, Path]:
    """The files of a folder, after checking that it is as it was made: somebody may have copied only a part of it.
    `NotABundle` if it is not."""
    members = members_of(bundle)
    noted = members.pop(SIZES, None)
    check_names(members, bundle.stem)
    sizes = {member: path.stat().st_size for member, path in members.items()}
    if noted is None or noted.read_bytes() != _sizes_file(sizes):
        raise NotABundle(f"a part of {bundle.name} is missing")
    return members


def _sizes_file(sizes: Mapping[str, int]) -> bytes:
    return msgspec.json.encode(sizes, order="sorted")


def _raise(cause: OSError) -> None:
    raise cause


def bytes_of(bundle: Path) -> int:
    """How much a bundle takes on the disk; nothing if a thread is removing it."""
    with contextlib.suppress(FileNotFoundError):
        files = members_of(bundle).values() if bundle.is_dir() else [bundle]
        return sum(file.stat().st_size for file in files)
    return 0


def remove_bundle(bundle: Path) -> None:
    """Remove a bundle. A folder first leaves the spool as a whole: if this process is killed while it deletes the
    files, the rest is not taken for a bundle, and is deleted by whoever recovers the spool."""
    if not bundle.is_dir():
        remove(bundle)
        return
    with scratch_folder(bundle.parent) as work:
        replace(bundle, work / bundle.name)


def make_bundle(
    root: Path, folder: Path, name: str, warcs: Collection[str], receipts: Sequence[str], *, packed: bool
) -> None:
    """Put the files of a segment into one bundle in `folder`, and remove them from `root`. If nothing of the segment
    counted (no receipts), nothing has to be sent, so they are only removed."""
    members = {member: root / member for member in _members(name, warcs)}
    if receipts:
        make, suffix = (_pack, TAR_SUFFIX) if packed else (_gather, FOLDER_SUFFIX)
        make(members, "\n".join(receipts).encode(), folder / (name + suffix))
    for file in members.values():
        remove(file)


def as_tar(bundle: Path) -> Path:
    """The tar that coordinators take; one is made of a folder. `NotABundle` if that has not the right files."""
    if not bundle.is_dir():
        return bundle
    members, tar = whole_members(bundle), bundle.with_suffix(TAR_SUFFIX)
    _pack(members, members.pop(RECEIPTS).read_bytes(), tar)
    remove_bundle(bundle)
    return tar


def _pack(members: Mapping[str, Path], receipts: bytes, target: Path) -> None:
    with scratch_folder(target.parent) as work:
        partial = work / target.name
        with partial.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w") as bundle:
                for member, path in members.items():
                    bundle.add(path, member, filter=_plain)
                listed = tarfile.TarInfo(RECEIPTS)
                listed.size = len(receipts)
                bundle.addfile(listed, BytesIO(receipts))
            file.flush()
            # After the parts are removed, this is the only copy.
            os.fsync(file.fileno())
        replace(partial, target, sync=True)


def _gather(members: Mapping[str, Path], receipts: bytes, target: Path) -> None:
    with scratch_folder(target.parent) as work:
        partial = work / target.name
        for member, path in members.items():
            place = partial / member
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(path, place)
            # It may not have been synced when it was written.
            sync_file(place)
        write_whole(partial / RECEIPTS, receipts, sync=True)
        sizes = {member: path.stat().st_size for member, path in members_of(partial).items()}
        write_whole(partial / SIZES, _sizes_file(sizes), sync=True)
        for made in (path for path in partial.rglob("*") if path.is_dir()):
            sync_directory(made)
        replace(partial, target, sync=True)


def _link(path: Path, place: Path) -> None:
    try:
        os.link(path, place)
    except OSError:
        # Not every file system has links. If the disk is at fault, this fails too, and says why.
        shutil.copyfile(path, place)


def _members(name: str, warcs: Collection[str]) -> Iterator[str]:
    for warc in sorted(warcs):
        yield f"warc/{warc}"
        yield f"warc/{warc.removesuffix('.warc.gz')}.cdxj"
    for table in TABLES:
        yield f"tables/{table}/{name}.parquet"


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without the name and number of the user who made it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class Uploads(Protocol):
    """Sends the bundles in a folder, and removes each that is stored."""

    waiting_bytes: int
    """How many bytes the bundles that are not yet stored take on disk, as of the last look."""

    def step(self, now: float) -> None:
        """Begin to send what waits, and notice what has arrived. Does not block."""

    def waiting(self) -> list[Path]:
        """The bundles that are not stored yet, oldest first."""

    @property
    def busy(self) -> bool:
        """Whether something of a bundle may be on this disk although none waits."""


class BundleUploads:
    """Sends the bundles in a folder to a coordinator, one at a time, and removes each that is stored."""

    def __init__(self, node: str, client: CoordinatorClient, folder: Path) -> None:
        self._node = node
        self._client = client
        self._folder = folder
        self._file: BinaryIO | None = None
        self._look_at = 0.0
        self._pause = False
        """Whether the last bundle could not be sent, so the next try has to wait a little."""
        self.waiting_bytes = 0

    def due(self) -> float:
        return FOREVER if self._file is not None else self._look_at

    def step(self, now: float) -> None:
        """Send the oldest bundle, if none is on its way."""
        if self._file is not None or now < self._look_at:
            return
        waiting = self.waiting()
        self.waiting_bytes = sum(map(bytes_of, waiting))
        if self._pause:
            self._pause = False
            self._look_at = now + LOOK_EVERY_S
        elif waiting:
            self._send(waiting[0])
        else:
            self._look_at = now + LOOK_EVERY_S

    def waiting(self) -> list[Path]:
        return bundles_in(self._folder)

    @property
    def busy(self) -> bool:
        return self._file is not None

    def _send(self, bundle: Path) -> None:
        """Ask where the bundle shall go, and send it there."""
        try:
            bundle = as_tar(bundle)
        except NotABundle as odd:
            put_aside(bundle, Refusal(RefusalCode.NOT_A_BUNDLE, f"{odd}.", ""))
            return
        self._file = file = bundle.open("rb")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._client.post(
            self._path(paths.BUNDLE_PLACE, bundle),
            self._offer(digest),
            BundlePlace,
            lambda place: self._send_to(place, bundle, file, digest),
            on_refused=lambda refusal: self._refused(refusal, bundle, file),
        )

    def _send_to(self, place: BundlePlace, bundle: Path, file: BinaryIO, digest: str) -> None:
        if not place.url:
            self._client.upload(
                self._path(paths.BUNDLE, bundle),
                file,
                [f"{paths.SHA256_HEADER}: {digest}"],
                BundleStored,
                lambda _: self._stored(bundle, file),
                on_refused=lambda refusal: self._refused(refusal, bundle, file),
            )
            return
        headers = [f"{name}: {value}" for name, value in place.headers.items()]
        self._client.put_elsewhere(place.url, file, headers, lambda status: self._put(status, bundle, file, digest))

    def _put(self, status: int, bundle: Path, file: BinaryIO, digest: str) -> None:
        """The bundle is in its place, or the service did not take it: then it gets another one after a pause."""
        if not 200 <= status < 300:
            said = f"status {status}" if status else "no answer"
            log.warning("the store did not take a bundle (%s); it is sent again", said)
            self._sent(file)
            self._pause = True
            return
        self._client.post(
            self._path(paths.BUNDLE_ARRIVED, bundle),
            self._offer(digest),
            BundleStored,
            lambda _: self._stored(bundle, file),
            on_refused=lambda refusal: self._refused(refusal, bundle, file),
            timeout_s=UPLOAD_TIMEOUT_S,
        )

    def _offer(self, digest: str) -> BundleOffer:
        return BundleOffer(os.fstat(self._file.fileno()).st_size if self._file is not None else 0, digest)

    def _path(self, pattern: str, bundle: Path) -> str:
        return pattern.format(node_id=self._node, bundle_id=bundle.stem)

    def _stored(self, bundle: Path, file: BinaryIO) -> None:
        self._sent(file)
        remove(bundle)

    def _refused(self, refusal: Refusal, bundle: Path, file: BinaryIO) -> bool:
        if refusal.code == RefusalCode.DAMAGED:
            # It did not arrive as it is here, so it is sent anew, also if it was put somewhere else.
            self._sent(file)
            self._pause = True
            return True
        if refusal.code not in NEVER_STORED:
            return False
        self._sent(file)
        put_aside(bundle, refusal)
        return True

    def _sent(self, file: BinaryIO) -> None:
        file.close()
        self._file = None


def adopt_bundle(bundle: Path, folder: Path) -> None:
    """Take over a bundle of another node. If there is one of this name, somebody has copied it."""
    if (folder / bundle.name).exists():
        put_aside(bundle, Refusal(RefusalCode.BUNDLE_EXISTS, f"{folder} has a bundle of this name already.", ""))
    else:
        replace(bundle, folder / bundle.name)


def put_aside(bundle: Path, refusal: Refusal) -> None:
    """Keep a bundle that no coordinator will store, with the reason in a text file beside it, for people to look at."""
    folder = bundle.parent / REFUSED_FOLDER
    folder.mkdir(exist_ok=True)
    # Somebody may have put it back to have it tried again.
    remove_bundle(folder / bundle.name)
    write_whole(folder / f"{bundle.name}.txt", one_line(f"{refusal.code}: {refusal.message}").encode() + b"\n")
    replace(bundle, folder / bundle.name)
    tell(f"drumlin node: a bundle was refused and is kept in {folder}: {refusal.message}")
