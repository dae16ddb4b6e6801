"""A crawl's outputs in the hands of others: pywb replays it, Chromium shows it, DuckDB reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.parse.links import ASSET_KINDS
from tests.harness.crawls import Crawl
from tests.harness.manuals import manuals
from tests.harness.outputs import check_rows_lead_to_records, check_warcs, query
from tests.harness.raw_web import RawWeb
from tests.harness.replay import browse, pywb, screenshot

PAGE = "library/json.html"
CRAWL_S_MAX = 600.0
# A picture of a page with text has many times the bytes of an empty one of the same size.
NOT_BLANK_FACTOR = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A page of Python's manual and the crawl directory that holds it, with assets; its web server is gone by then."""
    folder = tmp_path_factory.mktemp("replay")
    with manuals(folder) as (python, _):
        crawl = Crawl(folder / "crawl", python + PAGE, "--assets", "--depth", "1")
        crawl.run(CRAWL_S_MAX)
    return python + PAGE, crawl.out


def test_pywb_replays_a_page_with_everything_it_shows(crawled: tuple[str, Path], tmp_path: Path) -> None:
    url, out = crawled
    shown = "SELECT DISTINCT target FROM {links} WHERE url = ? AND list_contains(?, kind) AND starts_with(target, ?)"
    host = url.removesuffix(PAGE)
    assets = [asset for (asset,) in query(out, shown, url, sorted(ASSET_KINDS), host)]
    with pywb(tmp_path / "pywb", out) as replay:
        assert replay.status(url) == 200
        assert len(assets) >= 5
        assert {asset: replay.status(asset) for asset in assets} == dict.fromkeys(assets, 200)
        # No page links to these: a stylesheet imports the first, and each imports the next.
        imported = [f"{host}_static/{name}.css" for name in ("default", "classic", "basic")]
        assert {sheet: replay.status(sheet) for sheet in imported} == dict.fromkeys(imported, 200)
        assert replay.status(url + "x") == 404


def test_pywb_replays_refusals_and_robots_txt(tmp_path: Path) -> None:
    statuses = (403, 404, 410, 500, 503)
    answers = {f"/{status}": b"HTTP/1.1 %d X\r\nContent-Length: 3\r\n\r\nno!" % status for status in statuses}
    links = "".join(f'<a href="/{status}">' for status in statuses).encode()
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(links), links)
    robots = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
    with RawWeb({"/": page, "/robots.txt": robots, **answers}) as web:
        crawl = Crawl(tmp_path / "crawl", web.url(), "--retries-max", "0")
        crawl.run(CRAWL_S_MAX)
    with pywb(tmp_path / "pywb", crawl.out) as replay:
        assert replay.status(web.url("/robots.txt")) == 200
        assert [replay.status(web.url(f"/{status}")) for status in statuses] == list(statuses)
        assert replay.status(web.url("/never")) == 404


def test_chromium_shows_a_replayed_page(crawled: tuple[str, Path], tmp_path: Path) -> None:
    url, out = crawled
    picture = out / "replayed.png"
    with pywb(tmp_path / "pywb", out) as replay:
        document = browse(replay.address(url), "--dump-dom")
        size = screenshot(replay.address(url), picture)
    assert "<title>json — JSON encoder and decoder — Python 3.11" in document
    assert "Basic Usage" in document
    assert size > NOT_BLANK_FACTOR * screenshot("about:blank", tmp_path / "blank.png")
    print(f"the replayed page: {picture}")


def test_duckdb_reads_and_joins_all_tables(crawled: tuple[str, Path]) -> None:
    url, out = crawled
    [(pages, urls, texts)] = query(out, "SELECT count(*), count(DISTINCT url), count(nullif(text, '')) FROM {pages}")
    [(fetches, fetched)] = query(out, "SELECT count(*), count(*) FILTER (outcome = 'fetched') FROM {fetches}")
    [(links, linking)] = query(out, "SELECT count(*), count(DISTINCT url) FROM {links}")
    print(f"{pages} pages ({texts} with text), {fetches} fetches, {links} links")
    assert pages == urls == fetched <= fetches
    assert 15 < texts <= pages
    assert links > 10 * linking
    joined = "SELECT count(*) FROM {pages} p JOIN {fetches} f ON p.record_id = f.record_id AND p.url = f.url"
    assert query(out, joined) == [(pages,)]
    targets = "SELECT count(DISTINCT target) FROM {links} l JOIN {pages} p ON l.target = p.url WHERE l.url = ?"
    [(followed,)] = query(out, targets, url)
    assert followed > 20
    times = "SELECT max(fetch_time) >= min(fetch_time) AND max(fetch_time) <= now() FROM {pages}"
    assert query(out, times) == [(True,)]


def test_both_checkers_accept_the_archive(crawled: tuple[str, Path]) -> None:
    _, out = crawled
    assert check_rows_lead_to_records(out) > 30
    check_warcs(out)
