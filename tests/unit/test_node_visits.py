"""A robots.txt that redirects to another host: who is asked, when, and under whose lease."""

from __future__ import annotations

import time

import pytest

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.node.agent import Agent
from drumlin.node.contact import REFUSALS_MAX
from drumlin.node.hosts import HostWork, Robots, read_note
from drumlin.protocol import CrawlState, WorkRequest
from drumlin.robots import REDIRECTS_MAX, Decision
from tests.harness.agents import ALLOWED, Web, agent_in, lease_of, reports

ELSEWHERE = "http://b.test/robots.txt"
FORBIDDING = Decision(b"User-agent: *\nDisallow: /\n", False, False, time.time() + 1e6, False, "rules")


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def agent(web: Web) -> Agent:
    return agent_in(web)


def redirected(agent: Agent, web: Web, name: str = "a.test", target: str = ELSEWHERE) -> HostWork:
    """A host whose robots.txt has just said to look elsewhere."""
    agent.granted(lease_of(name, "/1"), monotonic())
    host = agent.hosts.by_name[name]
    agent.advance(host, monotonic())
    assert web.answer(301, target) == f"http://{name}/robots.txt"
    return host


def turn(agent: Agent) -> None:
    """A turn of the agent's loop: it contacts what is due."""
    agent._contact_due(monotonic())


def note_of(decision: Decision) -> bytes:
    known = HostWork(lease_of("b.test"), 0.0, 0.0, 0.0, "drumlin")
    known.robots["http"] = Robots(decision, "drumlin")
    return known.note()


def test_the_other_host_is_asked_under_a_lease_that_is_given_back_at_once(agent: Agent, web: Web) -> None:
    host = redirected(agent, web)
    assert web.begun == [], "not without a lease"
    assert web.grant_visit(lease_of("b.test")) == ["b.test"]
    turn(agent)
    assert web.answer(200, body=b"User-agent: *\nAllow: /\n") == ELSEWHERE
    assert list(agent.hosts.by_name) == ["a.test"]
    assert ("b.test", True) in [(report.host, report.release) for report in reports(agent)]
    assert host.robots["http"].allows("http://a.test/1")
    assert web.begun[0][0] == "http://a.test/1"


def test_what_is_known_of_the_other_host_needs_no_contact(agent: Agent, web: Web) -> None:
    host = redirected(agent, web)
    web.grant_visit(notes={"b.test": note_of(FORBIDDING)})
    turn(agent)
    assert not host.robots["http"].allows("http://a.test/1")
    assert (web.begun, list(agent.hosts.by_name)) == ([], ["a.test"]), "its one URL is denied and on its way"


def test_a_host_that_the_node_holds_itself_lets_the_guest_in_at_its_own_pace(agent: Agent, web: Web) -> None:
    agent.granted(lease_of("b.test", "/1"), monotonic())
    held = agent.hosts.by_name["b.test"]
    held.robots["http"] = Robots(ALLOWED, "drumlin")
    held.next_contact = monotonic() + 60
    redirected(agent, web, target="http://b.test/rules.txt")
    assert (web.begun, web.of(WorkRequest)) == ([], [])
    held.next_contact = 0.0
    agent.advance(held, monotonic())
    assert [url for url, *_ in web.begun] == ["http://b.test/rules.txt"], "guests first, and one contact at a time"


def test_guests_of_one_host_share_a_lease(agent: Agent, web: Web) -> None:
    first, second = redirected(agent, web), redirected(agent, web, "c.test")
    assert len(web.of(WorkRequest)) == 1
    web.grant_visit(lease_of("b.test"))
    turn(agent)
    assert web.answer(200, body=b"User-agent: *\nAllow: /\n") == ELSEWHERE
    turn(agent)
    assert [host.robots["http"].allows("http://a.test/") for host in (first, second)] == [True, True]
    assert sorted(url for url, *_ in web.begun) == ["http://a.test/1", "http://c.test/1"], "one contact for both"


def test_guests_for_another_file_are_let_in_one_after_the_other(agent: Agent, web: Web) -> None:
    target = "http://b.test/rules.txt"
    first, second = redirected(agent, web, target=target), redirected(agent, web, "c.test", target)
    web.grant_visit(lease_of("b.test"))
    turn(agent)
    assert web.answer(200) == target
    assert (list(first.robots), list(second.robots)) == (["http"], [])
    assert web.answer(200) == target
    assert list(second.robots) == ["http"]


def test_a_host_that_is_not_to_be_had_is_asked_for_later_and_at_last_the_urls_return(agent: Agent, web: Web) -> None:
    host = redirected(agent, web)
    for _ in range(REFUSALS_MAX):
        assert web.grant_visit(notes={"b.test": b""}) == ["b.test"]
        assert host.next_contact > monotonic()
        assert not web.of(WorkRequest), "not before it waited"
        host.next_contact = 0.0
        agent.advance(host, monotonic())
    web.grant_visit(notes={"b.test": b""})
    assert web.begun == []
    noted, report = reports(agent)
    assert (report.host, report.release, report.next_contact_s > 9) == ("a.test", True, True)
    assert (
        read_note(noted.note or b"").backoff["http"].error == "robots.txt: it is on b.test, which cannot be asked now"
    )
    assert agent._settling.settled, "no attempt is held against them"


