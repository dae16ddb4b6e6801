"""The dashboard behind nginx with TLS and a prefix, over two coordinators: each is killed while somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from drumlin.testing import FakeWeb
from tests.acceptance.commands import chain
from tests.harness.browser import SCREENS, Looker, chromium, looking, needs_chromium
from tests.harness.certificates import Authority, Certificate
from tests.harness.crawls import wait_until
from tests.harness.fleet import needs_redis
from tests.harness.nginx import free_port, nginx
from tests.harness.redis import redis_server, url_of
from tests.harness.standing import Standing, standing

pytestmark = [pytest.mark.slow, needs_chromium, needs_redis]

PREFIX = "/crawls/one/"
STEP_S_MAX = 120.0
STEP_MS_MAX = 1000 * STEP_S_MAX
PAGES = 3_000
SAMPLES = 2
GAP_S = 3 * 5 + 2
"""The longest time between two samples, taken every five seconds, that the chart bridges."""
PROXY = """
upstream coordinators {{ server 127.0.0.1:{ports[0]} max_fails=0; server 127.0.0.1:{ports[1]} max_fails=0; }}
server {{
    listen 127.0.0.1:{port} ssl;
    {certificate}
    location {prefix} {{
        proxy_pass http://coordinators/;
        proxy_set_header Host $http_host;
        proxy_http_version 1.1;
        proxy_buffering off;
        proxy_read_timeout 1h;
        proxy_next_upstream error timeout;
    }}
}}"""


class Behind:
    """A crawl of two coordinators on one Redis, and the address of the proxy before them."""

    def __init__(self, coordinators: list[Standing], port: int, token: str) -> None:
        self.coordinators = coordinators
        self.address = f"https://localhost:{port}{PREFIX}"
        self.token = token


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    port = free_port()
    certificate = Authority(tmp_path, "authority").sign("localhost", "DNS:localhost")
    with ExitStack() as stack:
        web = stack.enter_context(FakeWeb(hosts=0))
        engine = url_of(stack.enter_context(redis_server(tmp_path / "redis")), namespace="page")
        shared = ("--engine", engine, "--auth", "--public", f"https://localhost:{port}", "--delay", "0.2")
        coordinators = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            coordinators.append(stack.enter_context(standing(tmp_path / name, chain(web, "site", PAGES), *shared)))
        first = coordinators[0]
        token = first.drumlin("tokens", "create", "--role", "operator", "--engine", engine).stdout.strip()
        (tmp_path / "join").write_text(first.drumlin("tokens", "create", "--role", "join", "--engine", engine).stdout)
        endpoints = tuple(one.endpoint for one in coordinators)
        first.node("n0", "--token-file", str(tmp_path / "join"), endpoints=endpoints)
        stack.enter_context(nginx(tmp_path / "nginx", proxy_of(coordinators, port, certificate), port))
        yield Behind(coordinators, port, token)


def proxy_of(coordinators: list[Standing], port: int, certificate: Certificate) -> str:
    ports = [one.port for one in coordinators]
    return PROXY.format(ports=ports, port=port, certificate=certificate.nginx(), prefix=PREFIX)


def pages_shown(looker: Looker) -> int:
    """The first figure of the Overview."""
    return int(looker.page.locator(".figures dd span").first.inner_text().replace(",", ""))


def wait_for_news(looker: Looker) -> None:
    """Wait until the page has a connection and shows further pages of the crawl."""
    before = pages_shown(looker)
    looker.page.locator(".link.live").wait_for(timeout=STEP_MS_MAX)
    wait_until(lambda: pages_shown(looker) > before, STEP_S_MAX, "news")


def gaps(looker: Looker) -> int:
    """How many gaps the chart has. It draws an area for each stretch without one."""
    return looker.page.locator(".chart polygon.ok").count() - 1


def history(looker: Looker) -> list[float]:
    """When the samples of the last hour were taken, as the page would read them."""
    asked = "async () => (await (await fetch('api/v1/history?span=hour')).json()).samples.map((one) => one[0])"
    times: list[float] = looker.page.evaluate(asked)
    return times


def test_the_page_outlives_either_coordinator(behind: Behind) -> None:
    with chromium() as browser, looking(browser, ignore_https_errors=True) as looker:
        page = looker.page
        page.goto(behind.address)
        page.get_by_label("Token").fill(behind.token)
        page.get_by_role("button", name="Log in").click()
        page.locator(".figures").wait_for()
        (cookie,) = looker.context.cookies()
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        assert cookie["path"] == PREFIX.rstrip("/")
        wait_for_news(looker)
        wait_until(lambda: len(history(looker)) > SAMPLES, STEP_S_MAX, "some history")
        # One of the two has the page's stream of events, and one of them leads: each is killed while the other lives.
        for doomed in behind.coordinators:
            doomed.kill()
            wait_for_news(looker)
            for screen in SCREENS:
                looker.show(screen)
            looker.show("Overview")
            wait_until(lambda: gaps(looker) == 0, STEP_S_MAX, "the chart")
            doomed.start()
        times = history(looker)
        assert max(after - before for before, after in pairwise(times)) <= GAP_S, "a chart would show a longer gap"
        page.reload()
        page.locator(".chart polygon.ok").first.wait_for(state="attached")
        wait_until(lambda: gaps(looker) == 0, STEP_S_MAX, "the chart after a reload")
        assert looker.hosts == {behind.address.split("/")[2]}
        # What a call in flight got from a coordinator that was killed, the browser says itself.
        assert [said for said in looker.complaints if "Failed to load resource" not in said] == []
