"""Every verb finds its crawl by --out or by --coordinator: a running one, one that stands still, and a fleet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.client.remote import EXIT_COORDINATOR
from drumlin.errors import EXIT_OK, EXIT_USAGE
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin, end, running, wait_until

PAGES = 400
LOOKS: list[tuple[str, ...]] = [("status",), ("why",), ("nodes",), ("hosts",), ("audit",), ("dead-letters",)]


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        links = "".join(f'<a href="/{number}">{number}</a>' for number in range(PAGES))
        made.page("site", "/", links)
        for number in range(1, PAGES):
            made.page("site", f"/{number}", f"page {number}")
        made.respond("site", "/0", Response(status=500))
        yield made


def say(folder: Path, *arguments: str, code: int = EXIT_OK) -> str:
    done = drumlin(folder, *arguments)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def look_everywhere(folder: Path, *where: str) -> None:
    for verb in LOOKS:
        say(folder, *verb, *where)


def read_everything(folder: Path) -> None:
    for verb in LOOKS:
        json.loads(drumlin(folder, *verb, "--json").stdout)


def test_every_verb_on_a_running_crawl(tmp_path: Path, web: FakeWeb) -> None:
    home, host = web.url("site"), web.url("site").split("/")[2]
    arguments = ("--delay", "1", *NO_PATIENCE, "--out", "crawl", "--allow-private", "--nodes", "1")
    with running(tmp_path, "crawl", home, *arguments) as process:
        wait_until(lambda: web.url("site", "/2") in web.requested, "the third page")
        socket = (tmp_path / "crawl" / "run" / "address").read_text()
        for where in (("--out", "crawl"), ("--coordinator", f"unix:{socket}")):
            look_everywhere(tmp_path, *where)
        read_everything(tmp_path)
        assert "Pages are being fetched." in say(tmp_path, "why", "--out", "crawl")
        assert "Found on" in say(tmp_path, "why", web.url("site", f"/{PAGES - 1}"), "--out", "crawl")
        assert "paused" in say(tmp_path, "pause", "--out", "crawl")
        assert "is paused" in say(tmp_path, "status", "--out", "crawl")
        assert "goes on" in say(tmp_path, "resume", "--out", "crawl")
        assert "1 host." in say(tmp_path, "hosts", "list", "--prefix", host[:5], "--out", "crawl")
        assert "No host of this crawl" in say(tmp_path, "hosts", "list", "--prefix", "other", "--out", "crawl")
        further = say(tmp_path, "hosts", "list", "--prefix", host[:5], "--limit", "1", "--out", "crawl")
        assert f"--after {host}`" in further
        wrong = say(tmp_path, "hosts", "list", "--after", "a", "--state", "ready", "--out", "crawl", code=EXIT_USAGE)
        assert "Leave --state out." in wrong
        assert "2 s" in say(tmp_path, "hosts", "set", host, "--delay", "2s", "--out", "crawl")
        assert "1 URL added" in say(tmp_path, "enqueue", web.url("site", "/further"), "--out", "crawl")
        url = web.url("site", f"/{PAGES - 1}")
        assert "priority 9" in say(tmp_path, "enqueue", "--known", "--priority", "9", url, "--out", "crawl")
        assert "is 500 now" in say(tmp_path, "set", "pages_max", "500", "--out", "crawl")
        assert "in quarantine" in say(tmp_path, "nodes", "quarantine", "n0", "--out", "crawl")
        assert "may work again" in say(tmp_path, "nodes", "release", "n0", "--out", "crawl")
        assert "is ending" in say(tmp_path, "stop", "--out", "crawl")
        assert end(process).returncode == EXIT_OK
    assert "not running" in say(tmp_path, "status", "--out", "crawl")


def test_every_verb_on_a_crawl_that_does_not_run(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    assert crawl(tmp_path, home, *NO_PATIENCE, "--pages-max", "20", "--out", "crawl").returncode == EXIT_OK
    look_everywhere(tmp_path, "--out", "crawl")
    read_everything(tmp_path)
    assert "No process of this crawl runs." in say(tmp_path, "why")
    assert "Done." in say(tmp_path, "why", home)
    assert "No process of this crawl runs." in say(tmp_path, "why", web.url("site", f"/{PAGES - 1}"))
    unknown = say(tmp_path, "why", home.removeprefix("http://") + "mistyped", code=EXIT_COORDINATOR)
    assert f"Nothing is known of {home}mistyped." in unknown, "it is named as it was looked for"
    for wrong in ("mailto:a@b", "htp://a.example/", "/path.html", ""):
        assert f"{wrong!r} is not a web address." in say(tmp_path, "why", wrong, code=EXIT_USAGE)
    robots = say(tmp_path, "why", web.url("site", "/robots.txt"))
    assert "asked for before the pages of its host" in robots
    assert "Asked for by " in robots
    assert f"drumlin host {home.split('/')[2]}" in robots
    spelled = say(tmp_path, "why", f"{home}?utm_source=x")
    assert f"The same page as {home}, the spelling by which the crawl knows it:" in spelled
    assert json.loads(say(tmp_path, "why", f"{home}?utm_source=x", "--json"))["url"] == home
    assert f"goes on with `drumlin crawl {home}`" in say(tmp_path, "crawl", "--out", "crawl", code=EXIT_USAGE)
    assert "No such command 'a.example'. See `drumlin hosts --help`." in say(
        tmp_path, "hosts", "a.example", code=EXIT_USAGE
    )
    assert "extra argument (b). See" in say(tmp_path, "why", "a", "b", code=EXIT_USAGE)
    assert "may work again" in say(tmp_path, "nodes", "release", "n0")
    assert "failed" not in say(tmp_path, "nodes"), "a node that has left is not missed"
    for verb in (("pause",), ("resume",), ("stop",), ("set", "delay", "1s")):
        said = say(tmp_path, *verb, code=EXIT_COORDINATOR)
        assert said == (
            "drumlin: No crawl is running in crawl. It has spent its --pages-max: with a larger one the same "
            "`drumlin crawl` command goes on.\n"
        )
    assert "1 URL added" in say(tmp_path, "enqueue", web.url("site", "/new"))
    assert crawl(tmp_path, home, *NO_PATIENCE, "--out", "crawl").returncode == EXIT_OK
    assert web.url("site", "/new") in web.requested
    assert "The crawl is finished." in say(tmp_path, "why")
    assert "1 URL added" in say(tmp_path, "enqueue", web.url("site", "/later"))
    left = "The crawl is finished. 1 URL has been queued since. The same `drumlin crawl` command goes on with it."
    assert left in " ".join(say(tmp_path, "why").split())
    later = say(tmp_path, "why", web.url("site", "/later"))
    assert left in " ".join(later.split())
    assert "It is given to the first node when the crawl goes on." in later
    assert crawl(tmp_path, home, *NO_PATIENCE, "--out", "crawl").returncode == EXIT_OK
    assert "No host has URLs left." in say(tmp_path, "hosts")
    assert "finished" in say(tmp_path, "status")


def test_dropping_all_dead_letters_must_be_said(tmp_path: Path, web: FakeWeb) -> None:
    crawl(tmp_path, web.url("site"), *NO_PATIENCE, "--out", "crawl")
    said = say(tmp_path, "dead-letters", "drop", code=EXIT_USAGE)
    assert said == "drumlin: Which dead letters? Name URLs, select with --kind or --host, or give --all.\n"
    url = web.url("site", "/0")
    by_host = say(tmp_path, "dead-letters", "list", "--by", "host").split()
    assert by_host == ["1", "http_5xx", url.split("/")[2], "1", "group."]
    assert json.loads(say(tmp_path, "dead-letters", "list", "--by", "kind", "--json"))[0]["kind"] == "http_5xx"
    listed = say(tmp_path, "dead-letters", "list", "--limit", "1")
    assert "add --after 'http_5xx " in listed
    after = listed.partition("--after '")[2].partition("'")[0]
    assert say(tmp_path, "dead-letters", "list", "--after", after) == "No further URL was given up.\n"
    assert "after" in say(tmp_path, "dead-letters", "list", "--after", "x", code=EXIT_COORDINATOR)
    assert "0 dead letters dropped." in say(tmp_path, "dead-letters", "drop", url, "--kind", "timeout")
    assert "is not a web address" in say(tmp_path, "dead-letters", "retry", "htp:x", code=EXIT_USAGE)
    assert "given up" in say(tmp_path, "status")
    assert "1 dead letter dropped." in say(tmp_path, "dead-letters", "drop", "--all")
    assert "given up" not in say(tmp_path, "status")
    assert "somebody dropped it from the dead letters" in say(tmp_path, "why", url)
    assert "given up" not in crawl(tmp_path, web.url("site"), *NO_PATIENCE, "--out", "crawl").stderr


def test_without_a_crawl_there_is_a_sentence(tmp_path: Path) -> None:
    for verb in (*LOOKS, ("pause",), ("enqueue", "http://example.org/")):
        assert "There is no crawl and no fleet here." in say(tmp_path, *verb, code=EXIT_USAGE)
        assert "There is no crawl in nowhere." in say(tmp_path, *verb, "--out", "nowhere", code=EXIT_USAGE)
