"""A real browser that looks at the dashboard: Debian's Chromium, driven by playwright.

Every page is watched: what it writes to the console, which scripts fail, and which hosts it asks. `quiet` fails if any
of that is not as it should be.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="Chromium is missing: apt-get install chromium")
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
SCREENS = {
    "Overview": "#/",
    "Hosts": "#/hosts",
    "URLs": "#/urls",
    "Nodes": "#/nodes",
    "Failures": "#/failures",
    "Content": "#/content",
    "Data": "#/data",
    "Settings": "#/settings",
    "Audit": "#/audit",
}
SHOWN_WITHIN_MS = 20_000
# What the browser itself says, and no page can prevent: that a server ended while a page listened to it, and that
# there is nothing to know about what somebody looked up.
UNAVOIDABLE = (
    "the server responded with a status of 404",
    "net::ERR_CONNECTION_REFUSED",
    "net::ERR_INCOMPLETE_CHUNKED_ENCODING",
    "net::ERR_CONNECTION_RESET",
)

UNKNOWN_ELEMENTS = """() => [...document.querySelectorAll("*")]
    .filter((one) => one instanceof HTMLUnknownElement).map((one) => one.localName)"""


class Looker:
    """One person's browser: its pages, and what went wrong in them."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.answered: set[str] = set()
        """The hosts that answered something; requests that the browser itself refuses to send are among the asked."""
        self.addresses: list[str] = []
        self.page.set_default_timeout(SHOWN_WITHIN_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("response", lambda response: self.answered.add(urlsplit(response.url).netloc))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(said in message.text for said in UNAVOIDABLE):
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def _asked(self, url: str) -> None:
        self.addresses.append(url)
        if not url.startswith("data:"):
            self.hosts.add(urlsplit(url).netloc)

    def show(self, screen: str) -> None:
        """Go to a screen by its link and wait until it has its own content."""
        self.page.locator("nav .items a", has_text=screen).click()
        self.page.locator("main h1").wait_for()
        self.page.locator("main :is(.card, .empty, .figures)").first.wait_for()
        unknown = self.page.evaluate(UNKNOWN_ELEMENTS)
        if unknown:
            self.complaints.append(f"{screen} has elements that HTML does not know: {', '.join(unknown)}")

    def quiet(self, host: str) -> None:
        """Fail unless nothing was complained about, and only this host was asked."""
        assert self.complaints == []
        assert self.hosts == {host}


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def looking(browser: Browser, **more: Any) -> Iterator[Looker]:
    """A browser without a past."""
    context = browser.new_context(**({"viewport": DESKTOP} | more))
    try:
        yield Looker(context)
    finally:
        context.close()
