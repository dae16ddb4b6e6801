"""How the segments of a node with credentials get into a store of objects: a thread uploads the files of each bundle.

The bundle on disk is the only copy until the manifest has the segment, and is then removed. If the service is away, the
bundle waits and is tried again; the node fetches on until its spool is full. A bundle that was uploaded already, by a
process that was killed before it could remove it, changes nothing.
"""

from __future__ import annotations

import logging
import shutil
import tarfile
import threading
from pathlib import Path
from typing import Final

from drumlin.clock import monotonic
from drumlin.disk import scratch_folder
from drumlin.errors import DrumlinError
from drumlin.lifecycle.removal.tombstones import Tombstones, stored
from drumlin.logs import Event, event
from drumlin.node.calling.answers import Refusal
from drumlin.node.calling.client import FOREVER
from drumlin.node.keeping.bundles import bundles_in, bytes_of, members_of, put_aside, remove_bundle
from drumlin.protocol.refusals import RefusalCode
from drumlin.store.bundles import COPY_BYTES, RECEIPTS
from drumlin.store.files import OtherContent, StoreFiles

RETRY_S: Final = 2.0
POLL_S: Final = 0.2
TOLD_EVERY_S: Final = 60.0

log = logging.getLogger("drumlin.node")


class BucketUploads:
    """Uploads the bundles in a folder, one at a time, beside the node's loop."""

    def __init__(self, files: StoreFiles, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._look_at = 0.0
        self._told_at = -FOREVER
        self._failed = False
        self.waiting_bytes = 0

    def step(self, now: float) -> None:
        if now < self._look_at:
            return
        waiting = self.waiting()
        self.waiting_bytes = sum(map(bytes_of, waiting))
        # Looking costs next to nothing, and the last bundle of a crawl should not wait.
        self._look_at = now + POLL_S
        uploading = self._thread is not None and self._thread.is_alive()
        if uploading or not waiting:
            return
        if self._failed:
            self._failed = False
            self._look_at = now + RETRY_S
            return
        self._thread = threading.Thread(target=self._upload_all, args=(waiting,), daemon=True, name="uploads")
        self._thread.start()

    def waiting(self) -> list[Path]:
        return bundles_in(self._folder)

    def _upload_all(self, bundles: list[Path]) -> None:
        try:
            for bundle in bundles:
                self._upload(bundle)
        except (DrumlinError, OSError) as broken:
            self._failed = True
            if monotonic() - self._told_at >= TOLD_EVERY_S:
                self._told_at = monotonic()
                said = event(Event.REFUSED, waiting=len(bundles))
                log.warning("%d bundles wait for %s: %s", len(bundles), self._files, broken, extra=said)

    def _upload(self, bundle: Path) -> None:
        try:
            with scratch_folder(self._folder) as work:
                members, removals = _opened(bundle, work), self._files.removals()
                removed = stored(self._files)
                if members and removed:
                    members = self._taken_out(bundle.stem, members, removed, work)
                if members:
                    self._files.publish(bundle.stem, members, removals)
        except OtherContent as other:
            put_aside(bundle, Refusal(RefusalCode.BUNDLE_EXISTS, other.message, other.hint))
            return
        # At last, when nothing else of it is left on this disk: a node with no bundle ends, whatever this thread does.
        remove_bundle(bundle)

    def _taken_out(self, segment: str, members: dict[str, Path], removed: Tombstones, work: Path) -> dict[str, Path]:
        """The files without what was removed on request while this node was away. Nothing if the store has the segment
        already: then it may have been written anew since, and must not be compared."""
        if self._files.has_segment(segment):
            return {}
        # It loads what only a crawl needs from which something was removed.
        from drumlin.lifecycle.removal.bundles import take_out

        # The bundle stays as it is, so after a kill the same is done again.
        copies = {member: work / f"{number}" for number, member in enumerate(members)}
        for member, copy in copies.items():
            shutil.copyfile(members[member], copy)
        take_out(copies, removed.covers)
        return copies


def _opened(bundle: Path, work: Path) -> dict[str, Path]:
    """The files of a bundle without its receipts, by their paths in the store; nothing if it is stored already. This
    node has made it itself."""
    members = members_of(bundle) if bundle.is_dir() else _unpacked(bundle, work)
    return members if members.pop(RECEIPTS, None) is not None else {}


def _unpacked(bundle: Path, folder: Path) -> dict[str, Path]:
    """The files of a tar that was made while this node had no credentials."""
    members: dict[str, Path] = {}
    with tarfile.open(bundle, "r:") as tar:
        for member in tar:
            source = tar.extractfile(member)
            if source is not None:
                path = members[member.name] = folder / member.name.replace("/", "-")
                with path.open("xb") as file:
                    shutil.copyfileobj(source, file, COPY_BYTES)
    return members
