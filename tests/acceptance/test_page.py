"""The page of a crawl on one machine: its address opens it once, in a real browser, while the crawl lasts."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from drumlin.errors import EXIT_BUSY, EXIT_INTERRUPTED, EXIT_OK
from drumlin.local.directory import CrawlDirectory
from drumlin.local.standing import StandingCrawl
from drumlin.protocol import paths
from drumlin.testing import FakeWeb
from tests.acceptance.commands import chain, drumlin, end, pages_of, running, wait_until
from tests.harness.browser import PHONE, SCREENS, chromium, looking, needs_chromium

ADDRESS = re.compile(r"http://127\.0\.0\.1:[0-9]+/#code=[\w-]+")
SLOWLY = ("--allow-private", "--delay", "0.3", "--nodes", "1", "--out", "crawl")
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


@contextmanager
def crawling(folder: Path, home: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A crawl that takes a while, and the address of its page."""
    with (folder / "told").open("w+") as told, running(folder, "crawl", home, *SLOWLY, "--ui", stderr=told) as process:
        wait_until(lambda: ADDRESS.search((folder / "told").read_text()), "the address of the page")
        found = ADDRESS.search((folder / "told").read_text())
        assert found is not None
        yield found[0], process


def ask(address: str, method: str, path: str, message: Any = None, **headers: str) -> tuple[int, Any, str]:
    """The status, the document and the cookie of an answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    own = {"Origin": f"http://{parts.netloc}", "X-Drumlin-Page": "1", "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(message) if message is not None else None, own | headers)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body), (answer.getheader("Set-Cookie") or "").partition(";")[0]
    finally:
        connection.close()


def test_an_address_opens_the_page_once_and_only_for_people(tmp_path: Path, web: FakeWeb) -> None:
    with crawling(tmp_path, chain(web, "once", 200)) as (address, process):
        code = {"code": address.partition("#code=")[2]}
        assert ask(address, "GET", "/api/v1/stats")[0] == 401
        assert ask(address, "POST", "/session", {"code": "wrong"})[1]["error"]["code"] == "code_used"
        status, who, cookie = ask(address, "POST", "/session", code)
        assert (status, who["role"], who["log_in"]) == (200, "operator", "code")
        assert ask(address, "POST", "/session", code)[0] == 401
        assert ask(address, "GET", "/api/v1/stats", Cookie=cookie)[1]["state"] == "running"
        for path in ("/api/v1/nodes/register", "/api/v1/nodes/n0/heartbeat", "/v1/fetch/result"):
            assert ask(address, "POST", path, {}, Cookie=cookie)[0] == 404, "no call of a node is here"
        assert ask(address, "GET", "/session", Host="evil.test")[1]["error"]["code"] == "foreign_name"
        other = drumlin(tmp_path, "open", "crawl").stdout.strip()
        assert ADDRESS.fullmatch(other)
        assert ask(other, "POST", "/session", {"code": other.partition("#code=")[2]})[0] == 200
        assert end(process, signal.SIGINT).returncode == EXIT_INTERRUPTED
        with pytest.raises(ConnectionRefusedError):
            ask(address, "GET", "/session")
    logs = "".join(path.read_text() for path in (tmp_path / "crawl" / "logs").iterdir())
    assert code["code"] not in logs
    assert cookie.partition("=")[2] not in logs


def test_without_a_terminal_there_is_no_page_unless_it_is_wanted(tmp_path: Path, web: FakeWeb) -> None:
    done = drumlin(tmp_path, "crawl", chain(web, "plain", 2), *SLOWLY)
    assert ADDRESS.search(done.stderr + done.stdout) is None


@needs_chromium
def test_every_screen_is_shown_in_a_browser(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "shown", 400)
    web.page("shown", f"/?q={HOSTILE}", HOSTILE)
    with crawling(tmp_path, home) as (address, process), chromium() as browser:
        host = urlsplit(address).netloc
        with looking(browser) as looker:
            page = looker.page
            page.goto(address)
            page.locator(".figures").wait_for()
            assert "code" not in page.url
            for screen in SCREENS:
                looker.show(screen)
            looker.show("Overview")
            page.locator(".chart polygon").first.wait_for(state="attached")
            page.goto(f"http://{host}/#/hosts/%zz")
            page.locator("main .empty").wait_for()
            page.goto(f"http://{host}/#/urls?url={HOSTILE}")
            page.locator("main .empty").wait_for()
            page.goto(f"http://{host}/#/urls?url={home}")
            page.locator(".story li").first.wait_for()
            page.reload()
            page.locator(".story li").first.wait_for()
            page.goto(f"http://{host}/#/hosts/{urlsplit(home).netloc}")
            page.get_by_role("button", name="Slow down…").click()
            page.get_by_label("At most once every").fill("2 s")
            page.get_by_role("button", name="Change").click()
            page.locator("#toasts").get_by_text("once every 2 s").wait_for()
            looker.show("Audit")
            page.get_by_text("host: change").wait_for()
            looker.quiet(host)
            assert not any(address.partition("#")[2] in asked for asked in looker.addresses), (
                "the code is in no request"
            )
        with looking(browser, viewport=PHONE) as stranger:
            stranger.page.goto(address)
            stranger.page.get_by_text("Open it from the terminal").wait_for()
        assert end(process, signal.SIGINT).returncode == EXIT_INTERRUPTED


@contextmanager
def opened(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The page of a crawl that does not run: its address, and the command that shows it."""
    with (folder / "told").open("w+") as told, running(folder, "open", "crawl", stdout=told) as process:
        wait_until(lambda: ADDRESS.search((folder / "told").read_text()), "the address of the page")
        yield (folder / "told").read_text().strip(), process


