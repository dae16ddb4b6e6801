"""How fast a host is asked when the crawl's delay changes, or what its coordinator knows."""

from __future__ import annotations

from msgspec.structs import replace

from drumlin.contact.events import SettingsChanged
from drumlin.contact.hosts import HostTable, HostWork
from drumlin.contact.rules import Robots
from drumlin.protocol import WorkLease
from drumlin.robots import Decision
from tests.harness.contacts import SETTINGS, Driver

OLD_S, NEW_S = 2.0, 10.0
ASKS_FOR_5_S = Decision(b"User-agent: *\nCrawl-delay: 5\n", False, False, 1e12, False, "rules")


def host_work(*, wait_s: float = 0.0, host_delay_s: float = 0.0, delay_s: float = OLD_S) -> HostWork:
    lease = WorkLease("n0:a", "a.test", 100.0, max(delay_s, host_delay_s), [], wait_s, host_delay_s=host_delay_s)
    return HostWork(lease, 0.0, 0.0, delay_s, "drumlin")


def contacted(work: HostWork, at: float) -> HostWork:
    work.contacted, work.next_contact = at, at + work.delay_s
    return work


def test_a_longer_delay_counts_from_the_last_contact() -> None:
    work = contacted(host_work(), 50.0)
    work.follow_delay(NEW_S)
    assert (work.delay_s, work.next_contact) == (NEW_S, 60.0)


def test_a_longer_delay_counts_for_a_host_that_another_node_contacted_last() -> None:
    work = host_work(wait_s=1.0)
    work.follow_delay(NEW_S)
    assert work.next_contact == 1.0 + NEW_S - OLD_S


def test_a_shorter_delay_counts_from_the_last_contact() -> None:
    work = contacted(host_work(delay_s=NEW_S), 50.0)
    work.follow_delay(OLD_S)
    assert (work.delay_s, work.next_contact) == (OLD_S, 52.0)


def test_a_pause_that_the_site_asked_for_is_not_cut_short() -> None:
    work = contacted(host_work(delay_s=NEW_S), 50.0)
    work.next_contact = 500.0
    work.follow_delay(OLD_S)
    assert work.next_contact == 500.0


def test_what_a_host_or_its_robots_txt_asks_for_holds_whatever_the_crawls_delay_is() -> None:
    slow = contacted(host_work(host_delay_s=7.0, delay_s=NEW_S), 50.0)
    slow.follow_delay(OLD_S)
    assert (slow.delay_s, slow.next_contact) == (7.0, 57.0)
    ruled = contacted(host_work(delay_s=NEW_S), 50.0)
    ruled.robots["http"] = Robots(ASKS_FOR_5_S, "drumlin")
    ruled.follow_delay(OLD_S)
    assert ruled.delay_s == 5.0


def test_a_renewal_brings_the_pace_that_the_coordinator_knows_by_now() -> None:
    work = contacted(host_work(delay_s=OLD_S), 50.0)
    work.renew(WorkLease("n0:a", "a.test", 100.0, NEW_S, []), 51.0, 51.0)
    assert (work.delay_s, work.next_contact) == (NEW_S, 60.0)
    work.renew(WorkLease("n0:a", "a.test", 100.0, OLD_S, []), 52.0, 52.0)
    assert (work.delay_s, work.next_contact) == (OLD_S, 52.0)


def test_hosts_that_wait_are_taken_in_the_order_of_their_new_times() -> None:
    table = HostTable()
    for name, due in (("late.test", 100.0), ("early.test", 50.0)):
        work = host_work()
        work.host, work.next_contact = name, due
        table.by_name[name] = work
        table.wait(work)
    table.by_name["late.test"].next_contact = 10.0
    table.rearrange()
    assert table.next_due() == 10.0
    assert [work.host for work in table.take_due(20.0, 5)] == ["late.test"]


def test_other_settings_hold_at_once_for_the_hosts_that_are_held() -> None:
    driver = Driver(delay_s=NEW_S)
    driver.work("/1", "/2", "/3", "/4")
    driver.answer(200)
    driver.tell(SettingsChanged(replace(SETTINGS, delay_s=OLD_S, per_host=2)))
    driver.tick(OLD_S)
    assert driver.urls == ["http://a.test/2"]
    driver.tick(OLD_S)
    assert driver.urls == ["http://a.test/2", "http://a.test/3"]
    driver.tick(OLD_S)
    assert len(driver.urls) == 2, "as many at a time as the crawl allows now"
