"""What a local fleet consists of when it is founded, and when it is brought up again."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.config import Loaded, load
from drumlin.errors import ConfigError
from drumlin.fleet import founding
from drumlin.fleet.founding import found
from drumlin.fleet.layout import FleetPlan

SEEDS = ["http://a.example/"]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setattr(founding, "find_program", lambda: "redis-server")
    return load({}, {}, None, tmp_path)


def plan(root: Path, loaded: Loaded, seeds: list[str], **asked: int | bool | None) -> FleetPlan:
    return found(root / "fleet", loaded, seeds, **asked).read().plan


def test_a_fleet_that_is_brought_up_again_without_options_has_what_it_had(tmp_path: Path, loaded: Loaded) -> None:
    few = {"coordinators": 1, "masters": 1, "concurrency": 7, "restart": False}
    first = plan(tmp_path, loaded, SEEDS, nodes=5, finish=False, **few)
    assert (first.nodes, len(first.coordinator_ports), first.masters, first.concurrency) == (5, 1, 1, 7)
    assert plan(tmp_path, loaded, [], nodes=None, finish=None) == first


def test_an_option_changes_only_what_it_names(tmp_path: Path, loaded: Loaded) -> None:
    plan(tmp_path, loaded, SEEDS, nodes=5, finish=False)
    again = plan(tmp_path, loaded, [], nodes=1)
    assert (again.nodes, again.finish, len(again.coordinator_ports), again.masters) == (1, False, 2, 3)


def test_the_cluster_that_holds_the_crawl_cannot_change(tmp_path: Path, loaded: Loaded) -> None:
    plan(tmp_path, loaded, SEEDS)
    with pytest.raises(ConfigError, match="has 3 masters with 0 replicas each"):
        plan(tmp_path, loaded, [], masters=1)
