"""Events of a store in a bucket: what the manifest says was stored is what is owed.

Whoever adds a segment to the manifest may lose its disk the moment after. So nobody owes events of single segments
here. Of the coordinators that produce events, the one whose turn it is follows the entries of the manifest in their
order, brings the tables of each new segment to its own disk, and owes them in its spool; its sender does the rest. When
the broker has confirmed all of an entry, the mark in the bucket (`store.objects.mark`) moves behind it. A coordinator
that dies, with or without its disk, is followed by another that begins at the mark.

An entry that removes files adds no rows: it joins segments whose events are told, or removes pages. A segment whose
files are in the manifest no more was removed on purpose, so its events are not told either.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from drumlin.disk import PARTIAL_SUFFIX, remove, replace, translated_disk_errors
from drumlin.events.owed import forget, is_log, owe, owed_names
from drumlin.logs import Event, event
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX

if TYPE_CHECKING:
    from drumlin.store.objects.contents import Item
    from drumlin.store.objects.files import ObjectFiles

FED_MAX: Final = 4
"""How many segments are brought before the broker has confirmed the first of them."""
TABLES_IN_TURN: Final = (LINKS, FETCHES, PAGES)
"""A segment counts once its pages are there."""

log = logging.getLogger("drumlin.kafka")


class _Waiting(NamedTuple):
    """An entry whose events are not all confirmed."""

    number: int
    segments: list[str]
    bytes: int


class ManifestFeed:
    """Brings what a manifest says into a spool. `tables` is a folder of the same machine, which nobody else uses."""

    def __init__(self, files: ObjectFiles, spool: Path, tables: Path) -> None:
        from drumlin.store.objects.mark import begin_mark

        self._files, self._spool, self._tables = files, spool, tables
        self._told = self._read = begin_mark(files)
        self._waiting: deque[_Waiting] = deque()
        self._fed: set[str] = set()
        self._is_mine = False
        # Of the last look. Others read these while a thread looks again.
        self.drained = True
        """Whether all events were confirmed."""
        self.waiting_segments = self.waiting_bytes = 0
        """How much is in the bucket whose events are still to be brought here."""
        self._read_on()
        self._take_up()
        self._sum_up()

    def look(self, *, mine: bool) -> None:
        """Follow the manifest. `mine`: whether it is this process's turn to tell of it; if not, it is only known how
        much waits."""
        from drumlin.store.objects.mark import read_mark

        if not (mine and self._is_mine):
            self._told = read_mark(self._files) or 0
        self._is_mine = mine
        self._read_on()
        if mine:
            self._confirm()
            self._bring()
        while self._waiting and self._waiting[0].number <= self._told:
            self._waiting.popleft()
        self._tidy()
        self._sum_up()

    def _read_on(self) -> None:
        """Read the entries that came since, some at a time."""
        from drumlin.store.objects.mark import ENTRIES_AT_ONCE

        first = self._waiting[0].number if self._waiting else self._read + 1
        if first > self._told + 1:
            # The mark was moved back by a process that had lost its turn: what is behind it is told again.
            self._waiting.clear()
            self._read = self._told
        # Whoever had the turn before may have moved it further than this process has read.
        self._read = max(self._read, self._told)
        for number, entry in self._files.manifest.entries(self._read, ENTRIES_AT_ONCE):
            segments = entry.segments if not entry.remove else []
            size = sum(item.bytes for item in entry.add if segments and item.path.startswith("tables/"))
            self._waiting.append(_Waiting(number, segments, size))
            self._read = number

    def _confirm(self) -> None:
        """Move the mark behind what the broker has confirmed: what was brought here and is owed no more."""
        from drumlin.store.objects.mark import keep_mark

        owed, told = set(owed_names(self._spool)), self._told
        for one in self._waiting:
            if one.number > told:
                if not all(segment in self._fed and segment not in owed for segment in one.segments):
                    break
                told = one.number
        # The mark is moved for entries that add no rows only together with others: it saves a request for each.
        if any(one.segments for one in self._waiting if self._told < one.number <= told):
            keep_mark(self._files, told)
            self._told = told

    def _bring(self) -> None:
        for one in self._waiting:
            for segment in one.segments if one.number > self._told else ():
                if segment not in self._fed:
                    if len(self._fed & set(owed_names(self._spool))) >= FED_MAX:
                        return
                    self._bring_segment(segment)

    def _bring_segment(self, segment: str) -> None:
        contents = self._files.manifest.contents()
        items = [contents.item(f"tables/{table}/{segment}{PARQUET_SUFFIX}") for table in TABLES_IN_TURN]
        if None not in items:
            try:
                self._fetch(segment, [item for item in items if item is not None])
            except FileNotFoundError as gone:
                # The manifest names it, so somebody else has deleted it: `drumlin store check` tells.
                sentence = "the events of segment %s are not told, because its tables are gone: %s"
                log.error(sentence, segment, gone, extra=event(Event.REFUSED))
        self._fed.add(segment)

    def _fetch(self, segment: str, items: list[Item]) -> None:
        with translated_disk_errors(self._tables):
            parts: list[tuple[Path, Path]] = []
            for table, item in zip(TABLES_IN_TURN, items, strict=True):
                target = self._table(table, segment)
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(target.name + PARTIAL_SUFFIX)
                part.unlink(missing_ok=True)
                self._files.fetch_item(item, part)
                parts.append((part, target))
            owe(self._spool, segment)
            for part, target in parts:
                replace(part, target)

    def _take_up(self) -> None:
        """What an earlier process has brought is told from its cursor on, unless others have told it since."""
        untold = {segment for one in self._waiting for segment in one.segments}
        for name in owed_names(self._spool):
            if is_log(name):
                continue
            if name in untold and self._table(PAGES, name).exists():
                self._fed.add(name)
            else:
                forget(self._spool, name)
        for path in self._tables.glob(f"*/*{PARTIAL_SUFFIX}"):
            remove(path)
        self._tidy()

    def _sum_up(self) -> None:
        unfed = [one for one in self._waiting if not self._fed.issuperset(one.segments)]
        self.waiting_bytes = sum(one.bytes for one in unfed)
        self.waiting_segments = sum(segment not in self._fed for one in unfed for segment in one.segments)
        self.drained = not any(one.segments for one in self._waiting)

    def _tidy(self) -> None:
        """Remove the tables whose events are confirmed, and forget segments that are behind the mark."""
        owed = set(owed_names(self._spool))
        for path in self._tables.glob(f"*/*{PARQUET_SUFFIX}"):
            if path.name.removesuffix(PARQUET_SUFFIX) not in owed:
                remove(path)
        self._fed &= owed | {segment for one in self._waiting for segment in one.segments}

    def _table(self, table: str, segment: str) -> Path:
        return self._tables / table / (segment + PARQUET_SUFFIX)
