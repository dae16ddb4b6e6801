"""What is stored, in a real browser: Content, Data and stored copies, on a finished crawl and on one that runs; and
that nothing which a website wrote does anything there."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import duckdb
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from drumlin.testing import FakeWeb
from tests.acceptance.commands import end, running, wait_until
from tests.harness.browser import DESKTOP, PHONE, Looker, chromium, looking, needs_chromium
from tests.harness.coordinators import RunningCoordinator
from tests.harness.stored_site import HOSTILE_PATH, JAPANESE, MARKED_PATH, PATHS, SCRIPT, crawled, make_site

pytestmark = [pytest.mark.slow, needs_chromium]
ADDRESS = re.compile(r"http://127\.0\.0\.1:[0-9]+/#code=[\w-]+")
SERIOUS = {"serious", "critical"}
PLACES = ("#/content", "#/data", "#/data?question=types", "#/data?sql=SELEC", "#/data?question=duplicates")
# What the browser says of a stored page that tries to run or to load something, and of SQL that is refused.
OF_COPIES = ("Content Security Policy", "sandboxed", "Refused to", "status of 422", "ERR_BLOCKED_BY_CSP")


class Elsewhere:
    """A port of this machine that nobody should ask for anything."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.asked = 0
        threading.Thread(target=self._count, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/"

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.asked += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


class Shown:
    """A crawl's page at an address."""

    def __init__(self, address: str, home: str, store: Path, elsewhere: Elsewhere) -> None:
        self.address = address
        self.base = address.partition("#")[0]
        self.home = home
        self.store = store
        self.elsewhere = elsewhere

    @property
    def hostile(self) -> str:
        return self.home.rstrip("/") + HOSTILE_PATH


@contextmanager
def opened(folder: Path, home: str, elsewhere: Elsewhere) -> Iterator[Shown]:
    with (folder / "told").open("w+") as told, running(folder, "open", "crawl", stdout=told) as process:
        wait_until(lambda: ADDRESS.search((folder / "told").read_text()), "the address of the page")
        yield Shown((folder / "told").read_text().strip(), home, folder / "crawl", elsewhere)
        end(process, signal.SIGINT)


@pytest.fixture(scope="module")
def bare() -> Iterator[RunningCoordinator]:
    """A coordinator without a store. It outlives the browser, which keeps connections for later."""
    with RunningCoordinator() as running:
        yield running


@pytest.fixture(scope="module")
def browser(bare: RunningCoordinator) -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The page of a finished crawl."""
    folder, elsewhere = tmp_path_factory.mktemp("finished"), Elsewhere()
    home = crawled(folder, elsewhere=elsewhere.url)
    with opened(folder, home, elsewhere) as page:
        yield page
    elsewhere.close()


@pytest.fixture(scope="module")
def state(browser: Browser, shown: Shown) -> Any:
    """The cookie of who has opened the page: its address works once."""
    with looking(browser) as looker:
        looker.page.goto(shown.address)
        looker.page.locator(".figures").wait_for()
        return looker.context.storage_state()


@contextmanager
def looking_at(browser: Browser, state: Any, **more: Any) -> Iterator[Looker]:
    with looking(browser, storage_state=state, **more) as looker:
        looker.page.on("dialog", lambda dialog: looker.complaints.append(f"a dialog: {dialog.message}"))
        yield looker


def go(page: Page, shown: Shown, place: str) -> None:
    page.goto(f"{shown.base}{place}")
    page.locator("main :is(.card, .empty, .figures)").first.wait_for()
    page.locator(".asking").wait_for(state="detached")


def asked(page: Page, path: str, message: Any = None) -> Any:
    """What the API answers to this browser."""
    headers = {"X-Drumlin-Page": "1", "Origin": page.url.partition("/#")[0]}
    base = page.url.partition("#")[0]
    sent = {"data": message, "headers": headers} if message is not None else {}
    answer = page.request.fetch(base + path, method="POST" if sent else "GET", **sent)
    assert answer.ok, answer.text()
    return answer.json()


def quiet(looker: Looker, shown: Shown) -> None:
    """Fail unless nothing ran, nothing was asked elsewhere, and all complaints are those about stored pages."""
    assert [said for said in looker.complaints if not any(words in said for words in OF_COPIES)] == []
    assert looker.answered == {urlsplit(shown.base).netloc}
    assert shown.elsewhere.asked == 0
    assert "hacked" not in looker.page.evaluate("Object.keys(document.body.dataset)")


def rows(shown: Shown, sql: str) -> list[Any]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW pages AS FROM read_parquet('{shown.store}/tables/pages/*.parquet')")
        return connection.sql(sql).fetchall()


# A finished crawl


def test_content_is_what_the_api_says_and_the_api_what_the_tables_say(
    browser: Browser, shown: Shown, state: Any
) -> None:
    with looking_at(browser, state) as looker:
        go(looker.page, shown, "#/content")
        looker.page.locator("table.bars").first.wait_for()
        told = asked(looker.page, "api/v1/content")
        assert told["pages"] == rows(shown, "SELECT count(*) FROM pages")[0][0] == len(PATHS) + 1
        figures = looker.page.locator(".figures dd > span").all_inner_texts()
        assert figures[0] == str(told["pages"])
        assert figures[2] == str(len(told["types"]))
        for one in told["types"]:
            row = looker.page.locator("table.bars tr", has=looker.page.get_by_text(one["type"], exact=True))
            assert row.locator("td.n").first.inner_text() == str(one["pages"])
        stats = asked(looker.page, "api/v1/stats")
        assert {one["kind"]: one["pages"] for one in told["duplicates"]} == stats["duplicates"], "counters agree"
        looker.page.get_by_text("All pages up to").wait_for()
        quiet(looker, shown)


def test_every_number_of_content_leads_to_as_many_pages(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        go(page, shown, "#/content")
        page.locator("table.bars").first.wait_for()
        links = page.locator("table.bars td.label a")
        found = [(links.nth(at).get_attribute("href"), int(_count_of(links.nth(at)))) for at in range(links.count())]
        assert len(found) > 5
        for href, pages in found:
            go(page, shown, str(href))
            page.locator(".card h2", has_text=re.compile(rf"^{pages} rows? in")).wait_for()
        quiet(looker, shown)


def _count_of(link: Any) -> str:
    text: str = link.locator("xpath=ancestor::tr").locator("td.n").first.inner_text()
    return text


def test_an_answer_is_shown_drawn_and_given_as_files(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        go(page, shown, "#/data")
        page.get_by_text("Which types of content are there").click()
        page.locator("table.answer").wait_for()
        sql = page.locator("#sql").input_value()
        told = asked(page, "api/v1/sql", {"sql": sql})
        assert page.locator("table.answer tbody tr").count() == len(told["rows"])
        assert page.locator("table.answer span.length").count() > 0, "labels and numbers have bars"
        cells = page.locator("table.answer tbody tr").first.locator("td:not(.length)").all_inner_texts()
        assert cells[:2] == [told["rows"][0][0], str(told["rows"][0][1])]
        files = {name: _downloaded(page, name) for name in ("CSV", "JSON")}
        written = list(csv.reader(io.StringIO(files["CSV"])))
        assert written == [told["columns"], *([str(value) for value in row] for row in told["rows"])]
        assert json.loads(files["JSON"]) == [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]
        page.locator("#sql").fill("SELECT url FROM pages ORDER BY url")
        page.keyboard.press("Control+Enter")
        page.locator(".card h2", has_text=f"{len(PATHS) + 1} rows").wait_for()
        page.locator("table.answer a.url").first.click()
        page.locator(".story li").first.wait_for()
        quiet(looker, shown)


def _downloaded(page: Page, name: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download as {name}").click()
    return Path(download.value.path()).read_text()


def test_sql_that_is_wrong_or_forbidden_is_said_in_words(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        for sql in ("SELEC 1", "COPY pages TO 'x'", "SELECT * FROM read_text('/etc/passwd')"):
            go(looker.page, shown, f"#/data?sql={quote(sql)}")
            looker.page.locator(".card.failed", has_text="This cannot be asked").wait_for()
        assert "root:" not in looker.page.locator("main").inner_text()
        quiet(looker, shown)


def test_a_stored_copy_is_shown_as_text_source_headers_and_page(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page, url = looker.page, f"{shown.home}japanese"
        go(page, shown, f"#/urls?url={quote(url, safe='')}")
        page.locator("pre.copy", has_text=JAPANESE[:20]).wait_for()
        page.get_by_role("link", name="Source").click()
        page.locator("pre.copy", has_text="<meta charset=shift_jis>").wait_for()
        page.get_by_role("link", name="Headers").click()
        page.locator("pre.copy", has_text="HTTP/1.1 200").wait_for()
        page.get_by_role("link", name="Page", exact=True).click()
        page.frame_locator("iframe.copy").get_by_text(JAPANESE[:20]).first.wait_for()
        quiet(looker, shown)


def test_the_story_of_a_url_tells_each_try_once_and_ends_with_how_it_stands(
    browser: Browser, shown: Shown, state: Any
) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        go(page, shown, f"#/urls?url={quote(f'{shown.home}japanese?utm_source=x', safe='')}")
        page.locator("ol.story li", has_text="Done.").wait_for()
        said = page.locator("ol.story li").all_inner_texts()
        assert [text for text in said if "Fetched" in text] == [said[-2]]
        assert said[-1] == "Done."
        assert page.locator("p.address").inner_text() == f"{shown.home}japanese", "the spelling that was asked for"
        go(page, shown, "#/nosuch")
        page.get_by_role("heading", name="No such screen").wait_for()
        quiet(looker, shown)


def test_a_stored_picture_is_shown(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        go(page, shown, f"#/urls?url={quote(shown.home + 'picture.png', safe='')}")
        page.locator(".picture img").wait_for()
        assert page.locator(".picture img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
        quiet(looker, shown)


def test_a_hostile_page_does_nothing_wherever_it_is_shown(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        for url in (shown.hostile, f"{shown.home}b"):
            for view in ("text", "source", "headers", "page"):
                go(page, shown, f"#/urls?url={quote(url, safe='')}&view={view}")
                page.locator(".copy").wait_for()
                page.get_by_text(SCRIPT[:20]).first.wait_for()
        go(page, shown, f"#/urls?url={quote(shown.hostile, safe='')}&view=page")
        frame = page.frame_locator("iframe.copy")
        frame.locator("#told").wait_for()
        assert frame.locator("form, script, img").count() > 0, "it is there as it was stored"
        frame.locator("button").click()
        frame.locator("#away").click()
        for place in ("#/data?sql=FROM pages", "#/data?question=largest", "#/content", f"#/data?sql={quote(SCRIPT)}"):
            go(page, shown, place)
        assert page.locator("main :is(img, script)").count() == 0
        quiet(looker, shown)


def test_a_hostile_page_in_a_tab_of_its_own_does_nothing(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        page.goto(f"{shown.base}api/v1/captures/body?url={quote(shown.hostile, safe='')}")
        page.locator("#told").wait_for()
        page.wait_for_load_state("load")
        assert [said for said in looker.complaints if not any(words in said for words in OF_COPIES)] == []
        assert looker.answered == {urlsplit(shown.base).netloc}
        assert shown.elsewhere.asked == 0
        assert page.url.startswith(shown.base)


def test_a_second_mark_does_not_bring_back_what_was_taken_out(browser: Browser, shown: Shown, state: Any) -> None:
    with looking_at(browser, state) as looker:
        page = looker.page
        url = quote(shown.home.rstrip("/") + MARKED_PATH, safe="")
        page.goto(f"{shown.base}api/v1/captures/body?url={url}")
        page.wait_for_load_state("load")
        assert page.locator("html").evaluate("html => html.ownerDocument.characterSet") == "UTF-8"
        assert page.locator("link, meta, a, iframe, base").count() == 0
        assert looker.answered == {urlsplit(shown.base).netloc}
        assert shown.elsewhere.asked == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_state_has_a_serious_fault_for_those_who_see_or_move_differently(
    browser: Browser, shown: Shown, state: Any, viewport: dict[str, int], scheme: str
) -> None:
    with looking_at(browser, state, viewport=viewport, color_scheme=scheme) as looker:
        copies = [f"#/urls?url={quote(shown.home, safe='')}&view={view}" for view in ("text", "source", "headers")]
        for place in (*PLACES, *copies):
            go(looker.page, shown, place)
            if place in copies:
                looker.page.locator("pre.copy").wait_for()
            assert serious(looker) == [], place
            wide = looker.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{place} is wider than the window"


def serious(looker: Looker) -> list[Any]:
    found = Axe().run(looker.page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found if one["impact"] in SERIOUS]


def test_without_a_store_the_page_says_so(bare: RunningCoordinator, browser: Browser) -> None:
    with looking(browser) as looker:
        page = looker.page
        page.goto(f"{bare.url}/#/content")
        page.get_by_text("has no store").wait_for()
        page.goto(f"{bare.url}/#/data?question=types")
        page.get_by_text("has no store").wait_for()
        assert looker.hosts == {f"127.0.0.1:{bare.port}"}


# A crawl that runs


def test_a_running_crawl_shows_what_is_stored_and_what_is_not_there_yet(browser: Browser, tmp_path: Path) -> None:
    elsewhere = Elsewhere()
    with FakeWeb(hosts=0) as web:
        home = make_site(web, elsewhere=elsewhere.url)
        slowly = ("--allow-private", "--delay", "3", "--nodes", "1", "--out", "crawl", "--ui")
        with (tmp_path / "told").open("w+") as told, running(tmp_path, "crawl", home, *slowly, stderr=told) as process:
            wait_until(lambda: ADDRESS.search((tmp_path / "told").read_text()), "the address of the page")
            found = ADDRESS.search((tmp_path / "told").read_text())
            assert found is not None
            shown = Shown(found[0], home, tmp_path / "crawl", elsewhere)
            with looking(browser) as looker:
                page = looker.page
                page.goto(shown.address)
                page.locator(".figures").wait_for()
                go(page, shown, f"#/urls?url={quote(home, safe='')}&view=source")
                page.locator("pre.copy", has_text="A home").wait_for()
                assert not list((shown.store / "warc").glob("*.warc.gz")), "it is read out of a file that still grows"
                go(page, shown, "#/content")
                page.get_by_text("seen within a minute").wait_for()
                go(page, shown, "#/data?sql=SELECT count(*) AS n FROM pages")
                page.locator("table.answer").wait_for()
                behind = asked(page, "api/v1/stats")["pages"] - asked(page, "api/v1/content")["pages"]
                assert behind >= 0
                quiet(looker, shown)
            end(process, signal.SIGINT)
    elsewhere.close()
