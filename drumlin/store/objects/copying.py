"""Copies the tables of a store of objects to this machine, for a reader that can reach no network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from drumlin.store.objects.contents import Item
from drumlin.store.objects.files import ObjectFiles
from drumlin.store.tables.schema import COLUMNS

COPIED_AT_ONCE: Final = 8


class TooLarge(Exception):
    """The tables have more bytes than may be copied; its argument is how many."""


def copy_tables(files: ObjectFiles, folder: Path, bytes_max: int, is_awaited: Callable[[], bool]) -> None:
    """Copy all tables, as they are now, into a new folder. Raises `TooLarge`; what is not awaited any more is left
    out."""
    contents = files.manifest.contents()
    items = [item for table in COLUMNS for item in contents.folder(f"tables/{table}").values()]
    size = sum(item.bytes for item in items)
    if size > bytes_max:
        raise TooLarge(size)
    for table in COLUMNS:
        (folder / "tables" / table).mkdir(parents=True)

    def fetch(item: Item) -> None:
        if is_awaited():
            files.fetch_item(item, folder / item.path)

    with ThreadPoolExecutor(COPIED_AT_ONCE) as pool:
        list(pool.map(fetch, items))
