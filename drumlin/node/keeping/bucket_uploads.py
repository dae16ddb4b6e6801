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
from drumlin.config.quantities import show_size
from drumlin.disk import discard_scratch, scratch_folder
from drumlin.errors import Cause, DrumlinError, StorageError
from drumlin.lifecycle.removal.tombstones import Tombstones, stored
from drumlin.logs import Event, event
from drumlin.node.calling.answers import Refusal
from drumlin.node.calling.client import FOREVER
from drumlin.node.keeping.bundles import bundles_in, bytes_of, put_aside, remove_bundle, whole_members
from drumlin.protocol.refusals import RefusalCode
from drumlin.store.bundles import COPY_BYTES, RECEIPTS, NotABundle, check_names
from drumlin.store.files import OtherContent, StoreFiles

RETRY_S: Final = 2.0
POLL_S: Final = 0.2
TOLD_EVERY_S: Final = 60.0
ROOM_BYTES: Final = 64 * 1024**2
"""What a node needs to begin: that of a segment."""

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
        self._sizes: dict[Path, int] = {}
        """Of the bundles that wait. They never change, and a look into each would take long if many do."""
        self.waiting_bytes = 0

    def step(self, now: float) -> None:
        if now < self._look_at:
            return
        # Asked before the bundles are listed: its thread may remove one and end in between.
        uploading = self.busy
        waiting = self.waiting()
        self._sizes = {path: self._sizes[path] if path in self._sizes else bytes_of(path) for path in waiting}
        self.waiting_bytes = sum(self._sizes.values())
        # Looking costs next to nothing, and the last bundle of a crawl should not wait.
        self._look_at = now + POLL_S
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

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def make_room(self) -> None:
        """If the disk is nearly full, upload what waits there before anything else is written: that needs no room, and
        makes some."""
        discard_scratch(self._folder)
        waiting, free = self.waiting(), shutil.disk_usage(self._folder).free
        if waiting and free < ROOM_BYTES:
            log.warning("only %s are free in %s: bundles go first", show_size(free), self._folder)
            self._upload_all(waiting)

    def _upload_all(self, bundles: list[Path]) -> None:
        self._failed = True
        try:
            for bundle in bundles:
                self._upload(bundle)
        except Exception as broken:
            if monotonic() - self._told_at >= TOLD_EVERY_S:
                self._told_at = monotonic()
                said, bug = event(Event.REFUSED, waiting=len(bundles)), not isinstance(broken, DrumlinError | OSError)
                log.warning("%d bundles wait for %s: %s", len(bundles), self._files, broken, extra=said, exc_info=bug)
        else:
            self._failed = False

    def _upload(self, bundle: Path) -> None:
        try:
            self._publish(bundle)
        except OtherContent as other:
            put_aside(bundle, Refusal(RefusalCode.BUNDLE_EXISTS, other.message, other.hint))
            return
        except (NotABundle, tarfile.TarError) as odd:
            put_aside(bundle, Refusal(RefusalCode.NOT_A_BUNDLE, f"{odd}.", ""))
            return
        remove_bundle(bundle)

    def _publish(self, bundle: Path) -> None:
        removals, removed = self._files.removals(), stored(self._files)
        if bundle.is_dir() and not removed:
            # Without a file more, since the disk may be full: this makes room.
            self._store(bundle.stem, whole_members(bundle), removals)
            return
        if removed and self._files.has_segment(bundle.stem):
            # It may have been written anew since, so it must not be compared.
            return
        with scratch_folder(self._folder) as work:
            members = _copied(bundle, work) if bundle.is_dir() else _unpacked(bundle, work)
            if removed:
                _take_out(members, removed)
            self._store(bundle.stem, members, removals)

    def _store(self, segment: str, members: dict[str, Path], removals: str) -> None:
        check_names(members, segment)
        del members[RECEIPTS]
        self._files.publish(segment, members, removals)


def _take_out(members: dict[str, Path], removed: Tombstones) -> None:
    """Take out what was removed on request while this node was away."""
    # It loads what only a crawl needs from which something was removed.
    from drumlin.lifecycle.removal.bundles import take_out

    try:
        take_out(members, removed.covers)
    except Exception as odd:
        if isinstance(odd, OSError) or (isinstance(odd, StorageError) and odd.code is Cause.STORE_FULL):
            raise
        # Libraries may raise anything when they read what is damaged.
        raise NotABundle(f"what was removed cannot be taken out of it ({odd})") from odd


def _copied(bundle: Path, work: Path) -> dict[str, Path]:
    """Copies of the files of a folder, by their paths in the store: the bundle stays as it is, so after a kill the same
    is done again."""
    copies: dict[str, Path] = {}
    for number, (member, path) in enumerate(whole_members(bundle).items()):
        copies[member] = work / str(number)
        shutil.copyfile(path, copies[member])
    return copies


def _unpacked(bundle: Path, folder: Path) -> dict[str, Path]:
    """The files of a tar, which this node has made while it had no credentials."""
    members: dict[str, Path] = {}
    with tarfile.open(bundle, "r:") as tar:
        for member in tar:
            source = tar.extractfile(member)
            if source is not None:
                path = members[member.name] = folder / member.name.replace("/", "-")
                with path.open("xb") as file:
                    shutil.copyfileobj(source, file, COPY_BYTES)
    return members
