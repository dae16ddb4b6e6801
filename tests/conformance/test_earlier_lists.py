"""A frontier that an earlier version wrote without lists of dead letters is listed when it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance.base import settled, settlement, urls_of
from drumlin.engines.rocksdb.engine import RocksEngine
from drumlin.engines.rocksdb.layout import decode_shard, encode
from drumlin.engines.rocksdb.letters import COUNTED, LARGEST, LISTED
from drumlin.engines.rocksdb.storage import Storage
from drumlin.model import DeadGroup, DeadLetter, FailureKind, HostState, TaskState

HOSTS = 40
DEAD_EACH = 30
Lists = tuple[list[DeadLetter], list[DeadGroup], list[HostState]]


def fill(engine: BlockingEngine) -> None:
    """Hosts with three URLs, each of which was given up."""
    hosts = [f"h{number}.example" for number in range(HOSTS)]
    for host in hosts:
        shard = engine.shard_of(host)
        engine.add(shard, [urls_of(host, *range(DEAD_EACH))], 100.0)
        limits: dict[str, Any] = {"until": 200.0, "hosts_max": 1, "urls_max": 99, "urls_per_host": 99}
        (lease,) = engine.lease(shard, "node", host, 100.0, only_hosts=[host], **limits)
        kinds = (FailureKind.DNS, FailureKind.TLS, FailureKind.TLS)
        parts = [
            settled(task, b"1", TaskState.DEAD, kind=kinds[number % len(kinds)])
            for number, task in enumerate(lease.tasks)
        ]
        engine.settle(shard, [settlement(lease, *parts, release=True)], 101.0)


def lists(engine: BlockingEngine) -> Lists:
    groups = engine.dead_groups_all(kind=FailureKind.TLS, limit=9)
    return engine.dead_letters_all(limit=2_000), groups, engine.find_hosts_all("h1", limit=99)


def check_changes(engine: BlockingEngine, letters: list[DeadLetter]) -> None:
    """What was listed can be taken from the lists again."""
    url, host = letters[0].url, letters[0].host
    assert engine.revive(engine.shard_of(host), [url], 300.0) == 1
    assert engine.dead_letters_all(limit=2_000) == letters[1:]


def test_rocksdb_lists_the_letters_of_an_earlier_version(tmp_path: Path) -> None:
    path = str(tmp_path / "engine")
    engine = open_blocking(f"rocksdb:{path}", shard_count=2)
    fill(engine)
    expected = lists(engine)
    assert len(expected[0]) == HOSTS * DEAD_EACH
    engine.close()
    storage = Storage(path, sync=False)
    meta = storage.families["meta"]
    for shard in (b"\0\0", b"\0\1"):
        for prefix in (LISTED, COUNTED, LARGEST):
            for key, _ in list(storage.scan("meta", prefix + shard)):
                meta.delete(key)
        record = decode_shard(storage.read("meta", b"shard" + shard))
        record.listed, record.ready, record.ready_until = False, 0, -1.0
        meta.put(b"shard" + shard, encode(record))
    storage.close()
    looking = BlockingEngine(RocksEngine(path, read_only=True))
    assert lists(looking) == expected
    looking.close()
    again = open_blocking(f"rocksdb:{path}")
    assert lists(again) == expected
    check_changes(again, expected[0])
    again.close()
