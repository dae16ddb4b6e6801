"""What the answer to a page means for what is asked next: lost requests, redirects to the same URL, HTTPS alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.contact.actions import FetchPage, Settle
from drumlin.contact.events import StateChanged
from drumlin.contact.pages import HSTS_MAX_AGE_S, hsts_until
from drumlin.http.type_limits import TypeLimits
from drumlin.model import Outcome
from drumlin.protocol import NAMED_BY_ROBOTS, CrawlState, read_note
from tests.harness.contacts import Driver, heard, lease_of

MAP_BYTES = 1_000_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_request_that_was_lost_with_its_connection_is_no_attempt(driver: Driver) -> None:
    host = driver.work("/0")
    for _ in range(3):
        assert driver.fail("reset", stale=True) == "http://a.test/0"
        assert driver.settled == []
    driver.fail("reset", stale=True)
    assert list(host.suspects) == ["http://a.test/0"], "not for ever"


def test_a_request_for_robots_txt_that_was_lost_with_its_connection_is_sent_again(driver: Driver) -> None:
    host = driver.work("/0", known=False)
    assert driver.fail("reset", stale=True) == "http://a.test/robots.txt"
    assert (driver.urls, driver.kept, host.backoff) == (["http://a.test/robots.txt"], [], {})


def test_another_spelling_of_the_same_url_is_asked_for_once_under_the_same_lease(driver: Driver) -> None:
    host = driver.work("/0")
    driver.answer(302, "/%30")
    assert (driver.urls, driver.settled, host.in_flight) == (["http://a.test/%30"], [], 1)
    driver.answer(302, "/0")
    assert (driver.urls, driver.ends) == ([], [("http://a.test/0", "")]), "a loop"


def test_a_redirect_that_sets_a_cookie_is_asked_for_again_with_it() -> None:
    driver = Driver(cookies="chain")
    driver.work("/0")
    driver.answer(302, "/0", Set_Cookie="seen=1")
    (again,) = driver.begun
    assert (again.url, again.cookie) == ("http://a.test/0", "seen=1")


def test_a_node_that_is_told_to_stop_asks_for_nothing_again(driver: Driver) -> None:
    driver.work("/0")
    driver.tell(StateChanged(CrawlState.DRAINING))
    driver.fail("reset", stale=True)
    assert (driver.begun, driver.settled, driver.hosts) == ([], [], {})
    assert driver.released == ["a.test"]


def test_as_many_requests_of_a_host_are_under_way_as_the_crawl_allows() -> None:
    driver = Driver(per_host=2)
    driver.work("/0", "/1", "/2")
    assert driver.urls == ["http://a.test/0", "http://a.test/1"]
    driver.answer(200)
    assert driver.urls == ["http://a.test/1", "http://a.test/2"]


def test_no_more_requests_are_begun_than_there_is_room_for(driver: Driver) -> None:
    for name in ("a.test", "b.test", "c.test"):
        driver.grant(lease_of(name, "/0"), known=True)
    driver.tick(room=2)
    assert (driver.urls, driver.contacts.under_way) == (["http://a.test/0", "http://b.test/0"], 2)


def test_the_delay_counts_from_the_first_byte_of_the_answer() -> None:
    driver = Driver(delay_s=2.0)
    driver.work("/0", "/1")
    driver.now += 5.0
    driver.answer(200)
    driver.tick(1.9)
    assert driver.begun == []
    driver.tick(0.1)
    assert driver.urls == ["http://a.test/1"]


def test_what_may_be_a_sitemap_may_be_larger_and_of_any_type() -> None:
    types = TypeLimits({})
    driver = Driver(per_host=3, sitemap_bytes_max=MAP_BYTES, types=types)
    lease = lease_of("a.test", "/map.xml", "/sitemap2.xml", "/page")
    lease.assignments[0].found_on = NAMED_BY_ROBOTS
    for task in lease.assignments[1:]:
        task.depth = 1
    driver.grant(lease, known=True)
    driver.tick()
    limits = [(one.body_bytes_max, one.types) for one in driver.begun if isinstance(one, FetchPage)]
    assert limits == [(MAP_BYTES, None), (MAP_BYTES, None), (0, types)]


# HTTPS alone


def test_a_host_that_wants_https_alone_is_not_asked_otherwise_until_that_is_over(driver: Driver) -> None:
    lease = lease_of("a.test", "/0", "/1", "/2")
    lease.assignments[0].url = "https://a.test/0"
    host = driver.grant(lease, known=True)
    host.robots["https"] = host.robots["http"]
    driver.tick()
    driver.answer(200, Strict_Transport_Security="max-age=7200")
    assert driver.begun == []
    (_, first, second) = driver.settled
    assert isinstance(first, Settle)
    assert (first.outcome, first.status, first.redirect_to) == (Outcome.REDIRECTED, 307, "https://a.test/1")
    assert isinstance(second, Settle)
    assert second.redirect_to == "https://a.test/2"
    assert read_note(host.note()).hsts_until == driver.moment.wall + 7200.0
    later = Driver()
    later.now = driver.now + 7200.0
    later.grant(lease_of("a.test", "/3", note=host.note()), known=True)
    later.tick()
    assert later.urls == ["http://a.test/3"]


@pytest.mark.parametrize(
    ("value", "until"),
    [
        ("max-age=600", 1600.0),
        ('Max-Age="600"; includeSubDomains', 1600.0),
        ("includeSubDomains; max-age=600", 1600.0),
        ("max-age=0", 0.0),
        ("max-age=forever", 0.0),
        ("max-age=²", 0.0),
        ("", 0.0),
        ("max-age=99999999999999999999", 1000.0 + HSTS_MAX_AGE_S),
    ],
)
def test_strict_transport_security_binds_until_its_age_is_over(value: str, until: float) -> None:
    assert hsts_until(value, 1000.0) == until


@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_no_strict_transport_security_breaks_the_node(value: str) -> None:
    assert hsts_until(f"max-age={value}", 0.0) >= 0.0


# What a coordinator that was lied to may give out


@pytest.mark.parametrize(
    "url",
    [
        "http://b.test/1",
        "http://a.test/é",
        "http://a.test/\x00",
        "HTTP://a.test/1",
        "http://a.test:80/",
        "ftp://a.test/",
    ],
)
def test_what_is_not_a_url_of_the_leased_host_is_never_asked_for(url: str) -> None:
    driver = Driver()
    lease = lease_of("a.test", "/1", "/2")
    lease.assignments[0].url = url
    driver.grant(lease, known=True)
    driver.tick()
    assert (driver.urls, driver.ends) == (["http://a.test/2"], [(url, "trap")])


def test_a_chain_of_redirects_that_no_crawl_writes_ends_its_url() -> None:
    driver = Driver()
    lease = lease_of("a.test", "/1")
    lease.assignments[0].redirects = ("x;y",)
    driver.grant(lease, known=True)
    driver.tick()
    assert (driver.urls, driver.ends) == ([], [("http://a.test/1", "trap")])


def test_a_site_that_asks_to_be_left_alone_means_it_if_its_answer_breaks_off_too() -> None:
    driver = Driver()
    host = driver.work("/1", "/2")
    answer = heard(429, driver.now, Retry_After="3600")
    answer.failure = "reset"
    driver.end(answer)
    assert host.next_contact - driver.now == pytest.approx(3600.0)
