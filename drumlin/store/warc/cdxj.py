"""CDXJ: a sorted index beside each WARC, and one for the whole crawl, in the form that pywb and Common Crawl read.

A line is `surt timestamp {"url": …, "mime": …, "status": …, "digest": …, "length": …, "offset": …, "filename": …}`.
While its WARC grows, lines are appended unsorted to `NAME.cdxj.open`; closing the WARC sorts them into `NAME.cdxj`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from drumlin.disk import PARTIAL_SUFFIX, AppendFile, remove, replace, storage_error, write_whole
from drumlin.http.mime import extract_mime_type
from drumlin.store.moves import Moves
from drumlin.store.warc.surt import surt

CDXJ_SUFFIX: Final = ".cdxj"
INDEX_NAME: Final = "index.cdxj"
REVISIT_MIME: Final = "warc/revisit"
MERGE_LINES_PER_WRITE: Final = 4_096
MERGE_FILES_MAX: Final = 256
"""How many indexes are merged at once; more than these are merged in rounds, to bound the number of open files."""

STAMP: Final = "%Y%m%d%H%M%S"
STAMP_DIGITS: Final = 14

_JSON_BEGINS: Final = b'{"url":'
"""How the JSON of a line begins. Nothing in it can look so, because quotes in its texts are escaped; but the key before
it may have any braces that a URL has."""

_encode: Final = msgspec.json.Encoder().encode


class IndexEntry(msgspec.Struct, frozen=True):
    """The JSON of one line. Numbers are written as text, as pywb expects them."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str


def index_line(
    url: str, date: str, mime: str, status: int, digest: str, length: int, offset: int, filename: str
) -> bytes:
    """One line with its line end; `date` is the record's WARC-Date."""
    entry = IndexEntry(url, mime, str(status), digest, str(length), str(offset), filename)
    timestamp = date[0:4] + date[5:7] + date[8:10] + date[11:13] + date[14:16] + date[17:19]
    return b"%b %b %b\n" % (surt(url).encode(), timestamp.encode(), _encode(entry))


def parse_line(line: bytes) -> IndexEntry:
    """The JSON of a line; raises `msgspec.DecodeError` if it has none, or not all of it."""
    return msgspec.json.decode(line[_json_at(line) :], type=IndexEntry)


def _json_at(line: bytes) -> int:
    return line.rfind(_JSON_BEGINS)


def entry_in(line: bytes) -> IndexEntry | None:
    """The JSON of a line; None if no reader can use the line."""
    try:
        return parse_line(line)
    except msgspec.DecodeError:
        return None


def moved_line(line: bytes, moves: Moves) -> bytes:
    """The line of a record whose file was written anew; raises as `parse_line` does."""
    entry = parse_line(line)
    there = moves[entry.filename]
    moved = msgspec.structs.replace(entry, offset=str(there.offset(int(entry.offset))), filename=there.filename)
    return line[: _json_at(line)] + _encode(moved) + b"\n"


def is_dated(line: bytes) -> bool:
    """Whether there is a moment with the time of a line."""
    stamp = line.partition(b" ")[2].partition(b" ")[0]
    try:
        datetime.strptime(stamp.decode(), STAMP).replace(tzinfo=UTC)
    except ValueError:
        return False
    return len(stamp) == STAMP_DIGITS and stamp.isdigit()


def mime_of(content_type: str) -> str:
    """The type alone, without parameters; `unk` when the server named none, as in other CDX files."""
    return extract_mime_type(content_type).essence or "unk"


def write_index(path: Path, lines: list[bytes], *, sync: bool = False) -> None:
    """Write the sorted index of one WARC."""
    lines.sort()
    write_whole(path, b"".join(lines), sync=sync)


def sort_open_index(unsorted: Path, target: Path, *, sync: bool = False) -> None:
    """Turn the lines gathered while a WARC was written into its index."""
    try:
        lines = unsorted.read_bytes().splitlines(keepends=True)
    except OSError as cause:
        raise storage_error(unsorted, cause) from cause
    write_index(target, lines, sync=sync)
    remove(unsorted)


def merge(directory: Path) -> Path:
    """Merge the indexes of all finished WARCs in `directory` into one sorted `index.cdxj`, streaming."""
    sources = sorted(path for path in directory.glob("*" + CDXJ_SUFFIX) if path.name != INDEX_NAME)
    rounds = itertools.count()
    spent: list[Path] = []
    while len(sources) > MERGE_FILES_MAX:
        group, sources = sources[:MERGE_FILES_MAX], sources[MERGE_FILES_MAX:]
        spent.append(directory / f".merge-{next(rounds)}{CDXJ_SUFFIX}{PARTIAL_SUFFIX}")
        _merge_into(spent[-1], group)
        sources.append(spent[-1])
    partial = directory / (INDEX_NAME + PARTIAL_SUFFIX)
    _merge_into(partial, sources)
    replace(partial, directory / INDEX_NAME)
    for path in spent:
        remove(path)
    return directory / INDEX_NAME


def _merge_into(target: Path, sources: Sequence[Path]) -> None:
    remove(target)
    out = AppendFile(target)
    try:
        with ExitStack() as stack:
            lines = heapq.merge(*(stack.enter_context(path.open("rb")) for path in sources))
            for batch in _batches(lines):
                out.append(b"".join(batch))
    finally:
        out.close()


def _batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(itertools.islice(lines, MERGE_LINES_PER_WRITE)):
        yield batch
