"""What a node makes of settings that change while it works."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from drumlin.clock import monotonic
from drumlin.config import CrawlConfig
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.hosts import HostTable, HostWork, Robots
from drumlin.node.main import make_pipeline, scope_maker
from drumlin.protocol import ChangedSettings, HeartbeatReply, Registered, WorkLease
from drumlin.robots import Decision
from tests.harness.agents import NODE, Around, agent_in

OLD_S, NEW_S = 2.0, 10.0
ASKS_FOR_5_S = Decision(b"User-agent: *\nCrawl-delay: 5\n", False, False, 1e12, False, "rules")

BEAT_S = 5.0


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


def read(changed: ChangedSettings) -> NodeSettings:
    config = changed.config
    return replace(NODE, delay_s=config["delay_s"], per_host=config["per_host"], config_version=changed.config_version)


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
def agent(around: Around) -> Agent:
    made = agent_in(around, delay_s=OLD_S)
    made._read_settings = read
    return made


def beat(agent: Agent, around: Around, version: int, **config: Any) -> int | None:
    """Have a heartbeat answered with these settings; the version that the node said it follows."""
    agent.pulse.step(monotonic() + BEAT_S)
    message, on_reply = around.said.pop()
    settings = ChangedSettings(version, {"delay_s": OLD_S, "per_host": 1} | config, [])
    on_reply(HeartbeatReply("ok", BEAT_S, "hash", settings=settings))
    follows: int | None = message.config_version
    return follows


def test_a_node_follows_what_a_heartbeat_brings_for_the_hosts_it_has(agent: Agent, around: Around) -> None:
    agent.granted(WorkLease("n0:a", "a.test", 100.0, OLD_S, []), monotonic())
    assert beat(agent, around, 1, delay_s=NEW_S, per_host=3) == 0
    assert agent.hosts.by_name["a.test"].delay_s == NEW_S
    assert agent.settings.per_host == 3


def test_a_coordinator_that_has_not_heard_of_the_last_change_changes_nothing(agent: Agent, around: Around) -> None:
    beat(agent, around, 2, delay_s=NEW_S)
    assert beat(agent, around, 1, delay_s=OLD_S) == 2
    assert agent.settings.delay_s == NEW_S


def test_links_are_judged_by_the_new_scope_and_seeds_that_joined_it_stay() -> None:
    config = CrawlConfig(scope="host")
    registered = Registered("n0", "ok", 2.0, "", {}, "", ["http://a.test/"], ["http://joined.test/"])
    pipeline = make_pipeline(config, registered, lambda url: None)
    assert not pipeline.in_scope("http://b.test/")
    pipeline.follow_scope(scope_maker(replace(config, exclude=("/private/",)), ["http://a.test/", "http://b.test/"]))
    allowed = [
        url for url in ("http://b.test/", "http://joined.test/x", "http://a.test/private/") if pipeline.in_scope(url)
    ]
    assert allowed == ["http://b.test/", "http://joined.test/x"]
