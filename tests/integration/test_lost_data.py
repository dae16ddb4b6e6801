"""A Redis that has lost what it had acknowledged: the cause is named, no host is hurried, and no page is missed."""

from __future__ import annotations

import http.client
import json
import shutil
from pathlib import Path
from typing import Any

from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.fleet import needs_redis
from tests.harness.redis import RedisServer, redis_server, url_of
from tests.harness.standing import Standing, standing

NAMED_WITHIN_S = 15.0
"""Longer than we promise, since this machine may be busy with other tests (see test_diagnosis.py)."""
WELL_AGAIN_WITHIN_S = 60.0
CRAWL_S_MAX = 240.0
ASK_S_MAX = 60.0
LOST = "engine_lost_data"
DELAY_S = 0.3

pytestmark = needs_redis


def ask(place: Standing, method: str, path: str, message: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=ASK_S_MAX)
    try:
        connection.request(method, path, json.dumps(message), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def wait_until_named(place: Standing) -> None:
    def named() -> bool:
        status, answer = ask(place, "GET", "/readyz")
        return status == 503 and answer["error"]["code"] == LOST

    wait_until(named, NAMED_WITHIN_S, "the loss to be named")


def fetched(web: Web) -> int:
    pages: int = web.accounts()["pages_distinct"]
    return pages


def bring_back(server: RedisServer, copy: Path) -> None:
    """Start Redis again with the data of an earlier moment."""
    server.kill()
    shutil.rmtree(server.folder)
    shutil.copytree(copy, server.folder)
    server.start()


def test_a_redis_that_was_emptied_is_named_until_its_data_is_back(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", "--appendonly", "yes") as server:
        shape = ("--engine", url_of(server, namespace="emptied"), "--lease", "2s", "http://127.0.0.1:9/")
        with standing(tmp_path, *shape) as place:
            shutil.copytree(server.folder, tmp_path / "copy")
            server.command("FLUSHALL")
            wait_until_named(place)
            status, answer = ask(place, "POST", "/api/v1/urls", {"urls": ["http://127.0.0.1:9/new"]})
            assert (status, answer["error"]["code"]) == (503, LOST)
            reason = ask(place, "GET", "/api/v1/why-idle")[1]["reasons"][0]
            assert (reason["code"], "has lost the whole crawl" in reason["message"]) == (LOST, True)
            bring_back(server, tmp_path / "copy")
            well = ("GET", "/readyz")
            wait_until(lambda: ask(place, *well)[0] == 200, WELL_AGAIN_WITHIN_S, "the engine to be used again")
            assert ask(place, "GET", "/api/v1/stats")[1]["totals"]["known"] == 1


def test_a_crawl_whose_redis_came_back_with_older_data_hurries_no_host_and_misses_no_page(tmp_path: Path) -> None:
    """The nodes hold leases and have sent links that Redis has forgotten."""
    with (
        benchmark_web(tmp_path, 12, 30, "--gap-s", str(DELAY_S)) as web,
        redis_server(tmp_path / "redis", "--appendonly", "yes") as server,
    ):
        engine = ("--engine", url_of(server, namespace="older"), "-i", str(web.seeds))
        with standing(tmp_path, *engine, "--delay", f"{DELAY_S}s", "--lease", "5s") as place:
            nodes = [place.node("n0"), place.node("n1")]
            wait_until(lambda: fetched(web) >= web.pages // 10, CRAWL_S_MAX, "the first pages")
            shutil.copytree(server.folder, tmp_path / "copy")
            wait_until(lambda: fetched(web) >= web.pages // 2, CRAWL_S_MAX, "half of the pages")
            bring_back(server, tmp_path / "copy")
            wait_until_named(place)
            place.wait_for_nodes(CRAWL_S_MAX)
            assert [node.returncode for node in nodes] == [0, 0]
            assert ask(place, "GET", "/api/v1/stats")[1]["pages"] == web.pages
            accounts = web.accounts()
            assert (accounts["pages_distinct"], accounts["gaps_under"]) == (web.pages, 0), accounts["worst_hosts"]
