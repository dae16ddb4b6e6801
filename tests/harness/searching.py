"""Searches everything that a crawl has kept for a name, after decompression."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
from rocksdict import AccessType, Options, Rdict

from drumlin.fetch.decode import decode
from drumlin.http.headers import header_fields
from drumlin.store.warc.reader import members, parse_record
from tests.harness.redis import RedisServer

FRONTIER = "frontier"
WARC = ".warc.gz"


def found_in(folder: Path, name: str) -> dict[str, int]:
    """How many records of WARC files, rows of tables, and other things name it, by kind. Files of databases are
    searched both as they lie on the disk and through the database."""
    found = {"warc": 0, "pages": 0, "links": 0, "fetches": 0, "frontier": 0, "raw": 0}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        content = path.read_bytes()
        if WARC in path.name:
            found["warc"] += sum(name.encode() in record for record in _records(path))
        elif path.suffix == ".parquet":
            found[path.parent.name] += sum(name in repr(row) for row in pq.read_table(path).to_pylist())
        elif name.encode() in content:
            found["raw"] += 1
    for database in [path.parent for path in folder.rglob("CURRENT")]:
        found["frontier"] += sum(name.encode() in entry for entry in _entries(database))
    return found


def _records(path: Path) -> Iterator[bytes]:
    """Each record of a WARC file, with its body also without its content encoding."""
    end = 0
    for member in members(path, 0, 1 << 62):
        record = parse_record(member)
        assert record is not None, path
        head, _, body = record.block.partition(b"\r\n\r\n")
        encoding = header_fields(head).get("content-encoding", "") if record.kind == "response" else ""
        yield member.head + (decode(body, encoding, 1 << 30) if encoding else b"")
        end = member.offset + member.length
    assert end == path.stat().st_size or path.suffix == ".open", path


def _entries(database: Path) -> Iterator[bytes]:
    families = Rdict.list_cf(str(database), Options(raw_mode=True))
    opened = Rdict(
        str(database),
        Options(raw_mode=True),
        {family: Options(raw_mode=True) for family in families},
        AccessType.read_only(),
    )
    for family in families:
        for key, value in opened.get_column_family(family).items():
            yield cast("bytes", key) + b" " + cast("bytes", value)
    opened.close()


def in_redis(server: RedisServer, name: str) -> list[bytes]:
    """The keys on a Redis server whose names or values name it."""
    keys, cursor = set[bytes](), b"0"
    while True:
        cursor, some = server.command("SCAN", cursor, "COUNT", 1000)
        keys.update(some)
        if cursor == b"0":
            return sorted(key for key in keys if name.encode() in key + b" " + _value(server, key))


def _value(server: RedisServer, key: bytes) -> bytes:
    readers: dict[bytes, tuple[str | bytes | int, ...]] = {
        b"string": ("GET", key),
        b"hash": ("HGETALL", key),
        b"list": ("LRANGE", key, 0, -1),
        b"set": ("SMEMBERS", key),
        b"zset": ("ZRANGE", key, 0, -1),
    }
    found = server.command(*readers[server.command("TYPE", key)])
    if isinstance(found, bytes):
        return found
    # The members of a set of integers are told as numbers.
    return b" ".join(b"%d" % one if isinstance(one, int) else one for one in found)