def test_guests_are_sent_away_when_the_lease_is_lost(agent: Agent, web: Web) -> None:
    host = redirected(agent, web)
    web.grant_visit(lease_of("b.test"))
    turn(agent)
    held = agent.hosts.by_name["b.test"]
    held.expires = 0.0
    url, _, on_done, context = web.begun.pop()
    transfer = Transfer(None)
    transfer.context, transfer.too_late = context, True
    on_done(transfer)
    assert url == ELSEWHERE
    assert "b.test" not in agent.hosts.by_name
    assert (host.robots_in_flight, bool(host.robots_contact), len(host.tasks)) == (False, True, 1)


def test_a_visit_granted_to_a_node_that_drains_is_given_back(agent: Agent, web: Web) -> None:
    redirected(agent, web)
    web.grant_visit(lease_of("b.test"), state=CrawlState.DRAINING)
    assert (agent.hosts.by_name, web.begun) == ({}, [])
    assert sorted(report.host for report in reports(agent) if report.release) == ["a.test", "b.test"]


def test_one_redirect_too_many_says_nothing_about_the_host_that_it_led_to(agent: Agent, web: Web) -> None:
    agent.granted(lease_of("b.test", "/1"), monotonic())
    held = agent.hosts.by_name["b.test"]
    held.next_contact = monotonic() + 60
    host = redirected(agent, web, target="http://a.test/r0")
    for number in range(1, REDIRECTS_MAX):
        web.answer(301, f"http://a.test/r{number}")
    assert web.answer(301, ELSEWHERE) == f"http://a.test/r{REDIRECTS_MAX - 1}"
    assert (host.robots["http"].decision.allow_all, held.robots, list(held.guests)) == (True, {}, [])


def test_a_host_that_asks_to_be_left_alone_sends_its_guests_away(agent: Agent, web: Web) -> None:
    agent.granted(lease_of("b.test", "/1", "/2"), monotonic())
    held = agent.hosts.by_name["b.test"]
    held.robots["http"] = Robots(ALLOWED, "drumlin")
    turn(agent)
    _, _, on_done, context = web.begun.pop()
    host = redirected(agent, web, target="http://b.test/rules.txt")
    assert len(held.guests) == 1
    transfer = Transfer(None)
    transfer.context, transfer.status = context, 429
    transfer.header_lines = [b"HTTP/1.1 429 X\r\n", b"Retry-After: 600\r\n"]
    on_done(transfer)
    assert (list(held.tasks), list(held.guests), host.robots_in_flight) == ([], [], False)


def test_guests_of_a_lease_that_ran_out_unnoticed_are_not_forgotten(agent: Agent, web: Web) -> None:
    agent.granted(lease_of("b.test", "/1"), monotonic())
    agent.hosts.by_name["b.test"].next_contact = monotonic() + 60
    host = redirected(agent, web, target="http://b.test/rules.txt")
    agent.granted(lease_of("b.test", "/1"), monotonic())
    assert (host.robots_in_flight, bool(host.robots_contact)) == (False, True)


def test_two_hosts_that_redirect_to_each_other_do_not_wait_for_each_other(agent: Agent, web: Web) -> None:
    redirected(agent, web)
    agent.granted(lease_of("b.test", "/1"), monotonic())
    turn(agent)
    assert web.answer(301, "http://a.test/robots.txt") == ELSEWHERE
    web.grant_visit(notes={"b.test": b""})
    turn(agent)
    assert web.begun


def test_a_long_chain_of_hosts_is_no_deep_recursion(web: Web) -> None:
    agent = agent_in(web, concurrency=10_000)
    names = [f"h{number}.test" for number in range(500)]
    for name in names:
        agent.granted(lease_of(name, "/1"), monotonic())
    turn(agent)
    last = web.begun.pop()
    web.begun.reverse()
    for target in reversed(names[1:]):
        web.answer(301, f"http://{target}/robots.txt")
    turn(agent)
    web.begun.append(last)
    web.answer(200, body=b"User-agent: *\nAllow: /\n")
    turn(agent)
    assert web.begun


def test_a_lease_that_only_has_guests_is_renewed(agent: Agent, web: Web) -> None:
    redirected(agent, web)
    web.grant_visit(lease_of("b.test"))
    held = agent.hosts.by_name["b.test"]
    held.expires = monotonic() + 10
    agent._leases.renew(monotonic(), further=True)
    (request,) = web.of(WorkRequest)
    assert ("n0:b.test", "b.test") in request.renew
