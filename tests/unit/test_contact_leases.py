"""Leases: when they are asked for and renewed, what is given back, and that nothing is sent without one."""

from __future__ import annotations

import pytest

from drumlin.contact.actions import AskWork, Renew
from drumlin.contact.events import (
    Answered,
    Granted,
    RenewalEnded,
    Renewed,
    Revoked,
    Sending,
    StateChanged,
    WorkEnded,
)
from drumlin.contact.hosts import LEASE_MARGIN_S
from drumlin.contact.law import DECISIONS_MAX
from drumlin.contact.leases import HOSTS_PER_REQUEST, NEVER, SOON_S
from drumlin.contact.rules import Robots
from drumlin.protocol import CrawlState, WorkLease
from drumlin.robots import Decision
from tests.harness.contacts import Driver, lease_of

RETRY_S = 3.0


@pytest.fixture
def driver() -> Driver:
    return Driver()


def asked(driver: Driver) -> list[int]:
    """Leases of how many hosts were asked for."""
    return [call.hosts for call in driver.calls if isinstance(call, AskWork)]


def renewals(driver: Driver) -> list[list[str]]:
    """The hosts whose leases were to be renewed."""
    return [[host for _, host in call.leases] for call in driver.calls if isinstance(call, Renew)]


def resting(name: str, urls: int = 3, ttl_s: float = 100.0) -> WorkLease:
    """A lease of a host that may not be contacted for long."""
    return lease_of(name, *(f"/{number}" for number in range(urls)), ttl_s=ttl_s, wait_s=90.0)


# Asking


def test_hosts_are_asked_for_once_at_a_time_and_no_more_than_there_is_room_for(driver: Driver) -> None:
    driver.tick(room=0)
    assert asked(driver) == []
    driver.tick(room=5)
    driver.tick(room=5)
    assert asked(driver) == [5]
    assert driver.contacts.due(driver.now, room=1, full=False) == NEVER
    driver.tell(WorkEnded(0.0))
    driver.tick(room=1_000)
    assert asked(driver) == [5, HOSTS_PER_REQUEST]


def test_hosts_that_can_be_contacted_soon_take_up_room(driver: Driver) -> None:
    driver.grant(lease_of("now.test", "/1"))
    driver.grant(lease_of("soon.test", "/1", wait_s=SOON_S))
    driver.grant(lease_of("later.test", "/1", wait_s=2 * SOON_S))
    driver.tick(room=5)
    assert asked(driver) == [3]


def test_nobody_is_woken_to_ask_for_more_while_hosts_that_can_be_contacted_soon_fill_the_room(driver: Driver) -> None:
    """The loop was once woken every 10 ms, only to find that it need not ask."""
    driver.grant(lease_of("soon.test", "/1", wait_s=SOON_S / 2))
    contact_at = driver.now + SOON_S / 2
    assert driver.contacts.due(driver.now, room=1, full=False) == contact_at
    assert driver.contacts.due(driver.now, room=2, full=False) < contact_at


def test_who_ticks_only_when_something_is_due_asks_contacts_and_renews_in_time(driver: Driver) -> None:
    contacts = driver.contacts
    assert contacts.tick_due(driver.now, room=1, full=False) <= driver.now
    assert contacts.tick_due(driver.now, room=0, full=False) == NEVER
    driver.tick(room=1)
    assert contacts.tick_due(driver.now, room=1, full=False) == NEVER
    driver.grant(lease_of("a.test", "/1", "/2", "/3", "/4", "/5", ttl_s=100.0, wait_s=90.0))
    assert contacts.tick_due(driver.now, room=0, full=False) == driver.now + 50.0
    assert contacts.tick_due(driver.now, room=0, full=True) == driver.now + 50.0
    driver.tick(51.0, room=0)
    assert renewals(driver) == [["a.test"]]
    assert contacts.tick_due(driver.now, room=0, full=False) == driver.now + 49.0


