"""Opens RocksDB with a fixed amount of memory, reads and writes it, and translates its errors.

Resident memory does not depend on the frontier's size: data, index and filter blocks share one cache, and all
column families share one budget of write buffers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    ColumnFamily,
    CompactOptions,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from drumlin.engines.rocksdb.layout import FAMILIES
from drumlin.errors import BusyError, Cause, DrumlinError, EngineError, StorageError

BLOCK_CACHE_BYTES = 96 << 20
WRITE_BUFFERS_BYTES = 64 << 20
WRITE_BUFFER_BYTES = 16 << 20
WRITE_BUFFER_FILTER_SHARE = 0.1
FLUSHES_PER_COMPACTION = 8
BLOCK_BYTES = 8 << 10
METADATA_BLOCK_BYTES = 16 << 10
BLOB_BYTES_MIN = 64
# The oldest share of the blob files that is rewritten to win back the space of done tasks. A larger share would make
# that work many times as much.
BLOB_COLLECTED_SHARE = 0.05
BLOOM_BITS_PER_KEY = 10
WAL_BYTES_MAX = 256 << 20
OPEN_FILES_MAX = 512
BACKGROUND_JOBS_MAX = 2
LOG_FILES_KEPT = 2
LOG_FILE_BYTES_MAX = 1 << 20
SETTINGS_NAME = "rocksdict-config.json"
LOG_PREFIX = "LOG"
"""How the names of RocksDB's log files begin. (The name of its lock file is `LOCK`, which does not begin so.)"""
LOCKED_SIGNS = ("Resource temporarily unavailable", "lock hold by current process")


def _database_options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_max_background_jobs(BACKGROUND_JOBS_MAX)
    options.set_keep_log_file_num(LOG_FILES_KEPT)
    options.set_max_log_file_size(LOG_FILE_BYTES_MAX)
    options.set_write_buffer_manager(WriteBufferManager(WRITE_BUFFERS_BYTES, False))
    return options


def _family_options(family: str, cache: Cache) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(BLOCK_BYTES)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    # One filter for a whole file would be larger than a slice of the cache, and so be read from disk for each look-up.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(METADATA_BLOCK_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_level_zero_file_num_compaction_trigger(FLUSHES_PER_COMPACTION)
    # Most look-ups are of keys that were written lately or never. A filter over the write buffer answers the latter.
    options.set_memtable_prefix_bloom_ratio(WRITE_BUFFER_FILTER_SHARE)
    options.set_memtable_whole_key_filtering(True)
    if family in ("seen", "queue"):
        # These two grow. Merging runs of similar size rewrites an entry half as often as merging into one large level.
        options.set_compaction_style(DBCompactionStyle.universal())
    # Hashes do not compress.
    options.set_compression_type(DBCompressionType.none() if family == "seen" else DBCompressionType.lz4())
    if family == "queue":
        # Tasks lie in blob files, so compaction rewrites only their keys. Otherwise compaction would be most of the
        # cost of a page once the queue holds millions of tasks.
        options.set_enable_blob_files(True)
        options.set_min_blob_size(BLOB_BYTES_MIN)
        options.set_enable_blob_gc(True)
        options.set_blob_gc_age_cutoff(BLOB_COLLECTED_SHARE)
    return options


@contextmanager
def translated() -> Iterator[None]:
    """Turn what RocksDB raises, which is a plain `Exception` with a text, into drumlin's errors."""
    try:
        yield
    except DrumlinError:
        raise
    except Exception as error:
        raise translate(error) from error


def translate(error: BaseException) -> BaseException:
    """The drumlin error for one of RocksDB's; exceptions of other types are returned as they are."""
    text = str(error).rstrip(".")
    if type(error) is not Exception:
        return error
    if any(sign in text for sign in LOCKED_SIGNS):
        return BusyError("The crawl's queue is in use by another process.", "Stop it, or use another directory.")
    if "No space left on device" in text:
        hint = "Free some space and run the same command again: it resumes."
        return StorageError("The crawl's queue cannot be written: the disk is full.", hint, code=Cause.DISK_FULL)
    if text.startswith("IO error") or "(os error" in text:
        return StorageError(f"The crawl's queue cannot be read or written: {text}.")
    if text.startswith("Corruption"):
        hint = "Stored pages are safe; restore the folder `frontier` from a copy, or crawl into another directory."
        return EngineError(f"The crawl's queue is damaged: {text}.", hint)
    return EngineError(f"The crawl's queue failed: {text}.")


