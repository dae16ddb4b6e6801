"""`drumlin fetch`: one page, every decision explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.testing import Ending, FakeWeb, Response
from tests.acceptance.commands import drumlin


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    """One empty web; each test makes hosts of its own in it."""
    with FakeWeb(hosts=0) as made:
        yield made


@pytest.fixture(scope="module")
def explained(web: FakeWeb) -> str:
    host = "explained"
    web.respond(host, "/robots.txt", Response(body="User-agent: *\nDisallow: /no\n", content_type="text/plain"))
    web.page(host, "/page.html", '<title>A page</title><p>Some words.</p><a href="/next.html">next</a>')
    web.respond(host, "/moved", Response(status=302, headers={"Location": "/page.html"}))
    web.respond(host, "/broken", Response(ending=Ending.RESET))
    web.respond(host, "/failing", Response(status=500))
    web.respond(host, "/packed", Response(body="x", headers={"Content-Encoding": "sdch"}))
    return host


@pytest.mark.parametrize(
    ("path", "exit_code", "out", "err"),
    [
        ("/page.html", 0, ["allows drumlin this URL", "status 200 over http/1.1", "'A page'", "/next.html"], ""),
        ("/moved", 0, ["redirect     to ", "/page.html", "'A page'"], ""),
        ("/no/page", 6, ["denies drumlin this URL"], "robots.txt does not let drumlin fetch"),
        ("/broken", 6, ["allows drumlin this URL"], "reset: "),
        ("/packed", 6, [], "decode: The Content-Encoding 'sdch' cannot be undone. A crawl would"),
        ("/failing", 6, ["status 500"], "http_5xx: status 500. A crawl would try again later."),
    ],
)
def test_fetch_explains_every_decision(
    tmp_path: Path, web: FakeWeb, explained: str, path: str, exit_code: int, out: list[str], err: str
) -> None:
    done = drumlin(tmp_path, "fetch", web.url(explained, path), "--allow-private", "--delay", "0")
    assert (done.returncode, [piece for piece in out if piece not in done.stdout]) == (exit_code, [])
    assert done.stderr.startswith(f"drumlin: {err}" if err else "")
    assert list(tmp_path.iterdir()) == []


def test_fetch_refuses_a_private_address_with_a_hint(tmp_path: Path, web: FakeWeb, explained: str) -> None:
    done = drumlin(tmp_path, "fetch", web.url(explained, "/page.html"), "--delay", "0", "--json")
    assert done.returncode == 6
    assert "--allow-private" in done.stderr
    said = json.loads(done.stdout)
    assert (said["page"], said["steps"][0]["step"]) == (None, "url")
    assert "private" in said["failure"]


def test_fetch_gives_programs_the_page_itself(tmp_path: Path, web: FakeWeb) -> None:
    page = "<!DOCTYPE html><title>A title</title><p>Some words.<a href='/next'>next</a>"
    url = web.page("parts", "/", page)

    def fetched(*flags: str) -> str:
        return drumlin(tmp_path, "fetch", url, "--allow-private", "--delay", "0", *flags).stdout

    said = json.loads(fetched("--json"))
    assert (said["failure"], said["page"]["status"], said["page"]["title"]) == (None, 200, "A title")
    assert [(link["url"], link["kind"]) for link in said["page"]["links"]] == [(web.url("parts", "/next"), "a")]
    assert fetched("--html") == page
    assert fetched("--links") == web.url("parts", "/next") + "\n"
    assert "Some words." in fetched("--text")
    assert "robots" not in fetched("--text")
