"""A coordinator whose engine is slow: results wait in line, work is held back, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from drumlin.access.tokens import SECRET_BYTES, OpenAccess
from drumlin.api.app import CoordinatorApp
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.backlog import (
    BEHIND_RETRY_S,
    BEHIND_WAITING,
    RESULTS_PER_PLACE,
    SETTLING_AT_ONCE,
    SETTLING_EACH,
    SETTLING_WAITING_EACH,
    SETTLING_WAITING_MAX,
    Backlog,
)
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import Settlement, Verdict
from drumlin.protocol import LINKS_BATCH_MAX, LINKS_MAX, Register
from tests.harness.clocks import still_time

NOW = 1_000.0


class SlowEngine(MemoryEngine):
    """An engine that settles nothing until the test lets it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.settling = 0
        self.let_go = asyncio.Event()

    async def settle_all(
        self, batches: Mapping[int, Sequence[Settlement]], now: float
    ) -> dict[int, list[list[Verdict]]]:
        self.settling += 1
        await self.let_go.wait()
        return await super().settle_all(batches, now)


class Client:
    """Calls a coordinator's application as a server would."""

    def __init__(self, engine: SlowEngine) -> None:
        self.dispatcher = Dispatcher(engine, CrawlConfig(scope="any", delay_s=0.0), [], chance=random.Random(1))
        access = OpenAccess(b"s" * SECRET_BYTES)
        self._app = CoordinatorApp(
            self.dispatcher, access=access, on_failure=lambda _: None, engine_time=still_time(engine, NOW), endpoint=""
        )

    async def post(
        self, call: str, message: dict[str, Any], node: str = "n1"
    ) -> tuple[int, dict[str, Any], dict[bytes, bytes]]:
        body = msgspec.json.encode(message)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        path = f"/api/v1/nodes/{node}/{call}"
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        await self._app(scope | {"headers": headers, "client": ("127.0.0.1", 1)}, receive, send)
        return sent[0]["status"], msgspec.json.decode(sent[1]["body"]), dict(sent[0]["headers"])

    async def take(self, name: str, node: str = "n1") -> tuple[int, dict[str, Any], dict[bytes, bytes]]:
        return await self.post("work/request", {"max_tasks": 1, "max_hosts": 1, "request_id": name}, node)


def result_of(assignment: dict[str, Any]) -> dict[str, Any]:
    return {
        "assignment_id": assignment["assignment_id"],
        "url": assignment["url"],
        "status_code": 200,
        "content_hash": "",
        "links": [],
        "crawl_time": NOW,
    }


def report_on(lease: dict[str, Any]) -> dict[str, Any]:
    """A batch of results that ends no lease."""
    return {"lease_id": lease["lease_id"], "host": lease["host"]}


