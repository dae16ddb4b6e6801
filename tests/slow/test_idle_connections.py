"""Crawls of servers that close idle connections, at every pace: hardly a contact is wasted, and no page is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK
from tests.acceptance.commands import drumlin, environment, report
from tests.harness.certificates import Authority
from tests.harness.counting_relay import ANSWER_BYTES_MIN, LONG_PATH, CountingRelay
from tests.harness.nginx import free_port, nginx
from tests.harness.outputs import query

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOSTS = 20
LIMITS_S = [1.2, 2.0, 5.0]
PACES = [(0, 50), (1, 14), (2, 12), (5, 9)]
"""The delay in seconds, and how many pages a host has."""
CRAWL_S_MAX = 300.0
WASTED_SHARE_MAX = 0.01
FILLING = "." * ANSWER_BYTES_MIN


def server(listen: str, idle_s: float, pages: int, more: str = "") -> str:
    links = "".join(f"<a href={number}>{number}</a>" for number in range(1, pages))
    return (
        f"server {{ listen {listen}; {more} keepalive_timeout {int(idle_s * 1000)}ms; default_type text/html; "
        f"location = /robots.txt {{ default_type text/plain; return 200 '# {FILLING}'; }} "
        f"location = {LONG_PATH} {{ return 200 '<title>home</title>{links}{FILLING}'; }} "
        f"location / {{ return 200 '<p>The page $uri of $host. {FILLING}'; }} }}"
    )


def check(folder: Path, relay: CountingRelay, scheme: str, delay_s: int, pages: int, **trust: str) -> None:
    """Crawl the hosts to the end, and check that no page was lost and hardly a contact was wasted."""
    seeds = [f"{scheme}://{authority}{LONG_PATH}" for authority in relay.authorities]
    flags = ["--allow-private", "--delay", f"{delay_s}s", "--quiet"]
    done = drumlin(folder, "crawl", *flags, *seeds, timeout=CRAWL_S_MAX, env=environment(folder, trust))
    contacts = HOSTS * (pages + 1)
    print(f"{relay.wasted} of {contacts} contacts wasted, {relay.connections} connections")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert report(folder)["pages"] == HOSTS * pages, "no page is lost"
    assert query(folder / "crawl", "SELECT url, kind FROM {fetches} WHERE attempt > 1 OR kind IS NOT NULL") == []
    assert relay.wasted < WASTED_SHARE_MAX * contacts
    protocols = {"http": "http/1.1", "https": "h2"}
    assert query(folder / "crawl", "SELECT DISTINCT protocol FROM {fetches}") == [(protocols[scheme],)]


@pytest.mark.parametrize(("delay_s", "pages"), PACES)
@pytest.mark.parametrize("idle_s", LIMITS_S)
def test_over_http_1(tmp_path: Path, idle_s: float, delay_s: int, pages: int) -> None:
    port = free_port()
    served = nginx(tmp_path / "nginx", server(f"127.0.0.1:{port}", idle_s, pages), port)
    with served, CountingRelay(port, HOSTS, net=101) as relay:
        check(tmp_path, relay, "http", delay_s, pages)


@pytest.mark.parametrize(("delay_s", "pages"), PACES)
@pytest.mark.parametrize("idle_s", LIMITS_S)
def test_over_http_2(tmp_path: Path, idle_s: float, delay_s: int, pages: int) -> None:
    authority, port = Authority(tmp_path, "authority"), free_port()
    addresses = [f"127.102.0.{number}" for number in range(1, HOSTS + 1)]
    certificate = authority.sign("hosts", ",".join(f"IP:{address}" for address in addresses))
    served = nginx(tmp_path / "nginx", server(f"127.0.0.1:{port} ssl http2", idle_s, pages, certificate.nginx()), port)
    with served, CountingRelay(port, HOSTS, net=102) as relay:
        check(tmp_path, relay, "https", delay_s, pages, SSL_CERT_FILE=str(authority.file))
