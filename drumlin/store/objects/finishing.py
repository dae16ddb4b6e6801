"""The last step of a crawl whose store is in a bucket: the indexes of all WARC files are merged into one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from drumlin.disk import scratch_folder
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.contents import Item
from drumlin.store.warc.cdxj import merge

READ_AT_ONCE: Final = 8
INDEX_BYTES_MAX: Final = 16 * 1024**3

log = logging.getLogger("drumlin.store")


def merged_index(bucket: Bucket, indexes: Sequence[Item], folder: Path, keep: Callable[[Path], None]) -> None:
    """Merge these indexes, in a folder of this machine, and hand the merged one to `keep`. One whose object is missing
    is left out: `drumlin store check` tells of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder) as parts:
        with ThreadPoolExecutor(READ_AT_ONCE) as pool:
            fetched = {
                item.path: pool.submit(bucket.fetch, item.name, parts / Path(item.path).name, INDEX_BYTES_MAX)
                for item in indexes
            }
            for path, one in fetched.items():
                try:
                    one.result()
                except FileNotFoundError:
                    log.warning("the merged index lacks %s: its object is missing; see `drumlin store check`", path)
        keep(merge(parts))