async def turns() -> None:
    """Let everything that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


async def reports_of(client: Client, nodes: int) -> list[tuple[str, dict[str, Any]]]:
    """Nodes with a host each, and a batch of results from each of them."""
    await client.dispatcher.seed([f"http://h{number}.test/" for number in range(nodes + 1)], NOW)
    batches = []
    for number in range(nodes):
        node = f"n{number}"
        await client.dispatcher.register(Register(0.0, node), NOW)
        held = (await client.take("first", node))[1]["leases"][0]
        batches.append((node, {"results": [], "hosts": [report_on(held)]}))
    return batches


def test_few_batches_are_settled_at_once_fewer_of_one_node_and_all_in_the_end() -> None:
    async def run() -> None:
        engine = SlowEngine()
        client = Client(engine)
        await client.dispatcher.register(Register(0.0, "n1"), NOW)
        await client.dispatcher.seed([f"http://h{number}.test/" for number in range(40)], NOW)
        owners = [("greedy" if number < 30 else f"n{number}") for number in range(40)]
        for owner in dict.fromkeys(owners):
            await client.dispatcher.register(Register(0.0, owner), NOW)
        taken = [(await client.take(f"r{at}", owner))[1]["assignments"][0] for at, owner in enumerate(owners)]
        sent = []
        for owner, one in zip(owners, taken, strict=True):
            sent.append(asyncio.create_task(client.post("results", {"results": [result_of(one)]}, owner)))
            await turns()
            if owner == "greedy":
                assert engine.settling <= SETTLING_EACH
        assert engine.settling == SETTLING_AT_ONCE
        engine.let_go.set()
        answers = await asyncio.gather(*sent)
        assert [answer[1]["accepted_count"] for answer in answers] == [1] * 40

    asyncio.run(run())


def test_a_coordinator_that_is_behind_gives_out_nothing_until_it_has_caught_up() -> None:
    async def run() -> None:
        engine = SlowEngine()
        client = Client(engine)
        batches = await reports_of(client, BEHIND_WAITING)
        waiting = [asyncio.create_task(client.post("results", body, node)) for node, body in batches]
        await turns()
        held = batches[0][1]["hosts"][0]
        renew = {"max_tasks": 1, "renew": [[held["lease_id"], held["host"]]]}
        _, work, _ = await client.post("work/request", renew, "n0")
        assert [lease["host"] for lease in work["leases"]] == [held["host"]]
        assert (work["leases"][0]["assignments"], work["retry_after_s"]) == ([], BEHIND_RETRY_S)
        engine.let_go.set()
        await asyncio.gather(*waiting)
        assert len((await client.take("later", "n0"))[1]["assignments"]) == 1

    asyncio.run(run())


def test_a_line_that_is_too_long_sends_batches_back_and_says_when_to_come_again() -> None:
    async def run() -> None:
        engine = SlowEngine()
        client = Client(engine)
        batches = await reports_of(client, SETTLING_WAITING_MAX + 1)
        waiting = [asyncio.create_task(client.post("results", body, node)) for node, body in batches[1:]]
        await turns()
        node, body = batches[0]
        status, refusal, headers = await client.post("results", body, node)
        assert (status, refusal["error"]["code"]) == (503, "busy")
        assert int(headers[b"retry-after"]) > 0
        engine.let_go.set()
        assert {answer[0] for answer in await asyncio.gather(*waiting)} == {200}
        assert (await client.post("results", body, node))[0] == 200

    asyncio.run(run())


def test_a_large_batch_takes_the_places_of_several() -> None:
    async def run() -> None:
        backlog, held = Backlog(), []
        for number in range(BEHIND_WAITING // 3 + 1):
            assert not backlog.too_long
            turn = backlog.turn_of(f"n{number}", 2 * RESULTS_PER_PLACE + 1)
            held.append(asyncio.create_task(turn.__aenter__()))
            await turns()
        assert backlog.too_long
        assert len(backlog) == 3 * len(held)
        for number in range(SETTLING_AT_ONCE):
            backlog.end(f"n{number}", 3)
        await turns()
        assert len(backlog) == 3 * (len(held) - SETTLING_AT_ONCE)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    asyncio.run(run())


def test_one_node_alone_cannot_fill_the_line() -> None:
    async def run() -> None:
        engine = SlowEngine()
        client = Client(engine)
        (greedy, body), (modest, other) = await reports_of(client, 2)
        flood = [asyncio.create_task(client.post("results", body, greedy)) for _ in range(SETTLING_WAITING_EACH + 9)]
        await turns()
        honest = asyncio.create_task(client.post("results", other, modest))
        await turns()
        assert engine.settling == SETTLING_EACH + 1, "the honest one has its turn at once"
        assert (await client.take("more", modest))[1]["assignments"], "and gets work"
        engine.let_go.set()
        statuses = [answer[0] for answer in await asyncio.gather(*flood)]
        assert (statuses.count(503), (await honest)[0]) == (9, 200)

    asyncio.run(run())


def test_a_batch_with_too_many_links_is_refused_before_any_work() -> None:
    async def run() -> None:
        client = Client(SlowEngine())
        await client.dispatcher.register(Register(0.0, "n1"), NOW)
        links = ["http://h.test/x"] * LINKS_MAX
        result = result_of({"assignment_id": "n1:x", "url": "http://h.test/"}) | {"links": links}
        body = {"results": [result] * (LINKS_BATCH_MAX // LINKS_MAX + 1), "stored": True}
        status, refusal, _ = await client.post("results", body)
        assert (status, refusal["error"]["code"]) == (413, "too_many_links")

    asyncio.run(run())
