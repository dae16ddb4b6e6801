"""A crawl of servers that close idle connections just when the next request is due: nothing fails, nothing is lost."""

from __future__ import annotations

from pathlib import Path

from drumlin.errors import EXIT_OK
from tests.acceptance.commands import drumlin, report
from tests.harness.idle_web import IdleWeb
from tests.harness.outputs import query

HOSTS = 8
PAGES = 5
IDLE_S = 1.0


def test_a_limit_as_long_as_the_delay_wastes_no_attempt(tmp_path: Path) -> None:
    with IdleWeb(IDLE_S, HOSTS, net=103, pages=PAGES) as web:
        seeds = [origin + "/" for origin in web.origins]
        done = drumlin(tmp_path, "crawl", "--allow-private", "--delay", "1s", "--nodes", "1", "--quiet", *seeds)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert report(tmp_path)["pages"] == HOSTS * (PAGES + 1)
    assert query(tmp_path / "crawl", "SELECT url, kind FROM {fetches} WHERE attempt > 1 OR kind IS NOT NULL") == []
    assert set(web.asked.values()) == {1}, "every URL was asked for once"