class Storage:
    """The open database: column families by name, and how batches are written to them."""

    def __init__(self, path: str, *, sync: bool, read_only: bool = False) -> None:
        cache = Cache(BLOCK_CACHE_BYTES)
        families = {name: _family_options(name, cache) for name in ("default", *FAMILIES)}
        self.read_only = read_only
        access = AccessType.read_only() if read_only else AccessType.read_write()
        self._mirror = _mirror(Path(path)) if read_only else None
        try:
            with translated():
                place = path if self._mirror is None else self._mirror.name
                self.database = Rdict(place, _database_options(), families, access)
        except BaseException:
            self._remove_mirror()
            raise
        self.families: dict[str, Rdict] = {name: self.database.get_column_family(name) for name in FAMILIES}
        self.handles: dict[str, ColumnFamily] = {
            name: self.database.get_column_family_handle(name) for name in FAMILIES
        }
        self._write_options = WriteOptions()
        self._write_options.sync = sync
        # Worth it because the keys of a batch lie close together, host by host.
        self._write_options.memtable_insert_hint_per_batch = True

    def get(self, family: str, key: bytes) -> bytes | None:
        return cast("bytes | None", self.families[family].get(key))

    def get_many(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        return cast("list[bytes | None]", self.families[family].get(cast("list[Any]", keys)))

    def read(self, family: str, key: bytes) -> bytes:
        """A value that must exist, because another record refers to it."""
        value = self.get(family, key)
        if value is None:
            raise EngineError(f"The crawl's queue is damaged: {family} lacks {key!r}.")
        return value

    def scan(self, family: str, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries whose keys begin with `prefix`, in order; from the key `start` on, if that is later."""
        entries = self.families[family].items(from_key=max(prefix, start))
        for key, value in cast("Iterator[tuple[bytes, bytes]]", entries):
            if not key.startswith(prefix):
                return
            yield key, value

    def scan_back(self, family: str, prefix: bytes, before: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with `prefix` and are before another, from the last to the first."""
        entries = self.families[family].items(backwards=True, from_key=before)
        for key, value in cast("Iterator[tuple[bytes, bytes]]", entries):
            if not key.startswith(prefix):
                return
            if key < before:
                yield key, value

    def write(self, batch: WriteBatch) -> None:
        if not batch.is_empty():
            self.database.write(batch, self._write_options)

    def expunge(self) -> None:
        """Rewrite all files, so what was deleted is in none of them. Blob files, which are rewritten little by little
        otherwise, are rewritten as a whole too."""
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        for family in self.families.values():
            family.flush(True)
        self.families["queue"].set_options({"blob_garbage_collection_age_cutoff": "1.0"})
        for family in self.families.values():
            family.compact_range(None, None, options)
        share = f"{BLOB_COLLECTED_SHARE}"
        self.families["queue"].set_options({"blob_garbage_collection_age_cutoff": share})

    def at_rest(self) -> bool:
        """Whether RocksDB has nothing to do in the background."""
        busy = ("rocksdb.num-running-compactions", "rocksdb.num-running-flushes")
        due = ("rocksdb.compaction-pending", "rocksdb.mem-table-flush-pending")
        running = any(self.database.property_int_value(name) for name in busy)
        return not running and not any(
            family.property_int_value(name) for family in self.families.values() for name in due
        )

    def close(self) -> None:
        """Close the database and every column family: RocksDB releases its lock only with the last of them."""
        self.handles.clear()
        failures: list[Exception] = []
        for part in (*self.families.values(), self.database):
            # Closing writes out what only the log holds. If the disk is too full, the lock must be released anyway.
            try:
                part.close()
            except Exception as error:
                failures.append(error)
        self._remove_mirror()
        if failures:
            raise translate(failures[0]) from failures[0]

    def _remove_mirror(self) -> None:
        if self._mirror is not None:
            self._mirror.cleanup()


def _mirror(path: Path) -> TemporaryDirectory[str]:
    """A folder with links to all files of a database. RocksDB writes a file or two beside a database even when it only
    reads it, which fails when the disk is full or the folder is not ours to write."""
    mirror = TemporaryDirectory(prefix="drumlin-look-")
    for file in path.iterdir():
        place = Path(mirror.name, file.name)
        if file.name == SETTINGS_NAME:
            shutil.copyfile(file, place)
        elif not file.name.startswith(LOG_PREFIX):
            place.symlink_to(file.absolute())
    return mirror


class RocksKeyValue:
    """`drumlin.dedupe.KeyValue` over one column family."""

    def __init__(self, storage: Storage, family: str) -> None:
        self._storage = storage
        self._family = family

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with translated():
            return self._storage.get_many(self._family, keys)

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        batch = WriteBatch(raw_mode=True)
        handle = self._storage.handles[self._family]
        for key, value in pairs:
            batch.put(key, value, handle)
        with translated():
            self._storage.write(batch)

    def change(self, put: Mapping[bytes, bytes], delete: Sequence[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        handle = self._storage.handles[self._family]
        for key in delete:
            batch.delete(key, handle)
        for key, value in put.items():
            batch.put(key, value, handle)
        with translated():
            self._storage.write(batch)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with translated():
            yield from self._storage.scan(self._family, prefix)


class RocksValues:
    """`embedded.Values` in the column family `meta`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, key: str) -> bytes | None:
        with translated():
            return self._storage.get("meta", key.encode())

    def change(self, put: Mapping[str, bytes], delete: Sequence[str] = ()) -> None:
        batch = WriteBatch(raw_mode=True)
        handle = self._storage.handles["meta"]
        for key, value in put.items():
            batch.put(key.encode(), value, handle)
        for key in delete:
            batch.delete(key.encode(), handle)
        with translated():
            self._storage.write(batch)

    def scan_back(self, prefix: str, before: str) -> Iterator[tuple[str, bytes]]:
        # No text has this byte in it, so it comes after all keys.
        end = before.encode() if before else prefix.encode() + b"\xff"
        with translated():
            for key, value in self._storage.scan_back("meta", prefix.encode(), end):
                yield key.decode(), value

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        with translated():
            for key, value in self._storage.scan("meta", prefix.encode()):
                yield key.decode(), value
