"""Reads one capture out of a store, also out of a WARC file that still grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from isal import isal_zlib

from drumlin.disk import OPEN_SUFFIX
from drumlin.errors import StorageError
from drumlin.model import Capture
from drumlin.store.files import StoreFiles
from drumlin.store.names import node_of_warc
from drumlin.store.warc.file import WARC_SUFFIX
from drumlin.store.warc.reader import capture_in

PIECE_BYTES: Final = 128 * 1024
UNPACKED_BYTES_MAX: Final = 1024 * 1024
"""How much of a record is unpacked at a time, whatever a stranger has packed into it."""
_GZIP_WINDOW: Final = 31


def stored_capture(files: StoreFiles, filename: str, offset: int, bytes_max: int) -> Capture:
    """The capture at this place of a WARC file, without what it has beyond `bytes_max`. `OSError` if the file cannot be
    read, `StorageError` if there is no capture."""
    with opened_warc(files, filename) as file:
        return capture_in(file, filename, offset, bytes_max)


def opened_warc(files: StoreFiles, filename: str) -> BinaryIO:
    """A WARC file to read from, also one that still grows."""
    if not node_of_warc(filename.removesuffix(WARC_SUFFIX)):
        # Names come from tables, which nodes write: no other file may be meant.
        raise FileNotFoundError(f"{filename!r} is not the name of a WARC file.")
    # A file that still grows may get its final name between the two tries, so that name is tried again.
    for name in (filename, filename + OPEN_SUFFIX):
        try:
            return files.open(f"warc/{name}")
        except FileNotFoundError:
            continue
    return files.open(f"warc/{filename}")


def record_pieces(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """The record at this place of a WARC file as it is stored, compressed, a piece at a time: a WARC file by itself.
    What it unpacks to is thrown away; it only tells where the record ends."""
    file.seek(offset)
    decompressor = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    ended = False
    while not ended and (piece := file.read(PIECE_BYTES)):
        waiting = piece
        try:
            full = True
            while (waiting or full) and not ended:
                full = len(decompressor.decompress(waiting, UNPACKED_BYTES_MAX)) == UNPACKED_BYTES_MAX
                waiting, ended = decompressor.unconsumed_tail, decompressor.eof
        except isal_zlib.error as wrong:  # type: ignore[misc]  # its stub calls the class an instance
            raise StorageError(f"The record at byte {offset} cannot be read.") from wrong
        yield piece[: len(piece) - len(decompressor.unused_data)] if ended else piece
    if not ended:
        raise StorageError(f"The record at byte {offset} is not complete.")
