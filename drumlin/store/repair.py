"""After a kill -9: cut torn tails off WARC files that were being written, and finish them with their index.

What a WARC's open index already lists was written before that index line, so only the rest is decompressed: repairing
a file of 1 GB takes milliseconds. A line that does not fit the file, or `thorough`, makes it a scan of every record.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from drumlin.store.cdxj import CDXJ_SUFFIX, REVISIT_MIME, IndexEntry, index_line, mime_of, parse_line, write_index
from drumlin.store.disk import OPEN_SUFFIX, PARTIAL_SUFFIX, remove, replace, storage_error
from drumlin.store.reader import CAPTURE_TYPES, Member, Record, http_fields, http_status, members, parse_record

WARC_SUFFIX: Final = ".warc.gz"
NAME_PARTS: Final = 3
"""Prefix, time and serial number stand before the node in a file's name."""


class Repaired(msgspec.Struct, frozen=True):
    """What was done about one file. `path` is its final name; it does not exist when nothing could be kept."""

    path: Path
    captures: int
    bytes_kept: int
    bytes_dropped: int


def repair(directory: Path, node: str = "", *, thorough: bool = False) -> list[Repaired]:
    """Finish every WARC left open in `directory` (of one node, or of all), and index those without an index."""
    for path in _files(directory, node, CDXJ_SUFFIX + PARTIAL_SUFFIX):
        remove(path)
    left_open = _files(directory, node, WARC_SUFFIX + OPEN_SUFFIX)
    repaired = [_repair_file(path, thorough=thorough) for path in left_open]
    finished = _files(directory, node, WARC_SUFFIX)
    return repaired + [_reindex(path) for path in finished if not _index_path(path).exists()]


def _files(directory: Path, node: str, suffix: str) -> list[Path]:
    """The files with this suffix that a node wrote, oldest first. Other nodes may be at work in the same folder."""
    paths = sorted(directory.glob("*" + suffix))
    if not node:
        return paths
    return [path for path in paths if path.name.removesuffix(suffix).split("-", NAME_PARTS)[NAME_PARTS:] == [node]]


def _reindex(path: Path) -> Repaired:
    """Make the index that a finished WARC lacks. The WARC itself stays as it is."""
    lines: list[bytes] = []
    _scan(path, path.name, lines, 0)
    write_index(_index_path(path), lines)
    return Repaired(path, len(lines), path.stat().st_size, 0)


def _repair_file(path: Path, *, thorough: bool) -> Repaired:
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    unsorted = _index_path(final).with_name(_index_path(final).name + OPEN_SUFFIX)
    lines, end = ([], 0) if thorough else _indexed(path, final.name, unsorted)
    repaired = _finish(path, final, lines, end)
    remove(unsorted)
    return repaired


def _index_path(warc: Path) -> Path:
    return warc.with_name(warc.name.removesuffix(WARC_SUFFIX) + CDXJ_SUFFIX)


def _finish(path: Path, final: Path, lines: list[bytes], end: int) -> Repaired:
    """Index what follows `end`, cut the file after its last capture, and give it its final name."""
    end = _scan(path, final.name, lines, end)
    size = path.stat().st_size
    if lines:
        _cut(path, end)
        write_index(_index_path(final), lines)
        replace(path, final)
    else:
        remove(path)
    return Repaired(final, len(lines), end, size - end)


def _scan(path: Path, filename: str, lines: list[bytes], end: int) -> int:
    """Add the index lines of the captures after `end`, and return where the last whole one ends."""
    for member in members(path, end):
        record = parse_record(member)
        if record is None:
            break
        if record.kind in CAPTURE_TYPES:
            lines.append(_line(record, member, filename))
            end = member.offset + member.length
    return end


def _cut(path: Path, size: int) -> None:
    try:
        os.truncate(path, size)
    except OSError as cause:
        raise storage_error(path, cause) from cause


def _indexed(path: Path, filename: str, unsorted: Path) -> tuple[list[bytes], int]:
    """The lines of the open index and the end of the last record they name; nothing when they cannot be trusted."""
    try:
        lines = unsorted.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return [], 0
    except OSError as cause:
        raise storage_error(unsorted, cause) from cause
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    if not lines:
        return [], 0
    last = _entry(lines[-1])
    if last is None or last.filename != filename:
        return [], 0
    member = next(members(path, int(last.offset)), None)
    if member is None or member.length != int(last.length) or parse_record(member) is None:
        return [], 0
    return lines, member.offset + member.length


def _entry(line: bytes) -> IndexEntry | None:
    try:
        return parse_line(line)
    except msgspec.DecodeError:
        return None


def _line(record: Record, member: Member, filename: str) -> bytes:
    fields = record.fields
    mime = REVISIT_MIME
    if record.kind == "response":
        mime = mime_of(http_fields(record.block).get("content-type", ""))
    return index_line(
        fields.get("warc-target-uri", ""),
        fields.get("warc-date", ""),
        mime,
        http_status(record.block),
        fields.get("warc-payload-digest", ""),
        member.length,
        member.offset,
        filename,
    )
