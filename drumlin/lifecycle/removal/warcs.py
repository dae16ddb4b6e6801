"""WARC files and their indexes without the removed.

The records of a WARC file are gzip members. Those that are kept are copied as they are, so a file stays what its writer
made of it. A record is of the removed if its target is: responses, revisits, requests, and marks of surplus responses.
The warcinfo record repeats seeds of the crawl, so it is written anew if it names the removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from isal import igzip_lib

from drumlin.config.record import WARCINFO_FIELD
from drumlin.errors import SiteError, StorageError
from drumlin.fetch.decode import decode, decoded_bytes_max
from drumlin.http.headers import header_fields
from drumlin.lifecycle.removal.counts import Counts
from drumlin.lifecycle.removal.texts import scrubbed
from drumlin.store.moves import Moved, Moves
from drumlin.store.warc.block import BLANK_LINE
from drumlin.store.warc.cdxj import entry_in, moved_line
from drumlin.store.warc.reader import CAPTURE_TYPES, Member, Record, members, parse_record
from drumlin.store.warc.records import RECORD_END

COPY_BYTES: Final = 1 << 20
RECORD_BYTES_MAX: Final = 256 * 1024**2
"""How much of a record is looked at, whatever a stranger has packed into it. Names beyond it are not counted."""
DECODED_BYTES_MAX: Final = RECORD_BYTES_MAX
DECODED_TIMES_MAX: Final = 100
"""How much of all bodies of a file is decoded to look for names, times its size. Text becomes ten times as large; a few
bytes of a stranger's, of which there may be millions, become a million times as many."""
WARCINFO: Final = "warcinfo"
COMPRESSION_LEVEL: Final = 2

Covers = Callable[[str | None], bool]
"""Whether a URL is removed."""
Names = Callable[[bytes], bool]
"""Whether a text names something that is removed."""


class Part(NamedTuple):
    """A stretch of the old file that is kept, or else what stands in its place."""

    offset: int
    length: int
    instead: bytes = b""


class Look(NamedTuple):
    """What a file is made of without the removed. If `changes` is false it stays as it is."""

    changes: bool
    parts: list[Part]
    begins: list[int]
    shifts: list[int]
    counts: Counts

    def moved(self, filename: str) -> Moved:
        return Moved(filename, self.begins, self.shifts)


def nowhere(text: bytes) -> bool:
    """Does not look for names: for files that have no others' pages to count."""
    return False


def look(
    path: Path, covers: Covers, names: Names, *, growing: bool = False, record_bytes_max: int = RECORD_BYTES_MAX
) -> Look:
    """Look through a WARC file. The end of one that was `growing` when its process was killed may be torn; what is torn
    is cut off, as it would be by the next start."""
    size = path.stat().st_size
    found = _Looking(covers, names, 0 if names is nowhere else DECODED_BYTES_MAX + DECODED_TIMES_MAX * size)
    end = 0
    for member in members(path, 0, record_bytes_max):
        record = parse_record(member)
        if record is None:
            break
        found.add(record, member)
        end = member.offset + member.length
    if end != size and not growing:
        raise StorageError(f"{path} is damaged at byte {end}.", "Restore it from a copy before you remove anything.")
    return Look(found.changes, found.parts, found.begins, found.shifts, found.counts)


