"""One WARC file while it is written: captures first, then, as the coordinator answers, whether each of them counts.

A capture is written before anybody knows whether it counts. Once that is known, it gets either a line in the index or a
record in the same file that marks it as surplus. The file is finished and gets its final name when it takes no further
captures and all that it holds are settled. So the index of a finished file can be made again from the file alone: it
lists every capture without a mark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from isal import igzip_lib
from xxhash import xxh3_128_intdigest

from drumlin.disk import OPEN_SUFFIX, AppendFile, replace
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, sort_open_index
from drumlin.store.warc.records import RecordBuilder, uuid_urn

WARC_SUFFIX: Final = ".warc.gz"

_GZIP: Final = igzip_lib.COMP_GZIP


class StoredCapture(NamedTuple):
    """A capture that is in a WARC file and not settled: its line for the index in case it counts, and what its mark
    needs in case it does not."""

    file: WarcFile
    line: bytes
    url: str
    record_id: str
    date: str


class WarcFile:
    """A WARC file and its open index, both new. `waiting` counts captures that are not settled."""

    def __init__(
        self, directory: Path, name: str, fields: Mapping[str, str], now: float, *, level: int, sync: bool
    ) -> None:
        self.name = name
        self.captures = 0
        self.waiting = 0
        self.builder = RecordBuilder(uuid_urn(xxh3_128_intdigest(f"{name} {now!r}".encode())))
        self._directory = directory
        self._level = level
        self._sync = sync
        self._stem = directory / name.removesuffix(WARC_SUFFIX)
        self._file = AppendFile(directory / (name + OPEN_SUFFIX), sync=sync)
        try:
            self._file.append(self.compressed(self.builder.warcinfo(name, now, fields)))
            # The index is not synced with every append: as long as a journal has the answers, it can be made again.
            self._index = AppendFile(self._stem.with_name(self._stem.name + CDXJ_SUFFIX + OPEN_SUFFIX))
        except BaseException:
            self._file.close()
            os.unlink(self._file.path)
            raise

    @property
    def size(self) -> int:
        return self._file.size

    def compressed(self, record: bytes) -> bytes:
        member: bytes = igzip_lib.compress(record, self._level, _GZIP)
        return member

    def append(self, members: Sequence[bytes], captures: int) -> None:
        """Write the compressed records of so many captures with one system call."""
        self._file.append(b"".join(members))
        self.captures += captures
        self.waiting += captures

    def settle(self, counted: Sequence[StoredCapture], surplus: Sequence[StoredCapture]) -> None:
        """Put the captures that counted into the index, and mark the others."""
        if surplus:
            marks = [self.builder.surplus(one.record_id, one.url, one.date) for one in surplus]
            self._file.append(b"".join(map(self.compressed, marks)))
        if counted:
            self._index.append(b"".join([one.line for one in counted]))
        self.waiting -= len(counted) + len(surplus)

    def sync_index(self) -> None:
        self._index.sync()

    def finish(self) -> None:
        """Sort the index and give both files their final names."""
        self.close()
        index = self._stem.with_name(self._stem.name + CDXJ_SUFFIX)
        sort_open_index(self._index.path, index, sync=self._sync)
        replace(self._file.path, self._directory / self.name, sync=self._sync)

    def close(self) -> None:
        """Close the files as they are."""
        self._file.close()
        self._index.close()
