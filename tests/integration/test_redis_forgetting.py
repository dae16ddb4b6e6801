"""What the redis engine forgets, and when: by the callers' time alone. Redis's own clock decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from drumlin.engines.redis.engine import RedisEngine, open_redis
from drumlin.model import FailureKind, NewURLs, Renewal, Settled, Settlement, TaskState, Verdict
from tests.harness.redis import RedisServer, redis_server, url_of

HOST = "a.example"
URLS = 40
DAY_S = 86_400.0
FORGOTTEN = (
    (200.0, ("a", "b", "k"), "claims and calls are young"),
    (400.0, ("b", "k"), "calls are forgotten after minutes"),
    (1_000.0, ("k",), "a claim that has run out is forgotten"),
    (13 * DAY_S, ("k",), "captures are remembered for two weeks"),
    (15 * DAY_S, (), "and then forgotten"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


async def do_everything(engine: RedisEngine) -> list[Settlement]:
    """Make every call after which something must be forgotten later. Returns what was settled."""
    await engine.keep_time(100.0)
    await engine.add_all({0: [NewURLs(HOST, [f"https://{HOST}/{number}" for number in range(URLS)])]}, 100.0)
    (held,) = await engine.lease(
        0, "node", "request", 100.0, until=900.0, hosts_max=1, urls_max=99, urls_per_host=URLS // 2
    )
    (more,) = await engine.extend_all([Renewal(0, HOST, held.lease_id, URLS)], 100.0, until=900.0)
    assert more is not None
    await engine.strike(0, held.tasks[0].url, 100.0, limit=9, kind=FailureKind.CRASH, error="")
    await engine.count(0, {"pages": 1})
    assert await engine.claim("nonce:1", "one", 100.0, until=700.0)
    tasks = [Settled(task.id, task.url, TaskState.DONE, b"capture") for task in [*held.tasks, *more.tasks]]
    settlements = [Settlement(HOST, held.lease_id, tasks, release=True)]
    assert await engine.settle_all({0: settlements}, 100.0) == {0: [[Verdict.SETTLED] * URLS]}
    return settlements


def keys(server: RedisServer, namespace: str) -> list[bytes]:
    found: list[bytes] = server.command("KEYS", f"{{{namespace}*")
    return found


def test_no_key_expires_by_redis_own_clock(server: RedisServer) -> None:
    async def check(namespace: str) -> None:
        engine = await open_redis(url_of(server, namespace=namespace), shard_count=1)
        try:
            await do_everything(engine)
        finally:
            await engine.close()

    namespace = uuid4().hex
    asyncio.run(check(namespace))
    found = keys(server, namespace)
    assert len(found) > 10
    assert {key: server.command("PTTL", key) for key in found} == dict.fromkeys(found, -1)


def test_what_is_old_by_the_callers_time_is_forgotten_and_nothing_else(server: RedisServer) -> None:
    async def check(namespace: str) -> None:
        engine = await open_redis(url_of(server, namespace=namespace), shard_count=1)
        try:
            settled = await do_everything(engine)
            tag = f"{{{namespace}:0}}".encode()
            for now, left, why in FORGOTTEN:
                await engine.expire_all(now)
                kinds = {
                    key[len(tag) : len(tag) + 1].decode() for key in keys(server, namespace) if key.startswith(tag)
                }
                assert kinds & {"a", "b", "k"} == set(left), why
                remembered = Verdict.REPEATED if "k" in left else Verdict.STALE
                assert await engine.settle_all({0: settled}, now) == {0: [[remembered] * URLS]}
                assert await engine.claim("nonce:1", "other", now, until=0.0) == (now >= 700.0)
            assert server.command("EXISTS", tag + b"g") == 1, "the claim of just now"
        finally:
            await engine.close()

    asyncio.run(check(uuid4().hex))
