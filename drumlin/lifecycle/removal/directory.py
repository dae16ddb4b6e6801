"""Removal from a store that is a directory, and from the directory of a crawl on one machine.

Every WARC file and table is read. Those that have something of the removed are written anew beside the old ones, and
take their places together (`plan`). Nobody may be at work in the directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from drumlin.disk import (
    OPEN_SUFFIX,
    PARTIAL_SUFFIX,
    PRIVATE,
    discard_scratch,
    remove,
    translated_disk_errors,
    write_whole,
)
from drumlin.errors import StorageError
from drumlin.events.coordinating import FOLDER
from drumlin.events.dead import DEAD_NAME
from drumlin.lifecycle.removal import rows, warcs
from drumlin.lifecycle.removal.counts import KEPT_ROWS, Counts
from drumlin.lifecycle.removal.names import free_stem
from drumlin.lifecycle.removal.plan import SUFFIX, Plan, carry_out, discard_leftovers
from drumlin.lifecycle.removal.targets import Targets
from drumlin.lifecycle.removal.texts import Filtered, Names, lines_without, scrubbed
from drumlin.store.moves import Moved, Moves
from drumlin.store.spools import SPOOLS
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX, discard_unfinished
from drumlin.store.tables.url_index import INDEX_SUFFIX, INDEXES
from drumlin.store.warc.cdxj import CDXJ_SUFFIX
from drumlin.store.warc.file import WARC_SUFFIX

TABLES: Final = (FETCHES, LINKS, PAGES)
"""In the order in which they are replaced: a segment counts by its `pages`."""
LOGS: Final = "logs"
JSON_FILES: Final = ("crawl.json", "report.json")
SEEDS_FILE: Final = "seeds.txt"
FLEET_FILE: Final = "fleet.json"
"""`SEEDS_FILE` has the seeds of a fleet on one machine, one a line. Where there is no `FLEET_FILE` beside it, it is
somebody's own."""
USELESS: Final = ("incoming",)
"""Folders with what a killed coordinator left: nodes send it again."""


Filter = Callable[[bytes, Targets, Moves], Filtered]
"""Takes the removed out of a journal, whose captures may have moved."""


