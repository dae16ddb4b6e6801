"""When hosts that are leased may be contacted, and what is known about them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.contact.hosts import EMPTY_WAIT_MAX_S, EMPTY_WAIT_S, LEASE_MARGIN_S, HostTable, HostWork, Phase
from drumlin.contact.rules import Robots
from drumlin.protocol import Assignment, HostNote, WorkLease
from drumlin.robots import Decision, PreparedFiles

AGENT = "drumlin"
RULES = Decision(b"User-agent: *\nDisallow: /no\n", False, False, 1e12, False, "rules")


def assignments(lease_id: str, count: int) -> list[Assignment]:
    return [
        Assignment(f"{lease_id}/{number}.2.1.seal", f"http://a.test/{number}", 5, 0.0, "a.test", 0.0, 2, 1)
        for number in range(count)
    ]


def lease(name: str = "a.test", *, wait_s: float = 0.0, ttl_s: float = 60.0, urls: int = 3, **more: Any) -> WorkLease:
    lease_id = f"n0:token of {name}"
    return WorkLease(
        lease_id,
        name,
        ttl_s,
        more.get("delay_s", 0.0),
        assignments(lease_id, urls),
        wait_s=wait_s,
        note=more.get("note", b""),
    )


def work_on(granted: WorkLease, *, sent: float = 99.0, now: float = 100.0, delay_s: float = 1.0) -> HostWork:
    return HostWork(granted, sent, now, delay_s, AGENT)


# One host


def test_an_assignment_keeps_the_id_that_it_was_given_under() -> None:
    granted = lease()
    assert list(work_on(granted).tasks) == granted.assignments
    assert [task.number for task in granted.assignments] == ["0", "1", "2"]


def test_a_host_waits_for_its_first_contact_and_stops_before_its_lease_ends() -> None:
    host = work_on(lease(wait_s=2.0, ttl_s=10.0))
    assert [host.may_contact(now, 1) for now in (100.0, 101.9, 102.0)] == [False, False, True]
    # The lease counts from the moment the request was sent, and the node stops a margin before.
    assert host.may_contact(109.0 - LEASE_MARGIN_S - 0.01, 1)
    assert not host.may_contact(109.0 - LEASE_MARGIN_S, 1)


@pytest.mark.parametrize(
    ("delay_s", "wait_s", "until", "urls"),
    [(1.0, 0.0, 100.5, 1), (1.0, 0.0, 101.5, 2), (1.0, 0.0, 200.0, 3), (1.0, 0.9, 100.5, 0), (0.0, 0.0, 100.0, 3)],
)
def test_how_many_urls_of_a_host_may_be_begun_in_some_time(
    delay_s: float, wait_s: float, until: float, urls: int
) -> None:
    work, table = work_on(lease(wait_s=wait_s), delay_s=delay_s, sent=100.0), HostTable()
    table.by_name["a.test"] = work
    assert table.may_begin(100.0, until) == urls
    work.robots_in_flight = True
    assert table.may_begin(100.0, until) == 0


def test_a_host_is_contacted_by_no_more_requests_than_allowed_and_by_none_beside_robots_txt() -> None:
    host = work_on(lease())
    host.in_flight = 1
    assert (host.may_contact(100.0, 1), host.may_contact(100.0, 2)) == (False, True)
    host.robots_in_flight = True
    assert not host.may_contact(100.0, 2)


@pytest.mark.parametrize(("own", "delay_s"), [(0.0, 1.0), (0.2, 1.0), (5.0, 5.0)])
def test_the_longer_of_the_crawls_and_the_hosts_delay_counts(own: float, delay_s: float) -> None:
    assert work_on(lease(delay_s=own)).delay_s == delay_s


def test_what_was_learnt_of_a_host_comes_back_with_its_next_lease() -> None:
    host = work_on(lease())
    host.robots["http"] = Robots(RULES, AGENT)
    host.hsts_until = 5000.0
    host.slow_s = 2.0
    again = work_on(lease(note=host.note()))
    assert (again.hsts_until, again.slow_s) == (5000.0, 2.0)
    assert again.robots["http"].allows("http://a.test/yes")
    assert not again.robots["http"].allows("http://a.test/no/way")


@pytest.mark.parametrize(("allow_all", "deny_all"), [(True, False), (False, True)])
def test_an_answer_without_rules_allows_or_denies_everything(allow_all: bool, deny_all: bool) -> None:
    robots = Robots(Decision(None, allow_all, deny_all, 1e12, False, "status"), AGENT)
    assert robots.allows("http://a.test/") == allow_all


def test_rules_that_come_with_a_lease_are_parsed_when_a_url_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer brings hundreds of leases, and each file may take as long to parse as hundreds of pages."""
    first = work_on(lease())
    asking = msgspec.structs.replace(RULES, rules_body=b"User-agent: *\nDisallow: /no\nCrawl-delay: 9\n")
    first.robots["http"] = Robots(asking, AGENT)
    files = PreparedFiles()
    monkeypatch.setattr("drumlin.contact.rules._files", files)
    again = work_on(lease(note=first.note()))
    assert (len(files), again.delay_s) == (0, 9.0)
    assert not again.robots["http"].allows("http://a.test/no")
    assert len(files) == 1


