"""A crawl whose sites are out of reach: it says so while it lasts, ends with a code of its own, and resumes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK, EXIT_OUT_OF_REACH
from drumlin.testing import FakeWeb, Request, Response
from tests.acceptance.commands import FAST, chain, crawl, drumlin, end, pages_of, report, running, stored_urls

PAGES = 5


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


class Robots:
    """The robots.txt of a site. It fails until a test repairs it."""

    def __init__(self, web: FakeWeb, host: str, while_down: Response) -> None:
        self.mended = False
        self.asked = 0
        self._while_down = while_down
        web.respond(host, "/robots.txt", self._answer)

    def _answer(self, request: Request) -> Response:
        self.asked += 1
        return Response(body="User-agent: *\n") if self.mended else self._while_down


@pytest.mark.parametrize("status", [429, 503])
def test_a_crawl_with_nothing_else_left_ends_with_its_own_code_and_goes_on_when_run_again(
    tmp_path: Path, web: FakeWeb, status: int
) -> None:
    host = f"down-{status}"
    home, robots = chain(web, host, PAGES), Robots(web, host, Response(status=status))
    command = (home, "--out", "crawl", "--patience", "3s")
    done = crawl(tmp_path, *command)
    assert done.returncode == EXIT_OUT_OF_REACH, done.stderr
    assert "Stopped after --patience: 1 URL is left, all of hosts that are out of reach" in done.stdout
    cause = f"its robots.txt could not be fetched (status {status})"
    assert f"No page from {home}: {cause}. The same command tries it again" in done.stderr
    said = report(tmp_path)
    assert (said["stop_reason"], said["urls_pending"], said["dead_letters"]) == ("patience", 1, {})
    assert "next try in" in said["out_of_reach"][0]
    assert (robots.asked, pages_of(web, host)) == (1, [])
    robots.mended = True
    assert crawl(tmp_path, *command).returncode == EXIT_OK
    assert (robots.asked, len(stored_urls(tmp_path / "crawl"))) == (2, PAGES)


def test_a_pause_that_a_site_asked_for_is_kept_also_when_the_crawl_is_run_again(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "asks", PAGES)
    robots = Robots(web, "asks", Response(status=429, headers={"Retry-After": "600"}))
    for _ in range(2):
        done = crawl(tmp_path, home, "--out", "crawl", "--patience", "2s")
        assert done.returncode == EXIT_OUT_OF_REACH
    assert robots.asked == 1


def test_a_site_that_cannot_be_connected_to_does_not_keep_others_waiting(tmp_path: Path, web: FakeWeb) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # It does not listen, so connections are refused.
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        done = crawl(tmp_path, nowhere, chain(web, "well", PAGES), "--out", "crawl", "--patience", "2s")
    assert done.returncode == EXIT_OUT_OF_REACH
    assert len(stored_urls(tmp_path / "crawl")) == PAGES
    assert f"No page from {nowhere}: no connection could be made." in done.stderr


def shown(folder: Path, *arguments: str, until: Callable[[str], bool]) -> str:
    for _ in range(200):
        said = drumlin(folder, *arguments, "--out", "crawl").stdout
        if until(said):
            return said
    raise TimeoutError(f"{arguments} never showed it: {said}")


def test_while_it_lasts_people_are_told_which_hosts_why_and_when_next(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "shown", PAGES)
    robots = Robots(web, "shown", Response(status=503))
    name = home.split("/")[2]
    with running(tmp_path, "crawl", *FAST, home, "--out", "crawl") as process:
        shown(tmp_path, "status", until=lambda said: "1 out of reach" in said)
        why = shown(tmp_path, "why", until=lambda said: "out of reach" in said)
        assert name in why
        assert "its robots.txt could not be fetched (status 503)" in why
        story = drumlin(tmp_path, "why", home, "--out", "crawl").stdout
        assert f"{name}: It has been out of reach for" in story
        view = json.loads(shown(tmp_path, "host", name, "--json", until=bool))
        assert (view["backoff"]["http"]["kind"], view["queued"]) == ("robots_unreachable", 1)
        robots.mended = True
        done = end(process)
    assert done.returncode == EXIT_OK
    assert "1 out of reach" in done.stderr
    assert f"{name}: its robots.txt could not be fetched (status 503), next try in" in done.stderr
