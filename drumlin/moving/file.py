"""The file of an exported frontier.

    drumlin-frontier 1\\n
    frame, frame, …

A frame is a length (4 bytes), a crc32 (4 bytes) and its content, as in journals (`drumlin.store.frames`). The first
byte of the content says what it is:

| first byte | the rest of the content |
|---|---|
| `H` | JSON: `Header`. The first frame, and no other |
| number of a section | zstandard of MessagePack: a list of records of this section (`drumlin.engines.kept`) |
| `E` | JSON: `Ending`, with the number of records in each section and a hash of all frames before. The last frame |

Sections are numbered from 1 in the order of `Section`, and come in this order. A file without its ending is incomplete,
and is refused before anything is written.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import xxhash
import zstandard

from drumlin.disk import PARTIAL_SUFFIX, PRIVATE, AppendFile, remove, replace, storage_error
from drumlin.engines.kept import TYPES, Kept, Section, number_of_records
from drumlin.errors import BusyError, ConfigError, StorageError
from drumlin.store.frames import decompressed, framed, frames_in

MAGIC = b"drumlin-frontier 1\n"
MAGIC_BEGIN = b"drumlin-frontier "
LEVEL = 3
PAGE_BYTES_MAX = 256 << 20
"""How large the records of one frame may be: a file that claims more is damaged."""
_HEADER, _ENDING = b"H", b"E"
_CODES = {section: bytes((number,)) for number, section in enumerate(Section, 1)}
_SECTIONS = {code: section for section, code in _CODES.items()}
_REFUSED = "Export it again."
_Part = TypeVar("_Part")


class Header(msgspec.Struct, frozen=True):
    """What a file is of. `time` is the engine time of the crawl, `mark_bits` how much it has of URLs that are done, and
    `shards` how many shards the frontier had."""

    version: str
    made: float
    shards: int
    mark_bits: int
    time: float


class Ending(msgspec.Struct, frozen=True):
    """How many records there are of each section, and a hash of all frames."""

    records: dict[str, int]
    checksum: str


class FrontierWriter:
    """A file that grows under another name, and gets its own when it is complete. BusyError if another process is
    writing it."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._partial = path.with_name(path.name + PARTIAL_SUFFIX)
        self._lock = _locked(self._partial, path)
        self._file = AppendFile(self._partial, mode=PRIVATE, emptied=True)
        self._hash = xxhash.xxh3_128()
        self._records: Counter[str] = Counter()
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._file.append(MAGIC)
        self._write(_HEADER + msgspec.json.encode(header))

    def write(self, section: Section, records: list[Kept]) -> None:
        self._records[section] += number_of_records(records)
        self._write(_CODES[section] + self._compressor.compress(msgspec.msgpack.encode(records)))

    def _write(self, content: bytes) -> None:
        self._hash.update(content)
        self._file.append(framed(content))

    def finish(self) -> int:
        """Complete the file; returns its size."""
        self._file.append(framed(_ENDING + msgspec.json.encode(Ending(dict(self._records), self._hash.hexdigest()))))
        self._file.sync()
        self._file.close()
        replace(self._partial, self._path, sync=True)
        os.close(self._lock)
        return self._file.size

    def discard(self) -> None:
        self._file.close()
        remove(self._partial)
        os.close(self._lock)


def _locked(partial: Path, path: Path) -> int:
    """The file that is to grow, locked: what one that was killed has left is used again. Returns a descriptor."""
    while True:
        try:
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as cause:
            raise storage_error(path, cause) from cause
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(f"Another process is writing {path}.", "Wait for it, or give another name.") from None
        if partial.exists() and os.path.samestat(os.fstat(descriptor), partial.stat()):
            return descriptor
        # It got its name, or was removed, before it was locked here.
        os.close(descriptor)


class FrontierFile:
    """A file that was written before. A `ConfigError` says that it cannot be read or is something else, a
    `StorageError` that it is incomplete or damaged; nothing of it should be used before `check` has passed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = self._read_header()

    def _read_header(self) -> Header:
        for content in self._frames():
            if content[:1] == _HEADER:
                return self._decoded(content, Header)
            break
        raise StorageError(f"{self.path} is damaged: it has no beginning.", _REFUSED)

    def check(self) -> Ending:
        """Read all of it, and compare it with what its ending says."""
        hashed = xxhash.xxh3_128()
        for content in self._frames():
            if content[:1] == _ENDING:
                ending = self._decoded(content, Ending)
                if ending.checksum != hashed.hexdigest():
                    raise StorageError(f"{self.path} is damaged: its checksum differs.", _REFUSED)
                return ending
            hashed.update(content)
        raise StorageError(f"{self.path} is damaged or incomplete: it has no ending.", _REFUSED)

    def pages(self, section: Section) -> Iterator[list[Any]]:
        """The records of a section. Sections are in order, so what comes before is passed over, and what comes after is
        not read."""
        decode = msgspec.msgpack.Decoder(cast("Any", list)[TYPES[section]]).decode
        for content in self._frames():
            code = content[:1]
            if code == _CODES[section]:
                try:
                    yield decode(decompressed(content[1:], PAGE_BYTES_MAX))
                except (zstandard.ZstdError, msgspec.DecodeError, ValueError) as broken:
                    raise StorageError(f"{self.path} is damaged: {broken}.", _REFUSED) from broken
            elif code == _ENDING or (code in _SECTIONS and code > _CODES[section]):
                return

    def _decoded(self, content: bytes, kind: type[_Part]) -> _Part:
        try:
            return msgspec.json.decode(content[1:], type=kind)
        except msgspec.DecodeError as broken:
            raise StorageError(f"{self.path} is damaged: {broken}.", _REFUSED) from broken

    def _frames(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                magic = file.read(len(MAGIC))
                if magic != MAGIC:
                    raise ConfigError(*self._stranger(magic))
                size = self.path.stat().st_size - len(MAGIC)
                for content, _ in frames_in(file, size):
                    yield content
        except OSError as cause:
            hint = "Name a file that `drumlin frontier export` wrote."
            raise ConfigError(f"Cannot read {self.path}: {cause.strerror}.", hint) from cause

    def _stranger(self, magic: bytes) -> tuple[str, str]:
        if magic.startswith(MAGIC_BEGIN):
            return f"{self.path} was written by another version of drumlin.", "Use that version to import it."
        return f"{self.path} is no queue that was exported.", "Name a file that `drumlin frontier export` wrote."
