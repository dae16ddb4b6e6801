"""What a coordinator says when the engine or the store cannot be used: the cause, soon, and nothing of it any
more when the cause has ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from drumlin.engines.redis.client import ANSWER_S
from drumlin.errors import EXIT_STORAGE
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.cutting import CuttingProxy
from tests.harness.fleet import check_every_page_stored_once
from tests.harness.redis import RedisServer, redis_server, url_of
from tests.harness.small_disk import small_disk
from tests.harness.standing import Standing, standing

NAMED_WITHIN_S = 15.0
ANSWERED_WITHIN_S = 15.0
"""Three times what we promise, since this machine may be busy with other tests; tests/slow/test_named_soon.py holds the
promise itself."""
WELL_AGAIN_WITHIN_S = 30.0
ASK_S_MAX = 60.0
CRAWL_S_MAX = 240.0
CALLERS = 4
FROZEN_S = ANSWER_S + 1.0
"""Longer than the client waits for a server, so it gives up connections meanwhile."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        code: str = self.json["error"]["code"]
        return code


def ask(place: Standing, method: str, path: str, message: Any = None) -> Answer:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=ASK_S_MAX)
    try:
        body = None if message is None else json.dumps(message)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read(), time.monotonic() - began)
    finally:
        connection.close()


def enqueue(place: Standing, name: str) -> Answer:
    return ask(place, "POST", "/api/v1/urls", {"urls": [f"http://127.0.0.1:9/{name}-{n}" for n in range(20)]})


def takes_urls(place: Standing) -> bool:
    return ask(place, "GET", "/readyz").status == 200 and enqueue(place, "later").status == 200


def unready_code(place: Standing) -> str:
    answer = ask(place, "GET", "/readyz")
    assert answer.seconds < ANSWERED_WITHIN_S
    return answer.code if answer.status == 503 else ""


def check_that_it_is_named(place: Standing, code: str, part: str = "engine") -> None:
    """Check that the cause is named in all places where people and programs look."""
    wait_until(lambda: unready_code(place) == code, NAMED_WITHIN_S, f"/readyz to say {code}")
    why = ask(place, "GET", "/api/v1/why-idle")
    assert (why.status, why.json["idle"], why.json["reasons"][0]["code"]) == (200, True, code)
    metrics = ask(place, "GET", "/metrics").body.decode().splitlines()
    assert {"drumlin_ready 0", f'drumlin_trouble{{code="{code}"}} 1'} <= set(metrics)
    log = place.log("coordinator")
    assert f"the {part} cannot be used: " in log
    assert "a node failed" not in log


def check_that_calls_end(place: Standing, code: str) -> None:
    """A call that needs the engine is answered in time, with the cause and when to come back."""
    refused = enqueue(place, "refused")
    assert (refused.status, refused.code) == (503, code)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.seconds < ANSWERED_WITHIN_S


@contextmanager
def on_redis(folder: Path, *options: str) -> Iterator[tuple[RedisServer, Standing]]:
    with (
        redis_server(folder / "redis", *options) as server,
        standing(folder, "--engine", url_of(server, namespace="diagnosis")) as place,
    ):
        assert takes_urls(place)
        yield server, place


def test_redis_without_memory_is_named_and_forgotten_when_it_has_some(tmp_path: Path) -> None:
    with on_redis(tmp_path) as (server, place):
        server.command("CONFIG", "SET", "maxmemory", "1")
        check_that_it_is_named(place, "engine_out_of_memory")
        check_that_calls_end(place, "engine_out_of_memory")
        (trouble,) = ask(place, "GET", "/api/v1/stats").json["troubles"]
        assert (trouble["part"], trouble["code"]) == ("engine", "engine_out_of_memory")
        assert "out of memory" in trouble["message"]
        assert trouble["since"] == ask(place, "GET", "/api/v1/crawl").json["troubles"][0]["since"]
        server.command("CONFIG", "SET", "maxmemory", "0")
        wait_until(lambda: takes_urls(place), WELL_AGAIN_WITHIN_S, "the engine to be used again")
        assert ask(place, "GET", "/api/v1/stats").json["troubles"] == []
        assert "the engine can be used again" in place.log("coordinator")