class _Looking:
    """Collects what is kept, one record after the other."""

    def __init__(self, covers: Covers, names: Names, decoded_max: int) -> None:
        self._covers, self._names = covers, names
        self._decoded_left = decoded_max
        self.parts: list[Part] = []
        self.begins, self.shifts = [0], [0]
        self.counts = Counts()
        self.changes = False

    def add(self, record: Record, member: Member) -> None:
        fields = record.fields
        if self._covers(fields.get("warc-target-uri")):
            self.counts.warc_records += 1
            self.counts.captures += record.kind in CAPTURE_TYPES
            self._shift(member, -member.length)
            return
        instead = self._info(record, member) if record.kind == WARCINFO else b""
        if instead:
            self.parts.append(Part(member.offset, member.length, instead))
            self._shift(member, len(instead) - member.length)
            return
        self._keep(member)
        if self._covers(fields.get("warc-refers-to-target-uri")):
            self.counts.revisits_without_payload += 1
        if self._names(member.head) or (record.kind in CAPTURE_TYPES and self._names(self._decoded(record))):
            self.counts.kept_warc_records += 1

    def _shift(self, member: Member, by: int) -> None:
        """What follows this record moves."""
        self.changes = True
        self.begins.append(member.offset + member.length)
        self.shifts.append(self.shifts[-1] + by)

    def _keep(self, member: Member) -> None:
        last = self.parts[-1] if self.parts else None
        if last is not None and not last.instead and last.offset + last.length == member.offset:
            self.parts[-1] = last._replace(length=last.length + member.length)
        else:
            self.parts.append(Part(member.offset, member.length))

    def _decoded(self, record: Record) -> bytes:
        """The body without its content encoding; empty if it has none, or cannot be decoded within bounds."""
        head, _, body = record.block.partition(BLANK_LINE)
        encoding = header_fields(head).get("content-encoding", "")
        if not encoding or not self._decoded_left:
            return b""
        bytes_max = min(decoded_bytes_max(body, DECODED_BYTES_MAX), self._decoded_left)
        try:
            decoded = decode(body, encoding, bytes_max)
        except SiteError:
            self._decoded_left -= bytes_max
            return b""
        # Of several encodings, what was between them may have been large.
        self._decoded_left -= bytes_max if "," in encoding else len(decoded)
        return decoded

    def _info(self, record: Record, member: Member) -> bytes:
        """The warcinfo record without the removed; empty if it does not name it."""
        if len(record.block) != int(record.fields["content-length"]):
            # No writer of ours makes one that is too long to be looked at.
            block = b""
        else:
            block = b"\r\n".join(self._info_line(line) for line in record.block.split(b"\r\n"))
            if block == record.block:
                return b""
        head = member.head.partition(BLANK_LINE)[0].split(b"\r\n")
        head = [b"Content-Length: %d" % len(block) if _is_length(one) else one for one in head]
        content = b"\r\n".join(head) + BLANK_LINE + block + RECORD_END
        compressed: bytes = igzip_lib.compress(content, COMPRESSION_LEVEL, igzip_lib.COMP_GZIP)
        return compressed

    def _info_line(self, line: bytes) -> bytes:
        """A line of a warcinfo record without the removed."""
        field, colon, value = line.partition(b": ")
        if field != WARCINFO_FIELD.encode():
            return line
        try:
            record = msgspec.json.decode(value)
            cleaned, went = scrubbed(record, lambda text: self._names(text) or self._covers(text.decode()))
        except msgspec.DecodeError:
            return field + colon if self._names(value) else line
        except RecursionError:
            # A stranger has nested it so deeply that nobody can tell what it names.
            return field + colon
        return field + colon + msgspec.json.encode(cleaned) if went else line


def _is_length(line: bytes) -> bool:
    """Whether a line of a WARC header has the length of the block, however a stranger spells it."""
    return line.partition(b":")[0].strip().lower() == b"content-length"


def write(path: Path, target: Path, parts: Sequence[Part]) -> None:
    """Write a file that is made of these parts of another."""
    with path.open("rb") as source, target.open("xb") as out:
        for part in parts:
            if part.instead:
                out.write(part.instead)
                continue
            source.seek(part.offset)
            left = part.length
            while left > 0:
                chunk = source.read(min(left, COPY_BYTES))
                out.write(chunk)
                left -= len(chunk)


def index_without(lines: Iterator[bytes], covers: Covers, moves: Moves) -> tuple[list[bytes], int]:
    """The lines of an index that are left, for records at their new places, and how many went. A line that a kill has
    torn goes too: it is made again from the WARC file. So does one that a stranger has spoilt: nobody can read it."""
    kept: list[bytes] = []
    removed = 0
    for line in lines:
        entry = entry_in(line) if line.endswith(b"\n") else None
        if entry is None:
            continue
        if covers(entry.url):
            removed += 1
        else:
            kept.append(moved_line(line, moves) if entry.filename in moves else line)
    return kept, removed
