"""After a kill -9: cuts torn tails off WARC files that were being written, settles what they hold, and indexes them.

The journals of the dead node decide: a capture whose result counted gets its line in the index, any other one a mark. A
capture that no journal mentions is either older, and then has its line or mark already, or it never got into a
journal, and is surplus. So only the part from the first capture that a journal mentions has to be decompressed, and
repairing a file of 1 GB takes milliseconds. If the open index is missing or does not fit, every record is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from isal import igzip_lib

from drumlin.disk import OPEN_SUFFIX, PARTIAL_SUFFIX, remove, replace, storage_error
from drumlin.http.headers import header_fields, status_of
from drumlin.store.names import node_of_warc
from drumlin.store.warc.block import BLANK_LINE
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, REVISIT_MIME, entry_in, index_line, mime_of, write_index
from drumlin.store.warc.file import WARC_SUFFIX
from drumlin.store.warc.reader import CAPTURE_TYPES, Member, Record, members, parse_record
from drumlin.store.warc.records import SURPLUS_MARK, surplus_record

METADATA: Final = "metadata"

Journalled = Mapping[str, Mapping[int, bool]]
"""What journals say about captures: whether each counts, by the name of its file and its offset in it."""

Indexed = dict[int, tuple[int, bytes]]
"""What an index says: the end and the line of each record, by its offset."""


class Repaired(msgspec.Struct, frozen=True):
    """What was done to one file. `path` is its final name; if nothing could be kept, it does not exist. `captures` says
    how many its index has, `surplus` how many this repair marked."""

    path: Path
    captures: int
    bytes_kept: int
    bytes_dropped: int
    surplus: int = 0


class Found(msgspec.Struct):
    """A capture that a scan found, with its line for the index and its mark; it will get one of the two. `refers_to` is
    the page whose body it repeats, if it is a revisit."""

    offset: int
    length: int
    url: str
    record_id: str
    line: bytes
    mark: bytes
    refers_to: str = ""


class Scan(msgspec.Struct):
    """The captures from some point of a file on, the ids of those that are marked as surplus, the kinds of all records,
    the addresses of those that are no captures, and the end of the last record to keep."""

    end: int
    captures: list[Found] = []
    marked: set[str] = set()
    kinds: set[str] = set()
    addresses: set[str] = set()

    def unmarked(self) -> list[bytes]:
        """The lines of the captures without a mark: the index that follows from the file alone."""
        return [found.line for found in self.captures if found.record_id not in self.marked]


def repair(directory: Path, node: str = "", journalled: Journalled | None = None) -> list[Repaired]:
    """Finish every WARC left open in `directory` (of one node, or of all), and index those without an index."""
    for path in _files(directory, node, CDXJ_SUFFIX + PARTIAL_SUFFIX):
        remove(path)
    left_open = _files(directory, node, WARC_SUFFIX + OPEN_SUFFIX)
    for path in _files(directory, node, CDXJ_SUFFIX + OPEN_SUFFIX):
        if path.with_name(path.name.replace(CDXJ_SUFFIX, WARC_SUFFIX)) not in left_open:
            # An earlier repair removed this index's WARC, of which nothing could be kept, and was then killed.
            remove(path)
    repaired = [_repair_file(path, journalled or {}) for path in left_open]
    finished = _files(directory, node, WARC_SUFFIX)
    return repaired + [_reindex(path) for path in finished if not index_path(path).exists()]


def _files(directory: Path, node: str, suffix: str) -> list[Path]:
    """The files with this suffix that a node wrote, oldest first. Other nodes may be at work in the same folder."""
    paths = sorted(directory.glob("*" + suffix))
    if not node:
        return paths
    return [path for path in paths if node_of_warc(path.name.removesuffix(suffix)) == node]


def _reindex(path: Path) -> Repaired:
    """Make the index that a finished WARC lacks. The WARC itself stays as it is."""
    lines = scan(path, path.name, 0).unmarked()
    write_index(index_path(path), lines)
    return Repaired(path, len(lines), path.stat().st_size, 0)


def index_path(warc: Path) -> Path:
    return warc.with_name(warc.name.removesuffix(WARC_SUFFIX) + CDXJ_SUFFIX)


def _repair_file(path: Path, journalled: Journalled) -> Repaired:
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    unsorted = index_path(final).with_name(index_path(final).name + OPEN_SUFFIX)
    told = journalled.get(final.name, {})
    # The index is sorted already if the kill came while the file was being finished.
    indexed = _indexed(path, final.name, index_path(final) if index_path(final).exists() else unsorted)
    return _finish(path, final, unsorted, told, indexed)


def _finish(path: Path, final: Path, unsorted: Path, told: Mapping[int, bool], indexed: Indexed | None) -> Repaired:
    """Settle what is not settled, cut the file after its last whole record, and give it and its index final names."""
    size = path.stat().st_size
    known = indexed or {}
    start = min([*told, max((end for end, _ in known.values()), default=0)]) if indexed is not None else 0
    tail = scan(path, final.name, start)
    lines = [line for offset, (_, line) in known.items() if offset < start]
    marks: list[bytes] = []
    for found in tail.captures:
        marked = found.record_id in tail.marked
        if told.get(found.offset, found.offset in known or (indexed is None and not marked)):
            lines.append(found.line)
        elif not marked:
            marks.append(found.mark)
    if not lines and not told:
        # Remove the index last: if the WARC stayed without one, all its captures would be taken to count.
        for useless in (path, index_path(final), unsorted):
            remove(useless)
        return Repaired(final, 0, 0, size)
    _cut_and_mark(path, tail.end, marks)
    write_index(index_path(final), lines)
    remove(unsorted)
    replace(path, final)
    return Repaired(final, len(lines), tail.end, size - tail.end, len(marks))


def scan(path: Path, filename: str, start: int) -> Scan:
    """The captures and marks from `start` on, up to the first record that is torn."""
    result = Scan(start)
    for member in members(path, start):
        record = parse_record(member)
        if record is None:
            break
        result.kinds.add(record.kind)
        if record.kind not in CAPTURE_TYPES:
            result.addresses.add(record.fields.get("warc-target-uri", ""))
        if record.kind in CAPTURE_TYPES:
            result.captures.append(_found(record, member, filename))
        elif record.kind == METADATA and record.block.startswith(SURPLUS_MARK):
            result.marked.add(_id(record, "warc-refers-to"))
        elif record.kind != METADATA:
            # A request is kept with its response, which follows it.
            continue
        result.end = member.offset + member.length
    return result


def _found(record: Record, member: Member, filename: str) -> Found:
    fields, record_id = record.fields, _id(record, "warc-record-id")
    url, date = fields.get("warc-target-uri", ""), fields.get("warc-date", "")
    mark = surplus_record(record_id, url, date, _id(record, "warc-warcinfo-id"))
    refers_to = fields.get("warc-refers-to-target-uri", "")
    return Found(member.offset, member.length, url, record_id, _line(record, member, filename), mark, refers_to)


def _id(record: Record, field: str) -> str:
    return record.fields.get(field, "").strip("<>")


def _cut_and_mark(path: Path, size: int, marks: list[bytes]) -> None:
    try:
        with path.open("r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(b"".join(igzip_lib.compress(mark, 1, igzip_lib.COMP_GZIP) for mark in marks))
    except OSError as cause:
        raise storage_error(path, cause) from cause


def _indexed(path: Path, filename: str, index: Path) -> Indexed | None:
    """What an index says; None when it does not fit its WARC."""
    try:
        lines = index.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise storage_error(index, cause) from cause
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    entries = [(entry_in(line), line) for line in lines]
    if any(entry is None or entry.filename != filename for entry, _ in entries):
        return None
    known = {
        int(entry.offset): (int(entry.offset) + int(entry.length), line) for entry, line in entries if entry is not None
    }
    return known if not known or _fits(path, max(known), known) else None


def _fits(path: Path, offset: int, known: Indexed) -> bool:
    """Whether the last record that an index names is in the file, complete."""
    member = next(members(path, offset), None)
    return member is not None and offset + member.length == known[offset][0] and parse_record(member) is not None


def _line(record: Record, member: Member, filename: str) -> bytes:
    fields = record.fields
    mime = REVISIT_MIME
    if record.kind == "response":
        mime = mime_of(header_fields(record.block.partition(BLANK_LINE)[0]).get("content-type", ""))
    return index_line(
        fields.get("warc-target-uri", ""),
        fields.get("warc-date", ""),
        mime,
        status_of(record.block),
        fields.get("warc-payload-digest", ""),
        member.length,
        member.offset,
        filename,
    )
