"""What a node makes of what its coordinator says, and of leases that end too early."""

from __future__ import annotations

from typing import Any, cast

import pytest

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.node.agent import Agent
from drumlin.node.hosts import Robots
from drumlin.protocol import Assignment, CrawlState, Heartbeat, HeartbeatReply, WorkLease, WorkRequest
from tests.harness.agents import ALLOWED, Around, agent_in, reports

BEAT_S = 5.0


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
def agent(around: Around) -> Agent:
    return agent_in(around)


def grant(agent: Agent, name: str, urls: int = 3, *, ttl_s: float = 100.0) -> WorkLease:
    lease_id = f"n0:{name}"
    assignments = [Assignment(f"{lease_id}/{n}.0.0", f"http://{name}/{n}", 5, 0.0, name, 0.0) for n in range(urls)]
    lease = WorkLease(lease_id, name, ttl_s, 0.0, assignments)
    agent.granted(lease, monotonic())
    if name in agent.hosts.by_name:
        agent.hosts.by_name[name].robots["http"] = Robots(ALLOWED, "drumlin")
    return lease


def beat(agent: Agent, around: Around, **reply: Any) -> Heartbeat:
    """Let the agent send a heartbeat, and answer it."""
    agent.pulse.step(monotonic() + BEAT_S)
    message, on_reply = around.said.pop()
    on_reply(HeartbeatReply("ok", BEAT_S, "hash", **reply))
    return cast(Heartbeat, message)


def test_a_heartbeat_says_how_the_node_does_and_is_not_sent_twice_at_once(agent: Agent, around: Around) -> None:
    grant(agent, "a.test", 3)
    grant(agent, "b.test", 2)
    agent.hosts.by_name["b.test"].next_contact += 50
    agent.pulse.step(monotonic() + BEAT_S)
    agent.pulse.step(monotonic() + 1000)
    [(message, _)] = around.said
    assert (message.hosts, message.unstarted, message.leases) == (2, 5, ["n0:b.test", "n0:a.test"])


def test_a_token_that_comes_with_the_answer_to_a_heartbeat_is_taken(agent: Agent, around: Around) -> None:
    beat(agent, around, token="another")
    assert around.tokens == ["another"]


def test_leases_that_are_revoked_are_given_back_and_others_are_kept(agent: Agent, around: Around) -> None:
    for name in ("a.test", "b.test"):
        grant(agent, name)
    agent.hosts.by_name["b.test"].in_flight = 1
    beat(agent, around, revoke=["n0:a.test", "n0:b.test", "n0:unknown"])
    assert [(report.host, report.release) for report in reports(agent)] == [("a.test", True)]
    assert list(agent.hosts.by_name) == ["b.test"], "what is in flight is finished first"
    assert not agent.hosts.by_name["b.test"].tasks


def test_a_pause_gives_back_what_is_not_begun_and_a_resumed_crawl_goes_on(agent: Agent, around: Around) -> None:
    grant(agent, "a.test")
    beat(agent, around, state=CrawlState.PAUSED)
    grant(agent, "late.test")
    assert [report.host for report in reports(agent)] == ["a.test", "late.test"]
    assert (agent.hosts.by_name, agent._done()) == ({}, False)
    beat(agent, around, state=CrawlState.RUNNING)
    grant(agent, "b.test")
    assert list(agent.hosts.by_name) == ["b.test"]


def test_a_node_that_was_told_to_leave_does_not_go_on_because_the_crawl_does(agent: Agent, around: Around) -> None:
    grant(agent, "a.test")
    agent._begin_drain(monotonic())
    beat(agent, around, state=CrawlState.RUNNING)
    assert agent.state is CrawlState.DRAINING
    assert [report.host for report in reports(agent)] == ["a.test"]
    assert not around.of(WorkRequest)


def test_a_host_whose_lease_may_be_over_is_not_contacted_but_given_back(agent: Agent, around: Around) -> None:
    grant(agent, "a.test", ttl_s=0.1)
    host = agent.hosts.by_name["a.test"]
    agent.advance(host, monotonic())
    assert (around.begun, list(agent.hosts.by_name)) == ([], [])


def test_a_request_that_could_not_be_sent_in_time_is_no_result(agent: Agent, around: Around) -> None:
    grant(agent, "a.test", urls=2)
    host = agent.hosts.by_name["a.test"]
    agent.advance(host, monotonic())
    [(url, may_send, on_done, context)] = around.begun
    assert (url, may_send()) == ("http://a.test/0", True)
    host.expires = monotonic()
    assert not may_send(), "asked again when the connection stands"
    transfer = Transfer(None)
    transfer.context, transfer.too_late, transfer.failure = context, True, "reset"
    on_done(transfer)
    assert [(report.host, report.release) for report in reports(agent)] == [("a.test", True)]
    assert agent._settling.settled


# Requests that are lost, and redirects to the same URL


def arrive(around: Around, status: int = 0, location: str = "", *, stale: bool = False, cookie: str = "") -> str:
    """End the oldest request; what it was for."""
    url, _, on_done, context = around.begun.pop(0)
    transfer = Transfer(None)
    transfer.context, transfer.status, transfer.stale = context, status, stale
    transfer.failure = "reset" if stale else ""
    transfer.sends = 1
    transfer.first_byte = transfer.finished = monotonic()
    fields = [f"Location: {location}"] * bool(location) + [f"Set-Cookie: {cookie}"] * bool(cookie)
    transfer.header_lines = [
        f"{line}\r\n".encode() for line in ([f"HTTP/1.1 {status} X", *fields, ""] if status else [])
    ]
    on_done(transfer)
    return url


def settled(agent: Agent) -> list[tuple[str, str]]:
    return [(arrival.result.outcome, arrival.result.kind) for _, arrival in agent._settling._arrived]


def test_a_request_that_was_lost_with_its_connection_is_no_attempt(agent: Agent, around: Around) -> None:
    grant(agent, "a.test", 1)
    agent._contact_due(monotonic())
    for _ in range(3):
        assert arrive(around, stale=True) == "http://a.test/0"
        assert settled(agent) == []
    arrive(around, stale=True)
    assert list(agent.hosts.by_name["a.test"].suspects) == ["http://a.test/0"], "not for ever"


def test_another_spelling_of_the_same_url_is_asked_for_once_under_the_same_lease(agent: Agent, around: Around) -> None:
    grant(agent, "a.test", 1)
    agent._contact_due(monotonic())
    arrive(around, 302, "/%30")
    assert (around.begun[0][0], settled(agent)) == ("http://a.test/%30", [])
    assert agent.hosts.by_name["a.test"].in_flight == 1


def test_a_node_that_is_told_to_stop_asks_for_nothing_again(agent: Agent, around: Around) -> None:
    grant(agent, "a.test", 1)
    agent._contact_due(monotonic())
    agent.follow(CrawlState.DRAINING)
    arrive(around, stale=True)
    assert (around.begun, settled(agent), agent.hosts.by_name) == ([], [], {})
    assert [(report.host, report.release) for report in reports(agent)] == [("a.test", True)]
