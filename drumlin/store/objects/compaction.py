"""Makes few large files of many small ones. Nodes publish a segment each minute, and a store of a million small files
is slow to list and dear to read.

The records of a WARC file are gzip members, so WARC files are joined as they are, and each record moves by the length
of what stands before it. Index lines and the rows of `pages` name file and offset of a record, so these are rewritten.
The manifest then replaces the old files by the new ones in one entry, if all of them are still there: of two that
compact the same segments, the second changes nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from drumlin.disk import replace, scratch_folder
from drumlin.store.moved_rows import moved_rows
from drumlin.store.moves import Moved, Moves
from drumlin.store.names import segment_name
from drumlin.store.objects.contents import Contents, Entry, Item
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.objects.manifest import entry_of
from drumlin.store.tables.schema import COLUMNS, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX, gathered_rows, open_table
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, INDEX_NAME, merge, moved_line, write_index
from drumlin.store.warc.file import WARC_SUFFIX

FULL_BYTES: Final = 1024**3
"""How large WARC files are made; segments with at least half of it are left alone."""
SEGMENTS_MIN: Final = 100
"""Fewer small segments than this are joined only if together they make a full file."""
JOINED_MAX: Final = 2_000


class Segment(NamedTuple):
    """A segment and its files."""

    name: str
    items: list[Item]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items if item.path.endswith(WARC_SUFFIX))

    @property
    def is_joinable(self) -> bool:
        """Whether retention has neither deleted its tables nor moved anything of it."""
        has_pages = any(item.path.startswith("tables/pages/") for item in self.items)
        return has_pages and not any(item.place for item in self.items)

    def of(self, suffix: str, folder: str) -> list[Item]:
        return [item for item in self.items if item.path.startswith(folder) and item.path.endswith(suffix)]


def due(
    contents: Contents,
    *,
    everything: bool = False,
    full_bytes: int = FULL_BYTES,
    kept: Collection[str] = (),
) -> list[Segment]:
    """The segments to join next, those first that came first; none if there are too few. With `everything`, two are
    enough. Left alone are those that somebody wants to be `kept` as they are, and those whose tables retention has
    deleted or moved."""
    by_name: dict[str, list[Item]] = {}
    for item in contents.items():
        if item.segment:
            by_name.setdefault(item.segment, []).append(item)
    segments = (Segment(*pair) for pair in by_name.items() if pair[0] not in kept)
    small = [one for one in segments if one.bytes < full_bytes / 2 and one.is_joinable]
    sums = itertools.accumulate(one.bytes for one in small)
    joined = [one for one, before in zip(small, (0, *sums), strict=False) if before < full_bytes][:JOINED_MAX]
    enough = everything or len(small) >= SEGMENTS_MIN or sum(one.bytes for one in joined) >= full_bytes
    return joined if enough and len(joined) > 1 else []


def compact(files: ObjectFiles, segments: Sequence[Segment], folder: Path, removals: str | None = None) -> bool:
    """Join segments into one, working in a folder of this machine. Returns whether it was done. It is not if a removal
    has begun since `removals` was asked for (`ObjectFiles.removals`): the new objects may be deleted then."""
    before = files.removals() if removals is None else removals
    with scratch_folder(folder) as work:
        now = files.bucket.time()
        writer = f"compacted.{secrets.token_hex(6)}"
        name = segment_name(writer, now, 1)
        made = _join(files, segments, work, name, _warc_name(writer, now))
        items = [files.upload(path, file, segment=name, now=now) for path, file in made.items()]
    old = [item for one in segments for item in one.items]

    def replaced(contents: Contents) -> Entry | None:
        there = contents.removals == before and not contents.is_being_removed_from
        there = there and all(contents.item(item.path) == item for item in old)
        return entry_of("compaction", now, items, [item.path for item in old], [name]) if there else None

    done = files.manifest.change(replaced)
    if done and files.manifest.contents().item(f"warc/{INDEX_NAME}") is not None:
        # Its lines name files that are gone by now.
        files.complete(folder)
    return done


def _warc_name(writer: str, now: float) -> str:
    moment = datetime.fromtimestamp(now, UTC)
    return f"drumlin-{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}-00001-{writer}"


def _join(files: ObjectFiles, segments: Sequence[Segment], work: Path, name: str, stem: str) -> dict[str, Path]:
    """Make the files of the new segment; returns them by their paths in the store."""
    warcs = [item for one in segments for item in one.of(WARC_SUFFIX, "warc/")]
    made: dict[str, Path] = {}
    moves: Moves = {}
    if warcs:
        made[f"warc/{stem}{WARC_SUFFIX}"] = work / "warc"
        made[f"warc/{stem}{CDXJ_SUFFIX}"] = index = work / "cdxj"
        moves = _join_warcs(files, warcs, work / "warc", stem + WARC_SUFFIX)
        _join_indexes(files, [item for one in segments for item in one.of(CDXJ_SUFFIX, "warc/")], index, moves)
    for table in COLUMNS:
        made[f"tables/{table}/{name}{PARQUET_SUFFIX}"] = path = work / table
        sources = [item for one in segments for item in one.of(PARQUET_SUFFIX, f"tables/{table}/")]
        _join_tables(files, sources, table, path, moves)
    return made


def _join_warcs(files: ObjectFiles, warcs: Sequence[Item], target: Path, filename: str) -> Moves:
    """Write WARC files one after the other; returns where their records are then."""
    moves: dict[str, Moved] = {}
    with target.open("xb") as out:
        for item in warcs:
            moves[Path(item.path).name] = Moved(filename, [0], [out.tell()])
            with files.bucket.needs(item.name):
                for chunk in files.bucket.chunks(item.name):
                    out.write(chunk)
    return moves


def _join_indexes(files: ObjectFiles, indexes: Sequence[Item], target: Path, moves: Moves) -> None:
    """Merge the indexes by way of the disk: in memory are the lines of one segment at a time."""
    parts = target.with_name("indexes")
    parts.mkdir()
    for number, item in enumerate(indexes):
        with files.bucket.needs(item.name):
            lines = files.bucket.get(item.name).splitlines(keepends=True)
        write_index(parts / f"{number}{CDXJ_SUFFIX}", list(_moved_lines(lines, moves)))
    replace(merge(parts), target)


def _moved_lines(lines: Sequence[bytes], moves: Moves) -> Iterator[bytes]:
    for line in lines:
        # A line that a stranger has spoilt is of no use to readers, and must not keep the others from being joined.
        with contextlib.suppress(msgspec.DecodeError):
            yield moved_line(line, moves)


def _join_tables(files: ObjectFiles, sources: Sequence[Item], table: str, target: Path, moves: Moves) -> None:
    with open_table(target, table) as writer:
        for rows in gathered_rows(row_groups(files, sources), table):
            writer.write_table(moved_rows(rows, moves) if table == PAGES else rows)


def row_groups(files: ObjectFiles, sources: Sequence[Item]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for item in sources:
        with files.bucket.reader(item.name, item.bytes) as opened, pq.ParquetFile(opened) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)
