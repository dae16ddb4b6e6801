"""Writes WARC files: one gzip member per record, appended in batches, rotated by size.

A file is `NAME.warc.gz.open` while it grows and becomes `NAME.warc.gz` when it is complete; its index likewise. Each
capture is a request record followed by its response (or revisit) record. After a kill, `repair` drops the torn tail, so
a file always ends after a complete capture.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from isal import igzip_lib

from drumlin.disk import OPEN_SUFFIX, storage_error
from drumlin.errors import ConfigError, StorageError
from drumlin.model import Capture
from drumlin.store.warc.cdxj import REVISIT_MIME, index_line, mime_of
from drumlin.store.warc.file import WARC_SUFFIX, StoredCapture, WarcFile
from drumlin.store.warc.records import is_revisit, payload_digest, record_id_of, warc_date

ROTATE_BYTES: Final = 1_000_000_000
CAPTURES_PER_FILE_MAX: Final = 200_000
"""A WARC of tiny pages is rotated early, because sorting its index takes about 350 bytes of memory a capture."""
BATCH_BYTES_MAX: Final = 32_000_000
"""A batch of large bodies is written in pieces of about this size."""
SERIAL_MAX: Final = 99_999
WRITER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""What may stand in file names: a node's name, or the longer one of a segment that a coordinator writes."""

_REQUEST_LEVEL: Final = 0
_GZIP: Final = igzip_lib.COMP_GZIP
_compress = igzip_lib.compress


class _Placed(NamedTuple):
    """A capture and where its record will be once its batch is written."""

    capture: Capture
    digest: str
    offset: int
    length: int


class WarcWriter:
    """The WARC files of one node. Not shared between threads or processes."""

    def __init__(
        self,
        directory: Path,
        node: str,
        *,
        software: str,
        info: Mapping[str, str],
        now: float,
        rotate_bytes: int = ROTATE_BYTES,
        level: int = 1,
        sync: bool = False,
    ) -> None:
        if not WRITER_NAME.fullmatch(node):
            raise ConfigError(
                f"{node!r} cannot be a node's name.", "Use letters, digits, dots, hyphens and underscores."
            )
        self._directory = directory
        self._node = node
        self._fields = {"software": software, "format": "WARC File Format 1.1", **info}
        self._rotate_bytes = rotate_bytes
        self._level = level
        self._sync = sync
        self._serial = 0
        self._now = now
        self._file: WarcFile | None = None
        self._ending: list[WarcFile] = []
        """Files that take no further captures, but hold some that are not settled."""
        self.filename = ""
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise storage_error(directory, cause) from cause

    def store(self, captures: Sequence[Capture]) -> list[StoredCapture]:
        """Store captures and note in each where it is. Call `settle` later to say whether they count.

        When this returns, the records are safe from the death of the process (from a power cut with `sync`). When it
        raises `StorageError`, the file ends where it did before the piece that failed, and captures of that piece
        and later ones are unchanged but for their `record_id`.
        """
        stored: list[StoredCapture] = []
        while len(stored) < len(captures):
            stored += self._append_piece(captures[len(stored) :] if stored else captures)
        return stored

    def settle(self, stored: Sequence[StoredCapture], surplus: Collection[int] = ()) -> None:
        """Index the captures of a batch that count, and mark those whose places in the batch are in `surplus`."""
        for file in dict.fromkeys(one.file for one in stored):
            mine = [(place, one) for place, one in enumerate(stored) if one.file is file]
            counted = [one for place, one in mine if place not in surplus]
            file.settle(counted, [one for place, one in mine if place in surplus] if surplus else [])
            if file in self._ending:
                self._finish_if_settled(file)

    def end_file(self) -> None:
        """Let the next capture begin another file. This one is finished as soon as all its captures are settled."""
        file, self._file = self._file, None
        if file is not None:
            self._ending.append(file)
            self._finish_if_settled(file)

    def _finish_if_settled(self, file: WarcFile) -> None:
        if not file.waiting:
            file.finish()
            self._ending.remove(file)

    def sync_index(self) -> None:
        """With `sync`: make index lines survive a power cut, so the journal of their captures may be deleted."""
        if self._sync:
            for file in [*self._ending, *([self._file] if self._file is not None else [])]:
                file.sync_index()

    def close(self) -> None:
        """Finish the files whose captures are all settled. Others keep the suffix `.open` and are left to `repair`.
        Closing twice, or before anything was written, does nothing."""
        self.end_file()
        for file in self._ending:
            file.close()
        self._ending.clear()

    def _append_piece(self, captures: Sequence[Capture]) -> list[StoredCapture]:
        """Write as many captures as fit in one piece."""
        self._now = max(self._now, captures[0].fetched)
        file = self._open_file()
        members: list[bytes] = []
        placed: list[_Placed] = []
        end = file.size
        limit = min(self._rotate_bytes, end + BATCH_BYTES_MAX)
        for capture in captures:
            request, response, digest = self._members(file, capture)
            placed.append(_Placed(capture, digest, end + len(request), len(response)))
            members += (request, response)
            end += len(request) + len(response)
            if end >= limit:
                break
        file.append(members, len(placed))
        return [_stored(file, *place) for place in placed]

    def _members(self, file: WarcFile, capture: Capture) -> tuple[bytes, bytes, str]:
        if not capture.record_id:
            capture.record_id = record_id_of(capture)
        digest = payload_digest(capture)
        response = file.compressed(file.builder.response(capture, digest))
        if not capture.request_headers:
            return b"", response, digest
        return _compress(file.builder.request(capture), _REQUEST_LEVEL, _GZIP), response, digest

    def _open_file(self) -> WarcFile:
        """The file to append to; a new one if there is none or it is full."""
        file = self._file
        if file is not None and file.size < self._rotate_bytes and file.captures < CAPTURES_PER_FILE_MAX:
            return file
        self.end_file()
        self.filename = self._next_name()
        self._file = WarcFile(
            self._directory, self.filename, self._fields, self._now, level=self._level, sync=self._sync
        )
        return self._file

    def _next_name(self) -> str:
        """A name like Heritrix's: prefix, time to the millisecond, serial number, node. Never one that is taken."""
        seconds, millis = divmod(int(self._now * 1_000), 1_000)
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds))
        for _ in range(SERIAL_MAX):
            self._serial = self._serial % SERIAL_MAX + 1
            name = f"drumlin-{stamp}{millis:03d}-{self._serial:05d}-{self._node}{WARC_SUFFIX}"
            taken = self._directory / name
            if not taken.exists() and not taken.with_name(name + OPEN_SUFFIX).exists():
                return name
        raise StorageError(f"Cannot name another WARC file in {self._directory}: every serial number is taken.")


def _stored(file: WarcFile, capture: Capture, digest: str, offset: int, length: int) -> StoredCapture:
    """Note in a capture where it is, and return what settling it will need."""
    capture.warc_filename, capture.warc_offset, capture.warc_length = file.name, offset, length
    mime = REVISIT_MIME if is_revisit(capture) else mime_of(capture.headers.get("content-type", ""))
    date = warc_date(capture.fetched)
    line = index_line(capture.url, date, mime, capture.status, digest, length, offset, file.name)
    return StoredCapture(file, line, capture.url, capture.record_id, date)
