"""A robots.txt that redirects to another host: who is asked, when, and under whose lease."""

from __future__ import annotations

import pytest

from drumlin.contact.actions import Renew
from drumlin.contact.events import RenewalEnded, StateChanged
from drumlin.contact.hosts import HostWork
from drumlin.contact.robots_asking import REFUSALS_MAX
from drumlin.contact.rules import Robots
from drumlin.protocol import CrawlState, read_note
from drumlin.robots import REDIRECTS_MAX, Decision
from tests.harness.contacts import WALL, Driver, heard, lease_of

ELSEWHERE = "http://b.test/robots.txt"
OTHER_FILE = "http://b.test/rules.txt"
ALLOWING = b"User-agent: *\nAllow: /\n"
FORBIDDING = Decision(b"User-agent: *\nDisallow: /\n", False, False, WALL + 1e6, False, "rules")
HOSTS = 500
ROOM = 10 * HOSTS


@pytest.fixture
def driver() -> Driver:
    return Driver()


def redirected(driver: Driver, name: str = "a.test", target: str = ELSEWHERE) -> HostWork:
    """A host whose robots.txt has just said to look elsewhere."""
    host = driver.grant(lease_of(name, "/1"))
    driver.tick()
    assert driver.answer(301, target) == f"http://{name}/robots.txt"
    return host


def note_of(decision: Decision) -> bytes:
    known = HostWork(lease_of("b.test"), 0.0, 0.0, 0.0, "drumlin")
    known.robots["http"] = Robots(decision, "drumlin")
    return known.note()


def answer_first(driver: Driver, url: str) -> None:
    """Have the requests for this URL answered before others."""
    driver.begun.sort(key=lambda fetch: fetch.url != url)


def test_the_other_host_is_asked_under_a_lease_that_is_given_back_at_once(driver: Driver) -> None:
    host = redirected(driver)
    assert driver.begun == [], "not without a lease"
    assert [visit.sponsor for visit in driver.visits] == [(host.lease_id, "a.test")]
    assert driver.grant_visit(lease_of("b.test")) == "b.test"
    driver.tick()
    assert driver.answer(200, body=ALLOWING) == ELSEWHERE
    assert list(driver.hosts) == ["a.test"]
    assert driver.released == ["b.test"]
    assert host.robots["http"].allows("http://a.test/1")
    assert driver.urls == ["http://a.test/1"]


def test_what_is_known_of_the_other_host_needs_no_contact(driver: Driver) -> None:
    host = redirected(driver)
    driver.grant_visit(note=note_of(FORBIDDING))
    driver.tick()
    assert not host.robots["http"].allows("http://a.test/1")
    assert (driver.begun, driver.ends) == ([], [("http://a.test/1", "robots")])
    assert list(driver.hosts) == ["a.test"], "its result is on its way"


def test_a_host_that_the_node_holds_itself_lets_the_guest_in_at_its_own_pace(driver: Driver) -> None:
    driver.grant(lease_of("b.test", "/1", wait_s=60.0), known=True)
    redirected(driver, target=OTHER_FILE)
    assert (driver.begun, driver.visits) == ([], [])
    driver.tick(60.0)
    assert driver.urls == [OTHER_FILE], "guests first, and one contact at a time"


def test_guests_of_one_host_share_a_lease(driver: Driver) -> None:
    first, second = redirected(driver), redirected(driver, "c.test")
    assert len(driver.visits) == 1
    driver.grant_visit(lease_of("b.test"))
    driver.tick()
    assert driver.answer(200, body=ALLOWING) == ELSEWHERE
    driver.tick()
    assert [host.robots["http"].allows("http://a.test/") for host in (first, second)] == [True, True]
    assert sorted(driver.urls) == ["http://a.test/1", "http://c.test/1"], "one contact for both"


def test_guests_for_another_file_are_let_in_one_after_the_other(driver: Driver) -> None:
    first, second = redirected(driver, target=OTHER_FILE), redirected(driver, "c.test", OTHER_FILE)
    driver.grant_visit(lease_of("b.test"))
    driver.tick()
    assert driver.urls == [OTHER_FILE]
    driver.answer(200)
    assert (list(first.robots), list(second.robots)) == (["http"], [])
    answer_first(driver, OTHER_FILE)
    assert driver.answer(200) == OTHER_FILE
    assert list(second.robots) == ["http"]


def test_a_host_that_is_not_to_be_had_is_asked_for_later_and_at_last_the_urls_return(driver: Driver) -> None:
    host = redirected(driver)
    for _ in range(REFUSALS_MAX):
        assert driver.grant_visit() == "b.test"
        assert host.next_contact > driver.now
        driver.tick()
        assert driver.visits == [], "not before it waited"
        driver.tick(host.next_contact - driver.now)
    driver.grant_visit()
    assert driver.begun == []
    noted, report = driver.reports
    assert (report.host, report.release, report.next_contact_s > 9) == ("a.test", True, True)
    backoff = read_note(noted.note or b"").backoff["http"]
    assert backoff.error == "robots.txt: it is on b.test, which cannot be asked now"
    assert driver.settled == [], "no attempt is held against them"


def test_guests_are_sent_away_when_the_lease_is_lost(driver: Driver) -> None:
    host = redirected(driver)
    driver.grant_visit(lease_of("b.test", ttl_s=10.0))
    driver.tick()
    driver.now += 10.0
    assert driver.too_late() == ELSEWHERE
    assert "b.test" not in driver.hosts
    assert (host.robots_in_flight, bool(host.robots_query), len(host.tasks)) == (False, True, 1)


