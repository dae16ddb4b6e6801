"""Reads one capture out of a store, also out of a WARC file that still grows."""

from __future__ import annotations

from drumlin.disk import OPEN_SUFFIX
from drumlin.model import Capture
from drumlin.store.files import StoreFiles
from drumlin.store.names import node_of_warc
from drumlin.store.warc.file import WARC_SUFFIX
from drumlin.store.warc.reader import capture_in


def stored_capture(files: StoreFiles, filename: str, offset: int, bytes_max: int) -> Capture:
    """The capture at this place of a WARC file, without what it has beyond `bytes_max`. `OSError` if the file cannot be
    read, `StorageError` if there is no capture."""
    if not node_of_warc(filename.removesuffix(WARC_SUFFIX)):
        # Names come from tables, which nodes write: no other file may be meant.
        raise FileNotFoundError(f"{filename!r} is not the name of a WARC file.")
    # A file that still grows may get its final name between the two tries, so that name is tried again.
    for name in (filename, filename + OPEN_SUFFIX):
        try:
            with files.open(f"warc/{name}") as file:
                return capture_in(file, filename, offset, bytes_max)
        except FileNotFoundError:
            continue
    with files.open(f"warc/{filename}") as file:
        return capture_in(file, filename, offset, bytes_max)