def test_nothing_is_asked_for_while_no_page_can_be_taken_in_or_the_crawl_pauses(driver: Driver) -> None:
    driver.grant(lease_of("a.test", "/1"))
    driver.tick(full=True)
    assert (asked(driver), driver.begun) == ([], [])
    driver.tell(StateChanged(CrawlState.PAUSED))
    driver.tick()
    assert (asked(driver), driver.begun) == ([], [])
    assert driver.contacts.due(driver.now, room=1, full=False) == NEVER


def test_after_a_failure_hosts_are_asked_for_again_but_not_at_once(driver: Driver) -> None:
    driver.tick()
    driver.tell(WorkEnded(RETRY_S))
    assert driver.contacts.due(driver.now, room=1, full=False) >= driver.now + RETRY_S
    driver.tick(RETRY_S - 0.1)
    assert len(asked(driver)) == 1
    driver.tick(0.1)
    assert len(asked(driver)) == 2


# Renewing


def test_a_lease_that_runs_out_is_renewed_and_one_that_cannot_be_is_lost(driver: Driver) -> None:
    for name, ttl_s in (("kept", 100.0), ("lost", 100.0), ("over", 40.0)):
        driver.grant(resting(name, ttl_s=ttl_s))
    driver.tick()
    driver.calls.clear()
    driver.tell(RenewalEnded())
    driver.tick(51.0)
    assert (renewals(driver), driver.released) == ([["kept", "lost"]], ["over"])
    driver.tell(Renewed(resting("kept", 2), driver.now))
    driver.tell(RenewalEnded(["lost"]))
    assert driver.released == ["over", "lost"]
    assert (len(driver.hosts["kept"].tasks), driver.hosts["kept"].expires) == (5, driver.now + 100.0)


def test_leases_that_run_out_a_little_later_are_renewed_in_the_same_call(driver: Driver) -> None:
    driver.grant(resting("first.test", 9))
    driver.tick(15.0)
    driver.grant(resting("soon.test", 9))
    driver.tick(20.0)
    driver.grant(resting("late.test", 9))
    driver.tick(16.0)
    assert renewals(driver) == [["first.test", "soon.test"]]
    driver.tell(RenewalEnded(again_s=RETRY_S))
    driver.tick(RETRY_S)
    assert [sorted(hosts) for hosts in renewals(driver)[1:]] == [["first.test", "soon.test"]]


def test_a_lease_is_renewed_while_its_last_page_is_still_under_way(driver: Driver) -> None:
    """A page may take longer than a lease. If the lease ran out meanwhile, another node would fetch the page again."""
    driver.work("/only")
    assert driver.urls == ["http://a.test/only"]
    # It was asked for further URLs, of which there are none.
    driver.tell(RenewalEnded())
    driver.calls.clear()
    driver.tick(60.0)
    assert renewals(driver) == [["a.test"]]


def test_after_a_failure_leases_are_renewed_again_but_not_at_once(driver: Driver) -> None:
    host = driver.grant(resting("a.test", 10))
    driver.tick(51.0)
    assert (renewals(driver), host.renewing) == ([["a.test"]], True)
    driver.tell(RenewalEnded(again_s=RETRY_S))
    assert not host.renewing
    driver.tick(RETRY_S - 0.1)
    assert len(renewals(driver)) == 1
    driver.tick(0.1)
    assert renewals(driver) == [["a.test"]] * 2


def test_a_host_that_a_renewal_does_not_speak_of_is_asked_for_again(driver: Driver) -> None:
    driver.grant(resting("a.test", 10))
    driver.tick(51.0)
    driver.tell(RenewalEnded())
    driver.tick(1.0)
    assert renewals(driver) == [["a.test"]] * 2


