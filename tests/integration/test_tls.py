"""HTTPS and broken connections: what works is crawled, what fails is named and tried again as promised.

The servers are a real nginx and a few that break on purpose; the promise is `drumlin.frontier.backoff.RETRY_RULES`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from drumlin.frontier.backoff import RETRY_RULES
from drumlin.store import read_capture
from tests.harness.certificates import Authority, Certificate
from tests.harness.crawls import Crawl, dead_letters
from tests.harness.faulty import cut_short, faulty_server, no_http, reset
from tests.harness.nginx import free_port, nginx
from tests.harness.outputs import check_warcs, query

CRAWL_S_MAX = 120.0
RETRIES_MAX = 1
PAGES = 12
NO_ROBOTS = "location = /robots.txt { return 404; }"
QUICKLY = ("--retries-max", str(RETRIES_MAX), "--backoff-base", "0.1s", "--nodes", "1", "--host-patience", "1s")
# Failures of the host and not of its URL: it is tried again until `host_patience` is over.
OUT_OF_REACH = frozenset({"tls", "connect", "dns"})

# Each bad host, and the kind of failure that its URL must end with.
BAD_HOSTS = {
    "expired": "tls",
    "wrong-name": "tls",
    "untrusted": "tls",
    "plain-text": "tls",
    "refusing": "connect",
    "unresolvable": "dns",
    "resetting": "reset",
    "empty": "reset",
    "no-http": "protocol",
}


class Site:
    """The URLs of the hosts, by name."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.good = f"https://localhost:{port}/"
        self.old = f"https://127.0.0.9:{port}/"
        self.bad = {
            "expired": f"https://127.0.0.2:{port}/",
            "wrong-name": f"https://127.0.0.3:{port}/",
            "untrusted": f"https://127.0.0.4:{port}/",
            "plain-text": f"https://127.0.0.5:{port}/",
            "empty": f"http://127.0.0.6:{port}/",
            "refusing": f"http://127.0.0.7:{free_port('127.0.0.7')}/",
            "unresolvable": "http://nowhere.invalid/",
        }


def tls_server(address: str, port: int, certificate: Certificate, flags: str, root: Path) -> str:
    content = f"root {root}; gzip on; gzip_min_length 1;"
    return f"server {{ listen {address}:{port} ssl {flags}; {certificate.nginx()} {content} }}"


def configuration(site: Site, authority: Authority, stranger: Authority, root: Path) -> str:
    def good(address: str, subject: str, flags: str = "http2", **more: Any) -> str:
        return tls_server(address, site.port, authority.sign(address, subject, **more), flags, root)

    blocks = [
        good("127.0.0.1", "DNS:localhost"),
        good("127.0.0.9", "IP:127.0.0.9", ""),
        good("127.0.0.2", "IP:127.0.0.2", days=0),
        good("127.0.0.3", "DNS:elsewhere.example"),
        tls_server("127.0.0.4", site.port, stranger.sign("stranger", "IP:127.0.0.4"), "http2", root),
        f"server {{ listen 127.0.0.5:{site.port}; root {root}; }}",
        # 444 is nginx's way of closing the connection without an answer.
        f"server {{ listen 127.0.0.6:{site.port}; {NO_ROBOTS} location / {{ return 444; }} }}",
    ]
    return "\n".join(blocks)


def write_pages(root: Path) -> None:
    root.mkdir()
    links = "".join(f'<a href="/{number}.html">{number}</a> ' for number in range(PAGES))
    (root / "index.html").write_text(f"<!DOCTYPE html><title>Start</title>{links}")
    for number in range(PAGES):
        (root / f"{number}.html").write_text(
            f"<!DOCTYPE html><title>Page {number}</title><p>{f'word{number} ' * 200}</p>"
        )


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Path]:
    """One crawl of all hosts, good and bad."""
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger-authority")
    write_pages(folder / "pages")
    site = Site(free_port())
    with ExitStack() as stack:
        stack.enter_context(
            nginx(folder / "nginx", configuration(site, authority, stranger, folder / "pages"), site.port)
        )
        for name, fault in {"resetting": reset, "cut-short": cut_short, "no-http": no_http}.items():
            site.bad[name] = f"http://{stack.enter_context(faulty_server('127.0.0.8', fault))}/"
        crawl = Crawl(
            folder / "crawl", site.good, site.old, *site.bad.values(), *QUICKLY,
            environment={"SSL_CERT_FILE": str(authority.file)},
        )  # fmt: skip
        crawl.run(CRAWL_S_MAX)
    return site, crawl.out


def test_https_is_crawled_over_http_2(crawled: tuple[Site, Path]) -> None:
    site, out = crawled
    rows = query(out, "SELECT url, protocol, fetch_status FROM {pages} WHERE starts_with(url, ?)", site.good)
    assert len(rows) == PAGES + 1
    assert {(protocol, status) for _, protocol, status in rows} == {("h2", 200)}


def test_a_server_without_http_2_is_crawled_over_http_1(crawled: tuple[Site, Path]) -> None:
    site, out = crawled
    rows = query(out, "SELECT protocol, fetch_status FROM {pages} WHERE starts_with(url, ?)", site.old)
    assert rows == [("http/1.1", 200)] * (PAGES + 1)


def test_pages_compressed_by_the_server_are_archived_as_sent_and_read_as_meant(crawled: tuple[Site, Path]) -> None:
    site, out = crawled
    [(name, offset, title, text)] = query(
        out,
        "SELECT warc_filename, warc_record_offset, title, text FROM {pages} WHERE url = ?",
        site.good + "3.html",
    )
    capture = read_capture(out / "warc" / name, offset)
    assert capture.headers["content-encoding"] == "gzip"
    assert capture.body_raw.startswith(b"\x1f\x8b")
    assert title == "Page 3"
    assert text.count("word3") == 200
    check_warcs(out)


@pytest.mark.parametrize(("name", "kind"), BAD_HOSTS.items(), ids=str)
def test_a_bad_host_is_classified_and_tried_as_often_as_documented(
    crawled: tuple[Site, Path], name: str, kind: str
) -> None:
    site, out = crawled
    tries = query(out, "SELECT outcome, kind, attempt FROM {fetches} WHERE url = ? ORDER BY fetch_time", site.bad[name])
    expected = 1 + RETRIES_MAX if RETRY_RULES[kind].retries and kind not in OUT_OF_REACH else 1
    assert tries == [("failed", kind, attempt + 1) for attempt in range(expected)]


def test_a_body_that_breaks_off_is_tried_again_and_at_last_stored_as_far_as_it_came(crawled: tuple[Site, Path]) -> None:
    site, out = crawled
    tries = query(out, "SELECT outcome, kind FROM {fetches} WHERE url = ? ORDER BY fetch_time", site.bad["cut-short"])
    assert tries == [("failed", "reset")] * RETRIES_MAX + [("fetched", None)]
    rows = query(out, "SELECT text, content_truncated FROM {pages} WHERE url = ?", site.bad["cut-short"])
    assert rows == [("A beginning", "disconnect")]


def test_every_bad_host_ends_as_a_dead_letter(crawled: tuple[Site, Path]) -> None:
    site, out = crawled
    letters = dead_letters(out)
    assert {letter["url"]: letter["kind"] for letter in letters} == {
        site.bad[name]: kind for name, kind in BAD_HOSTS.items()
    }
    assert all(letter["last_error"] for letter in letters)