def test_a_killed_crawl_is_shown_without_nodes_at_work_and_others_may_look_too(
    tmp_path: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, "crawl", chain(web, "killed", 200), *SLOWLY) as process:
        wait_until(lambda: len(pages_of(web, "killed")) > 2, "the third page")
        end(process, signal.SIGKILL)
    looker, out = CrawlDirectory(tmp_path / "crawl"), tmp_path / "crawl"
    looker.hold()
    with monkeypatch.context() as patch:
        patch.setattr("drumlin.local.directory.LOCK_WAIT_S", 0.0)
        crawl = StandingCrawl(out)
        assert len(crawl.get(paths.NODES)["nodes"]) == 1, "it is told as far as it can be without writing"
        crawl.close()
    looker.close()
    with opened(tmp_path) as (address, process):
        cookie = ask(address, "POST", "/session", {"code": address.partition("#code=")[2]})[2]
        (node,) = ask(address, "GET", paths.NODES, Cookie=cookie)[1]["nodes"]
        assert (node["status"], node["leases"]) == ("failed", 0)
        for verb in ("status", "nodes", "hosts", "why"):
            done = drumlin(tmp_path, verb, "--out", "crawl")
            assert (done.returncode, done.stderr) == (EXIT_OK, ""), verb
        busy = drumlin(tmp_path, "dead-letters", "retry", "--all", "--out", "crawl")
        assert busy.returncode == EXIT_BUSY
        assert "or shows it (`drumlin open`)" in busy.stderr
        assert end(process, signal.SIGINT).returncode == EXIT_OK


@needs_chromium
def test_a_crawl_that_does_not_run_is_shown_by_open(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "finished", 12)
    assert drumlin(tmp_path, "crawl", home, "--allow-private", "--delay", "0.1", "--out", "crawl").returncode == 0
    with opened(tmp_path) as (address, process):
        with chromium() as browser, looking(browser) as looker:
            page = looker.page
            page.goto(address)
            page.locator(".pill", has_text="Finished").wait_for()
            page.get_by_text("12", exact=True).first.wait_for()
            page.locator("p.why strong", has_text="finished").wait_for()
            assert page.locator("p.why").inner_text().strip() == "The crawl is finished."
            for screen in SCREENS:
                looker.show(screen)
            assert page.get_by_role("button", name="Change…").count() == 0, "it can be looked at, not changed"
            looker.show("Hosts")
            page.locator("tbody a.host").click()
            expect(page.get_by_role("table", name="What was asked of it last").locator("tbody tr")).to_have_count(10)
            looker.quiet(urlsplit(address).netloc)
        end(process, signal.SIGINT)
        assert process.returncode == 0
