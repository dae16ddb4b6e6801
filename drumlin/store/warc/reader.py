"""Reading back what `WarcWriter` wrote: gzip members one after the other, and captures out of records."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from isal import isal_zlib

from drumlin.disk import storage_error
from drumlin.errors import StorageError
from drumlin.http.headers import header_fields, status_of
from drumlin.model import Capture, Duplicate
from drumlin.store.warc.block import CUT_FIELD
from drumlin.store.warc.records import LENGTH, RECORD_END, WARC_VERSION
from drumlin.urls import domain_of, host_of

CHUNK_BYTES: Final = 32_768
HEAD_BYTES_MAX: Final = 1_000_000
"""How much of a record a scan keeps: enough for the headers of WARC and HTTP."""
CAPTURE_TYPES: Final = frozenset({"response", "revisit"})

_GZIP_WINDOW: Final = 31


class Member(msgspec.Struct, frozen=True):
    """One complete gzip member: where it is, how long its content is, and the content's start."""

    offset: int
    length: int
    content_bytes: int
    head: bytes


class Record(msgspec.Struct, frozen=True):
    """A parsed record: its fields by lower-case name, and its block as far as it was read."""

    fields: dict[str, str]
    block: bytes

    @property
    def kind(self) -> str:
        return self.fields.get("warc-type", "")


def members(path: Path, start: int = 0, head_bytes_max: int = HEAD_BYTES_MAX) -> Iterator[Member]:
    """The complete gzip members from `start` on, ending silently at the first torn or damaged one."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if start >= size:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                while start < size and (member := _member(content, start, size, head_bytes_max)) is not None:
                    yield member
                    start += member.length
    except OSError as cause:
        raise storage_error(path, cause) from cause


def _member(content: mmap.mmap, start: int, size: int, head_bytes_max: int) -> Member | None:
    decompressor = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    head: list[bytes] = []
    kept = unpacked = 0
    position = start
    while not decompressor.eof and position < size:
        try:
            piece = decompressor.decompress(content[position : position + CHUNK_BYTES])
        except isal_zlib.error:  # type: ignore[misc]  # its stub calls the class an instance
            return None
        position = min(position + CHUNK_BYTES, size)
        unpacked += len(piece)
        if kept < head_bytes_max:
            head.append(piece)
            kept += len(piece)
    if not decompressor.eof:
        return None
    end = position - len(decompressor.unused_data)
    return Member(start, end - start, unpacked, b"".join(head))


def parse_record(member: Member) -> Record | None:
    """The record in a member, or None when it is not exactly one whole WARC record."""
    head, found, block = member.head.partition(b"\r\n\r\n")
    if not found or not head.startswith(WARC_VERSION):
        # A header that is longer than what was kept would be another one for whoever keeps more.
        return None
    fields = _fields(head)
    try:
        block_bytes = int(fields.get("content-length", ""))
    except ValueError:
        return None
    if member.content_bytes != len(head) + 4 + block_bytes + len(RECORD_END):
        return None
    return Record(fields, block[:block_bytes])


def _fields(head: bytes) -> dict[str, str]:
    """The fields of a WARC header by lower-case name; none that drumlin reads is repeated."""
    lines = (line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def capture_in(file: BinaryIO, filename: str, offset: int, bytes_max: int) -> Capture:
    """The capture at `offset` of an open WARC file, as `read_capture` gives it. A record that is longer than
    `bytes_max` is not read to its end, and the capture then counts as truncated."""
    file.seek(offset)
    decompressor = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    content, taken = bytearray(), 0
    while not decompressor.eof and len(content) <= bytes_max and (piece := file.read(CHUNK_BYTES)):
        try:
            content += decompressor.decompress(piece)
        except isal_zlib.error as wrong:  # type: ignore[misc]  # its stub calls the class an instance
            raise StorageError(f"The record at byte {offset} of {filename} cannot be read.") from wrong
        taken += len(piece)
    whole = decompressor.eof and len(content) <= bytes_max
    member = Member(offset, taken - len(decompressor.unused_data), len(content), bytes(content[:bytes_max]))
    record = parse_record(member) if whole else _begun_record(member)
    if record is None or record.kind not in CAPTURE_TYPES:
        raise StorageError(f"There is no readable capture at byte {offset} of {filename}.")
    capture = _capture(record, filename, member)
    return capture if whole else msgspec.structs.replace(capture, truncated=capture.truncated or LENGTH)


def _begun_record(member: Member) -> Record | None:
    """A record whose end was not read."""
    head, found, block = member.head.partition(b"\r\n\r\n")
    return Record(_fields(head), block) if found and head.startswith(WARC_VERSION) else None


def read_capture(path: Path, offset: int) -> Capture:
    """The capture whose response or revisit record is at `offset`, with the fields that a WARC has.

    `body` is empty: the caller decodes `body_raw` by `headers["content-encoding"]` and parses it again. A revisit has
    no body at all, and `duplicate` says where to find it. Task, lease, depth and how the page was found are not in a
    WARC; the node's journal has them.
    """
    for member in members(path, offset, head_bytes_max=1 << 62):
        record = parse_record(member)
        if record is None or record.kind not in CAPTURE_TYPES:
            break
        return _capture(record, path.name, member)
    raise StorageError(f"There is no readable capture at byte {offset} of {path}.")


def _capture(record: Record, filename: str, member: Member) -> Capture:
    fields = record.fields
    url = fields.get("warc-target-uri", "")
    host = host_of(url)
    block, _, body = record.block.partition(b"\r\n\r\n")
    headers = header_fields(block)
    return Capture(
        url=url,
        host=host,
        domain=domain_of(host),
        depth=0,
        found_on="",
        redirects=(),
        fetched=parse_warc_date(fields.get("warc-date", "")),
        duration_s=0.0,
        status=status_of(block),
        protocol=fields.get("warc-protocol", ""),
        ip=fields.get("warc-ip-address", ""),
        request_headers=b"",
        response_headers=block + b"\r\n\r\n",
        body_raw=body,
        body=b"",
        headers=headers,
        truncated=_truncated(fields, headers),
        duplicate=_refers_to(fields),
        record_id=fields.get("warc-record-id", "").strip("<>"),
        warc_filename=filename,
        warc_offset=member.offset,
        warc_length=member.length,
    )


def _truncated(fields: dict[str, str], headers: dict[str, str]) -> str:
    """Why the body is incomplete; empty if it is complete, also when header fields were left out (`block.is_cut`)."""
    reason = fields.get("warc-truncated", "")
    return "" if reason == LENGTH and CUT_FIELD.lower() in headers else reason


def _refers_to(fields: dict[str, str]) -> Duplicate | None:
    if fields.get("warc-type") != "revisit":
        return None
    when = parse_warc_date(fields.get("warc-refers-to-date", ""))
    return Duplicate(fields.get("warc-refers-to-target-uri", ""), when, fields.get("warc-refers-to", "").strip("<>"))


def parse_warc_date(text: str) -> float:
    """Seconds since the epoch; 0 when the text is not a date."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
