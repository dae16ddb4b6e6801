"""A crawl that did not run for a while: its own time is far behind the wall clock, but people see the latter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from drumlin.access.tokens import Role
from drumlin.api.explaining.stories import DAY_FORM
from drumlin.protocol.paths import TIME_HEADER
from tests.harness.coordinators import CONFIG, RemoteNode, RunningCoordinator, results_body

RESTED_S = 7 * 86_400.0
SOON_S = 120.0
URL = "http://a.test/1"


@pytest.fixture
def coordinator() -> Iterator[RunningCoordinator]:
    with RunningCoordinator(controlled=True, behind_s=RESTED_S) as one:
        yield one


def read_day(said: str) -> float:
    return datetime.strptime(said, DAY_FORM).replace(tzinfo=UTC).timestamp()


def is_now(moment: float) -> bool:
    return abs(moment - time.time()) < SOON_S


def test_people_see_times_of_the_day(coordinator: RunningCoordinator) -> None:
    viewer = coordinator.tokens[Role.VIEWER]
    coordinator.enqueue(URL)
    node = RemoteNode(coordinator, "n1")
    (assignment,) = node.take()
    story = coordinator.get(f"/api/v1/urls?url={URL}", token=viewer).json
    (leased,) = [sentence for sentence in story["story"] if "until " in sentence]
    nodes = coordinator.get("/api/v1/nodes", token=viewer).json
    (shown,) = nodes["nodes"]
    (audited, *_) = coordinator.get("/api/v1/audit", token=viewer).json["entries"]
    moments = {
        "stats": coordinator.get("/api/v1/stats", token=viewer).json["time"],
        "nodes": nodes["time"],
        "host": coordinator.get("/api/v1/hosts/a.test", token=viewer).json["time"],
        "last seen": shown["last_seen"],
        "registered": shown["registered_at"],
        "found": story["first_seen"],
        "lease": story["lease_until"],
        "the host's lease": story["host_state"]["lease_until"],
        "the sentence": read_day(leased.partition("until ")[2].rstrip(".")),
        "not before": assignment["not_before"],
        "deadline": assignment["deadline"],
        "audit": audited["time"],
    }
    assert {name for name, moment in moments.items() if not is_now(moment)} == set()


def test_a_worker_of_one_url_at_a_time_goes_by_its_own_clock() -> None:
    with RunningCoordinator(behind_s=RESTED_S, config=CONFIG) as coordinator:
        coordinator.enqueue(URL)
        told = coordinator.get("/v1/fetch/next?workerId=w1").json
        assert is_now(told["allowedAfterEpochMs"] / 1000)
        assert is_now(told["leaseEndsEpochMs"] / 1000)


def test_a_token_expires_by_the_calendar(coordinator: RunningCoordinator) -> None:
    issued = coordinator.access.issue(
        coordinator.dispatcher.engine, Role.VIEWER, "short", time.time() - 60.0, expires=time.time() - 1.0
    )
    assert coordinator.get("/api/v1/stats", token=coordinator.do(issued)).code == "token_expired"


def test_every_answer_says_the_time_to_sign_with(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue(URL)
    node = RemoteNode(coordinator, "n1")
    body = results_body(node.take())
    refused = node.send(body, node.signature(body, at=time.time()))
    assert refused.code == "signature_out_of_time"
    assert coordinator.get("/nowhere").headers[TIME_HEADER.lower()]
    assert coordinator.get("/livez").headers[TIME_HEADER.lower()]
    told_s = int(refused.headers[TIME_HEADER.lower()]) / 1000
    assert is_now(told_s + RESTED_S)
    assert node.send(body, node.signature(body, at=told_s)).json["accepted_count"] == 1