def test_further_urls_are_asked_for_when_few_are_left_and_none_for_a_host_that_had_only_one(driver: Driver) -> None:
    """In a broad crawl most hosts have one URL: each of them would cost a renewal."""
    driver.tick()
    for name, paths in (("one.test", ["/1"]), ("two.test", ["/1", "/2"])):
        driver.grant(lease_of(name, *paths))
    driver.tick(0.1)
    assert sorted(driver.urls) == ["http://one.test/robots.txt", "http://two.test/robots.txt"]
    assert renewals(driver) == []
    driver.answer(404)
    driver.answer(404)
    driver.tick(0.1)
    assert renewals(driver) == [["two.test"]]


@pytest.mark.parametrize("full", [False, True])
def test_a_node_that_can_take_no_page_in_renews_for_time_alone(driver: Driver, full: bool) -> None:
    driver.grant(resting("a.test", 10))
    driver.tick(51.0, full=full)
    assert [call.further for call in driver.calls if isinstance(call, Renew)] == [not full]


def test_a_renewal_that_crosses_the_end_of_its_lease_gives_no_urls_to_the_next_one(driver: Driver) -> None:
    driver.grant(resting("a.test", 10))
    driver.tick(51.0)
    newer = driver.grant(lease_of("a.test", "/1", lease_id="n0:another", wait_s=90.0))
    driver.tell(Renewed(resting("a.test", 7), driver.now))
    driver.tell(RenewalEnded(["a.test"]))
    assert (len(newer.tasks), newer.expires) == (1, driver.now + 100.0)


def test_a_lease_that_is_heard_of_twice_is_one_lease(driver: Driver) -> None:
    driver.work("/1", "/2")
    driver.tell(Granted(lease_of("a.test", "/1", "/2"), driver.now))
    driver.tick()
    assert driver.urls == ["http://a.test/1"]


# Giving back


def test_leases_that_are_revoked_are_given_back_and_others_are_kept(driver: Driver) -> None:
    for name in ("a.test", "b.test", "c.test"):
        driver.grant(lease_of(name, "/0", "/1", wait_s=0.0 if name == "b.test" else 60.0), known=True)
    driver.tick()
    assert driver.urls == ["http://b.test/0"]
    driver.tell(Revoked(["n0:a.test", "n0:b.test", "n0:unknown"]))
    assert driver.released == ["a.test"]
    assert list(driver.hosts) == ["b.test", "c.test"], "what is in flight is finished first"
    assert (len(driver.hosts["b.test"].tasks), len(driver.hosts["c.test"].tasks)) == (0, 2)


def test_a_pause_gives_back_what_is_not_begun_and_a_resumed_crawl_goes_on(driver: Driver) -> None:
    driver.grant(lease_of("a.test", "/1"))
    driver.tell(StateChanged(CrawlState.PAUSED))
    driver.tell(Granted(lease_of("late.test", "/1"), driver.now))
    assert (driver.released, driver.hosts) == (["a.test", "late.test"], {})
    driver.tell(StateChanged(CrawlState.RUNNING))
    driver.grant(lease_of("b.test", "/1"))
    driver.tick()
    assert driver.urls == ["http://b.test/robots.txt"]


def test_urls_that_a_renewal_brings_during_a_pause_are_not_begun(driver: Driver) -> None:
    driver.work("/1", "/2")
    driver.tell(StateChanged(CrawlState.PAUSED))
    driver.tell(Renewed(lease_of("a.test", "/3"), driver.now))
    driver.answer(404)
    driver.tell(StateChanged(CrawlState.RUNNING))
    driver.tick()
    assert (driver.urls, driver.ends) == ([], [("http://a.test/1", "")])


def test_a_host_is_given_back_with_its_last_result(driver: Driver) -> None:
    host = driver.work("/1")
    driver.answer(200)
    assert driver.released == [], "what was archived counts while the lease lasts"
    driver.tell(Sending([(host, 1)]))
    assert driver.released == ["a.test"]
    driver.tell(Answered([(host, 1)]))
    assert driver.released == ["a.test"]


