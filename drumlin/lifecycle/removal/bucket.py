"""Removal from a store in a bucket: new objects first, then one entry of the manifest that replaces the old ones, then
the old ones are deleted.

If it is killed before the entry, the new objects are in no manifest, and are collected. If it is killed after it, the
next removal deletes what is left: whatever is in no manifest goes at once. Nothing keeps writers out of a bucket. So a
removal begins with an entry that keeps all others from adding anything, and ends with one that lets them in again:
whoever has uploaded something before one of them does not name it after it (`Contents.removals`). Whoever would join
segments finds in the book that a removal is under way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from drumlin.disk import scratch_folder
from drumlin.errors import BusyError, StorageError
from drumlin.lifecycle.removal import rows, warcs
from drumlin.lifecycle.removal.counts import KEPT_ROWS, Counts
from drumlin.lifecycle.removal.names import free_stem
from drumlin.lifecycle.removal.targets import Targets
from drumlin.lifecycle.removal.texts import scrubbed
from drumlin.store.moves import Moved
from drumlin.store.objects.collection import find_garbage, remove_garbage
from drumlin.store.objects.contents import Contents, Entry, Item
from drumlin.store.objects.files import DERIVED, ObjectFiles
from drumlin.store.objects.manifest import entry_of
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.store.tables.url_index import INDEXES
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, INDEX_NAME
from drumlin.store.warc.file import WARC_SUFFIX

BY: Final = "removal"
WARC_BYTES_MAX: Final = 1 << 40
CLOCKS_APART_S: Final = 3600.0
"""The service dates objects by its own clock."""


class BucketRemoval:
    """A removal from one bucket, which works in a folder of this machine."""

    def __init__(self, files: ObjectFiles, targets: Targets, folder: Path, now: float) -> None:
        self._files, self._targets, self._folder, self._now = files, targets, folder, now
        self._contents = files.manifest.contents()
        self._number = self._contents.number
        self._moves: dict[str, Moved] = {}
        self._added: list[Item] = []
        self._replaced: list[Item] = []
        self.counts = Counts()

    def remove(self, *, dry_run: bool) -> Counts:
        with scratch_folder(self._folder) as work:
            for item in self._of("warc/", WARC_SUFFIX):
                with self._unless_missing(item):
                    self._warc(item, work, dry_run=dry_run)
            for table in (FETCHES, LINKS, PAGES):
                for item in self._of(f"tables/{table}/", PARQUET_SUFFIX):
                    with self._unless_missing(item):
                        self._table(item, table, work, dry_run=dry_run)
            self._report(work, dry_run=dry_run)
        self.counts.files = len(self._replaced)
        if not dry_run:
            self._publish()
            self._delete()
        return self.counts

    @contextlib.contextmanager
    def _unless_missing(self, item: Item) -> Iterator[None]:
        """Go on if the object of a file is missing in the bucket: there is nothing of it to remove."""
        try:
            yield
        except (OSError, StorageError):
            if self._files.bucket.head(item.name) is not None:
                raise
            self.counts.missing_files += 1

    def _of(self, folder: str, suffix: str) -> list[Item]:
        found = [one for one in self._contents.items() if one.path.startswith(folder) and one.path.endswith(suffix)]
        return sorted(found, key=lambda item: item.path)

    def _warc(self, item: Item, work: Path, *, dry_run: bool) -> None:
        local, fresh = work / "old", work / "new"
        old = item.path.removeprefix("warc/")
        index = self._contents.item(f"warc/{old.removesuffix(WARC_SUFFIX)}{CDXJ_SUFFIX}")
        try:
            self._files.bucket.fetch(item.name, local, WARC_BYTES_MAX)
        except FileNotFoundError:
            local.unlink(missing_ok=True)
            self.counts.missing_files += 1
            self._index(index, fresh, dry_run=dry_run)
            return
        found = warcs.look(local, self._targets.covers, self._targets.names)
        self.counts.add(found.counts)
        if found.changes:
            stem = free_stem(old.removesuffix(WARC_SUFFIX), self._is_taken)
            self._moves[old] = found.moved(stem + WARC_SUFFIX)
            if not dry_run:
                warcs.write(local, fresh, found.parts)
            self._put(item, f"warc/{stem}{WARC_SUFFIX}", fresh, dry_run=dry_run)
            self._index(index, fresh, stem, dry_run=dry_run)
        local.unlink()

    def _index(self, index: Item | None, fresh: Path, stem: str = "", *, dry_run: bool) -> None:
        """The index of a WARC file, which has the name `stem` now; of one that is missing without a new name."""
        if index is None:
            return
        content = self._get(index)
        if content is None:
            if stem:
                # Nothing has this name any more.
                self._replaced.append(index)
            return
        lines = iter(content.splitlines(keepends=True))
        kept, removed = warcs.index_without(lines, self._targets.covers, self._moves)
        self.counts.index_lines += removed
        if stem or removed:
            if not dry_run:
                fresh.write_bytes(b"".join(kept))
            self._put(index, f"warc/{stem}{CDXJ_SUFFIX}" if stem else index.path, fresh, dry_run=dry_run)

    def _get(self, item: Item) -> bytes | None:
        """A small file; None if its object is missing."""
        try:
            return self._files.bucket.get(item.name)
        except FileNotFoundError:
            self.counts.missing_files += 1
            return None

    def _is_taken(self, stem: str) -> bool:
        name = stem + WARC_SUFFIX
        return self._contents.item(f"warc/{name}") is not None or any(
            moved.filename == name for moved in self._moves.values()
        )

    def _table(self, item: Item, table: str, work: Path, *, dry_run: bool) -> None:
        moves = self._moves if table == PAGES else {}
        with self._opened(item) as file:
            found = rows.look(rows.groups_of(file), self._targets.covers, moves, self._targets)
        for name, number in ((table, found.removed), (KEPT_ROWS[table], found.mentions)):
            setattr(self.counts, name, getattr(self.counts, name) + number)
        if found.changes:
            if not dry_run:
                with self._opened(item) as file:
                    rows.write(rows.groups_of(file), work / "new", table, self._targets.covers, moves)
            self._put(item, item.path, work / "new", dry_run=dry_run)

    def _opened(self, item: Item) -> Any:
        return pq.ParquetFile(self._files.bucket.reader(item.name, item.bytes))

    def _report(self, work: Path, *, dry_run: bool) -> None:
        item = self._contents.item("report.json")
        content = self._get(item) if item is not None else None
        if item is None or content is None:
            return
        cleaned, removed = scrubbed(msgspec.json.decode(content), self._targets.names)
        self.counts.log_lines += removed
        if removed:
            if not dry_run:
                (work / "new").write_bytes(msgspec.json.format(msgspec.json.encode(cleaned), indent=2) + b"\n")
            self._put(item, item.path, work / "new", dry_run=dry_run)

    def _put(self, old: Item, path: str, file: Path, *, dry_run: bool) -> None:
        self._replaced.append(old)
        if not dry_run:
            self._added.append(self._files.upload(path, file, segment=old.segment, now=self._now))
            file.unlink()

    def _publish(self) -> None:
        """Replace all files in one entry, if nobody has changed anything since they were looked at."""
        gone = [item.path for item in self._replaced]

        def replaced(contents: Contents) -> Entry | None:
            return entry_of(BY, self._now, self._added, gone) if contents.number == self._number else None

        if self._replaced:
            if not self._files.manifest.change(replaced):
                raise self._changed()
        elif self._files.manifest.contents().number != self._number:
            raise self._changed()
        # Also if nothing is replaced: a removal that was killed after its entry may have left the old merged index.
        if self._files.manifest.contents().item(f"warc/{INDEX_NAME}") is not None:
            self._files.complete(self._folder)

    def _changed(self) -> BusyError:
        return BusyError(f"Somebody else has changed {self._files} meanwhile.", "End all who write there, and repeat.")

    def _delete(self) -> None:
        """Delete what is in no manifest now, and the indexes of segments, which have hashes of URLs: they are made
        again when they are needed."""
        derived = [one.name for one in self._files.bucket.listed(f"{DERIVED}/{INDEXES}")]
        if derived:
            self._files.bucket.delete(derived)
        later = self._now + CLOCKS_APART_S
        remove_garbage(self._files, find_garbage(self._files, later, 0.0))
