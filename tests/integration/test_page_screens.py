"""Screens of the dashboard in a real browser: what they fill in, keep, promise, and say when a session has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect

from drumlin.access.tokens import Role
from drumlin.config import CrawlConfig
from tests.harness.browser import SHOWN_WITHIN_MS, chromium, looking, needs_chromium
from tests.harness.coordinators import RunningCoordinator

pytestmark = needs_chromium

BUDGETS = CrawlConfig(allow_private=True, delay_s=50.0, bytes_max=10 * 2**30, time_max_s=5_400.0)
PAGE_OF_ENTRIES = 100
ENTRIES = 150
expect.set_options(timeout=SHOWN_WITHIN_MS)


@contextmanager
def logged_in(coordinator: RunningCoordinator, role: Role, place: str) -> Iterator[Page]:
    """A page of a browser that ends before the coordinator does, and its connections with it."""
    with chromium() as browser, looking(browser) as looker:
        page = looker.page
        page.goto(coordinator.url)
        page.get_by_label("Token").fill(coordinator.tokens[role])
        page.get_by_role("button", name="Log in").click()
        page.locator(".link.live").wait_for()
        page.goto(f"{coordinator.url}/{place}")
        yield page


# What dialogs are filled with


AMOUNTS: list[tuple[str, str, float | None]] = [
    ("10 GB", "size", 10e9),
    ("10GiB", "size", 10 * 2**30),
    ("500k", "size", 500e3),
    ("90", "duration", 90),
    ("90m", "duration", 5_400),
    ("1h30m", "duration", 5_400),
    ("1 h 30 min", "duration", 5_400),
    ("1 day 2 h", "duration", 93_600),
    ("10,000", "count", 10_000),
    ("10 000", "count", 10_000),
    ("2.5k", "count", 2_500),
    ("2,5 h", "duration", None),
    ("1,0000", "count", None),
    ("1 h 30", "duration", None),
    ("10 20", "count", None),
    ("5 parsecs", "duration", None),
    ("", "size", None),
]


def test_amounts_are_read_as_they_are_shown_or_not_at_all() -> None:
    reading = "([text, kind]) => import('/ui/format.js').then((format) => format.quantity(text, kind))"
    with RunningCoordinator() as coordinator, chromium() as browser, looking(browser) as looker:
        looker.page.goto(coordinator.url)
        read = {text: looker.page.evaluate(reading, [text, kind]) for text, kind, _ in AMOUNTS}
    assert read == {text: amount for text, _, amount in AMOUNTS}


def test_a_dialog_offers_what_it_takes_and_changes_nothing_by_itself() -> None:
    with RunningCoordinator(controlled=True, config=BUDGETS) as coordinator:
        coordinator.enqueue("http://slow.example/")
        before = coordinator.get("/api/v1/crawl", token=coordinator.tokens[Role.VIEWER]).json["budgets"]
        with logged_in(coordinator, Role.OPERATOR, "#/settings") as page:
            dialog = page.locator("dialog")
            for words in ("bytes", "time"):
                page.get_by_role("button", name=f"Change the budget of {words}").click()
                dialog.get_by_role("button", name="Change", exact=True).click()
                dialog.wait_for(state="detached")
            after = coordinator.get("/api/v1/crawl", token=coordinator.tokens[Role.VIEWER]).json["budgets"]
            assert [after[name] for name in ("bytes_max", "time_max_s")] == [10 * 2**30, 5_400.0]
            assert after["pages_max"] == before["pages_max"]
            page.goto(f"{coordinator.url}/#/hosts/slow.example")
            page.get_by_role("button", name="Slow down…").click()
            assert dialog.get_by_label("At most once every").input_value() == "100 s"
            dialog.get_by_role("button", name="Change", exact=True).click()
            dialog.wait_for(state="detached")
        host = coordinator.get("/api/v1/hosts/slow.example", token=coordinator.tokens[Role.VIEWER]).json
        assert host["delay_s"] == 100.0
