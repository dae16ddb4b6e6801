"""`PATCH /api/v1/crawl` over HTTP: by whom, with what, and through two coordinators of one Redis at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from drumlin.api.calls.settings import FIELDS
from drumlin.cli.set import command
from tests.harness.coordinators import CONFIG, Answer, RemoteNode, RunningCoordinator, results_body
from tests.harness.crawls import wait_until
from tests.harness.redis import redis_server, url_of

CRAWL = "/api/v1/crawl"
FOLLOWED_S_MAX = 20.0
ROUNDS = 20


def change(coordinator: RunningCoordinator, message: Any, *, role: str = "operator") -> Answer:
    return coordinator.ask("PATCH", CRAWL, message, token=coordinator.tokens.get(role, ""))


def settings_at(coordinator: RunningCoordinator) -> dict[str, Any]:
    settings: dict[str, Any] = coordinator.get(CRAWL, token=coordinator.tokens.get("viewer", "")).json["config"]
    return settings


@contextmanager
def two_coordinators(folder: Path) -> Iterator[tuple[RunningCoordinator, RunningCoordinator]]:
    with redis_server(folder) as server:
        url = url_of(server, namespace="n")
        with RunningCoordinator(engine=url, name="a") as one, RunningCoordinator(engine=url, name="b") as other:
            yield one, other


def test_an_operator_changes_settings_a_viewer_may_not_and_the_audit_log_says_who_and_what() -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        assert change(coordinator, {"delay_s": 2}, role="viewer").code == "wrong_role"
        answer = change(coordinator, {"delay_s": 2, "pages_max": 10, "include": ["/a/"]}).json
        assert answer["version"] == 1
        assert answer["changed"]["delay_s"] == {"before": 0.0, "after": 2.0}
        assert answer["changed"]["include"] == {"before": [], "after": ["/a/"]}
        entries = coordinator.get("/api/v1/audit", token=coordinator.tokens["viewer"]).json["entries"]
    done = next(entry for entry in entries if entry["action"] == "crawl.change" and entry["outcome"] == "done")
    assert done["name"] == "a operator"
    said = json.loads(done["target"].removeprefix(CRAWL))
    assert said["pages_max"] == {"before": None, "after": 10}


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"delay_s": -1}, "delay_s"),
        ({"per_host": 0}, "per_host"),
        ({"scope": "galaxy"}, "scope must be one of"),
        ({"exclude": ["("]}, "exclude must be regular expressions"),
        ({"seeds": ["no address"]}, "seeds"),
        ({"lease_s": 5, "delay_s": 9}, "lease_s"),
    ],
)
def test_what_cannot_be_is_refused_with_422_and_changes_nothing(message: Any, says: str) -> None:
    with RunningCoordinator() as coordinator:
        answer = change(coordinator, message)
        assert (answer.status, answer.code) == (422, "invalid")
        assert says in answer.json["error"]["message"]
        assert coordinator.dispatcher.config == CONFIG


def test_a_setting_that_cannot_change_is_refused_with_the_names_of_those_that_can() -> None:
    with RunningCoordinator() as coordinator:
        error = change(coordinator, {"lease_s": 5}).json["error"]
    assert all(field in error["hint"] for field in FIELDS)


def test_seeds_that_are_added_join_the_frontier_and_the_scope() -> None:
    with RunningCoordinator(config=replace(CONFIG, scope="host")) as coordinator:
        assert change(coordinator, {"seeds": ["http://new.example/"]}).json["seeds_added"] == 1
        assert coordinator.dispatcher.in_scope("http://new.example/deeper")
        assert [one["url"] for one in RemoteNode(coordinator, "n1").take()] == ["http://new.example/"]


def test_a_node_of_another_coordinator_hears_of_a_change_with_its_next_heartbeat(tmp_path: Path) -> None:
    with two_coordinators(tmp_path) as (one, other):
        node = RemoteNode(other, "n1")
        assert node.registered["config_version"] == 0
        change(one, {"delay_s": 3.5, "bytes_max": 1000})
        wait_until(lambda: settings_at(other)["delay_s"] == 3.5, FOLLOWED_S_MAX, "the other coordinator to follow")
        beat = {"status": "active", "current_load": 0, "total_crawled": 0, "config_version": 0}
        told = node.post("heartbeat", beat).json["settings"]
        assert (told["config_version"], told["config"]["delay_s"], told["config"]["bytes_max"]) == (1, 3.5, 1000)
        assert node.post("heartbeat", beat | {"config_version": 1}).json["settings"] is None
        assert RemoteNode(other, "n2").registered["config"]["delay_s"] == 3.5


def test_changes_at_the_same_moment_through_two_coordinators_are_all_made(tmp_path: Path) -> None:
    with two_coordinators(tmp_path) as both, ThreadPoolExecutor(4) as people:
        for number in range(1, ROUNDS + 1):
            wanted = {"pages_max": number, "bytes_max": number, "host_urls_max": number, "per_host": number + 1}
            each = [(both[place % 2], {field: value}) for place, (field, value) in enumerate(wanted.items())]
            answers = list(people.map(lambda one: change(*one), each))
            assert [answer.status for answer in answers] == [200] * len(answers)
        assert max(answer.json["version"] for answer in answers) == ROUNDS * len(wanted)
        wait_until(lambda: all(_has(one, wanted) for one in both), FOLLOWED_S_MAX, "both to agree")


def _has(coordinator: RunningCoordinator, wanted: dict[str, int]) -> bool:
    settings = settings_at(coordinator)
    return {field: settings[field] for field in wanted} == wanted


def test_a_spent_budget_stops_a_crawl_that_runs_and_leaves_a_paused_one_paused() -> None:
    def told(coordinator: RunningCoordinator, pages: int) -> str:
        arguments = ["pages_max", str(pages), "--coordinator", coordinator.url]
        return " ".join(CliRunner().invoke(command, arguments, catch_exceptions=False).output.split())

    with RunningCoordinator() as coordinator:
        coordinator.enqueue(*(f"http://s.example/{number}" for number in range(3)))
        node = RemoteNode(coordinator, "n1")
        node.send(results_body(node.take(), stored=True))
        coordinator.post(f"{CRAWL}/pause")
        assert "So much is spent already: the crawl stays paused. Raise it" in told(coordinator, 2)
        assert coordinator.get(CRAWL).json["state"] == "paused"
    with RunningCoordinator() as coordinator:
        coordinator.enqueue(*(f"http://s.example/{number}" for number in range(3)))
        node = RemoteNode(coordinator, "n1")
        node.send(results_body(node.take(), stored=True))
        assert "So much is spent already: the crawl stops. Raise it" in told(coordinator, 2)
