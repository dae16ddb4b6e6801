"""A polite crawl, read with DuckDB while it goes on: rows are seen within a minute, once, and a kill -9 costs none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from drumlin.testing import FakeWeb, Request, Response
from tests.harness.crawls import Crawl, kill_process
from tests.harness.outputs import (
    check_index_matches_tables,
    check_no_leftovers,
    check_rows_lead_to_records,
    check_warcs,
    query,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOSTS = ("one", "two")
PAGES = 110
KILLED_AFTER = 75
"""Pages of a host; by then each has been shown twice, and others are still to be."""
SEEN_WITHIN_S = 60.0
POLL_S = 0.1
CRAWL_S_MAX = 400.0
READ = {
    "pages": "SELECT url FROM read_parquet('{out}/tables/pages/*.parquet')",
    "links": "SELECT url || ' ' || target FROM read_parquet('{out}/tables/links/*.parquet')",
    "fetches": "SELECT url || ' ' || attempt FROM read_parquet('{out}/tables/fetches/*.parquet')",
}
"""Read all files of a folder as one table, as docs/reference/tables.md says. Returns what identifies each row."""


class PolitelyRead:
    """Two hosts, when each page of theirs was first sent, and when a reader of the tables first saw its row."""

    def __init__(self, web: FakeWeb) -> None:
        self.sent: dict[str, list[float]] = {}
        self.seen: dict[str, float] = {}
        self.looks = 0
        self.homes = [self._host(web, name) for name in HOSTS]

    def _host(self, web: FakeWeb, host: str) -> str:
        links = "".join(f'<a href="/{number}.html">{number}</a>' for number in range(1, PAGES))
        for number in range(1, PAGES):
            web.respond(host, f"/{number}.html", self._page(host, f"<title>{number}</title><a href='/'>home</a>"))
        return web.respond(host, "/", self._page(host, f"<title>{host}</title>{links}"))

    def _page(self, host: str, body: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            self.sent.setdefault(f"{host}{request.path}", []).append(time.monotonic())
            return Response(body=body, headers={"Content-Type": "text/html"})

        return answer

    def look(self, out: Path) -> None:
        """Read all tables as a stranger would, and check that no row is there twice."""
        for table, sql in READ.items():
            if not any((out / "tables" / table).glob("*.parquet")):
                return
            rows = [row for (row,) in duckdb.execute(sql.format(out=out)).fetchall()]
            assert len(rows) == len(set(rows)), f"a row of {table} is there twice"
            if table == "pages":
                now = time.monotonic()
                assert self.seen.keys() <= set(rows), "a row was seen, and then no longer"
                self.seen |= {url: now for url in rows if url not in self.seen}
        self.looks += 1

    def unseen(self, urls: dict[str, str], since: float) -> list[str]:
        """Pages that were sent over a minute ago, and not before `since`, and that no reader has seen."""
        late = time.monotonic() - SEEN_WITHIN_S
        return [page for page, times in self.sent.items() if since <= times[-1] < late and urls[page] not in self.seen]


def read_while(crawl: Crawl, read: PolitelyRead, urls: dict[str, str], going: Callable[[], bool]) -> Iterator[None]:
    began = time.monotonic()
    while crawl.running and going():
        read.look(crawl.out)
        assert read.unseen(urls, began) == []
        time.sleep(POLL_S)
        yield


def kill_all(crawl: Crawl) -> None:
    nodes = crawl.nodes()
    assert nodes, "nodes are at work"
    crawl.process.kill()
    for node in nodes:
        kill_process(node)
    crawl.process.wait()


def test_at_one_page_a_second_rows_are_seen_within_a_minute_and_once(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        read = PolitelyRead(web)
        bases = dict(zip(HOSTS, read.homes, strict=True))
        paths = ["/", *(f"/{number}.html" for number in range(1, PAGES))]
        urls = {f"{host}{path}": bases[host] + path[1:] for host in HOSTS for path in paths}
        crawl = Crawl(tmp_path / "crawl", *read.homes, "--delay", "1s", "--nodes", "2")
        try:
            crawl.start()
            for _ in read_while(crawl, read, urls, lambda: len(read.sent) < KILLED_AFTER * len(HOSTS)):
                pass
            assert crawl.running, crawl.errors
            assert len(read.seen) > KILLED_AFTER, "rows of a crawl at work are seen"
            kill_all(crawl)
            crawl.start()
            for _ in read_while(crawl, read, urls, lambda: True):
                pass
            assert crawl.wait(CRAWL_S_MAX) == 0, crawl.errors
        finally:
            crawl.end()
    read.look(crawl.out)
    ages = [read.seen[urls[page]] - times[0] for page, times in read.sent.items() if len(times) == 1]
    again = [page for page, times in read.sent.items() if len(times) > 1]
    print(f"{len(ages)} rows seen {max(ages):.1f} s after their pages at most, {read.looks} looks, again: {again}")
    assert len(again) <= len(HOSTS), "only what was on its way when all were killed is asked for again"
    assert sorted(url for (url,) in query(crawl.out, "SELECT url FROM {pages}")) == sorted(urls.values())
    assert check_rows_lead_to_records(crawl.out) == len(urls)
    check_no_leftovers(crawl.out)
    check_warcs(crawl.out)
    check_index_matches_tables(crawl.out)
