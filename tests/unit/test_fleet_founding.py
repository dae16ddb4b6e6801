"""The parts of a local fleet when it is founded, and when it is brought up again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drumlin.config import Loaded, load
from drumlin.errors import BusyError, ConfigError, StorageError
from drumlin.fleet import founding
from drumlin.fleet.founding import found_fleet
from drumlin.fleet.layout import FleetPaths, FleetPlan, read_secret

SEEDS = ["http://a.example/"]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setattr(founding, "find_program", lambda: "redis-server")
    return load({}, {}, None, tmp_path)


def plan(root: Path, loaded: Loaded, seeds: list[str]) -> FleetPlan:
    return found_fleet(root / "fleet", loaded, seeds).read().plan


def asked(root: Path, **flags: object) -> Loaded:
    return load(flags, {}, None, root)


def test_a_fleet_that_is_brought_up_again_without_options_has_what_it_had(tmp_path: Path, loaded: Loaded) -> None:
    few = {"fleet_coordinators": 1, "fleet_masters": 1, "concurrency": 7, "fleet_restart": False}
    first = plan(tmp_path, asked(tmp_path, fleet_nodes=5, fleet_finish=False, **few), SEEDS)
    assert (first.nodes, len(first.coordinator_ports), first.masters, first.concurrency) == (5, 1, 1, 7)
    assert plan(tmp_path, loaded, []) == first


def test_an_option_changes_only_what_it_names(tmp_path: Path, loaded: Loaded) -> None:
    plan(tmp_path, asked(tmp_path, fleet_nodes=5, fleet_finish=False), SEEDS)
    again = plan(tmp_path, asked(tmp_path, fleet_nodes=1), [])
    assert (again.nodes, again.finish, len(again.coordinator_ports), again.masters) == (1, False, 2, 3)


def test_the_shape_of_a_fleet_may_stand_in_the_settings_file_and_the_environment(
    tmp_path: Path, loaded: Loaded
) -> None:
    (tmp_path / "drumlin.toml").write_text("[fleet]\nnodes = 3\nmasters = 1\n[process]\nconcurrency = 9\n")
    told = load({}, {"DRUMLIN_FLEET_NODES": "4"}, None, tmp_path)
    founded = plan(tmp_path, told, SEEDS)
    assert (founded.nodes, founded.masters, founded.concurrency) == (4, 1, 9)


def test_the_cluster_that_holds_the_crawl_cannot_change(tmp_path: Path, loaded: Loaded) -> None:
    plan(tmp_path, loaded, SEEDS)
    with pytest.raises(ConfigError, match="has 3 masters with 0 replicas each"):
        plan(tmp_path, asked(tmp_path, fleet_masters=1), [])


def test_a_setting_that_may_have_changed_since_is_not_told_as_it_was_at_the_founding(
    tmp_path: Path, loaded: Loaded
) -> None:
    plan(tmp_path, loaded, SEEDS)
    with pytest.raises(ConfigError) as raised:
        plan(tmp_path, load({"delay": "5s"}, {}, None, tmp_path), [])
    assert f"`drumlin set delay 5s --out {tmp_path / 'fleet'}` changes it" in str(raised.value)
    assert "1s" not in str(raised.value)
    with pytest.raises(ConfigError, match="has --depth none"):
        plan(tmp_path, load({"depth": "5"}, {}, None, tmp_path), [])


def test_a_store_that_cannot_be_written_is_not_remembered(
    tmp_path: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:1"), ("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "s")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(StorageError, match="Cannot write in s3://mistyped"):
        plan(tmp_path, asked(tmp_path, store="s3://mistyped/crawl"), SEEDS)
    assert plan(tmp_path, loaded, SEEDS).store == ""


def test_a_fleet_that_another_command_has_founded_meanwhile_is_left_as_it_is(
    tmp_path: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    founded: list[FleetPlan] = []

    def rival(concurrency: int) -> None:
        monkeypatch.setattr(founding, "allow_open_files", lambda _: None)
        founded.append(plan(tmp_path, loaded, SEEDS))

    monkeypatch.setattr(founding, "allow_open_files", rival)
    with pytest.raises(BusyError, match="Another command has founded a fleet"):
        plan(tmp_path, loaded, SEEDS)
    paths = FleetPaths(tmp_path / "fleet")
    assert [paths.read().plan] == founded
    assert str(founded[0].redis_ports[0][0]) in read_secret(paths.engine_url)


def test_what_a_fleet_at_work_has_written_is_left_as_it_is(
    tmp_path: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(tmp_path, loaded, SEEDS)
    paths, locks = FleetPaths(tmp_path / "fleet"), list[int]()
    before = paths.record.read_bytes()
    # Its supervisor begins while this command looks at what is wanted.
    monkeypatch.setattr(founding, "allow_open_files", lambda _: locks.append(paths.take_lock()))
    with pytest.raises(BusyError, match="A fleet is at work"):
        plan(tmp_path, asked(tmp_path, fleet_nodes=5), [])
    os.close(locks[0])
    assert paths.record.read_bytes() == before
