"""`drumlin why` of a URL that pages link to and that was never queued says what kept it out; the report counts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.client.remote import EXIT_COORDINATOR
from drumlin.errors import EXIT_OK
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        links = "<a rel='nofollow' href='/only'>only</a><a href='/near'>near</a><a href='/moved'>moved</a>"
        links += "<a href='/away'>away</a>"
        made.page("site", "/", f"{links}<a href='{made.url('other', '/x')}'>other</a><img src='/i.png'>")
        made.page("site", "/near", "<a href='/deep'>deep</a><a href='/same'>same</a> near")
        made.page("site", "/quiet", "<meta name='robots' content='nofollow'><a href='/hushed'>hushed</a>")
        made.respond("site", "/moved", Response(status=302, headers={"Location": "/near"}))
        made.respond("site", "/away", Response(status=302, headers={"Location": made.url("other", "/gone")}))
        yield made


@pytest.fixture(scope="module")
def folder(web: FakeWeb, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("crawl")
    done = crawl(made, web.url("site"), web.url("site", "/quiet"), "--depth", "1", *NO_PATIENCE, "--out", "crawl")
    assert done.returncode == EXIT_OK, done.stderr
    return made


def why(folder: Path, url: str) -> str:
    done = drumlin(folder, "why", url, "--out", "crawl")
    assert done.returncode == EXIT_OK, done.stderr
    return " ".join(done.stdout.split())


def test_what_is_linked_and_not_followed_is_explained(folder: Path, web: FakeWeb) -> None:
    home = web.url("site")
    assert f"{home} links to it with rel=nofollow, which is not followed." in why(folder, web.url("site", "/only"))
    beyond = f"{web.url('site', '/near')} links to it, 2 links from a seed and so beyond --depth 1."
    assert beyond in why(folder, web.url("site", "/deep"))
    assert "asks that its links are not followed (nofollow)." in why(folder, web.url("site", "/hushed"))
    assert f"{home} shows it (img), which is fetched with --assets." in why(folder, web.url("site", "/i.png"))
    assert "--scope host leaves it out." in why(folder, web.url("other", "/x"))
    told = json.loads(drumlin(folder, "why", web.url("site", "/only"), "--out", "crawl", "--json").stdout)
    assert (told["state"], told["found_on"]) == ("not_followed", home)


def test_what_a_redirect_leads_to_and_is_not_followed_is_explained(folder: Path, web: FakeWeb) -> None:
    said = why(folder, web.url("other", "/gone"))
    assert "--scope host leaves it out." in said
    assert f"{web.url('site', '/away')} redirects to it." in said


def test_what_nobody_links_to_is_still_unknown(folder: Path, web: FakeWeb) -> None:
    done = drumlin(folder, "why", web.url("site", "/nowhere"), "--out", "crawl")
    assert done.returncode == EXIT_COORDINATOR
    assert "It was never queued, and nothing in the complete tables links or redirects to it." in " ".join(
        done.stderr.split()
    )


def test_the_report_counts_them(folder: Path) -> None:
    refused = json.loads((folder / "crawl" / "report.json").read_text())["refused"]
    assert refused == {"depth": 2, "nofollow": 2, "out_of_scope": 2}


def test_a_redirect_says_where_it_leads_and_who_links_to_it(folder: Path, web: FakeWeb) -> None:
    said = why(folder, web.url("site", "/moved"))
    assert f"{web.url('site')} links to it." in said
    assert "with status 302 to " in said
