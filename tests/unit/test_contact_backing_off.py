"""Hosts that give no answer: what is asked for, what is given back, and what is held against whom."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from drumlin.contact.actions import Settle
from drumlin.contact.events import Renewed
from drumlin.contact.hosts import HostWork
from drumlin.model import FailureKind
from drumlin.protocol import read_note
from tests.harness.contacts import Driver, lease_of


def put_offs(driver: Driver) -> list[Settle]:
    """What was settled without a request."""
    return [one for one in driver.settled if isinstance(one, Settle)]


@pytest.mark.parametrize("failure", ["dns", "connect", "tls", "timeout", "reset"])
def test_a_host_that_cannot_be_reached_is_given_back_with_all_its_urls(failure: str) -> None:
    driver = Driver()
    driver.work("/1", "/2", "/3")
    assert driver.fail(failure, sent=False) == "http://a.test/1"
    assert (driver.settled, driver.begun, driver.hosts) == ([], [], {})
    noted, report = driver.reports
    assert report.release
    assert 9.0 < report.next_contact_s <= 11.0
    backoff = read_note(noted.note or b"").backoff["http"]
    assert (backoff.kind, backoff.tries) == (failure, 1)


def test_a_robots_txt_that_is_not_to_be_had_puts_off_its_host_for_as_long_as_it_asks() -> None:
    driver = Driver()
    driver.work("/1", "/2", known=False)
    driver.answer(429, Retry_After="600")
    assert (driver.settled, driver.begun) == ([], [])
    noted, report = driver.reports
    assert report.next_contact_s == pytest.approx(600.0)
    backoff = read_note(noted.note or b"").backoff["http"]
    assert (backoff.kind, backoff.asked) == (FailureKind.ROBOTS_UNREACHABLE, True)


def test_a_host_that_is_given_too_early_is_not_contacted() -> None:
    """Another scheme of it may be worth a lease, or somebody may have hurried it: a site's own wish holds."""
    driver = Driver()
    driver.work("/1", known=False)
    driver.answer(503, Retry_After="600")
    note = driver.reports[0].note
    assert note is not None
    again = Driver()
    again.now = driver.now + 5.0
    again.work("/1", known=False, note=note)
    assert again.begun == []
    assert again.reports[-1].release
    assert again.reports[-1].next_contact_s == pytest.approx(595.0)


def test_what_was_tried_before_a_process_began_may_be_tried_again_when_its_host_is_given() -> None:
    driver = Driver()
    driver.work("/1")
    driver.fail("connect", sent=False)
    note = driver.reports[0].note
    assert note is not None
    driver.work("/1", known=False, note=note)
    assert driver.begun == [], "this very process has tried it"
    later = Driver()
    later.now = driver.now + 1.0
    later.work("/1", known=False, note=note)
    assert later.urls == ["http://a.test/robots.txt"]


def test_a_url_is_blamed_if_the_host_answered_just_before() -> None:
    driver = Driver()
    host = driver.work("/1", "/2", known=False)
    driver.answer(404)
    assert driver.fail("reset") == "http://a.test/1"
    assert driver.ends == [("http://a.test/1", "reset")]
    assert not host.backoff


@pytest.mark.parametrize("failure", ["reset", "timeout"])
def test_a_url_is_blamed_only_once_the_host_has_answered(failure: str) -> None:
    driver = Driver()
    driver.work("/1", "/2")
    assert driver.fail(failure) == "http://a.test/1"
    assert driver.settled == []
    assert driver.answer(404) == "http://a.test/robots.txt"
    assert driver.ends == [("http://a.test/1", failure)]
    assert driver.urls == ["http://a.test/2"]


def test_a_url_that_is_blamed_is_settled_as_of_when_it_failed() -> None:
    driver = Driver()
    driver.work("/1")
    failed = driver.moment.wall
    driver.fail("timeout")
    driver.now += 7.0
    driver.answer(404)
    (end,) = driver.settled
    assert not isinstance(end, Settle)
    assert end.wall == failed


def test_nobody_is_blamed_if_the_host_does_not_answer_either() -> None:
    driver = Driver()
    driver.work("/1", "/2")
    driver.fail("timeout")
    assert driver.fail("timeout") == "http://a.test/robots.txt"
    assert (driver.settled, driver.begun) == ([], [])
    assert driver.released == ["a.test"]


def test_urls_of_another_scheme_go_on_and_the_rest_is_put_off_one_by_one() -> None:
    driver = Driver()
    lease = lease_of("a.test", "/1", "/2", "/3")
    lease.assignments[0].url = "https://a.test/1"
    lease.assignments[1].url = "https://a.test/2"
    driver.grant(lease)
    driver.tick()
    assert driver.fail("tls", sent=False) == "https://a.test/robots.txt"
    assert [(one.task.url, one.put_off_s > 9.0) for one in put_offs(driver)] == [
        ("https://a.test/1", True),
        ("https://a.test/2", True),
    ]
    assert driver.urls == ["http://a.test/robots.txt"]


