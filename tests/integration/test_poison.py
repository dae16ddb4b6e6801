"""A page that kills the process which parses it costs its node a restart or two, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.node.main import ABORT_HOOK
from drumlin.testing import FakeWeb
from tests.harness.crawls import Crawl, dead_letters
from tests.harness.outputs import check_no_leftovers, check_rows_lead_to_records, check_warcs, stored_urls

HOSTS = 6
PAGES = 30
POISON = "/poison.html"
POISONED_HOST = "host2"
CRAWL_S_MAX = 200.0


def fill(web: FakeWeb) -> set[str]:
    """Small sites whose start pages link to all their pages, one of them poisoned; the URLs of the good pages."""
    good = set()
    for number in range(HOSTS):
        host = f"host{number}"
        links = "".join(f'<a href="/{page}.html">{page}</a> ' for page in range(PAGES // 2))
        links += f'<a href="{POISON}">poison</a>' if host == POISONED_HOST else ""
        links += "".join(f'<a href="/{page}.html">{page}</a> ' for page in range(PAGES // 2, PAGES))
        good.add(web.page(host, "/", f"<!DOCTYPE html><title>{host}</title>{links}"))
        for page in range(PAGES):
            good.add(web.page(host, f"/{page}.html", f"<!DOCTYPE html><title>{host} {page}</title>"))
    web.page(POISONED_HOST, POISON, "<!DOCTYPE html><title>Poison</title>")
    return good


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_page_that_aborts_its_process_is_a_dead_letter_the_second_time(tmp_path: Path, nodes: str) -> None:
    with FakeWeb(hosts=0) as web:
        good = fill(web)
        seeds = [web.url(f"host{number}") for number in range(HOSTS)]
        crawl = Crawl(tmp_path / "crawl", *seeds, "--nodes", nodes, environment={ABORT_HOOK: POISON})
        report = crawl.run(CRAWL_S_MAX)
        poison = web.url(POISONED_HOST, POISON)
        visits = sum(request.path == POISON for request in web.requests)
    assert set(stored_urls(crawl.out)) == good
    assert len(stored_urls(crawl.out)) == len(good)
    assert report["pages"] == len(good)
    assert visits == 2
    [letter] = dead_letters(crawl.out)
    assert (letter["url"], letter["kind"]) == (poison, "crash")
    assert "SIGABRT" in letter["last_error"]
    assert report["dead_letters"] == {"crash": 1}
    check_rows_lead_to_records(crawl.out)
    check_no_leftovers(crawl.out)
    check_warcs(crawl.out)
