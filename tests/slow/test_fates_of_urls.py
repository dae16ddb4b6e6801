"""URLs with different fates: `drumlin why` tells the true story of each, on RocksDB and on Redis, while the crawl runs,
after it has ended, and when the tables are a week old and have an index."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drumlin.client.remote import EXIT_COORDINATOR, CoordinatorError
from drumlin.protocol import paths
from drumlin.testing import FakeWeb, Request, Response
from tests.harness.crawls import wait_until
from tests.harness.redis import redis_server, url_of
from tests.harness.standing import Standing, standing

WITHIN_S = 120.0
WEEK_S = 7 * 86_400.0
FATES = 20
SLOW_S = 15.0
NOWHERE = "http://127.0.0.1:1/page"
ROBOTS = "# ours\nUser-agent: *\nAllow: /\nDisallow: /private/\nSitemap: {sitemap}\n"
TEXT = " ".join(f"word{number} tells of drumlin {number * 7 % 101}" for number in range(200))
LINKS = [
    "/page",
    "/private/x",
    "/flaky",
    "/moved",
    "/twin",
    "/alike",
    "/dead",
    "/loop",
    "/gone",
    "/cal/2199-01-01",
    "/left-out/x",
    "/deep1",
    "/far",
    "/dropped",
]


def made_web(web: FakeWeb) -> None:
    """A site whose home page links to one page of each fate."""
    links = "".join(f"<a href='{path}'>{path}</a>" for path in LINKS)
    links += f"<a href='{web.url('other', '/x')}'>other</a><a rel='nofollow' href='/unwanted'>no</a><img src='/i.png'>"
    sitemap = web.url("site", "/map.xml")
    web.respond("site", "/robots.txt", Response(body=ROBOTS.format(sitemap=sitemap), content_type="text/plain"))
    listed = f"<urlset><url><loc>{web.url('site', '/listed')}</loc><priority>1.0</priority></url></urlset>"
    web.respond("site", "/map.xml", Response(body=listed, content_type="application/xml"))
    web.page("site", "/", f"<title>home</title>{links}")
    web.page("site", "/page", f"<title>page</title><p>{TEXT}")
    web.page("site", "/listed", "<title>listed</title><p>from the sitemap")
    web.page("site", "/deep1", "<a href='/deep2'>deeper</a> one link from home")
    web.page("site", "/deep2", "<a href='/deep3'>too deep</a> two links from home")
    # These come later than the page that they repeat, so which repeats which is certain.
    web.respond("site", "/twin", lambda request: Response(body=f"<title>page</title><p>{TEXT}", delay_s=0.5))
    web.respond("site", "/alike", lambda request: Response(body=f"<title>page</title><p>{TEXT} end", delay_s=0.5))
    web.respond("site", "/flaky", flaky)
    web.respond("site", "/moved", Response(status=302, headers={"Location": "/page"}))
    web.respond("site", "/loop", Response(status=302, headers={"Location": "/loop?again=1"}))
    web.respond("site", "/loop?again=1", Response(status=302, headers={"Location": "/loop"}))
    for path in ("/dead", "/dropped"):
        web.respond("site", path, Response(status=503, body="busy"))
    web.respond("polite", "/robots.txt", Response(body="User-agent: *\nCrawl-delay: 3600\nDisallow: /no\n"))
    web.page("polite", "/", "never asked for")
    web.respond("slow", "/", Response(body="at last", delay_s=SLOW_S))


def flaky(request: Request) -> Response:
    return Response(status=503, body="not now") if request.number == 1 else Response(body="now it works")


@contextmanager
def crawl_on(engine: str, folder: Path, web: FakeWeb) -> Iterator[Standing]:
    seeds = [web.url("site"), web.url("polite"), NOWHERE]
    settings = ["--delay", "0", "--depth", "2", "--exclude", "/left-out/", "--retries-max", "1"]
    settings += ["--backoff-base", "0.2"]
    if engine == "rocksdb":
        with standing(folder, *settings, *seeds) as place:
            yield place
    else:
        with (
            redis_server(folder / "redis") as server,
            standing(folder, "--engine", url_of(server, namespace="fates"), *settings, *seeds) as place,
        ):
            yield place


class Teller:
    """Asks about URLs: by the API, as `drumlin why` does, and by the command itself."""

    def __init__(self, place: Standing, web: FakeWeb) -> None:
        self._place = place
        self._web = web
        self.asked: dict[str, None] = {}

    def told(self, url: str) -> dict[str, Any]:
        """What the API says of a URL."""
        full = url if "://" in url else self._web.url("site", url)
        self.asked[full] = None
        answer: dict[str, Any] = self._place.remote.get(paths.URLS, url=full)
        return answer

    def said(self, url: str) -> str:
        return "\n".join(self.told(url)["story"])

    def steps(self, url: str) -> list[str]:
        return [step["what"] for step in self.told(url)["steps"]]

    def command(self, url: str) -> subprocess.CompletedProcess[str]:
        return self._place.drumlin("why", url, "--coordinator", self._place.endpoint)


def check_the_command(teller: Teller) -> None:
    """A person reads what the API says, of every URL that this test asks about."""
    assert len(teller.asked) >= FATES
    for url in list(teller.asked):
        told = teller.told(url)
        # What waits is told with how long it still has to, which is less each second.
        sentences = told["story"][:2] if told["state"] in ("queued", "leased", "scheduled") else told["story"]
        assert teller.command(url).stdout.splitlines()[: len(sentences)] == sentences


def check_what_was_refused(teller: Teller, web: FakeWeb) -> None:
    """Fates 1 to 7: what never entered the frontier."""
    home = web.url("site")
    unknown = teller.command(web.url("site", "/nobody-links-here"))
    assert (unknown.returncode, "Nothing is known of" in unknown.stderr) == (EXIT_COORDINATOR, True)
    for url, why in (
        (web.url("other", "/x"), "--scope host leaves it out."),
        ("/cal/2199-01-01", "It looks like one of endlessly many ("),
        ("/left-out/x", "--exclude leaves it out."),
        ("/deep3", "3 links from a seed and so beyond --depth 2."),
        ("/unwanted", f"{home} links to it with rel=nofollow, which is not followed."),
        ("/i.png", f"{home} shows it (img), which is fetched with --assets."),
    ):
        said = teller.said(url)
        assert "It was never queued. By today's rules" in said, said
        assert why in said, said
        assert teller.told(url)["state"] == "not_followed"


def check_what_was_done(teller: Teller, web: FakeWeb) -> None:
    """Fates 8 to 17: what has come to its end. All of it is in the store; engines keep next to nothing of it."""
    home = web.url("site")
    denied = teller.said("/private/x")
    assert "Not requested by n0 at " in denied
    assert "its robots.txt does not allow it (line 4: Disallow: /private/)" in denied
    assert f"{home} links to it." in denied
    assert teller.steps("/flaky") == ["found", "failed", "fetched", "done"]
    flaky = teller.said("/flaky")
    assert "with status 503: http_5xx" in flaky
    assert "tried again, as the site has trouble of its own." in flaky
    assert "(attempt 2) with status 200; its row is in tables/pages/" in flaky or "its row is in the journal" in flaky
    assert " of warc/" in flaky
    moved = teller.said("/moved")
    assert f"with status 302 to {web.url('site', '/page')};" in moved
    assert f"it has the same content as {web.url('site', '/page')};" in teller.said("/twin")
    assert f"it has nearly the same text as {web.url('site', '/page')};" in teller.said("/alike")
    assert "with status 404;" in teller.said("/gone")
    listed = teller.said("/listed")
    assert f"Found on {web.url('site', '/map.xml')}" in listed
    assert "sitemap that robots.txt names." in teller.said("/map.xml")
    assert f"Found on {web.url('site', '/deep1')}" in teller.said("/deep2")
    assert teller.told("/page")["state"] == "done"
    assert teller.steps(home)[-2:] == ["fetched", "done"]


def check_what_was_given_up(teller: Teller) -> None:
    """Fates 18 to 20."""
    dead = teller.said("/dead")
    assert dead.count("with status 503: http_5xx") == 2
    assert "Given up after 2 attempts (a dead letter) since " in dead
    assert teller.steps("/dead")[:2] == ["found", "queued"]
    assert "Queued with priority 4 of 9: 5 to begin with, 1 less for being 1 link from a seed." in dead
    assert "Given up" in teller.said("/loop?again=1") + teller.said("/loop")
    assert "redirect_loop" in teller.said("/loop?again=1") + teller.said("/loop")
    assert "or somebody dropped it from the dead letters" in teller.said("/dropped")


def check_what_waits(teller: Teller, web: FakeWeb) -> None:
    """Fates 21 to 24: put off, waiting for an hour, waiting for its turn, in flight."""
    assert teller.steps(NOWHERE)[-1] == "put_off"
    assert "It is put off with its host. 127.0.0.1:1: It has been out of reach for " in teller.said(NOWHERE)
    polite = teller.told(web.url("polite"))
    assert polite["state"] in ("queued", "leased"), "its node may hold it for the hour that its robots.txt asks for"
    assert polite["priority_parts"] == {"default": 5, "depth": 0, "hint_or_order": 0}
    new = teller.command(web.url("new", "/page")).stdout
    assert "Queued with priority 9 of 9: 5 to begin with, 4 more by somebody's order." in new
    assert "It waits for its turn." in new
    assert "The crawl is paused" in new
    slow = teller.said(web.url("slow"))
    assert "n0 has it to fetch, until " in slow


def ended(teller: Teller, *paths: str) -> bool:
    try:
        return all(teller.told(path)["state"] in ("done", "dead") for path in paths)
    except CoordinatorError:
        # One of them is not known yet.
        return False


@pytest.mark.parametrize("engine", ["rocksdb", "redis"])
def test_every_fate_is_told(tmp_path: Path, engine: str) -> None:
    with FakeWeb(hosts=0) as web:
        made_web(web)
        with crawl_on(engine, tmp_path, web) as place:
            place.node("n0")
            teller = Teller(place, web)
            wait_until(lambda: ended(teller, *LINKS[:9], "/dropped", "/deep2", "/listed"), WITHIN_S, "every page")
            coordinator = ("--coordinator", place.endpoint)
            assert place.drumlin("dead-letters", "drop", web.url("site", "/dropped"), *coordinator).returncode == 0
            assert place.drumlin("enqueue", web.url("slow"), *coordinator).returncode == 0
            wait_until(lambda: web.url("slow") in web.requested, WITHIN_S, "the slow page to be asked for")
            assert place.drumlin("pause", *coordinator).returncode == 0
            queued = ("enqueue", "--priority", "9", web.url("new", "/page"), *coordinator)
            assert place.drumlin(*queued).returncode == 0
            check_what_waits(teller, web)
            check_what_was_done(teller, web)
            check_what_was_given_up(teller)
            assert place.drumlin("resume", *coordinator).returncode == 0
            assert place.drumlin("stop", *coordinator).returncode == 0
            place.wait_for_nodes(WITHIN_S)
            check_everything_after_the_end(teller, web)
            check_the_command(teller)
            check_with_an_index(teller, place, web)


def check_everything_after_the_end(teller: Teller, web: FakeWeb) -> None:
    check_what_was_refused(teller, web)
    check_what_was_done(teller, web)
    check_what_was_given_up(teller)
    assert "has it to fetch" not in teller.said(web.url("slow"))
    assert f"Found on {web.url('site', '/deep1')}, 2 links from a seed." in teller.said("/deep2")
    assert teller.told("/page")["store"] == "whole"
    assert not any(fetch["unshown"] for fetch in teller.told("/page")["fetches"])


def check_with_an_index(teller: Teller, place: Standing, web: FakeWeb) -> None:
    """A week later the same is told, from the index that was made because somebody had asked."""
    tables = place.store / "tables"
    then = time.time() - WEEK_S
    for path in tables.rglob("*.parquet"):
        os.utime(path, (then, then))
    segments = len(list((tables / "pages").glob("*.parquet")))
    indexes = tables / "url-index"
    wait_until(lambda: len(list(indexes.glob("*.urls"))) == segments, WITHIN_S, "the indexes")
    check_everything_after_the_end(teller, web)
