"""How a node follows settings that change while it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from drumlin.config import CrawlConfig
from drumlin.contact.events import Granted, Tick
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.main import NodeOptions, make_pipeline, node_settings, scope_maker, told_config
from drumlin.protocol import ChangedSettings, Heartbeat, HeartbeatReply
from tests.harness.agents import NODE, Around, agent_in
from tests.harness.contacts import SETTINGS, lease_of

OLD_S, NEW_S = 2.0, 10.0
BEAT_S = 5.0


def read(changed: ChangedSettings) -> NodeSettings:
    contact = replace(SETTINGS, delay_s=changed.config["delay_s"], per_host=changed.config["per_host"])
    return replace(NODE, contact=contact, config_version=changed.config_version)


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
def agent(around: Around, tmp_path: Path) -> Agent:
    return agent_in(around, tmp_path, read, delay_s=OLD_S)


def beat(agent: Agent, around: Around, version: int, **config: Any) -> int | None:
    """Answer a heartbeat with these settings. Returns the version that the node said it follows."""
    around.clock.now += BEAT_S
    agent.pulse.step(around.clock())
    call = around.said.pop()
    assert isinstance(call.message, Heartbeat)
    settings = ChangedSettings(version, {"delay_s": OLD_S, "per_host": 1} | config, [])
    call.on_reply(HeartbeatReply("ok", BEAT_S, "hash", settings=settings))
    return call.message.config_version


def test_a_node_follows_what_a_heartbeat_brings_for_the_hosts_it_has(agent: Agent, around: Around) -> None:
    agent._tell(Granted(lease_of("a.test", "/1", wait_s=OLD_S), around.clock()))
    granted = around.clock()
    assert beat(agent, around, 1, delay_s=NEW_S, per_host=3) == 0
    assert (agent.settings.contact.delay_s, agent.settings.contact.per_host) == (NEW_S, 3)
    for waited_s, begun in ((NEW_S - 0.1, []), (NEW_S, ["http://a.test/robots.txt"])):
        around.clock.now = granted + waited_s
        agent._tell(Tick(1))
        assert around.begun == begun


def test_a_coordinator_that_has_not_heard_of_the_last_change_changes_nothing(agent: Agent, around: Around) -> None:
    beat(agent, around, 2, delay_s=NEW_S)
    assert beat(agent, around, 1, delay_s=OLD_S) == 2
    assert agent.settings.contact.delay_s == NEW_S


def test_types_are_those_of_the_settings_of_today() -> None:
    options = NodeOptions("n0", "unix:/x", Path("/x"), 1, False)
    founded = node_settings(CrawlConfig(), options, "n0")
    changed = node_settings(CrawlConfig(types=("video/*=1MB",)), options, "n0", 1)
    limits = [types.of(b"video/mp4") if types else None for types in (founded.contact.types, changed.contact.types)]
    assert limits == [0, 1_000_000]


@pytest.mark.parametrize(("parent_pid", "fills"), [(1, False), (0, True)])
def test_nodes_of_a_fleet_fill_their_parcels_and_those_of_a_local_crawl_do_not(parent_pid: int, fills: bool) -> None:
    options = NodeOptions("n0", "unix:/x", Path("/x"), 1, False, parent_pid=parent_pid)
    assert node_settings(CrawlConfig(), options, "n0").fills_parcels is fills


def test_links_are_judged_by_the_new_scope_and_seeds_that_joined_it_stay() -> None:
    config = CrawlConfig(scope="host")
    pipeline = make_pipeline(config, ["http://a.test/"], ["http://joined.test/"])
    assert not pipeline.in_scope("http://b.test/")
    pipeline.follow_scope(scope_maker(replace(config, exclude=("/private/",)), ["http://a.test/", "http://b.test/"]))
    allowed = [
        url for url in ("http://b.test/", "http://joined.test/x", "http://a.test/private/") if pipeline.in_scope(url)
    ]
    assert allowed == ["http://b.test/", "http://joined.test/x"]


def test_a_setting_of_a_newer_coordinator_does_not_end_an_older_node() -> None:
    assert told_config({"delay_s": 3.0, "invented_later": True}).delay_s == 3.0
