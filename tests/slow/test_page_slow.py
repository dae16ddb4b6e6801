"""The dashboard in a real browser, screen by screen: fit for everybody, quiet, unmoved by what websites write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Route, expect

from drumlin.access.tokens import Role
from drumlin.disk import AppendFile
from drumlin.model import Outcome
from drumlin.node.keeping.journal import Entry, Journal, JournalBatch
from drumlin.node.outcomes import result_without_capture
from drumlin.protocol import Assignment
from drumlin.store.tables.rows import FetchRecord
from tests.harness.browser import DESKTOP, PHONE, SCREENS, Looker, chromium, looking, needs_chromium
from tests.harness.coordinators import RemoteNode, RunningCoordinator
from tests.harness.nginx import free_port, nginx

pytestmark = [pytest.mark.slow, needs_chromium]
HOSTS = 3_000
NODES = 300
SCRIPT = "<img src=x onerror=alert(1)>"
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def coordinator() -> Iterator[RunningCoordinator]:
    """A fleet with thousands of hosts, hundreds of nodes, and URLs that try to be markup."""
    with RunningCoordinator(controlled=True) as running:
        urls = [f"http://h{number}.test/{SCRIPT}?a='\"><script>alert(2)</script>" for number in range(HOSTS)]
        running.enqueue(*urls)
        for number in range(NODES):
            RemoteNode(running, f"node-{number}")
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def logged_in(looker: Looker, coordinator: RunningCoordinator, role: Role, address: str = "") -> None:
    page = looker.page
    page.on("dialog", lambda dialog: looker.complaints.append(f"a dialog: {dialog.message}"))
    page.goto(address or coordinator.url)
    page.get_by_label("Token").fill(coordinator.tokens[role])
    page.get_by_role("button", name="Log in").click()
    page.locator(".figures").wait_for()


def serious(looker: Looker) -> list[Any]:
    found = Axe().run(looker.page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found if one["impact"] in SERIOUS]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_screen_has_a_serious_fault_for_those_who_see_or_move_differently(
    browser: Browser, coordinator: RunningCoordinator, viewport: dict[str, int], scheme: str
) -> None:
    with looking(browser, viewport=viewport, color_scheme=scheme) as looker:
        looker.page.goto(coordinator.url)
        looker.page.get_by_label("Token").wait_for()
        assert serious(looker) == [], "logging in"
        logged_in(looker, coordinator, Role.OPERATOR)
        for screen in SCREENS:
            looker.show(screen)
            assert serious(looker) == [], screen
            wide = looker.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{screen} is wider than the window"
        looker.quiet(f"127.0.0.1:{coordinator.port}")


def test_what_websites_write_stays_text(browser: Browser, coordinator: RunningCoordinator) -> None:
    with looking(browser) as looker:
        logged_in(looker, coordinator, Role.OPERATOR)
        page = looker.page
        for place in ("#/hosts?state=ready", "#/hosts/h1.test", f"#/urls?url=http://h1.test/{SCRIPT}", "#/failures"):
            page.goto(f"{coordinator.url}/{place}")
            page.locator("main :is(.card, .empty, .figures)").first.wait_for()
        page.goto(f"{coordinator.url}/#/hosts/{SCRIPT}")
        page.locator("main .empty").wait_for()
        assert page.locator("main img, main script").count() == 0
        looker.quiet(f"127.0.0.1:{coordinator.port}")


def test_a_viewer_sees_no_lever(browser: Browser, coordinator: RunningCoordinator) -> None:
    with looking(browser) as looker:
        logged_in(looker, coordinator, Role.VIEWER)
        for screen in SCREENS:
            looker.show(screen)
            buttons = set(looker.page.locator("main button").all_inner_texts())
            looks = ("Show more", "Find", "Look up", "Ask")
            assert {text for text in buttons if not text.startswith(looks)} == set(), screen


def test_thousands_of_rows_are_shown_a_part_at_a_time(browser: Browser, coordinator: RunningCoordinator) -> None:
    with looking(browser) as looker:
        logged_in(looker, coordinator, Role.VIEWER)
        page = looker.page
        page.goto(f"{coordinator.url}/#/hosts?state=ready")
        page.get_by_text(f"200 of {HOSTS:,} hosts").wait_for()
        assert page.locator("tbody tr").count() == 100
        page.get_by_role("button", name="Show more").click()
        assert page.locator("tbody tr").count() == 200
        page.get_by_label("Find hosts by how their names begin").fill("h29")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("button", name="Show more").click()
        page.get_by_role("link", name="h2999.test").wait_for()
        assert page.locator("tbody tr").count() == 111, "h29, h290 to h299 and h2900 to h2999"
        page.goto(f"{coordinator.url}/#/nodes")
        page.get_by_text(f"of {NODES} nodes at work").wait_for()
        expect(page.locator("tbody tr")).to_have_count(200)


def test_what_is_shown_is_what_the_api_says(browser: Browser, coordinator: RunningCoordinator) -> None:
    with looking(browser) as looker:
        logged_in(looker, coordinator, Role.VIEWER)
        stats = coordinator.get("/api/v1/stats", token=coordinator.tokens[Role.VIEWER]).json
        looker.page.get_by_text(f"of {stats['totals']['known']:,} known URLs").wait_for()
        assert looker.page.locator("[data-count=hosts]").inner_text() == f"{stats['totals']['hosts_ready']:,}"
        why = coordinator.get("/api/v1/why-idle", token=coordinator.tokens[Role.VIEWER]).json
        looker.page.get_by_text((why["reasons"] or why["bound_by"])[0]["message"][:40]).first.wait_for()


def test_nothing_is_said_of_a_time_that_is_not_known_yet(browser: Browser, coordinator: RunningCoordinator) -> None:
    with looking(browser) as looker:
        page, held = looker.page, list[Route]()
        page.route("**/api/v1/history*", lambda route: held.append(route))
        logged_in(looker, coordinator, Role.VIEWER)
        # The chart is there, and the answer is still on its way.
        page.get_by_role("img", name="Pages a second").first.wait_for()
        expect(page.get_by_text("No page was fetched")).to_have_count(0)
        for route in held:
            route.continue_()
        page.get_by_text("No page was fetched in this time.").wait_for()


def test_what_is_in_a_journal_only_is_told_as_drumlin_why_tells_it(browser: Browser, tmp_path: Path) -> None:
    with RunningCoordinator(controlled=True, store=tmp_path) as running, looking(browser) as looker:
        running.enqueue("http://a.test/")
        (tmp_path / "nodes" / "n1").mkdir(parents=True)
        result = result_without_capture(
            Assignment("n1:token/1.0.0.seal", "http://a.test/", 5, 0.0, "a.test", 0.0),
            Outcome.FETCHED,
            "c",
            1.5,
            "",
            "",
        )
        record = FetchRecord("http://a.test/", "a.test", 1.5, "fetched", 200, node="n1")
        journal = Journal(AppendFile(tmp_path / "nodes" / "n1" / "n1-1-1.journal"))
        journal.append(JournalBatch([Entry(result, record, "w.warc.gz", 100, "")]))
        logged_in(looker, running, Role.VIEWER)
        looker.page.goto(f"{running.url}/#/urls?url=http://a.test/")
        looker.page.get_by_text("no coordinator has counted it yet").wait_for()
        assert looker.page.get_by_text("tables/").count() == 0, "no table has its row"


def test_levers_take_effect(browser: Browser, coordinator: RunningCoordinator) -> None:
    with looking(browser) as looker:
        logged_in(looker, coordinator, Role.OPERATOR)
        page, token = looker.page, coordinator.tokens[Role.VIEWER]

        def confirm(verb: str) -> None:
            page.locator("dialog").get_by_role("button", name=verb, exact=True).click()
            page.locator("dialog").wait_for(state="detached")

        page.get_by_role("button", name="Pause").click()
        confirm("Pause")
        assert coordinator.get("/api/v1/crawl", token=token).json["state"] == "paused"
        page.get_by_role("button", name="Resume").click()
        confirm("Resume")
        page.goto(f"{coordinator.url}/#/hosts/h7.test")
        page.get_by_role("button", name="Block…").click()
        confirm("Block")
        assert coordinator.get("/api/v1/hosts/h7.test", token=token).json["blocked"]
        page.goto(f"{coordinator.url}/#/settings")
        page.get_by_role("button", name="Change the budget of pages").click()
        page.get_by_role("textbox", name="At most").fill("12k")
        confirm("Change")
        assert coordinator.get("/api/v1/crawl", token=token).json["budgets"]["pages_max"] == 12_000
        # One that has just registered: the others have said nothing since, and count as lost.
        RemoteNode(coordinator, "another")
        page.goto(f"{coordinator.url}/#/nodes?status=active")
        page.get_by_role("button", name="Drain another", exact=True).click()
        confirm("Drain")
        actions = [one["action"] for one in coordinator.get("/api/v1/audit", token=token).json["entries"]]
        assert actions[:5] == ["node.drain", "crawl.change", "host.change", "crawl.resume", "crawl.pause"]


def test_it_works_behind_a_prefix(browser: Browser, coordinator: RunningCoordinator, tmp_path: Path) -> None:
    port = free_port()
    proxy = f"""server {{
        listen 127.0.0.1:{port};
        location /crawls/one/ {{
            proxy_pass http://127.0.0.1:{coordinator.port}/;
            proxy_set_header Host $http_host;
            proxy_http_version 1.1;
            proxy_buffering off;
        }}
    }}"""
    with nginx(tmp_path, proxy, port), looking(browser) as looker:
        logged_in(looker, coordinator, Role.OPERATOR, f"http://127.0.0.1:{port}/crawls/one/")
        (cookie,) = looker.context.cookies()
        assert cookie["path"] == "/crawls/one"
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        looker.page.locator(".link.live").wait_for()
        for screen in SCREENS:
            looker.show(screen)
        looker.show("Overview")
        looker.page.get_by_role("button", name="Pause").click()
        looker.page.locator("dialog").get_by_role("button", name="Pause").click()
        looker.page.locator(".pill", has_text="Paused").wait_for()
        looker.quiet(f"127.0.0.1:{port}")
