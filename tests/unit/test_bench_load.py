"""The load generator: it sends what nodes send, at the given pace, and hides no waiting."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvicorn
import zstandard

from bench.load_client import whole_length
from bench.load_fleet import Fleet
from bench.load_nodes import FleetSettings
from bench.load_record import LostWork, Record
from bench.load_report import Measured, Usage, holds, missed
from bench.load_web import LoadWeb, host_number, random_digests
from drumlin.protocol import (
    Accepted,
    Assignment,
    HeartbeatReply,
    Known,
    KnownRequest,
    Registered,
    Results,
    Work,
    WorkLease,
    WorkRequest,
)

WAIT_S_MAX = 60.0
POLL_S = 0.02
HOSTS = 40
URLS = 4_000


class StandIn:
    """A very small coordinator to test the generator with: a queue of URLs, and counts."""

    def __init__(self, web: LoadWeb) -> None:
        self.urls = deque(web.new_url(number % HOSTS) for number in range(URLS))
        self.given: set[str] = set()
        self.settled: Counter[str] = Counter()
        self.links = 0
        self.calls: Counter[str] = Counter()
        self.registered: Counter[str] = Counter()
        self.released: set[str] = set()
        self.pause_s = 0.0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        if (b"content-encoding", b"zstd") in scope["headers"]:
            body = zstandard.ZstdDecompressor().decompress(body)
        await asyncio.sleep(self.pause_s)
        answer = msgspec.msgpack.encode(self._answer(scope["path"].removeprefix("/api/v1/nodes/"), body))
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
        )
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, path: str, body: bytes) -> Any:
        node, _, call = path.partition("/")
        self.calls[call or node] += 1
        if node == "register":
            self.registered[msgspec.msgpack.decode(body)["node_id"]] += 1
            return Registered("node", "registered", 0.5, "", {}, "", [], [])
        if call == "work/request":
            return self._work(node, msgspec.msgpack.decode(body, type=WorkRequest))
        if call == "known":
            return Known([None] * len(msgspec.msgpack.decode(body, type=KnownRequest).contents))
        if call == "results":
            return self._results(msgspec.msgpack.decode(body, type=Results))
        return HeartbeatReply("ok", 0.5, "")

    def _work(self, node: str, request: WorkRequest) -> Work:
        leases = []
        for number in range(min(request.max_tasks, len(self.urls))):
            url = self.urls.popleft()
            host = url.split("/")[2]
            self.given.add(url)
            lease = f"{node}:{request.request_id}.0.{number}"
            leases.append(WorkLease(lease, host, 20.0, 1.0, [Assignment(f"{lease}/1.0.0", url, 5, 0.0, host, 0.0)]))
        return Work(leases, [], 0.0)

    def _results(self, results: Results) -> Accepted:
        self.settled.update(result.url for result in results.results)
        self.links += sum(len(result.links) for result in results.results)
        self.released.update(report.lease_id for report in results.hosts if report.release)
        return Accepted(len(results.results), 0, [])


@asynccontextmanager
async def serving(app: StandIn) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not happened():
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def fleet_at_work(**more: Any) -> AsyncIterator[tuple[Fleet, StandIn]]:
    web = LoadWeb(HOSTS, 1)
    app = StandIn(web)
    settings = FleetSettings(nodes=20, batch_pages=10, fetch_s=0.6, registrations_per_s=1_000.0, **more)
    async with serving(app) as port:
        fleet = Fleet(settings, [("127.0.0.1", port)], web)
        await fleet.register_all()
        yield fleet, app
        fleet.end()


def test_every_page_is_reported_once_with_its_links_and_every_lease_given_back() -> None:
    async def run() -> None:
        async with fleet_at_work() as (fleet, app):
            fleet.set_pace(100.0)
            await until(lambda: fleet.record.pages >= 100)
            fleet.set_pace(0.0)
            await until(lambda: sum(app.settled.values()) == len(app.given))
            assert set(app.settled) == app.given
            assert set(app.settled.values()) == {1}
            assert app.links == 10 * len(app.given)
            assert len(app.released) == len(app.given)
            assert app.calls["known"] == app.calls["results"]
            assert not fleet.record.errors

    asyncio.run(run())


def test_all_nodes_register_and_go_on_sending_heartbeats() -> None:
    async def run() -> None:
        async with fleet_at_work() as (fleet, app):
            await until(lambda: app.calls["heartbeat"] >= 60)
            assert fleet.registered == 20
            assert set(app.registered.values()) == {1}

    asyncio.run(run())


def test_the_hosts_of_killed_nodes_are_followed_until_others_have_them() -> None:
    async def run() -> None:
        async with fleet_at_work() as (fleet, app):
            fleet.set_pace(200.0)
            await until(lambda: len(app.given) >= 50)
            fleet.kill(fleet.nodes[:10])
            assert fleet.registered == 10
            assert fleet.lost_work.missing
            await until(lambda: not fleet.lost_work.missing)
            assert fleet.lost_work.waited_s

    asyncio.run(run())


def test_a_flapping_node_comes_back_registers_and_sends_what_it_had() -> None:
    async def run() -> None:
        async with fleet_at_work(up_s=0.5, down_s=0.2) as (fleet, app):
            fleet.set_pace(200.0)
            fleet.flap(fleet.nodes[:10])
            await until(lambda: fleet.record.pages_late > 0)
            assert max(app.registered[node.name] for node in fleet.nodes[:10]) > 1
            assert {app.registered[node.name] for node in fleet.nodes[10:]} == {1}

    asyncio.run(run())


def test_a_stalled_coordinator_shows_in_the_latencies_of_every_call_that_was_due() -> None:
    async def run() -> None:
        async with fleet_at_work() as (fleet, app):
            fleet.set_pace(100.0)
            await until(lambda: fleet.record.pages >= 20)
            app.pause_s = 1.5
            fleet.record.restart()
            # Calls that were under way before the pause are answered first, and at once.
            await until(lambda: max(fleet.record.percentiles_ms("work"), default=0.0) >= 1_000.0)
            fleet.count_unanswered()
            # Turns went on beginning while the first one waited.
            assert len(fleet.record.latencies["work"]) > fleet.record.calls["work"]

    asyncio.run(run())


def test_the_length_of_a_reply_is_known_when_its_head_is_complete() -> None:
    assert whole_length(b"HTTP/1.1 200 OK\r\ncontent-length: 5") == 0
    assert whole_length(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab") == 43
    assert whole_length(b"HTTP/1.1 204 No Content\r\n\r\n") == 27


def test_urls_of_the_web_are_never_handed_out_twice_and_name_their_host() -> None:
    web = LoadWeb(HOSTS, 1)
    urls = [web.new_url(3) for _ in range(500)]
    assert len(set(urls)) == 500
    assert {host_number(url.split("/")[2]) for url in urls} == {3}


def test_hosts_begin_with_sizes_that_differ_widely_and_add_up() -> None:
    sizes = LoadWeb(5_000, 1).initial_sizes(200_000)
    assert sum(sizes) == pytest.approx(200_000, rel=0.05)
    assert max(sizes) > 20 * sorted(sizes)[2_500]


def test_digests_never_repeat() -> None:
    digests = random_digests(1_000)
    assert len(set(digests)) == 1_000
    assert {len(digest) for digest in digests} == {64}


def test_lost_work_waits_from_the_first_loss_until_it_is_given_again() -> None:
    lost = LostWork()
    lost.lose(["a", "b"], 10.0)
    lost.lose(["a"], 12.0)
    lost.given("a", 15.0)
    lost.given("never lost", 15.0)
    assert lost.waited_s == [5.0]
    assert lost.missing == ["b"]


def measured(pace: float, pages: int, work_s: float) -> Measured:
    record = Record()
    record.pages = pages
    for kind, latency_s in (("work", work_s), ("results", 0.01), ("heartbeat", 0.01)):
        record.answered(kind, latency_s)
    return Measured.of(pace, 10.0, record, Usage(0, 0, 0, 0, 0, 0), Usage(1, 2, 3, 7, 0, 0))


def test_targets_hold_only_when_the_pace_is_kept_and_every_call_is_quick() -> None:
    assert holds(measured(100.0, 1_000, 0.09))
    assert list(missed(measured(100.0, 1_000, 0.11))) == ["work p99 110 ms, not under 100 ms"]
    assert list(missed(measured(200.0, 1_000, 0.09))) == ["100 pages/s, not 200"]


def test_cpu_is_divided_by_the_pages_that_were_accepted() -> None:
    figures = measured(100.0, 1_000, 0.01)
    assert (figures.coordinators_us, figures.redis_us, figures.generator_us) == (1_000.0, 2_000.0, 3_000.0)
    assert figures.others_cores == pytest.approx(0.1)
