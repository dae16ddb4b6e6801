"""Writing WARC files: one gzip member per record, appended in batches, rotated by size.

A file is `NAME.warc.gz.open` while it grows and becomes `NAME.warc.gz` when it is closed; its index likewise. Each
capture is a request record followed by its response (or revisit) record, so whatever a kill cuts off ends after a
response once `repair` has dropped the torn tail.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from isal import igzip_lib
from xxhash import xxh3_128_intdigest

from drumlin.errors import ConfigError, StorageError
from drumlin.model import Capture
from drumlin.store.cdxj import CDXJ_SUFFIX, REVISIT_MIME, index_line, mime_of, sort_open_index
from drumlin.store.disk import OPEN_SUFFIX, AppendFile, replace, storage_error
from drumlin.store.records import (
    TRUNCATED_REASONS,
    RecordBuilder,
    is_revisit,
    payload_digest,
    record_id_of,
    uuid_urn,
    warc_date,
)

WARC_SUFFIX: Final = ".warc.gz"
ROTATE_BYTES: Final = 1_000_000_000
CAPTURES_PER_FILE_MAX: Final = 200_000
"""A WARC of tiny pages is rotated early, so that sorting its index stays small (about 350 bytes a line)."""
BATCH_BYTES_MAX: Final = 32_000_000
"""A batch of large bodies is written in pieces of about this size."""
SERIAL_MAX: Final = 99_999
NODE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""What may stand in file names."""

_REQUEST_LEVEL: Final = 0
_GZIP: Final = igzip_lib.COMP_GZIP
_compress = igzip_lib.compress


class _Placed(NamedTuple):
    """Where a capture's record will be once its batch is written."""

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
        if not NODE_NAME.fullmatch(node):
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
        self._captures = 0
        self._now = now
        self._file: AppendFile | None = None
        self._index: AppendFile | None = None
        self._builder = RecordBuilder("")
        self.filename = ""
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise storage_error(directory, cause) from cause

    def append(self, captures: Sequence[Capture], truncated: Mapping[str, str] | None = None) -> None:
        """Store captures and note in each where it went; `truncated` says for a URL why its body was cut short.

        When this returns, the records are safe from the death of the process (from a power cut with `sync`). When it
        raises `StorageError`, the file ends where it did before the piece that failed, and captures of that piece
        and later ones are unchanged but for their `record_id`.
        """
        start = 0
        while start < len(captures):
            start += self._append_piece(captures[start:] if start else captures, truncated or {})

    def close(self) -> None:
        """Finish the current file and its index. Closing twice, or before anything was written, does nothing."""
        file, index = self._file, self._index
        if file is None or index is None:
            return
        file.close()
        index.close()
        self._file = self._index = None
        stem = self._directory / self.filename.removesuffix(WARC_SUFFIX)
        sort_open_index(index.path, stem.with_name(stem.name + CDXJ_SUFFIX), sync=self._sync)
        replace(file.path, self._directory / self.filename, sync=self._sync)

    def _append_piece(self, captures: Sequence[Capture], truncated: Mapping[str, str]) -> int:
        """Write as many captures as fit in one piece, and say how many."""
        self._now = max(self._now, captures[0].fetched)
        file = self._open_file()
        members: list[bytes] = []
        placed: list[_Placed] = []
        end = file.size
        limit = min(self._rotate_bytes, end + BATCH_BYTES_MAX)
        for capture in captures:
            request, response, digest = self._members(capture, truncated)
            placed.append(_Placed(capture, digest, end + len(request), len(response)))
            members += (request, response)
            end += len(request) + len(response)
            if end >= limit:
                break
        self._write(file, members, placed)
        return len(placed)

    def _members(self, capture: Capture, truncated: Mapping[str, str]) -> tuple[bytes, bytes, str]:
        if not capture.record_id:
            capture.record_id = record_id_of(capture)
        digest = payload_digest(capture)
        reason = truncated.get(capture.url, "") if truncated else ""
        if reason and reason not in TRUNCATED_REASONS:
            reason = "unspecified"
        response = _compress(self._builder.response(capture, digest, reason), self._level, _GZIP)
        if not capture.request_headers:
            return b"", response, digest
        return _compress(self._builder.request(capture), _REQUEST_LEVEL, _GZIP), response, digest

    def _write(self, file: AppendFile, members: list[bytes], placed: list[_Placed]) -> None:
        """Write a piece and its index lines, or neither; then tell each capture where it is."""
        before = file.size
        lines = [self._line(*place) for place in placed]
        file.append(b"".join(members))
        try:
            if self._index is not None:
                self._index.append(b"".join(lines))
        except BaseException:
            file.cut(before)
            raise
        for capture, _, offset, length in placed:
            capture.warc_filename, capture.warc_offset, capture.warc_length = self.filename, offset, length
        self._captures += len(placed)

    def _line(self, capture: Capture, digest: str, offset: int, length: int) -> bytes:
        mime = REVISIT_MIME if is_revisit(capture) else mime_of(capture.headers.get("content-type", ""))
        date = warc_date(capture.fetched)
        return index_line(capture.url, date, mime, capture.status, digest, length, offset, self.filename)

    def _open_file(self) -> AppendFile:
        """The file to append to, a new one when there is none or it is full."""
        file = self._file
        if file is not None and file.size < self._rotate_bytes and self._captures < CAPTURES_PER_FILE_MAX:
            return file
        self.close()
        return self._start_file()

    def _start_file(self) -> AppendFile:
        self.filename = self._next_name()
        path = self._directory / (self.filename + OPEN_SUFFIX)
        file = AppendFile(path, sync=self._sync)
        warcinfo_id = uuid_urn(xxh3_128_intdigest(f"{self.filename} {self._now!r}".encode()))
        self._builder = RecordBuilder(warcinfo_id)
        try:
            file.append(_compress(self._builder.warcinfo(self.filename, self._now, self._fields), self._level, _GZIP))
            stem = self.filename.removesuffix(WARC_SUFFIX)
            self._index = AppendFile(self._directory / (stem + CDXJ_SUFFIX + OPEN_SUFFIX), sync=False)
        except BaseException:
            file.close()
            os.unlink(path)
            raise
        self._file = file
        self._captures = 0
        return file

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