def test_a_host_is_not_given_back_while_another_parcel_with_its_results_is_unanswered(driver: Driver) -> None:
    host = driver.work("/1", "/2")
    driver.answer(200)
    driver.tell(Sending([(host, 1)]))
    driver.answer(200)
    driver.tell(Sending([(host, 1)]))
    assert (driver.released, host.unanswered) == ([], 2)
    driver.tell(Answered([(host, 1)]))
    assert driver.released == []
    driver.tell(Answered([(host, 1)]))
    assert driver.released == ["a.test"]


# Nothing is sent without one


def test_a_host_whose_lease_may_be_over_is_not_contacted_but_given_back(driver: Driver) -> None:
    driver.grant(lease_of("a.test", "/1", ttl_s=LEASE_MARGIN_S / 2), known=True)
    driver.tick()
    assert (driver.begun, driver.released) == ([], ["a.test"])


def test_a_request_that_could_not_be_sent_in_time_is_no_result(driver: Driver) -> None:
    host = driver.work("/0", "/1")
    (fetch,) = driver.begun
    assert (fetch.url, fetch.send_by) == ("http://a.test/0", host.expires - LEASE_MARGIN_S)
    driver.now = fetch.send_by
    driver.too_late()
    assert (driver.released, driver.settled) == (["a.test"], [])


def test_a_request_that_was_too_late_for_a_lease_that_was_renewed_meanwhile_is_sent(driver: Driver) -> None:
    driver.work("/0", "/1")
    driver.now = driver.begun[0].send_by
    driver.tell(Renewed(lease_of("a.test"), driver.now))
    url = driver.too_late()
    driver.tick()
    assert (driver.urls, driver.settled) == ([url], [])


def test_a_robots_txt_that_was_too_late_for_a_lease_that_was_renewed_meanwhile_is_asked_for(driver: Driver) -> None:
    driver.work("/0", known=False)
    driver.now = driver.begun[0].send_by
    driver.tell(Renewed(lease_of("a.test"), driver.now))
    url = driver.too_late()
    driver.tick()
    assert (driver.urls, driver.settled) == ([url], [])


def test_a_renewal_that_is_heard_twice_brings_its_urls_once(driver: Driver) -> None:
    host = driver.grant(resting("a.test", 1))
    driver.now += 1.0
    more = Renewed(lease_of("a.test", "/more"), driver.now)
    driver.tell(more)
    driver.tell(more)
    assert len(host.tasks) == 2


def test_a_lease_that_was_given_back_is_not_taken_for_a_new_one(driver: Driver) -> None:
    lease = resting("a.test", 1)
    driver.grant(lease)
    driver.tell(Revoked([lease.lease_id]))
    assert driver.released == ["a.test"]
    driver.tell(Granted(lease, driver.now))
    assert driver.hosts == {}


def test_nothing_leads_to_a_host_again_whose_lease_the_coordinator_calls_lost(driver: Driver) -> None:
    """A page is under way, and its answer leads back to itself: somebody else may have the host by now."""
    driver.grant(lease_of("a.test", "/1"), known=True)
    driver.tick()
    driver.now += 51.0
    driver.tick()
    driver.tell(RenewalEnded(["a.test"]))
    driver.answer(302, "/1", Set_Cookie="seen=1")
    driver.tick(5.0)
    assert driver.urls == []


def test_a_lease_with_denied_urls_alone_is_settled_in_parts(driver: Driver) -> None:
    deny = Decision(b"User-agent: *\nDisallow: /\n", False, False, 1e12, False, "rules")
    host = driver.grant(lease_of("a.test", *(f"/{number}" for number in range(2 * DECISIONS_MAX))))
    host.robots["http"] = Robots(deny, "drumlin")
    driver.tick()
    assert len(driver.settled) <= DECISIONS_MAX
    driver.tick()
    driver.tick()
    assert len(driver.settled) == 2 * DECISIONS_MAX