def test_a_replica_is_named(tmp_path: Path) -> None:
    with on_redis(tmp_path) as (server, place):
        server.command("REPLICAOF", "127.0.0.1", "9")
        check_that_it_is_named(place, "engine_read_only")
        check_that_calls_end(place, "engine_read_only")
        server.command("REPLICAOF", "NO", "ONE")
        wait_until(lambda: takes_urls(place), WELL_AGAIN_WITHIN_S, "the engine to be used again")


def test_a_full_disk_of_redis_is_named(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "redis", megabytes=8) as disk,
        on_redis(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec") as (_, place),
    ):
        disk.fill()
        # The last memory page of the file has room for some more; Redis notices only when it is full.
        for number in range(20):
            enqueue(place, f"more-{number}")
        check_that_it_is_named(place, "engine_disk_full")
        check_that_calls_end(place, "engine_disk_full")
        disk.empty()
        wait_until(lambda: takes_urls(place), WELL_AGAIN_WITHIN_S, "the engine to be used again")


def every_call(place: Standing) -> list[Answer]:
    """One of each kind, one after the other."""
    node = "/api/v1/nodes/n1"
    return [
        enqueue(place, "meanwhile"),
        ask(place, "POST", "/api/v1/nodes/register", {"node_id": "n2", "capacity": 1}),
        ask(place, "POST", f"{node}/work/request", {"max_tasks": 1}),
        ask(place, "POST", "/api/v1/crawl/pause"),
        ask(place, "GET", "/api/v1/stats"),
        ask(place, "GET", "/api/v1/crawl"),
        ask(place, "GET", "/api/v1/nodes"),
        ask(place, "GET", "/api/v1/audit"),
        ask(place, "GET", "/metrics"),
    ]


def first_event(place: Standing) -> str:
    """What a stream of live events begins with."""
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=ANSWERED_WITHIN_S)
    try:
        connection.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
        lines = iter(connection.getresponse().readline, b"")
        return next(line for line in lines if line.startswith(b"event: ")).decode().split()[1]
    finally:
        connection.close()


def stays_frozen(since: float) -> None:
    """Wait until Redis has been silent for `FROZEN_S`."""
    time.sleep(max(0.0, since + FROZEN_S - time.monotonic()))


def check_that_nobody_waits(place: Standing, stop: Callable[[], None], go_on: Callable[[], None], code: str) -> None:
    """Calls that are under way when Redis stops answering, and calls that come later, all end in time."""
    stopped = time.monotonic()
    stop()
    # Left only when every caller has its answer, so a check that fails does not end the coordinator under the others.
    with ThreadPoolExecutor(CALLERS) as callers:
        under_way = [callers.submit(every_call, place) for _ in range(CALLERS)]
        check_that_it_is_named(place, code)
    stays_frozen(since=stopped)
    caught = [answer for one in under_way for answer in one.result()] + every_call(place)
    assert first_event(place) == "trouble"
    check_that_calls_end(place, code)
    assert max(answer.seconds for answer in caught) < ANSWERED_WITHIN_S
    assert {answer.code for answer in caught if answer.status == 503} == {code}
    go_on()
    wait_until(lambda: takes_urls(place), WELL_AGAIN_WITHIN_S, "the engine to be used again")


def test_a_frozen_redis_holds_nobody(tmp_path: Path) -> None:
    with on_redis(tmp_path) as (server, place):
        assert ask(place, "POST", "/api/v1/nodes/register", {"node_id": "n1", "capacity": 1}).status == 200
        check_that_nobody_waits(
            place,
            lambda: os.kill(server.pid, signal.SIGSTOP),
            lambda: os.kill(server.pid, signal.SIGCONT),
            "engine_silent",
        )


