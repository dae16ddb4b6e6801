"""A store of objects, as its readers and writers use it (`drumlin.store.files`)."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

from drumlin.clock import monotonic
from drumlin.errors import Cause, StorageError
from drumlin.store.files import Inbox, OtherContent, StoredFile
from drumlin.store.ledger import Retired
from drumlin.store.names import REMOVING
from drumlin.store.objects.address import Address
from drumlin.store.objects.bucket import COPY_BYTES, PROBES, Bucket
from drumlin.store.objects.contents import KEPT_S, Contents, Entry, Item
from drumlin.store.objects.finishing import merged_index
from drumlin.store.objects.inbox import BucketInbox
from drumlin.store.objects.manifest import Manifest, entry_of
from drumlin.store.places import open_place
from drumlin.store.tables.url_index import INDEXES
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, INDEX_NAME

DATA: Final = "data"
"""Where the files of the store lie: `data/SHA256/PATH`."""
DERIVED: Final = "derived"
"""What can be made again from the store, such as indexes of segments; it is in no manifest."""
FRESH_S: Final = 1.0
"""How old the manifest may be for readers."""
PROBE_EVERY_S: Final = 10.0
UPLOADS_AT_ONCE: Final = 4
OWNER: Final = "drumlin"


def object_name(path: str, digest: str) -> str:
    return f"{DATA}/{digest}/{path}"


class ObjectFiles:
    """A store in a bucket. `by` names this process in the manifest."""

    def __init__(self, bucket: Bucket, by: str = OWNER) -> None:
        self.bucket = bucket
        self.manifest = Manifest(bucket)
        self._by = by
        self._probed_at = -PROBE_EVERY_S
        self._removes = False

    @classmethod
    def open_at(cls, address: Address, by: str = OWNER) -> ObjectFiles:
        return cls(Bucket.open(address), by)

    def __str__(self) -> str:
        return str(self.bucket.address)

    @property
    def inbox(self) -> Inbox | None:
        """Without a key of its own, this process cannot sign for others."""
        return BucketInbox(self.bucket) if self.bucket.access.key_id else None

    def check_there(self) -> None:
        """`StorageError` if no crawl has ever stored anything here: it may be mistyped."""
        if not self.manifest.contents().number and not any(self.bucket.listed("")):
            raise StorageError(f"There is no store in {self}.", "Name the --store of the crawl.")

    # Reading

    def folders(self, folder: str) -> list[str]:
        return []

    def files(self, folder: str, suffix: str) -> list[StoredFile]:
        if folder != INDEXES:
            items = self.manifest.contents(FRESH_S).folder(folder)
            found = [StoredFile(name, item.name, item.written, item.bytes) for name, item in list(items.items())]
        else:
            listed = list(self.bucket.listed(f"{DERIVED}/{folder}"))
            found = [
                StoredFile(one.name.rpartition("/")[2], str(one.written), one.written, one.bytes) for one in listed
            ]
        return [one for one in found if one.name.endswith(suffix)]

    def open(self, path: str) -> BinaryIO:
        try:
            contents = self.manifest.contents(FRESH_S)
            item = contents.item(path)
            if item is None and path not in contents.retired:
                item = contents.past(path)
            if item is not None:
                return self.open_item(item)
            derived = self.bucket.head(f"{DERIVED}/{path}") if path.startswith(f"{INDEXES}/") else None
            if derived is not None:
                return self.bucket.reader(derived.name, derived.bytes)
        except StorageError as failed:
            raise OSError(failed.message) from failed
        raise FileNotFoundError(f"There is no {path} in {self}.")

    def open_item(self, item: Item) -> BinaryIO:
        """The object of a file, wherever it is."""
        if item.place:
            return open_place(item.place).open(item.name, item.bytes)
        return self.bucket.reader(item.name, item.bytes)

    def fetch_item(self, item: Item, path: Path) -> None:
        """Copy the object of a file, wherever it is, to a new file of this machine."""
        if not item.place:
            self.bucket.fetch(item.name, path, item.bytes)
            return
        with self.open_item(item) as source, path.open("xb") as target:
            shutil.copyfileobj(source, target, COPY_BYTES)

    def has_segment(self, segment: str) -> bool:
        return segment in self.manifest.contents(FRESH_S).segments

    def retired(self, path: str) -> Retired | None:
        contents = self.manifest.contents(FRESH_S)
        item = contents.item(path)
        if item is not None:
            return Retired(item.moved, f"{item.place}/{item.name}") if item.place else None
        return Retired(contents.retired[path]) if path in contents.retired else None

    def rows_deleted(self) -> float:
        return self.manifest.contents(FRESH_S).rows_deleted

    # Writing

    def write(self, path: str, content: bytes) -> None:
        self.bucket.put(f"{DERIVED}/{path}", content)

    def removals(self) -> str:
        return self.manifest.contents().removals

    def publish(self, segment: str, members: Mapping[str, Path], removals: str | None = None) -> bool:
        now, contents = time.time(), self.manifest.contents()
        self._check_removals(contents, contents.removals if removals is None else removals)
        known, before = segment in contents.segments, contents.removals if removals is None else removals
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
            # What is there already is not sent again, but looked at: it must be the same.
            bring = self._as_item if known else self.upload
            items = list(pool.map(lambda pair: bring(*pair, segment=segment, now=now), members.items()))

        def added(contents: Contents) -> Entry | None:
            _check_same(contents, items)
            self._check_removals(contents, before)
            if segment in contents.segments:
                return None
            return entry_of(self._by, now, items, segments=[segment])

        return self.manifest.change(added)

    def replace(self, path: str, file: Path) -> None:
        now, before = self.bucket.time(), self.removals()
        item = self.upload(path, file, now=now)

        def replaced(contents: Contents) -> Entry | None:
            self._check_removals(contents, before)
            there = contents.item(path)
            return None if there is not None and there.name == item.name else entry_of(self._by, now, [item])

        self.manifest.change(replaced)

    def _check_removals(self, contents: Contents, before: str) -> None:
        """Refuse to name what was uploaded before a removal began or ended: it may be deleted by now, or of what was
        removed. While a removal is under way, nothing is added: it would never end if it had to look at that too."""
        if contents.removals != before or (contents.is_being_removed_from and not self._removes):
            message = f"Somebody has begun to remove something from {self} meanwhile."
            raise StorageError(message, "It is tried again.", code=Cause.STORE_FAILED)

    def begin_removal(self) -> None:
        """Let nobody but this object add anything until `end_removal`, also if this process is killed before."""
        self._removes, now = True, self.bucket.time()
        item = Item(REMOVING, object_name(REMOVING, secrets.token_hex(32)), 0, now)
        self.bucket.put(item.name, b"")
        self.manifest.change(lambda contents: entry_of(self._by, now, [item]))

    def end_removal(self) -> None:
        now = self.bucket.time()

        def ended(contents: Contents) -> Entry | None:
            return entry_of(self._by, now, remove=[REMOVING]) if contents.is_being_removed_from else None

        self.manifest.change(ended)
        self._removes = False

    def complete(self, folder: Path) -> None:
        items = self.manifest.contents().folder("warc")
        indexes = [item for name, item in items.items() if name.endswith(CDXJ_SUFFIX) and name != INDEX_NAME]
        merged_index(self.bucket, indexes, folder, lambda merged: self.replace(f"warc/{INDEX_NAME}", merged))

    def probe(self) -> None:
        # Every request is paid for, so what has just worked is not asked again.
        if monotonic() - self._probed_at >= PROBE_EVERY_S:
            self.bucket.put(f"{PROBES}/{self._by}", b"")
            self._probed_at = monotonic()

    def upload(self, path: str, file: Path, *, segment: str = "", now: float) -> Item:
        """Make sure that the object is there. One from an earlier try is used again, unless it is so old that it may
        be about to be collected."""
        item = self._as_item(path, file, segment=segment, now=now)
        there = self.bucket.head(item.name)
        usable = there is not None and there.bytes == item.bytes
        if there is None or not usable or self.bucket.time() - there.written > KEPT_S / 2:
            self.bucket.put_file(item.name, file)
        return item

    def _as_item(self, path: str, file: Path, *, segment: str = "", now: float) -> Item:
        return Item(path, object_name(path, _digest(file)), file.stat().st_size, now, segment)


def _check_same(contents: Contents, items: list[Item]) -> None:
    """What is stored under one of these paths must be the same. That holds for files of a segment that was added
    before, if they were not compacted since, and for a new segment too: it may not take the place of others' files."""
    for item in items:
        there = contents.item(item.path)
        if there is not None and there.name != item.name:
            raise OtherContent(f"Another {item.path} is stored already.", "Give each segment a name of its own.")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