def test_a_delay_that_was_found_for_another_crawler_is_looked_up_again() -> None:
    body = b"User-agent: *\nCrawl-delay: 2\nDisallow:\n\nUser-agent: other\nCrawl-delay: 7\nDisallow:\n"
    found = Robots(msgspec.structs.replace(RULES, rules_body=body), AGENT)
    assert (found.crawl_delay_s, Robots(found.decision, "other").crawl_delay_s) == (2.0, 7.0)


def test_a_host_is_idle_only_when_nothing_of_it_is_on_its_way() -> None:
    assert work_on(lease(urls=0)).phase(1) is Phase.OVER
    assert work_on(lease(urls=1)).phase(1) is not Phase.OVER
    for name in ("in_flight", "unsettled", "unanswered"):
        host = work_on(lease(urls=0))
        setattr(host, name, 1)
        assert host.phase(1) is not Phase.OVER


def test_a_lease_is_renewed_when_its_time_or_its_urls_run_out_and_not_again_at_once() -> None:
    host = work_on(lease(ttl_s=60.0, urls=10), sent=100.0)
    assert not host.wants_renewal(129.0, 3)
    assert host.wants_renewal(131.0, 3)
    while len(host.tasks) > 3:
        host.tasks.popleft()
    assert host.wants_renewal(101.0, 3)
    host.renewing = True
    assert not host.wants_renewal(101.0, 3)
    host.renew(lease(urls=0), 101.0, 102.0)
    assert (host.renewing, host.expires) == (False, 161.0)
    assert not host.wants_renewal(102.0 + EMPTY_WAIT_S - 0.01, 3)
    assert host.wants_renewal(102.0 + EMPTY_WAIT_S, 3)


def test_who_asks_in_vain_for_urls_waits_longer_each_time_but_never_lets_the_time_run_out() -> None:
    host = work_on(lease(ttl_s=20.0, urls=2), sent=100.0)
    waits = []
    for moment in (101.0, 103.0, 105.0, 107.0, 109.0, 111.0):
        host.renew(lease(ttl_s=20.0, urls=0), moment, moment)
        waits.append(host.look_due(3) - moment)
        assert host.wants_renewal(host.look_due(3), 3)
    assert waits == [EMPTY_WAIT_S, 1.0, 2.0, 4.0, EMPTY_WAIT_MAX_S, EMPTY_WAIT_MAX_S]
    assert (host.wants_renewal(118.9, 3), host.wants_renewal(121.1, 3)) == (False, True)
    host.renew(lease(ttl_s=20.0, urls=1), 122.0, 122.0)
    host.renew(lease(ttl_s=20.0, urls=0), 122.5, 122.5, further=False)
    assert host.look_due(3) == 119.0, "nobody was asked for URLs"
    host.renew(lease(ttl_s=20.0, urls=0), 123.0, 123.0)
    assert host.look_due(3) == 123.0 + EMPTY_WAIT_S


# All hosts


def test_hosts_are_offered_in_order_of_their_next_contact_and_none_too_early() -> None:
    table = HostTable()
    for name, wait_s in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
        table.by_name[name] = work_on(lease(name, wait_s=wait_s))
        table.wait(table.by_name[name])
    assert table.next_due() == 101.0
    assert [work.host for work in table.take_due(102.5, 10)] == ["early", "middle"]
    assert [work.host for work in table.take_due(102.5, 10)] == []
    assert (table.next_due(), table.due_within(103.0), len(table)) == (103.0, 1, 3)


def test_a_host_that_was_given_back_or_put_off_is_not_offered() -> None:
    table = HostTable()
    gone, later = work_on(lease("gone")), work_on(lease("later"))
    for work in (gone, later):
        table.by_name[work.host] = work
        table.wait(work)
    del table.by_name["gone"]
    later.next_contact = 105.0
    assert list(table.take_due(101.0, 10)) == []
    assert list(table.take_due(105.0, 10)) == [later]
    assert table.next_due() == float("inf")


def test_a_host_waits_once_however_often_it_is_told_to() -> None:
    table = HostTable()
    work = table.by_name["a.test"] = work_on(lease())
    table.wait(work)
    table.wait(work)
    assert list(table.take_due(200.0, 10)) == [work]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=20), st.integers(0, 5))
def test_no_host_is_lost_or_offered_before_its_time(plan: list[tuple[float, float]], most: int) -> None:
    table = HostTable()
    for number, (wait_s, put_off_s) in enumerate(plan):
        work = table.by_name[str(number)] = work_on(lease(str(number), wait_s=wait_s))
        table.wait(work)
        work.next_contact += put_off_s
    offered: list[HostWork] = []
    for step in range(1000):
        now = 100.0 + step * 0.5
        due = list(table.take_due(now, most))
        assert len(due) <= most
        assert all(work.next_contact <= now for work in due)
        offered += due
    assert sorted(work.host for work in offered) == (sorted(table.by_name) if most else [])


def test_a_note_of_an_older_node_is_understood() -> None:
    assert work_on(lease(note=msgspec.msgpack.encode(HostNote()))).robots == {}


def test_a_lease_is_renewed_along_with_others_before_it_must_be() -> None:
    host = work_on(lease(ttl_s=60.0, urls=10), sent=100.0)
    assert not host.joins_renewal(host.expires - 43.0)
    assert host.joins_renewal(host.expires - 41.0)
    assert not host.joins_renewal(host.expires)
    host.renewing = True
    assert not host.joins_renewal(host.expires - 41.0)