def test_a_visit_granted_to_a_node_that_drains_is_given_back(driver: Driver) -> None:
    redirected(driver)
    driver.tell(StateChanged(CrawlState.DRAINING))
    driver.grant_visit(lease_of("b.test"))
    assert (driver.hosts, driver.begun) == ({}, [])
    assert sorted(driver.released) == ["a.test", "b.test"]


def test_no_guest_keeps_a_host_of_a_node_that_drains(driver: Driver) -> None:
    redirected(driver, target=OTHER_FILE)
    driver.grant(lease_of("b.test", "/1"), known=True)
    driver.tick()
    driver.tell(StateChanged(CrawlState.DRAINING))
    driver.grant_visit()
    driver.fail("reset")
    assert driver.hosts == {}
    assert sorted(driver.released) == ["a.test", "b.test"]


def test_one_redirect_too_many_says_nothing_about_the_host_that_it_led_to(driver: Driver) -> None:
    held = driver.grant(lease_of("b.test", "/1", wait_s=60.0))
    host = redirected(driver, target="http://a.test/r0")
    for number in range(1, REDIRECTS_MAX):
        driver.answer(301, f"http://a.test/r{number}")
    assert driver.answer(301, ELSEWHERE) == f"http://a.test/r{REDIRECTS_MAX - 1}"
    assert (host.robots["http"].decision.allow_all, held.robots, list(held.guests)) == (True, {}, [])


def test_a_host_that_asks_to_be_left_alone_sends_its_guests_away(driver: Driver) -> None:
    held = driver.grant(lease_of("b.test", "/1", "/2"), known=True)
    driver.tick()
    page = driver.begun.pop()
    host = redirected(driver, target=OTHER_FILE)
    assert len(held.guests) == 1
    driver.hear(page, heard(429, driver.now, Retry_After="600"))
    assert (list(held.tasks), list(held.guests), host.robots_in_flight) == ([], [], False)


def test_guests_of_a_lease_that_ran_out_unnoticed_are_not_forgotten(driver: Driver) -> None:
    driver.grant(lease_of("b.test", "/1", wait_s=60.0))
    host = redirected(driver, target=OTHER_FILE)
    driver.grant(lease_of("b.test", "/1", lease_id="n0:b.test again"))
    assert (host.robots_in_flight, bool(host.robots_query)) == (False, True)


def test_two_hosts_that_redirect_to_each_other_do_not_wait_for_each_other(driver: Driver) -> None:
    redirected(driver)
    driver.grant(lease_of("b.test", "/1"))
    driver.tick()
    assert driver.answer(301, "http://a.test/robots.txt") == ELSEWHERE
    driver.grant_visit()
    driver.tick()
    assert driver.begun


def chain_of_hosts(driver: Driver) -> None:
    """Hosts whose robots.txt each lead to the next one's. That of the last is under way, and all others wait for it."""
    for number in range(HOSTS):
        driver.grant(lease_of(f"h{number}.test", "/1"))
    driver.tick(room=ROOM)
    *others, last = driver.begun
    driver.begun = [last]
    for number, fetch in enumerate(others, 1):
        driver.hear(fetch, heard(301, driver.now, Location=f"http://h{number}.test/robots.txt"))
    driver.tick(room=ROOM)


def test_a_long_chain_of_hosts_is_no_deep_recursion(driver: Driver) -> None:
    chain_of_hosts(driver)
    for _ in range(3 * HOSTS):
        if driver.begun:
            driver.answer(200, body=ALLOWING)
    assert len(driver.ends) == HOSTS


def test_a_long_chain_of_hosts_is_given_back_at_once(driver: Driver) -> None:
    chain_of_hosts(driver)
    driver.tell(StateChanged(CrawlState.DRAINING))
    while driver.begun:
        driver.answer(200, body=ALLOWING)
    assert len(driver.released) == HOSTS


def test_a_lease_that_only_has_guests_is_renewed(driver: Driver) -> None:
    redirected(driver)
    driver.grant_visit(lease_of("b.test", ttl_s=20.0, wait_s=15.0))
    driver.tell(RenewalEnded())
    driver.tick(11.0)
    renewals = [call.leases for call in driver.calls if isinstance(call, Renew)]
    assert ("n0:b.test", "b.test") in renewals[-1]


# What a site may have other hosts asked for


def test_a_file_that_its_host_denies_to_crawlers_is_not_asked_for_on_behalf_of_another() -> None:
    driver = Driver()
    held = driver.grant(lease_of("b.test", "/1"))
    held.robots["http"] = Robots(FORBIDDING, "drumlin")
    held.next_contact = driver.now + 60.0
    driver.grant(lease_of("a.test", "/1"))
    driver.tick()
    assert driver.answer(301, "http://b.test/search?q=1") == "http://a.test/robots.txt"
    driver.tick(61.0)
    assert driver.urls == []
    assert "a.test" in driver.released, "its URLs wait for a robots.txt that may be had"


def test_a_host_that_asks_a_guest_to_be_left_alone_is_left_alone() -> None:
    driver = Driver()
    driver.grant(lease_of("a.test", "/1"))
    driver.tick()
    driver.answer(301, "http://b.test/rules.txt")
    driver.grant_visit(lease_of("b.test"))
    driver.tick()
    assert driver.answer(503, Retry_After="3600") == "http://b.test/rules.txt"
    assert [one.next_contact_s for one in driver.reports if one.host == "b.test"][-1] == pytest.approx(3600.0)
