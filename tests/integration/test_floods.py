"""After a flood of requests a coordinator is hardly larger than before it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import zstandard

from tests.harness.crawls import wait_until
from tests.harness.redis import redis_server, url_of
from tests.harness.standing import Standing, standing

GROWN_MAX = 1.5
SMALL_AGAIN_WITHIN_S = 90.0
ANSWER_S_MAX = 120.0
BODY_BYTES = 50 * 1024 * 1024
AT_ONCE = 6
CONNECTIONS = 2_000
NAMES = 2_000


def post(place: Standing, path: str, body: bytes, encoding: str = "identity") -> None:
    """Send a body. It does not matter whether it is accepted or refused."""
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=ANSWER_S_MAX)
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    try:
        connection.request("POST", path, body, headers)
        connection.getresponse().read()
    except OSError:
        # The server closed the connection before all of it was sent.
        return
    finally:
        connection.close()


def at_once(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def flood_with_refused_bodies(place: Standing) -> None:
    plain = b'{"a":"' + b"x" * BODY_BYTES + b'"}'
    bomb = zstandard.compress(b'{"results":[' + b" " * BODY_BYTES + b"]}")
    at_once(lambda n: post(place, f"/api/v1/nodes/r{n}/results", plain))
    at_once(lambda n: post(place, f"/api/v1/nodes/r{n}/results", bomb, "zstd"))


def flood_with_results(place: Standing) -> None:
    """Results that nobody asked for, with half a million links in all of them together."""
    links = [f"http://a.example/{number}-{'x' * 60}" for number in range(2_000)]
    result = {"assignment_id": "n:1:1", "status_code": 200, "content_hash": "ab" * 32, "crawl_time": 1.0, "size": 5}
    results = [{**result, "url": f"http://a.example/{number}", "links": links} for number in range(250)]
    body = json.dumps({"results": results}).encode()
    at_once(lambda n: post(place, f"/api/v1/nodes/n{n}/results", body))


def flood_with_connections(place: Standing) -> None:
    """Heads that never end."""
    opened = []
    for _ in range(CONNECTIONS):
        one = socket.create_connection(("127.0.0.1", place.port))
        one.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"z" * 8_000)
        opened.append(one)
    for one in opened:
        one.close()


def flood_with_names(place: Standing) -> None:
    for number in range(NAMES):
        post(place, f"/api/v1/nodes/name-{number}/heartbeat", b"{}")


@pytest.mark.timeout(600)
def test_memory_is_given_back_after_floods(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path / "redis") as server,
        standing(tmp_path, "--engine", url_of(server, namespace="floods")) as place,
    ):
        for number in range(AT_ONCE):
            place.remote.post("/api/v1/nodes/register", {"node_id": f"n{number}", "capacity": 1})
        place.remote.get("/api/v1/openapi.json")
        process = psutil.Process(place.pid)
        before = process.memory_info().rss
        for flood in (flood_with_refused_bodies, flood_with_results, flood_with_connections, flood_with_names):
            flood(place)
        wait_until(
            lambda: process.memory_info().rss <= GROWN_MAX * before, SMALL_AGAIN_WITHIN_S, "memory to be given back"
        )
        assert place.remote.get("/readyz") == {"status": "ready"}
