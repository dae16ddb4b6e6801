"""Screens of the dashboard in a real browser: what they fill in, keep, promise, and say when a session has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from drumlin.access.audit import AuditLog
from drumlin.access.tokens import Identity, Role, revoke_token
from drumlin.config import CrawlConfig
from drumlin.store import SegmentWriter
from tests.harness.browser import SHOWN_WITHIN_MS, chromium, looking, needs_chromium
from tests.harness.coordinators import RemoteNode, RunningCoordinator, results_body
from tests.unit.store_captures import make_capture

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


# What a list keeps


def test_the_audit_log_is_shown_without_a_gap_while_it_grows() -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        audit, somebody = AuditLog(coordinator.dispatcher.engine), Identity(Role.OPERATOR, "abc")

        def note(first: int, count: int, began: float) -> None:
            for number in range(first, first + count):
                entry = audit.record(somebody, "host.change", f"/h{number}", "done", "10.0.0.7", began + number)
                coordinator.do(entry)

        began = time.time() - 10_000.0
        note(0, ENTRIES, began)
        with logged_in(coordinator, Role.VIEWER, "#/audit") as page:
            rows, older = page.locator("tbody tr"), page.get_by_role("button", name="Show older")
            expect(rows).to_have_count(PAGE_OF_ENTRIES)
            page.get_by_text("every log-in to this page").wait_for()
            # The log-in is an entry too.
            older.click()
            expect(rows).to_have_count(ENTRIES + 1)
            expect(older).to_have_count(0)
            for first, more in ((ENTRIES, 5), (ENTRIES + 5, PAGE_OF_ENTRIES + 20)):
                note(first, more, time.time())
                expect(rows).to_have_count(1 + first + more)
            shown = set(page.locator("tbody small.mono").all_inner_texts())
            assert shown == {"/session", *(f"/h{number}" for number in range(ENTRIES + 125))}


# What is promised


def test_pages_that_are_stored_elsewhere_are_not_promised_for_ever(tmp_path: Path) -> None:
    with RunningCoordinator(controlled=True, store=tmp_path) as coordinator:
        coordinator.enqueue(*(f"http://s.example/{number}" for number in range(3)))
        node = RemoteNode(coordinator, "n1")
        node.send(results_body(node.take(), stored=True))
        with logged_in(coordinator, Role.VIEWER, "#/content") as page:
            page.get_by_text("Rows are seen within a minute of pages that are stored here.").wait_for()
            # Of long ago, as all captures of tests.
            writer = SegmentWriter(tmp_path / "tables", "n2-19000000000-00001", node="n2")
            writer.add([make_capture()])
            writer.finish()
            page.get_by_text("2 more pages were fetched and are not in the tables of this store.").wait_for()
            later = SegmentWriter(tmp_path / "tables", "n2-19000000000-00002", node="n2")
            later.add([make_capture("https://example.com/new", fetched=time.time())])
            later.finish()
            page.get_by_text("1 more page was fetched and is not in the tables yet").wait_for()


# Sessions


def test_a_screen_that_asks_nothing_says_that_the_session_has_ended() -> None:
    with (
        RunningCoordinator(controlled=True) as coordinator,
        logged_in(coordinator, Role.VIEWER, "#/urls") as page,
    ):
        page.locator("main h1", has_text="URLs").wait_for()
        token_id = coordinator.tokens[Role.VIEWER].split("_")[2]
        coordinator.do(revoke_token(coordinator.dispatcher.engine, token_id, 1.0))
        page.get_by_text("Your session has ended").wait_for()
        page.get_by_label("Token").fill(coordinator.tokens[Role.OPERATOR])
        page.get_by_role("button", name="Log in").click()
        page.locator(".link.live").wait_for()