def test_a_crawl_whose_redis_was_frozen_ends_with_every_page_once(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, 20, 60, "--latency-ms", "40") as web,
        redis_server(tmp_path / "redis") as server,
        standing(
            tmp_path, "--engine", url_of(server, namespace="frozen"), "-i", str(web.seeds), "--delay", "0"
        ) as place,
    ):
        place.node("n0", "--concurrency", "16")
        wait_until(lambda: web.accounts()["pages_distinct"] >= web.pages // 4, CRAWL_S_MAX, "a quarter of the pages")
        stopped = time.monotonic()
        os.kill(server.pid, signal.SIGSTOP)
        check_that_it_is_named(place, "engine_silent")
        stays_frozen(since=stopped)
        os.kill(server.pid, signal.SIGCONT)
        place.wait_for_nodes(CRAWL_S_MAX)
        check_every_page_stored_once(web, place.store)


def test_a_redis_that_is_cut_off_holds_nobody(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path / "redis") as server,
        CuttingProxy(server.port) as proxy,
        standing(tmp_path, "--engine", f"redis://127.0.0.1:{proxy.port}/diagnosis") as place,
    ):
        assert ask(place, "POST", "/api/v1/nodes/register", {"node_id": "n1", "capacity": 1}).status == 200
        check_that_nobody_waits(place, proxy.cut, proxy.mend, "engine_silent")


def test_a_redis_that_died_is_named(tmp_path: Path) -> None:
    with on_redis(tmp_path, "--appendonly", "yes") as (server, place):
        server.kill()
        check_that_it_is_named(place, "engine_unreachable")
        check_that_calls_end(place, "engine_unreachable")
        server.start()
        wait_until(lambda: takes_urls(place), WELL_AGAIN_WITHIN_S, "the engine to be used again")


def test_drumlin_status_says_it(tmp_path: Path) -> None:
    with on_redis(tmp_path) as (server, place):
        server.command("CONFIG", "SET", "maxmemory", "1")
        check_that_it_is_named(place, "engine_out_of_memory")
        answer = place.drumlin("status", "--coordinator", place.endpoint)
        assert "is out of memory" in answer.stdout


def test_a_full_store_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "store", megabytes=4) as disk, standing(tmp_path) as place:
        disk.fill()
        check_that_it_is_named(place, "store_full", part="store")
        # The engine goes on meanwhile.
        assert enqueue(place, "meanwhile").status == 200
        disk.empty()
        wait_until(lambda: takes_urls(place), WELL_AGAIN_WITHIN_S, "the store to be used again")


def reasons(place: Standing) -> Any:
    return ask(place, "GET", "/api/v1/why-idle").json["reasons"]


def test_why_the_last_node_ended_is_told_until_one_is_at_work_again(tmp_path: Path) -> None:
    """Its own disk is full; the coordinator's is not."""
    with (
        benchmark_web(tmp_path, 4, 400, "--latency-ms", "5") as web,
        small_disk(tmp_path / "spool", megabytes=2),
        standing(tmp_path, "-i", str(web.seeds), "--delay", "0") as place,
    ):
        node = place.node("n0", "--spool", str(tmp_path / "spool"), store=False)
        assert node.wait(CRAWL_S_MAX) == EXIT_STORAGE, place.log("n0")
        wait_until(lambda: bool(reasons(place)), NAMED_WITHIN_S, "the crawl to be idle")
        (reason, *_) = reasons(place)
        assert reason["code"] == "no_active_nodes"
        assert "n0 ended: Cannot write" in reason["message"]
        assert "the disk is full" in reason["message"]
        place.node("n0")

        def is_well() -> bool:
            (record,) = ask(place, "GET", "/api/v1/nodes").json["nodes"]
            return record["status"] == "active" and "failure" not in record["metadata"]

        wait_until(is_well, CRAWL_S_MAX, "the node to be at work again")
