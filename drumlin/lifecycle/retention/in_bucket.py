"""Retention in a store in a bucket. The manifest says first that the files of a unit are gone, moved or replaced, and
only if they are still what was planned for; then the objects are deleted. After a kill the next run deletes those that
an entry of the last two days has left; older ones are collected like any object that no entry names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from drumlin.config.quantities import show_duration
from drumlin.disk import temporary_folder
from drumlin.errors import ConfigError
from drumlin.lifecycle.retention.found import units
from drumlin.lifecycle.retention.logs import log_units, take_log
from drumlin.lifecycle.retention.planning import CLOCKS_DIFFER_S, Left, Step, Unit
from drumlin.lifecycle.retention.policy import Action, Kind, Policy
from drumlin.lifecycle.retention.texts import write_without_text
from drumlin.store.objects.contents import Contents, Entry, Item
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.objects.manifest import entry_of
from drumlin.store.places import open_place
from drumlin.store.warc.cdxj import INDEX_NAME

BY: Final = "retention"
ITEM_BYTES_MAX: Final = 1 << 40


class BucketStore:
    """A store in a bucket, for as long as a run of retention lasts. `logs` is the directory of the crawl whose logs
    belong to it, if there is one."""

    def __init__(self, files: ObjectFiles, logs: Path | None = None) -> None:
        self.files = files
        self._logs = logs

    @contextmanager
    def working(self, now: float) -> Iterator[None]:
        """To be held while steps are carried out. Several may work at once: the manifest tells who was first."""
        self._check_clock(now)
        self._delete_useless()
        yield
        contents = self.files.manifest.contents()
        index = contents.item(f"warc/{INDEX_NAME}")
        if index is not None and contents.index_is_old:
            self._merge_again(index, now)

    def _check_clock(self, now: float) -> None:
        """Refuse to go by a clock that is wrong: one that is ahead by a year would delete what is young."""
        apart_s = abs(now - self.files.bucket.time())
        if apart_s > CLOCKS_DIFFER_S:
            sentence = f"The clock of this machine and that of {self.files} differ by {show_duration(apart_s)}."
            raise ConfigError(sentence, "Set the one that is wrong, and repeat.")

    def units(self, policy: Policy) -> Iterator[Unit]:
        # Segments enter the manifest when they are complete, and what was not shipped yet is not in it at all.
        yield from units(self.files, policy, lambda kind, name: None)
        if self._logs is not None and Kind.LOGS in policy.rules:
            yield from log_units(self._logs)

    def perform(self, step: Step, now: float) -> Left | None:
        """Carry out a step. Returns why not, if it was not possible."""
        unit = step.unit
        if unit.kind is Kind.LOGS:
            return take_log(self._logs, step)
        if unit.kind is Kind.TEXT:
            return self._take_text(unit, now)
        return self._move(step, now) if step.action is Action.MOVE else self._delete(unit, now)

    def _merge_again(self, index: Item, now: float) -> None:
        """Merge the indexes of the WARC files that are left. The old merged index has the URLs of what was deleted, so
        it is not kept for late readers."""
        with _scratch() as folder:
            self.files.complete(folder)

        def same(contents: Contents) -> Entry | None:
            """If the new one is the same, nothing says yet that it was made again."""
            unsaid = contents.index_is_old and contents.item(index.path) == index
            return entry_of(BY, now, [index]) if unsaid else None

        self.files.manifest.change(same)
        self._delete_objects([index])

    # Steps

    def _delete(self, unit: Unit, now: float) -> Left | None:
        items = self._items(unit.paths)
        if items is None:
            return Left.CHANGED
        done = self._change(items, entry_of(BY, now, remove=unit.paths, retired=unit.paths))
        if done:
            self._delete_objects(items)
        return None if done else Left.CHANGED

    def _move(self, step: Step, now: float) -> Left | None:
        items = self._items(step.unit.movable)
        if items is None:
            return Left.CHANGED
        moved = [msgspec.structs.replace(item, place=step.to, moved=now) for item in items]
        done = False
        try:
            for item in items:
                self._copy(item, step.to)
            done = self._change(items, entry_of(BY, now, add=moved))
        finally:
            if not done:
                self._delete_copies(moved)
        if done:
            self._delete_objects(items)
        return None if done else Left.CHANGED

    def _delete_copies(self, copies: Sequence[Item]) -> None:
        """Delete copies of what was replaced or deleted while they were made, perhaps because somebody wanted it gone:
        nothing will ever name them. Those of files that are still what they were stay: another run may be about to name
        them, and the next one uses them."""
        contents = self.files.manifest.contents()
        for copy in copies:
            live = contents.item(copy.path)
            if live is None or live.name != copy.name:
                open_place(copy.place).delete(copy.name)

    def _copy(self, item: Item, to: str) -> None:
        digest = item.name.split("/")[1]
        with _scratch() as folder:
            copy = folder / "moved"
            with self.files.bucket.needs(item.name):
                self.files.bucket.fetch(item.name, copy, ITEM_BYTES_MAX)
            with copy.open("rb") as file:
                open_place(to).put(item.name, file, item.bytes, digest)

    def _take_text(self, unit: Unit, now: float) -> Left | None:
        items = self._items(unit.paths)
        if items is None:
            return Left.CHANGED
        old, before = items[0], self.files.removals()
        with _scratch() as folder:
            with self.files.open_item(old) as source:
                write_without_text(source, folder / "pages", now)
            new = self.files.upload(old.path, folder / "pages", segment=old.segment, now=now)
        done = self._change(items, entry_of(BY, now, add=[new], retired=[old.path]), before)
        if done:
            self._delete_objects(items)
        return None if done else Left.CHANGED

    # The manifest and its objects

    def _items(self, paths: Sequence[str]) -> list[Item] | None:
        """The items of these paths; None if one is not there any more."""
        contents = self.files.manifest.contents()
        items = [contents.item(path) for path in paths]
        return None if None in items else [item for item in items if item is not None]

    def _change(self, items: Sequence[Item], entry: Entry, removals: str | None = None) -> bool:
        """Add an entry, if these items are still what they were. One with new objects is not added if a removal has
        begun since `removals` was asked for: they may be deleted."""

        def changed(contents: Contents) -> Entry | None:
            same = removals in (None, contents.removals) and all(contents.item(item.path) == item for item in items)
            return entry if same else None

        return self.files.manifest.change(changed)

    def _delete_useless(self) -> None:
        """Delete what a run that was killed has left."""
        self._delete_objects(self.files.manifest.contents().useless())

    def _delete_objects(self, items: Sequence[Item]) -> None:
        """Delete objects that the manifest does not name any more. One that was replaced by its like is still named."""
        contents = self.files.manifest.contents() if items else None
        for item in items:
            live = contents.item(item.path) if contents is not None else None
            if live is not None and (live.place, live.name) == (item.place, item.name):
                continue
            if item.place:
                open_place(item.place).delete(item.name)
            elif self.files.bucket.head(item.name) is not None:
                self.files.bucket.delete([item.name])


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder of this machine to work in."""
    with temporary_folder("retention") as folder:
        yield folder