class Directory:
    """A removal from one directory. `journals` has a filter for each suffix of journals, and `black_boxes` is the name
    of the file in a spool that has the URL that its node was reading."""

    def __init__(self, root: Path, targets: Targets, journals: Mapping[str, Filter], black_box: str) -> None:
        self._root = root
        self._targets = targets
        self._journals = journals
        self._black_box = black_box
        self._plan = Plan()
        self._moves: dict[str, Moved] = {}
        self.counts = Counts()

    def remove(self, *, dry_run: bool) -> Counts:
        """Do it, or only count."""
        try:
            with translated_disk_errors(self._root):
                return self._remove(dry_run=dry_run)
        except StorageError:
            # What was written before the disk was full is of no use, and others need the room.
            if not dry_run:
                discard_leftovers(self._root)
            raise

    def _remove(self, *, dry_run: bool) -> Counts:
        if not dry_run:
            discard_leftovers(self._root)
            self._tidy()
        for path in self._warcs():
            self._warc(path, dry_run=dry_run)
        for table in TABLES:
            for path in sorted((self._root / "tables" / table).glob("*" + PARQUET_SUFFIX)):
                self._table(path, table, dry_run=dry_run)
        for path in self._in_spools():
            self._journal(path, dry_run=dry_run)
        self._texts(dry_run=dry_run)
        self.counts.files = len(self._plan.renames)
        if not dry_run and (self._plan.renames or self._plan.deletes):
            carry_out(self._root, self._plan)
        return self.counts

    def _tidy(self) -> None:
        """Delete what nobody reads: it may have anything in it."""
        discard_unfinished(self._root / "tables")
        for path in [*self._root.glob("*" + PARTIAL_SUFFIX), *self._root.glob(f"*/*{PARTIAL_SUFFIX}")]:
            remove(path)
        for place in (self._root, *(self._root / SPOOLS).glob("*")):
            discard_scratch(place)
        for folder in USELESS:
            shutil.rmtree(self._root / folder, ignore_errors=True)

    # WARC files

    def _warcs(self) -> list[Path]:
        folder = self._root / "warc"
        return sorted([*folder.glob("*" + WARC_SUFFIX), *folder.glob("*" + WARC_SUFFIX + OPEN_SUFFIX)])

    def _warc(self, path: Path, *, dry_run: bool) -> None:
        growing = path.name.endswith(OPEN_SUFFIX)
        found = warcs.look(path, self._targets.covers, self._targets.names, growing=growing)
        self.counts.add(found.counts)
        suffix = OPEN_SUFFIX if growing else ""
        old = path.name.removesuffix(suffix)
        stem = old.removesuffix(WARC_SUFFIX)
        if found.changes:
            stem = free_stem(stem, self._is_taken)
            self._moves[old] = found.moved(stem + WARC_SUFFIX)
            self._add(path.with_name(stem + WARC_SUFFIX + suffix), instead_of=path)
            if not dry_run:
                warcs.write(path, path.with_name(stem + WARC_SUFFIX + suffix + SUFFIX), found.parts)
        index = path.with_name(old.removesuffix(WARC_SUFFIX) + CDXJ_SUFFIX + suffix)
        if index.exists():
            self._index(index, path.with_name(stem + CDXJ_SUFFIX + suffix), dry_run=dry_run)
        sorted_index = path.with_name(old.removesuffix(WARC_SUFFIX) + CDXJ_SUFFIX)
        if growing and sorted_index.exists():
            # The kill came while the file was being finished.
            self._index(sorted_index, path.with_name(stem + CDXJ_SUFFIX), dry_run=dry_run)

    def _index(self, path: Path, target: Path, *, dry_run: bool) -> None:
        with path.open("rb") as lines:
            kept, removed = warcs.index_without(lines, self._targets.covers, self._moves)
        self.counts.index_lines += removed
        if removed or target != path:
            self._put(target, b"".join(kept), dry_run=dry_run, instead_of=path)

    def _is_taken(self, stem: str) -> bool:
        there = any((self._root / "warc").glob(f"{stem}.*"))
        return there or any(moved.filename == stem + WARC_SUFFIX for moved in self._moves.values())

    # Tables and journals

    def _table(self, path: Path, table: str, *, dry_run: bool) -> None:
        moves = self._moves if table == PAGES else {}
        with pq.ParquetFile(path) as file:
            found = rows.look(rows.groups_of(file), self._targets.covers, moves, self._targets)
        setattr(self.counts, table, getattr(self.counts, table) + found.removed)
        setattr(self.counts, KEPT_ROWS[table], getattr(self.counts, KEPT_ROWS[table]) + found.mentions)
        if not found.changes:
            return
        self._add(path)
        index = self._root / INDEXES / (path.name.removesuffix(PARQUET_SUFFIX) + INDEX_SUFFIX)
        if index.exists():
            self._plan.deletes.append(self._relative(index))
        if not dry_run:
            with pq.ParquetFile(path) as file:
                target = path.with_name(path.name + SUFFIX)
                rows.write(rows.groups_of(file), target, table, self._targets.covers, moves)

    def _in_spools(self) -> list[Path]:
        found = [(self._root / SPOOLS).glob(f"*/*{suffix}") for suffix in self._journals]
        return sorted(path for paths in found for path in paths)

    def _journal(self, path: Path, *, dry_run: bool) -> None:
        found = self._journals[path.suffix](path.read_bytes(), self._targets, self._moves)
        self.counts.journal_entries += found.removed
        self.counts.kept_journal_entries += found.mentions
        if found.changes:
            self._put(path, found.content, dry_run=dry_run)

    # Texts

    def _texts(self, *, dry_run: bool) -> None:
        set_aside = [path for folder in (SPOOLS, FOLDER) for path in (self._root / folder).glob(f"*/{DEAD_NAME}")]
        for path in sorted([*(self._root / LOGS).glob("*"), *set_aside]):
            if path.is_file():
                self._lines(path, self._targets.names, dry_run=dry_run)
        seeds = self._root / SEEDS_FILE
        if seeds.is_file() and (self._root / FLEET_FILE).exists():
            self._lines(seeds, self._is_removed_seed, dry_run=dry_run)
        for path in (self._root / name for name in JSON_FILES):
            self._json(path, dry_run=dry_run)
        for path in (self._root / SPOOLS).glob(f"*/{self._black_box}"):
            if self._targets.names(path.read_bytes()):
                self._plan.deletes.append(self._relative(path))

    def _is_removed_seed(self, line: bytes) -> bool:
        return self._targets.covers(line.decode("utf-8", "replace").strip()) or self._targets.names(line)

    def _lines(self, path: Path, names: Names, *, dry_run: bool) -> None:
        """A log may be large, so it is read line by line."""
        with path.open("rb") as lines:
            removed = sum(map(names, lines))
        if not removed:
            return
        self.counts.log_lines += removed
        self._add(path)
        if not dry_run:
            with path.open("rb") as lines, path.with_name(path.name + SUFFIX).open("xb") as out:
                out.writelines(lines_without(lines, names))
            shutil.copymode(path, path.with_name(path.name + SUFFIX))

    def _json(self, path: Path, *, dry_run: bool) -> None:
        try:
            value = msgspec.json.decode(path.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return
        cleaned, removed = scrubbed(value, self._targets.names)
        if removed:
            self.counts.log_lines += removed
            content = msgspec.json.format(msgspec.json.encode(cleaned), indent=2) + b"\n"
            self._put(path, content, dry_run=dry_run)

    # The plan

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self._root))

    def _add(self, target: Path, *, instead_of: Path | None = None) -> None:
        """A file that is written as `target` and `SUFFIX` gets its name."""
        self._plan.renames.append((self._relative(target) + SUFFIX, self._relative(target)))
        if instead_of is not None and instead_of != target:
            self._plan.deletes.append(self._relative(instead_of))

    def _put(self, target: Path, content: bytes, *, dry_run: bool, instead_of: Path | None = None) -> None:
        self._add(target, instead_of=instead_of)
        if not dry_run:
            mode = (instead_of or target).stat().st_mode & 0o777
            write_whole(target.with_name(target.name + SUFFIX), content, mode=mode or PRIVATE)
