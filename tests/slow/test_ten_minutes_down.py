"""Sites that are down for ten real minutes: how often they are asked, and that nothing of them is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK
from drumlin.testing import FakeWeb, Request, Response
from tests.acceptance.commands import chain, crawl, report, stored_urls

DOWN_S = 600.0
ASKED_S = 120
PAGES = 5
ASKED_MAX = 7
"""At 0, 10, 30, 70, 150 and 310 s, each a little later, and once more at most."""


@contextmanager
def refusing(down_s: float, began: float) -> Iterator[tuple[str, list[float]]]:
    """A site that refuses connections at first, and then answers: its home page, and when it was asked."""
    asked: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(time.monotonic() - began)
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.server_bind()

    def listen() -> None:
        time.sleep(max(0.0, began + down_s - time.monotonic()))
        server.server_activate()
        server.serve_forever()

    threading.Thread(target=listen, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    server.shutdown()
    server.server_close()


@pytest.mark.timeout(1_800)
def test_sites_that_are_down_for_ten_minutes_are_asked_seldom_and_fetched_after(tmp_path: Path) -> None:
    began = time.monotonic()
    asked: dict[str, list[float]] = {"503": [], "429": []}

    def robots(name: str, down: Response) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            asked[name].append(time.monotonic() - began)
            return down if asked[name][-1] < DOWN_S else Response(body="User-agent: *\n")

        return answer

    with FakeWeb(hosts=0) as web, refusing(DOWN_S, began) as (nowhere, reached):
        homes = [chain(web, name, PAGES) for name in asked]
        web.respond("503", "/robots.txt", robots("503", Response(status=503)))
        web.respond("429", "/robots.txt", robots("429", Response(status=429, headers={"Retry-After": str(ASKED_S)})))
        done = crawl(tmp_path, *homes, nowhere, "--out", "crawl", "--patience", "25m", timeout=1_700.0)
        pages = [request for request in web.requests if request.path != "/robots.txt"]
    assert done.returncode == EXIT_OK, done.stderr[-2_000:]
    assert report(tmp_path)["dead_letters"] == {}
    assert len(stored_urls(tmp_path / "crawl")) == 2 * PAGES + 1
    assert len(pages) == 2 * PAGES
    down = {name: [at for at in times if at < DOWN_S] for name, times in asked.items()}
    print({name: [round(at) for at in times] for name, times in asked.items()}, [round(at) for at in reached])
    assert 4 <= len(down["503"]) <= ASKED_MAX
    assert len(down["429"]) <= DOWN_S / ASKED_S + 1
    assert all(later - earlier >= ASKED_S for earlier, later in pairwise(down["429"]))
    assert min(reached) >= DOWN_S
    assert "3 out of reach" in done.stderr
