"""What a node makes of what its coordinator says, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from drumlin.contact.events import Granted, Tick
from drumlin.node.agent import Agent
from drumlin.node.calling.client import FOREVER
from drumlin.protocol import CrawlState, Heartbeat, HeartbeatReply, HostReport, Results, Work, WorkRequest
from tests.harness.agents import Around, agent_in
from tests.harness.contacts import lease_of

BEAT_S = 5.0


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
def agent(around: Around, tmp_path: Path) -> Agent:
    return agent_in(around, tmp_path)


def grant(agent: Agent, around: Around, name: str, *paths: str, wait_s: float = 0.0) -> None:
    agent._tell(Granted(lease_of(name, *paths, wait_s=wait_s), around.clock()))


def beat(agent: Agent, around: Around, **reply: Any) -> Heartbeat:
    """Let the agent send a heartbeat, and answer it."""
    around.clock.now += BEAT_S
    agent.pulse.step(around.clock())
    call = around.said.pop()
    call.on_reply(HeartbeatReply("ok", BEAT_S, "hash", **reply))
    return cast(Heartbeat, call.message)


def reports(agent: Agent, around: Around) -> list[HostReport]:
    """What the agent tells its coordinator about hosts."""
    around.clock.now += 1.0
    agent._settling.step()
    return [report for results in around.of(Results) for report in results.hosts]


def released(agent: Agent, around: Around) -> list[str]:
    return [report.host for report in reports(agent, around) if report.release]


def test_a_heartbeat_says_how_the_node_does_and_is_not_sent_twice_at_once(agent: Agent, around: Around) -> None:
    grant(agent, around, "a.test", "/0", "/1", "/2")
    grant(agent, around, "b.test", "/0", "/1", wait_s=50.0)
    agent.pulse.step(around.clock() + BEAT_S)
    agent.pulse.step(around.clock() + 1000)
    (message,) = around.of(Heartbeat)
    assert (message.hosts, message.unstarted, message.leases) == (2, 5, ["n0:b.test", "n0:a.test"])


def test_the_next_heartbeat_is_due_when_the_answer_says(agent: Agent, around: Around) -> None:
    beat(agent, around)
    assert agent.pulse.due() == around.clock() + BEAT_S
    agent.pulse.step(around.clock() + BEAT_S - 0.1)
    assert around.of(Heartbeat) == []


def test_a_token_that_comes_with_the_answer_to_a_heartbeat_is_taken(agent: Agent, around: Around) -> None:
    beat(agent, around, token="another")
    assert around.tokens == ["another"]


def test_leases_that_are_revoked_are_given_back_and_others_are_kept(agent: Agent, around: Around) -> None:
    for name in ("a.test", "b.test"):
        grant(agent, around, name, "/0")
    beat(agent, around, revoke=["n0:a.test", "n0:unknown"])
    assert released(agent, around) == ["a.test"]
    assert beat(agent, around).hosts == 1


def test_only_a_node_of_a_fleet_that_can_fetch_meanwhile_fills_a_parcel(agent: Agent, around: Around) -> None:
    grant(agent, around, "a.test", "/0", "/1", "/2")
    grant(agent, around, "later.test", "/0", wait_s=5.0)
    assert agent._left_to_fetch(0.5) == 0, "the engine of a crawl on one machine costs no calls"
    agent.settings = replace(agent.settings, fills_parcels=True)
    assert [agent._left_to_fetch(0.5), agent._left_to_fetch(100.0)] == [3, 4]
    agent._settling._late = True
    assert agent._left_to_fetch(100.0) == 0


def test_a_pause_gives_back_what_is_not_begun_and_a_resumed_crawl_goes_on(agent: Agent, around: Around) -> None:
    grant(agent, around, "a.test", "/0")
    beat(agent, around, state=CrawlState.PAUSED)
    grant(agent, around, "late.test", "/0")
    assert (released(agent, around), agent.done) == (["a.test", "late.test"], False)
    heartbeat = beat(agent, around, state=CrawlState.RUNNING)
    assert (heartbeat.hosts, heartbeat.status) == (0, CrawlState.PAUSED)
    grant(agent, around, "b.test", "/0")
    agent._tell(Tick(1))
    assert around.begun == ["http://b.test/robots.txt"]


def test_a_node_that_was_told_to_leave_does_not_go_on_because_the_crawl_does(agent: Agent, around: Around) -> None:
    grant(agent, around, "a.test", "/0")
    agent._begin_drain(around.clock())
    beat(agent, around, state=CrawlState.RUNNING)
    agent._tell(Tick(1))
    assert beat(agent, around).status is CrawlState.DRAINING
    assert released(agent, around) == ["a.test"]
    assert (around.of(WorkRequest), around.begun) == ([], [])


def test_a_node_leaves_only_when_its_call_for_hosts_was_answered(agent: Agent, around: Around) -> None:
    agent._tell(Tick(1))
    (call,) = around.said
    agent._begin_drain(around.clock())
    assert not agent.done
    call.on_reply(Work([], [], 0.0, CrawlState.RUNNING))
    assert agent.done


def test_a_turn_does_what_is_due_and_says_when_the_next_must_come(agent: Agent, around: Around) -> None:
    now = around.clock()
    assert agent.turn_if_due(now) == FOREVER
    (asking, beating) = around.said
    assert (type(asking.message), type(beating.message)) == (WorkRequest, Heartbeat)
    assert agent.turn_if_due(now) == FOREVER
    assert len(around.said) == 2
    beating.on_reply(HeartbeatReply("ok", BEAT_S, "hash"))
    assert agent.turn_if_due(now) == now + BEAT_S
    grant(agent, around, "a.test", "/0", wait_s=1.0)
    assert agent.turn_if_due(now) == now + 1.0
    assert around.begun == []
    around.clock.now += 1.0
    agent.turn_if_due(around.clock())
    assert around.begun == ["http://a.test/robots.txt"]
