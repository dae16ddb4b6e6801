"""The documentation as a site: it is built without a warning, all its links lead somewhere, and it needs no network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

from tests.harness.browser import PHONE, chromium, looking, needs_chromium

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / ".venv-docs" / "bin" / "sphinx-build"
BUILD_S_MAX = 300
LOADED = {"script": "src", "img": "src", "link": "href", "source": "srcset", "iframe": "src"}
"""What a browser loads by itself, by element and attribute."""
SHARED = ("docs/how-to/upgrade", "docs/index", "docs/reference/http-api")
OUTSIDE = ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "bench/README")

pytestmark = pytest.mark.skipif(not BUILDER.exists(), reason="needs `make .venv-docs/.ready`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-c", str(ROOT / "docs" / "site"), "-d", str(folder / "cache")]
    command = [str(BUILDER), *options, str(ROOT), str(folder / "site")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


class Read(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if place := values.get("id"):
            self.places.add(place)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loads.append(values[LOADED[tag]])


def read_all(site: Path) -> dict[Path, Read]:
    return {path: Read(path.read_text()) for path in site.rglob("*.html")}


def leads_nowhere(page: Path, link: str, pages: dict[Path, Read]) -> bool:
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return True
    return bool(parts.fragment) and target in pages and unquote(parts.fragment) not in pages[target].places


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = read_all(site)
    assert len(pages) > 40
    for page, read in pages.items():
        assert [one for one in read.loads if urlsplit(one).netloc] == [], page
        inner = [one for one in [*read.links, *read.loads] if not urlsplit(one).scheme]
        assert [one for one in inner if leads_nowhere(page, one, pages)] == [], page


def test_pages_outside_of_docs_are_part_of_the_site(site: Path) -> None:
    linked = {link for name in SHARED for link in Read((site / f"{name}.html").read_text()).links}
    for name in OUTSIDE:
        assert (site / f"{name}.html").is_file()
        assert any(link.endswith(f"{name}.html") for link in linked)


def test_the_checker_sees_a_missing_page_and_a_missing_heading(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text('<h1 id="here">x</h1>')
    pages = read_all(tmp_path)
    assert not leads_nowhere(page, "#here", pages)
    assert leads_nowhere(page, "a.html#there", pages)
    assert leads_nowhere(page, "b.html", pages)


@needs_chromium
def test_no_page_complains_or_asks_anybody_when_it_is_opened_from_disk(site: Path, browser: Browser) -> None:
    with looking(browser) as looker:
        for page in sorted(read_all(site)):
            looker.page.goto(page.as_uri())
        assert looker.complaints == []
        assert [url for url in looker.addresses if not url.startswith(("file:", "data:"))] == []


@needs_chromium
def test_the_first_page_leads_on_and_the_search_works_from_disk(site: Path, browser: Browser) -> None:
    with looking(browser) as looker:
        looker.page.goto((site / "index.html").as_uri())
        looker.page.locator("h1", has_text="drumlin").wait_for()
        looker.page.locator(".sidebar-search").fill("robots crawl-delay")
        looker.page.locator(".sidebar-search").press("Enter")
        looker.page.locator("#search-results li a", has_text="robots.txt").first.click()
        looker.page.locator("h1", has_text="robots.txt").wait_for()
        assert looker.complaints == []


@needs_chromium
@pytest.mark.parametrize(
    "name", ["docs/index", "docs/tutorial/first-crawl", "docs/reference/cli", "docs/reference/tables"]
)
def test_a_page_fits_a_phone(site: Path, browser: Browser, name: str) -> None:
    with looking(browser, viewport=PHONE) as looker:
        looker.page.goto((site / f"{name}.html").as_uri())
        assert looker.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@needs_chromium
def test_it_is_light_or_dark_as_the_reader_likes(site: Path, browser: Browser) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        with looking(browser, color_scheme=scheme) as looker:
            looker.page.goto((site / "docs/index.html").as_uri())
            colours.add(looker.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