def test_urls_of_a_host_that_was_out_of_reach_for_too_long_are_given_up() -> None:
    driver = Driver(host_patience_s=0.0)
    driver.work("/1", "/2")
    driver.fail("dns", sent=False)
    assert [(one.kind, one.gave_up) for one in put_offs(driver)] == [("dns", True)] * 2


def test_a_private_address_is_no_outage() -> None:
    driver = Driver()
    driver.work("/1", known=False)
    driver.fail("forbidden_address", sent=False)
    assert [(one.kind, one.put_off_s, one.gave_up) for one in put_offs(driver)] == [("forbidden_address", 0.0, False)]


def test_a_suspect_whose_host_turns_out_to_have_a_private_address_is_settled_once() -> None:
    driver = Driver()
    driver.work("/1")
    driver.fail("reset")
    driver.fail("forbidden_address", sent=False)
    driver.now += 1.0
    driver.tell(Renewed(lease_of("a.test", "/2"), driver.now))
    driver.tick()
    assert driver.answer(404) == "http://a.test/robots.txt"
    assert driver.ends == [("http://a.test/1", "forbidden_address")]


# How fast


@pytest.mark.parametrize(("delay_s", "slowed_s"), [(0.0, 1.0), (0.3, 1.0), (2.0, 4.0), (40.0, 60.0), (90.0, 90.0)])
def test_after_a_429_a_host_is_asked_half_as_often(delay_s: float, slowed_s: float) -> None:
    driver = Driver(delay_s=delay_s)
    host = driver.work("/1", "/2")
    driver.answer(429)
    assert host.delay_s == slowed_s
    again = HostWork(lease_of("a.test", note=host.note()), 0.0, 0.0, delay_s, "drumlin")
    assert again.delay_s == slowed_s, "also by who has it next"


def test_answers_to_what_was_asked_before_a_429_do_not_slow_a_host_down_further() -> None:
    host = HostWork(lease_of("a.test"), 0.0, 0.0, 2.0, "drumlin")
    for asked_at in (1.0, 1.1, 1.2):
        host.slow_down(asked_at, 5.0 + asked_at)
    assert host.delay_s == 4.0
    host.slow_down(9.0, 9.5)
    assert host.delay_s == 8.0


def test_a_host_recovers_slowly_and_to_the_end() -> None:
    host = HostWork(lease_of("a.test"), 0.0, 0.0, 2.0, "drumlin")
    host.slow_down(1.0, 1.0)
    delays = []
    while host.slow_s:
        host.recover()
        delays.append(host.delay_s)
    assert delays == sorted(delays, reverse=True)
    assert 30 < len(delays) < 40
    assert host.delay_s == 2.0


def test_a_host_recovers_with_each_answer_that_came_as_it_should() -> None:
    driver = Driver(delay_s=0.1)
    host = driver.work("/1", "/2", "/3")
    driver.answer(429)
    slowed_s = host.slow_s
    driver.tick(slowed_s)
    driver.answer(500)
    assert host.slow_s == slowed_s, "a refusal is no reason"
    driver.tick(2 * slowed_s)
    driver.answer(200)
    assert 0.0 < host.slow_s < slowed_s


@pytest.mark.parametrize(("asked", "wait_s"), [("7200", 7_200.0), ("999999", 86_400.0)])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_kept_to_up_to_a_day(asked: str, wait_s: float, status: int) -> None:
    driver = Driver()
    host = driver.work("/1", "/2")
    driver.answer(status, Retry_After=asked)
    assert host.next_contact - driver.now == pytest.approx(wait_s)
    assert driver.begun == []


@pytest.mark.parametrize(("status", "asked"), [(429, ""), (429, "1"), (503, "2"), (503, "600")])
def test_the_frontier_hears_at_once_of_a_longer_wait_so_that_it_survives_this_node(status: int, asked: str) -> None:
    driver = Driver(delay_s=0.5)
    driver.work("/1", "/2")
    driver.answer(status, Retry_After=asked)
    report = driver.reports[0]
    assert report.next_contact_s >= max(1.0, float(asked or 0))
    assert read_note(report.note or b"").slow_s == (1.0 if status == 429 else 0.0)


def test_a_pause_is_said_to_be_asked_for_only_if_it_is_not_our_own_longer_one() -> None:
    driver = Driver()
    host = driver.work("/1", known=False)
    driver.answer(503, Retry_After="20")
    asked = host.backoff["http"]
    assert (asked.asked, asked.asked_s, asked.as_asked) == (True, 20.0, True)
    ours = replace(asked, until=asked.tried + 80.0)
    assert (ours.asked, ours.as_asked) == (True, False)


def test_a_host_given_up_after_a_moment_is_not_said_to_be_gone_for_hours() -> None:
    driver = Driver(host_patience_s=0.0)
    driver.work("/1", "/2")
    driver.fail("connect", sent=False)
    assert {one.error for one in put_offs(driver)} == {"made up"}
