"""Frontiers that an earlier version wrote without lists of hosts and dead letters are listed when they are opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance.base import settled, settlement, urls_of
from drumlin.engines.redis.lists import LISTS_KEY
from drumlin.engines.redis.records import short_url
from drumlin.engines.rocksdb.engine import RocksEngine
from drumlin.engines.rocksdb.layout import decode_shard, encode
from drumlin.engines.rocksdb.letters import COUNTED, LARGEST, LISTED
from drumlin.engines.rocksdb.storage import Storage
from drumlin.model import DeadGroup, DeadLetter, FailureKind, HostState, TaskState
from tests.harness.redis import RedisServer, redis_server, url_of

HOSTS = 40
DEAD_EACH = 30
SHARDS = 2
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


# On Redis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as started:
        yield started


def filled(server: RedisServer) -> Lists:
    """The lists of a frontier that this version filled."""
    engine = open_blocking(url_of(server, namespace="earlier"), shard_count=SHARDS)
    fill(engine)
    found = lists(engine)
    engine.close()
    return found


def forget_letters(server: RedisServer) -> None:
    """Keep dead letters as coordinators of an earlier version do."""
    for shard in range(SHARDS):
        tag = f"{{earlier:{shard}}}"
        for number, member in enumerate(server.command("ZRANGE", f"{tag}v", 0, -1)):
            _, host, rest = member.split(b"\0", 2)
            server.command("ZADD", f"{tag}z", number, host + b"\0" + rest[6:])
        server.command("DEL", f"{tag}v", *(f"{tag}j{kind}" for kind in FailureKind))


def forget_hosts(server: RedisServer) -> None:
    for shard in range(SHARDS):
        server.command("DEL", f"{{earlier:{shard}}}m")
    server.command("HDEL", "{earlier}meta", LISTS_KEY)


def unlisted(server: RedisServer) -> int:
    return sum(server.command("ZCARD", f"{{earlier:{shard}}}z") for shard in range(SHARDS))


def coordinators(server: RedisServer) -> BlockingEngine:
    return open_blocking(url_of(server, namespace="earlier"), takes_over=True)


def test_redis_lists_the_hosts_and_letters_of_an_earlier_version(server: RedisServer) -> None:
    expected = filled(server)
    forget_letters(server)
    forget_hosts(server)
    again = coordinators(server)
    assert lists(again) == expected
    check_changes(again, expected[0])
    again.close()
    assert unlisted(server) == 0


def test_who_only_looks_leaves_the_letters_to_coordinators_of_an_earlier_version(server: RedisServer) -> None:
    filled(server)
    forget_letters(server)
    forget_hosts(server)
    open_blocking(url_of(server, namespace="earlier")).close()
    assert unlisted(server) == HOSTS * DEAD_EACH


def test_letters_that_an_earlier_version_adds_later_are_listed_by_the_next_coordinator(server: RedisServer) -> None:
    expected = filled(server)
    coordinators(server).close()
    forget_letters(server)
    again = coordinators(server)
    assert lists(again) == expected
    again.close()


def test_what_an_earlier_version_has_taken_away_or_changed_makes_no_list_fail(server: RedisServer) -> None:
    letters, _, hosts = filled(server)
    # Retried by a coordinator of an earlier version, which knows nothing of the lists; every other one failed again.
    engine = coordinators(server)
    gone, left = letters[: DEAD_EACH * 3], letters[DEAD_EACH * 3 :]
    again: list[DeadLetter] = []
    for number, letter in enumerate(gone):
        key = f"{{earlier:{engine.shard_of(letter.host)}}}"
        field = f"{letter.host}\0{short_url(letter.url, letter.host)}"
        kept = server.command("HGET", f"{key}x", field)
        assert server.command("HDEL", f"{key}x", field) == 1
        if number % 2:
            assert kept.count(b"\xa3dns") == 1
            server.command("HSET", f"{key}x", field, kept.replace(b"\xa3dns", b"\xa3tls"))
            server.command("ZADD", f"{key}z", number, field)
            again.append(msgspec.structs.replace(letter, kind=FailureKind.TLS))
    assert engine.dead_letters_all(limit=2_000) == left
    engine.close()
    engine = coordinators(server)
    expected = sorted([*left, *again], key=lambda one: one.place)
    assert engine.dead_letters_all(limit=2_000) == expected
    assert read_in_pages(engine) == expected
    counted = {group.host: group.letters for group in engine.dead_groups_all(kind=FailureKind.TLS, limit=HOSTS)}
    assert counted == Counter(one.host for one in expected if one.kind is FailureKind.TLS)
    # The name of a host that is gone does not make a page shorter, which would seem to be the last.
    server.command("HDEL", f"{{earlier:{engine.shard_of(hosts[0].host)}}}h", hosts[0].host)
    assert engine.find_hosts_all("h1", limit=2) == hosts[1:3]
    engine.close()


def read_in_pages(engine: BlockingEngine) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    while page := engine.dead_letters_all(after=found[-1].place if found else None, limit=7):
        found += page
    return found
