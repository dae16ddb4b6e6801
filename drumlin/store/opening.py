"""Opens a store by what the user calls it: a directory, or `s3://BUCKET/PREFIX`.

The directory of a crawl whose store is in a bucket has a file with its address, so a crawl that is started again goes
on there, and those who look at it find what it has stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from drumlin.disk import write_whole
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.objects.address import is_objects, parse_address

if TYPE_CHECKING:
    from drumlin.store.objects.files import ObjectFiles

STORE_NAME: Final = "store.address"


def store_address(folder: Path) -> str:
    """The address of the store of the crawl in this directory, if it is in a bucket; otherwise empty."""
    path = folder / STORE_NAME
    return path.read_text().strip() if path.exists() else ""


def note_address(folder: Path, address: str) -> None:
    """Note where the crawl in this directory stores."""
    write_whole(folder / STORE_NAME, address.encode())


def open_store(store: str | Path, by: str = "drumlin") -> StoreFiles:
    """The files of a store. `by` is the name of this process, for a store that notes who wrote what."""
    if not is_objects(str(store)):
        return DirectoryFiles(Path(store).absolute())
    # It loads a library that only stores in a bucket need.
    from drumlin.store.objects.files import ObjectFiles

    return ObjectFiles.open_at(parse_address(str(store)), by)


def in_bucket(files: StoreFiles | None) -> ObjectFiles | None:
    """The files of a store, if it is in a bucket."""
    if files is None or isinstance(files, DirectoryFiles):
        return None
    from drumlin.store.objects.files import ObjectFiles

    return files if isinstance(files, ObjectFiles) else None
