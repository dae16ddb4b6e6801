"""The redis engine on real servers: calls sent twice, several engines at once, restarts, and what it refuses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from drumlin.dedupe import OVERLAP_MIN, sketches
from drumlin.engines import shard_of
from drumlin.engines.base import Added
from drumlin.engines.redis.address import parse_address
from drumlin.engines.redis.client import TOLD_AFTER_S
from drumlin.engines.redis.engine import RedisEngine, open_redis
from drumlin.engines.redis.founding import SHARDS_PER_MASTER
from drumlin.errors import ConfigError, EngineError
from drumlin.logs import log_for_people
from drumlin.model import (
    Content,
    Duplicate,
    FailureKind,
    Lease,
    NewURLs,
    Renewal,
    Settled,
    Settlement,
    TaskState,
    Verdict,
    Visit,
)
from tests.harness.certificates import Authority
from tests.harness.redis import RedisServer, free_port, redis_server, url_of

PATIENCE_S = 3.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def url(server: RedisServer) -> str:
    """A namespace of its own for every test."""
    return url_of(server, namespace=uuid4().hex)


@asynccontextmanager
async def opened(url: str, *, shard_count: int | None = 1) -> AsyncIterator[RedisEngine]:
    engine = await open_redis(url, shard_count=shard_count, patience_s=PATIENCE_S)
    try:
        yield engine
    finally:
        await engine.close()


def urls_of(host: str, count: int) -> list[NewURLs]:
    return [NewURLs(host, [f"https://{host}/{number}" for number in range(count)])]


async def lease(engine: RedisEngine, request: str, *, hosts_max: int = 9, urls_per_host: int = 2) -> list[Lease]:
    return await engine.lease(
        0, "node", request, 10.0, until=20.0, hosts_max=hosts_max, urls_max=99, urls_per_host=urls_per_host
    )


def test_a_lease_asked_for_again_is_the_same_lease(url: str) -> None:
    async def check() -> None:
        async with opened(url) as engine:
            await engine.add_all({0: urls_of("a.example", 5) + urls_of("b.example", 5)}, 1.0)
            first = await lease(engine, "request", hosts_max=1)
            assert await lease(engine, "request", hosts_max=1) == first
            assert [one.host for one in await lease(engine, "another")] == ["b.example"]
            assert (await engine.stats_all(10.0))[0].leased == 4

    asyncio.run(check())


def test_of_a_lease_asked_for_again_only_what_is_still_held_is_given(url: str) -> None:
    async def check() -> None:
        async with opened(url) as engine:
            await engine.add_all({0: urls_of("a.example", 2)}, 1.0)
            (held,) = await lease(engine, "request")
            done = Settled(held.tasks[0].id, held.tasks[0].url, TaskState.DONE, b"capture")
            await engine.settle_all({0: [Settlement(held.host, held.lease_id, [done])]}, 11.0)
            (again,) = await lease(engine, "request")
            assert again.tasks == held.tasks[1:]
            await engine.settle_all({0: [Settlement(held.host, held.lease_id, [], release=True)]}, 12.0)
            assert await lease(engine, "request") == []

    asyncio.run(check())


def test_every_changing_call_sent_twice_changes_once(url: str) -> None:
    """If the client does not know whether a command ran, it sends the very same bytes again."""

    async def check() -> None:
        async with opened(url) as engine:
            await engine.add_all({0: urls_of("a.example", 9)}, 1.0)
            (held,) = await lease(engine, "request", urls_per_host=1)
            sent = _send_everything_twice(engine)
            more = await engine.extend_all([Renewal(0, held.host, held.lease_id, 3)], 11.0, until=30.0)
            assert [task.url[-1] for one in more if one for task in one.tasks] == ["1", "2", "3"]
            visit = await engine.visit(0, Visit("b.example", "n0", "n0:v", 30.0, 11.0), 11.0)
            assert visit is not None
            await engine.count(0, {"pages": 5})
            assert not await engine.strike(0, held.tasks[0].url, 11.0, limit=2, kind=FailureKind.CRASH, error="")
            assert await engine.strike(0, held.tasks[0].url, 12.0, limit=2, kind=FailureKind.CRASH, error="")
            (stats,) = await engine.stats_all(12.0)
            assert (stats.leased, stats.queued, stats.dead, stats.counters) == (3, 5, 1, {"pages": 5})
            assert len(sent) == 2 * 6

    asyncio.run(check())


def _send_everything_twice(engine: RedisEngine) -> list[object]:
    """Send every command of the engine twice from now on, and use the second answer."""
    run, sent = engine._client.run, []

    async def run_twice(commands):  # type: ignore[no-untyped-def]
        await run(commands)
        sent.extend([*commands, *commands])
        return await run(commands)

    engine._client.run = run_twice  # type: ignore[assignment, method-assign]
    return sent


def test_engines_in_one_namespace_never_lease_a_host_twice(url: str) -> None:
    hosts, engines_count, shards = 300, 4, 4

    async def take_all(engine: RedisEngine, name: str) -> list[Lease]:
        leases: list[Lease] = []
        for turn in range(400):
            found = await engine.lease(
                turn % shards, name, f"{name}.{turn}", 10.0, until=99.0, hosts_max=2, urls_max=9, urls_per_host=3
            )
            leases += found
        return leases

    async def check() -> None:
        async with opened(url, shard_count=shards) as first:
            batches: dict[int, list[NewURLs]] = {}
            for number in range(hosts):
                host = f"h{number}.example"
                batches.setdefault(shard_of(host, shards), []).extend(urls_of(host, 3))
            await first.add_all(batches, 1.0)
            engines = [await open_redis(url) for _ in range(engines_count)]
            taken = await asyncio.gather(*(take_all(one, f"node-{n}") for n, one in enumerate(engines)))
            names = [one.host for leases in taken for one in leases]
            assert len(names) == len(set(names)) == hosts
            assert all(taken)
            for engine in engines:
                await engine.close()

    asyncio.run(check())


def test_a_host_with_many_urls_loses_none_and_accepts_none_twice(url: str) -> None:
    """So many URLs that the buckets of seen URLs split many times."""

    async def check() -> None:
        async with opened(url) as engine:
            (found,) = urls_of("big.example", 20_000)
            for start in range(0, len(found.urls), 700):
                some = NewURLs(found.host, found.urls[start : start + 700])
                assert set((await engine.add_all({0: [some]}, 1.0))[0]) == {Added.ADDED}
            assert set((await engine.add_all({0: [found]}, 2.0))[0]) == {Added.SEEN}
            story = await engine.story(0, found.urls[13_579])
            assert story is not None
            assert story.state is TaskState.QUEUED

    asyncio.run(check())


def test_a_url_deep_in_a_long_queue_can_be_moved_struck_and_settled_late(url: str) -> None:
    async def check() -> None:
        async with opened(url) as engine:
            (found,) = urls_of("big.example", 5_000)
            await engine.add_all({0: [found]}, 1.0)
            urls = found.urls
            assert await engine.reprioritise(0, [(urls[4_321], 9), (urls[2_222], 8)]) == 2
            assert not await engine.strike(0, urls[3_333], 2.0, limit=2, kind=FailureKind.CRASH, error="")
            (held,) = await lease(engine, "request", urls_per_host=3)
            assert [task.url for task in held.tasks] == [urls[n] for n in (4_321, 2_222, 0)]
            await engine.expire_all(99.0)
            late = Settled(held.tasks[1].id, held.tasks[1].url, TaskState.DONE, b"capture")
            settlement = Settlement(held.host, held.lease_id, [late])
            assert await engine.settle_all({0: [settlement]}, 99.0) == {0: [[Verdict.SETTLED]]}
            struck = await engine.story(0, urls[3_333])
            assert struck is not None
            assert struck.task is not None
            assert struck.task.crashes == 1

    asyncio.run(check())


def test_the_number_of_shards_is_fixed_when_a_namespace_is_founded(url: str) -> None:
    async def check() -> None:
        async with opened(url, shard_count=3):
            for wanted in (None, 4):
                async with opened(url, shard_count=wanted) as again:
                    assert again.shard_count == 3

    asyncio.run(check())


def test_a_new_frontier_has_shards_for_its_masters(url: str) -> None:
    async def check() -> None:
        async with opened(url, shard_count=None) as alone:
            assert alone.shard_count == SHARDS_PER_MASTER

    asyncio.run(check())


def test_namespaces_keep_their_crawls_apart(url: str) -> None:
    async def check() -> None:
        async with opened(url) as one, opened(url + "-other") as other:
            await one.add_all({0: urls_of("a.example", 1)}, 1.0)
            await one.put_meta("key", b"value")
            assert (await other.stats_all(1.0))[0].queued == 0
            assert await other.get_meta("key") is None

    asyncio.run(check())


def test_all_who_set_a_value_at_once_get_the_first_ones(url: str) -> None:
    async def check() -> None:
        async with opened(url) as one, opened(url) as other:
            offers = [(one, other)[number % 2].put_meta_if_absent("key", b"%d" % number) for number in range(20)]
            assert len(set(await asyncio.gather(*offers))) == 1

    asyncio.run(check())


def test_what_was_acknowledged_survives_kill_9_of_a_server_with_a_log(tmp_path: Path) -> None:
    async def check(server: RedisServer) -> None:
        async with opened(url_of(server, namespace="n")) as engine:
            await engine.add_all({0: urls_of("a.example", 50)}, 1.0)
            (held,) = await lease(engine, "request")
            server.kill()
            server.start()
            (stats,) = await engine.stats_all(2.0)
            assert (stats.queued, stats.leased) == (48, 2)
            assert await lease(engine, "request") == [held]

    with redis_server(tmp_path, "--appendonly", "yes") as server:
        asyncio.run(check(server))


def test_a_server_that_is_gone_is_one_clear_error_in_the_end(tmp_path: Path) -> None:
    async def check(server: RedisServer) -> None:
        async with opened(url_of(server, namespace="n").replace("redis://", "redis://:secret@")) as engine:
            server.kill()
            with pytest.raises(EngineError, match="gave no usable answer") as raised:
                await engine.stats_all(1.0)
            assert "secret" not in str(raised.value)

    with redis_server(tmp_path, "--requirepass", "secret") as server:
        asyncio.run(check(server))


def test_a_server_that_refuses_connections_is_named_long_before_it_is_given_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_for_people()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # It does not listen, so connections are refused.
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EngineError, match="gave no usable answer"):
            asyncio.run(open_redis(f"redis://:secret@{place}/n", patience_s=TOLD_AFTER_S + 1.0))
    said = capsys.readouterr().err
    assert f"cannot be reached ({place}: connection refused); trying for 2 s." in said
    assert (said.count("\n"), "secret" in said) == (1, False)


def test_a_wrong_password_is_refused_at_once_without_being_shown(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "secret") as server:
        address = url_of(server, namespace="n")
        for wrong in (address, address.replace("redis://", "redis://:guessed@")):
            with pytest.raises(EngineError, match="refuses this user") as raised:
                asyncio.run(open_redis(wrong, patience_s=PATIENCE_S))
            assert "guessed" not in str(raised.value)


def test_a_server_that_may_evict_urls_or_runs_full_is_refused(tmp_path: Path) -> None:
    limits = ("--maxmemory", "3mb", "--maxmemory-policy")
    with redis_server(tmp_path / "evicting", *limits, "allkeys-lru") as server:
        with pytest.raises(EngineError, match="may throw away any key"):
            asyncio.run(open_redis(url_of(server, namespace="n")))

    async def fill(url: str) -> None:
        async with opened(url) as engine:
            adding = (engine.add_all({0: urls_of(f"h{number}.example", 1_000)}, 1.0) for number in range(100))
            with pytest.raises(EngineError, match="out of memory"):
                _ = [await one for one in adding]

    with redis_server(tmp_path / "full", *limits, "noeviction") as server:
        asyncio.run(fill(url_of(server, namespace="n")))


def test_with_tls_the_servers_certificate_must_be_trusted(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path, "authority"), free_port()
    made = authority.sign("redis", "IP:127.0.0.1")
    files = ("--tls-cert-file", str(made.certificate), "--tls-key-file", str(made.key), "--tls-auth-clients", "no")
    options = ("--tls-port", str(port), "--tls-ca-cert-file", str(authority.file), *files)

    async def check(url: str) -> None:
        async with opened(f"{url}?ca={authority.file}") as engine:
            await engine.put_meta("key", b"value")
            assert await engine.get_meta("key") == b"value"
        with pytest.raises(EngineError, match="not trusted"):
            await open_redis(url)
        with pytest.raises(EngineError, match="cannot be read"):
            await open_redis(f"{url}?ca={tmp_path}/missing")

    with redis_server(tmp_path / "server", *options):
        asyncio.run(check(f"rediss://127.0.0.1:{port}/n"))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("redis://", "HOST:PORT"),
        ("redis://a:0", "HOST:PORT"),
        ("redis://a/b c", "namespace"),
        ("redis://a/n?replica=1", "no option 'replica'"),
        ("redis://a/n?replicas=many", "`replicas`"),
        ("redis://a/n?contents=some", "`contents`"),
    ],
)
def test_a_bad_address_says_what_is_wrong(wrong: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_address(wrong)


# Contents


def sketch(text: int, changed: int = 0) -> bytes:
    """The sketch of a text of 400 words. Each changed word costs 1.5 % of overlap."""
    words = [f"t{text}w{number}" for number in range(400)]
    for number in range(changed):
        words[(number * 37 + changed) % 400] = f"c{changed}n{number}"
    (made,) = sketches([" ".join(words).encode()])
    assert made is not None
    return made


def content(number: int, made: bytes | None, *, domain: str = "example.com") -> Content:
    return Content(domain, f"https://{domain}/{number}", number.to_bytes(32, "big"), made, 5.0, f"urn:{number}")


def test_two_engines_find_each_others_duplicates(url: str) -> None:
    async def check() -> None:
        first, third = content(1 << 200, sketch(1)), content(3 << 200, sketch(1, 3))
        async with opened(url) as one, opened(url) as other:
            assert await one.contents.record([first, content(2 << 200, sketch(2))], OVERLAP_MIN) == [None, None]
            exact = Content("example.com", "https://example.com/x", first.digest, sketch(1), 6.0, "urn:x")
            (same, near) = await other.contents.record([exact, third], OVERLAP_MIN)
            assert same == Duplicate(first.url, first.fetched, first.record_id)
            assert near is not None
            assert near.url == first.url
            assert near.overlap == pytest.approx(0.955, abs=0.03)
            (further,) = await one.contents.record([content(4 << 200, sketch(1, 3))], OVERLAP_MIN)
            assert further == Duplicate(third.url, third.fetched, third.record_id, overlap=1.0)
            assert await one.contents.record([content(5 << 200, sketch(1, 1))], 0.999) == [None]
            assert await one.contents.known([("example.com", exact.digest), ("other.com", exact.digest)]) == [
                same,
                None,
            ]

    asyncio.run(check())


def test_recording_again_answers_as_the_first_time(url: str) -> None:
    async def check() -> None:
        async with opened(url) as engine:
            contents = [content(n << 200, sketch(1, n % 3)) for n in range(1, 6)]
            answers = await engine.contents.record(contents, OVERLAP_MIN)
            assert (answers[0], answers[1] and answers[1].url) == (None, contents[0].url)
            assert [one is not None and one.overlap == 1 for one in answers] == [False, False, False, True, True]
            async with opened(url) as again:
                assert await again.contents.record(contents, OVERLAP_MIN) == answers

    asyncio.run(check())


def test_an_index_of_simhashes_is_not_misread(url: str) -> None:
    """Versions before sketches kept another log, and for each near content the number of bits that differed."""
    old, seen = content(1 << 200, None), content(2 << 200, None)

    async def check() -> None:
        async with opened(url) as engine:
            tag = engine._shards.tags[engine.shard_of("example.com")]
            entry = msgspec.msgpack.encode([old.url, old.fetched, old.record_id, 2])
            near = msgspec.msgpack.encode([seen.url, seen.fetched, seen.record_id, 0])
            shard = engine.shard_of("example.com")
            commands = [
                engine._shards.read(
                    shard, "HSET", f"{tag}eexample.com", old.digest[:12], b"\x0c" + seen.digest[:12] + entry
                ),
                engine._shards.read(shard, "HSET", f"{tag}eexample.com", seen.digest[:12], b"\0" + near),
                engine._shards.read(shard, "SET", f"{tag}fexample.com", bytes(200)),
            ]
            await engine._client.run(commands)
            known = await engine.contents.known([("example.com", old.digest)])
            assert known == [Duplicate(old.url, old.fetched, old.record_id)]
            assert await engine.contents.record([old], OVERLAP_MIN) == [None]
            contents = [content(3 << 200, sketch(1)), content(4 << 200, sketch(1, 1))]
            first, second = await engine.contents.record(contents, OVERLAP_MIN)
            assert first is None
            assert second is not None
            assert second.url == contents[0].url

    asyncio.run(check())


def test_contents_can_be_left_out(url: str) -> None:
    async def check() -> None:
        async with opened(url + "?contents=exact") as exact:
            await exact.contents.record([content(1 << 200, sketch(1))], OVERLAP_MIN)
            assert await exact.contents.record([content(2 << 200, sketch(1))], OVERLAP_MIN) == [None]
            assert await exact.contents.known([("example.com", (1 << 200).to_bytes(32, "big"))]) != [None]
        async with opened(url + "?contents=off") as off:
            assert await off.contents.known([("example.com", (1 << 200).to_bytes(32, "big"))]) == [None]

    asyncio.run(check())
