"""Creates a frontier in RocksDB, or says how one that exists was founded."""

from __future__ import annotations

from rocksdict import WriteBatch

from drumlin.engines.base import SHARD_COUNT_DEFAULT
from drumlin.engines.rocksdb.layout import FORMAT, FORMAT_SHORT
from drumlin.engines.rocksdb.storage import Storage
from drumlin.errors import EngineError


def found_frontier(storage: Storage, shard_count: int | None) -> tuple[int, bool]:
    """Check that this version can read the frontier, and return how many shards it has and whether URLs may be known by
    short marks only. A new frontier is founded with `shard_count` shards."""
    found, shards = storage.get("meta", b"format"), storage.get("meta", b"shard_count")
    if found is None or shards is None:
        wanted = shard_count or SHARD_COUNT_DEFAULT
        batch = WriteBatch(raw_mode=True)
        batch.put(b"format", FORMAT, storage.handles["meta"])
        batch.put(b"shard_count", str(wanted).encode(), storage.handles["meta"])
        storage.write(batch)
        return wanted, False
    if found not in (FORMAT, FORMAT_SHORT):
        raise EngineError(
            f"The crawl is of format {found.decode()}, and this version reads {FORMAT.decode()} and"
            f" {FORMAT_SHORT.decode()}.",
            "Resume it with the version that began it.",
        )
    return int(shards), found == FORMAT_SHORT
