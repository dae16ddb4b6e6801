"""Kill -9 at random moments of a crawl, and what must hold in the end nevertheless."""

from __future__ import annotations

import random
import time
from enum import StrEnum
from typing import Any

from drumlin.node.settling import SETTLE_BATCH_MAX, UNSETTLED_PAGES_MAX
from tests.harness.crawls import Crawl, Web, kill_process, wait_until
from tests.harness.outputs import (
    check_index_matches_tables,
    check_no_leftovers,
    check_rows_lead_to_records,
    check_warcs,
    query,
)

STALL_S_MAX = 120.0
SOON_AFTER_START_S = 1.5
SOON_SHARE = 0.3
LATEST_SHARE = 0.97
NODES = 2


class Victim(StrEnum):
    NODE = "node"
    COORDINATOR = "coordinator"
    ALL = "all"


def crawl_through_kills(web: Web, crawl: Crawl, kills: int, chance: random.Random) -> list[tuple[Victim, int]]:
    """Start the crawl and kill it `kills` times, resuming it each time. The last kill comes when every page has been
    requested.

    The moments are chosen by the number of pages, so every kill falls into the crawl however fast the machine is. Some
    come shortly after another, when nodes are still recovering. Returns each victim and the number of pages by then.
    """
    marks = sorted(int(chance.random() * web.pages * LATEST_SHARE) for _ in range(kills - 1))
    victims = [chance.choice(list(Victim)) for _ in marks]
    story: list[tuple[Victim, int]] = []
    crawl.start()
    for mark, victim in zip([*marks, web.pages], [*victims, Victim.ALL], strict=True):
        if story and mark < web.pages and chance.random() < SOON_SHARE:
            time.sleep(chance.random() * SOON_AFTER_START_S)
        else:
            _wait_for_pages(web, crawl, mark)
        _kill(crawl, victim, chance)
        story.append((victim, web.accounts()["pages_distinct"]))
        if victim is not Victim.NODE:
            crawl.start()
    return story


def _wait_for_pages(web: Web, crawl: Crawl, mark: int) -> None:
    def reached() -> bool:
        assert crawl.running, f"the crawl ended by itself: {crawl.errors}"
        return bool(web.accounts()["pages_distinct"] >= mark)

    wait_until(reached, STALL_S_MAX, f"{mark} pages asked for")


def _kill(crawl: Crawl, victim: Victim, chance: random.Random) -> None:
    assert crawl.running, f"the crawl ended before it was killed: {crawl.errors}"
    if victim is Victim.NODE:
        wait_until(lambda: bool(crawl.nodes()), STALL_S_MAX, "a node to kill")
        kill_process(chance.choice(crawl.nodes()))
        return
    nodes = crawl.nodes() if victim is Victim.ALL else []
    crawl.process.kill()
    for node in nodes:
        kill_process(node)
    crawl.process.wait()


def check_nothing_lost(web: Web, crawl: Crawl, kills: int) -> dict[str, Any]:
    """Check that every page is stored once, and was requested again only if a kill can explain it. Returns the
    figures."""
    accounts = web.accounts()
    assert accounts["missed"] == 0
    assert accounts["denied_requests"] == 0
    assert accounts["unknown_requests"] == 0
    [(rows, urls)] = query(crawl.out, "SELECT count(*), count(DISTINCT url) FROM {pages} WHERE fetch_status = 200")
    assert (rows, urls) == (web.pages, web.pages)
    assert check_rows_lead_to_records(crawl.out) == web.pages
    check_no_leftovers(crawl.out)
    check_warcs(crawl.out)
    stored_again = check_index_matches_tables(crawl.out)["surplus"]
    # This shows that only pages in flight were requested again, and none that had reached the archive. (A page is in
    # the archive a moment before it is in the journal; one kill in many thousands may hit a batch in between.)
    assert stored_again <= SETTLE_BATCH_MAX
    assert accounts["doubles"] <= kills * NODES * UNSETTLED_PAGES_MAX
    return {"pages": rows, "kills": kills, "asked again": accounts["doubles"], "stored again": stored_again}
