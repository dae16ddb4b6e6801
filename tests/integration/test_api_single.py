"""Workers that take one URL at a time: take, fetch politely, return; and what they cannot do."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from drumlin.config import CrawlConfig
from drumlin.protocol import HostNote, read_note, write_note
from drumlin.testing import FakeWeb
from tests.harness.coordinators import RemoteNode, RunningCoordinator

ROBOTS = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.2\n"


@pytest.fixture
def coordinator() -> Iterator[RunningCoordinator]:
    with RunningCoordinator() as running:
        yield running


def next_url(coordinator: RunningCoordinator, worker: str = "w1") -> dict[str, Any] | None:
    answer = coordinator.get(f"/v1/fetch/next?workerId={worker}")
    assert answer.status in (200, 204), answer.body
    return answer.json if answer.status == 200 else None


def result(url: str, **more: Any) -> dict[str, Any]:
    return {
        "url": url,
        "statusCode": 200,
        "contentSha256": "cd" * 32,
        "fetchedAt": 1_790_000_000_000,
        "links": [],
    } | more


def state_of(coordinator: RunningCoordinator, url: str) -> str:
    state: str = coordinator.get(f"/api/v1/urls?url={quote(url, safe='')}").json["state"]
    return state


def test_a_url_goes_in_and_comes_out_done(coordinator: RunningCoordinator) -> None:
    url = "http://one.example/page"
    enqueued = coordinator.post("/v1/frontier/enqueue", {"url": url, "priority": 7})
    assert (enqueued.status, set(enqueued.json)) == (202, {"queueShard"})
    given = next_url(coordinator)
    assert given is not None
    assert (given["url"], given["robots"], given["robotsUrl"]) == (url, None, "http://one.example/robots.txt")
    assert abs(given["allowedAfterEpochMs"] / 1000 - time.time()) < 60
    assert given["headersPolicy"]["userAgent"].startswith("drumlin/")
    assert state_of(coordinator, url) == "leased"
    answer = coordinator.post("/v1/fetch/result", result(url, links=["/next", "http://other.example/", "mailto:x"]))
    assert (answer.status, answer.body) == (204, b"")
    assert state_of(coordinator, url) == "done"
    assert state_of(coordinator, "http://one.example/next") == "queued"
    assert coordinator.get("/api/v1/urls?url=http://other.example/").status == 404, "it is out of scope"


def test_a_url_is_known_in_whatever_spelling(coordinator: RunningCoordinator) -> None:
    assert coordinator.post("/v1/frontier/enqueue", {"url": "http://twice.example/a?b=1#x"}).status == 202
    again = coordinator.post("/v1/frontier/enqueue", {"url": "HTTP://Twice.example:80/./a?b=1"})
    assert (again.status, again.code) == (409, "duplicate")


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://a.example/", "http://", "http://a b/", "javascript:alert(1)"])
def test_what_is_no_web_address_is_422(coordinator: RunningCoordinator, url: str) -> None:
    assert coordinator.post("/v1/frontier/enqueue", {"url": url}).status == 422


def test_nothing_is_204_and_a_paused_crawl_gives_nothing(coordinator: RunningCoordinator) -> None:
    assert next_url(coordinator) is None
    coordinator.enqueue("http://paused.example/")
    coordinator.post("/api/v1/crawl/pause")
    assert next_url(coordinator) is None
    coordinator.post("/api/v1/crawl/resume")
    assert next_url(coordinator) is not None


def test_a_host_is_given_to_one_worker_at_a_time(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://busy.example/1", "http://busy.example/2")
    assert next_url(coordinator, "w1") is not None
    assert next_url(coordinator, "w2") is None


def test_a_page_of_which_no_size_is_told_counts_towards_its_hosts_budget(coordinator: RunningCoordinator) -> None:
    for number in range(2):
        coordinator.post("/v1/frontier/enqueue", {"url": f"http://few.example/{number}"})
    coordinator.ask("PATCH", "/api/v1/hosts/few.example", {"budget": 1})
    assert next_url(coordinator) is not None
    assert coordinator.post("/v1/fetch/result", result("http://few.example/0")).status == 204
    host = coordinator.get("/api/v1/hosts/few.example").json
    assert (host["pages"], host["why"]) == (1, "Its budget of pages is spent (1).")
    assert next_url(coordinator) is None


def test_a_result_sent_again_is_fine_and_another_one_is_not(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://again.example/")
    next_url(coordinator)
    done = result("http://again.example/")
    assert [coordinator.post("/v1/fetch/result", done).status for _ in range(3)] == [204, 204, 204]
    other = coordinator.post("/v1/fetch/result", done | {"statusCode": 404})
    assert (other.status, other.code) == (409, "not_leased")


def test_a_result_of_what_a_worker_never_had_is_refused_and_held_against_it() -> None:
    with RunningCoordinator(controlled=True) as running:
        running.enqueue("http://theirs.example/")
        owner, liar = RemoteNode(running, "owner"), RemoteNode(running, "liar")
        assert running.get("/v1/fetch/next?workerId=owner", token=owner.token).status == 200
        false = result("http://theirs.example/", workerId="liar")
        answers = [running.post("/v1/fetch/result", false, token=liar.token) for _ in range(150)]
        assert (answers[0].status, answers[0].code) == (409, "not_leased")
        assert (answers[-1].status, answers[-1].code) == (429, "quarantined")
        assert running.post("/v1/fetch/result", result("http://theirs.example/"), token=owner.token).status == 204


def test_a_simple_worker_cannot_return_what_a_node_holds(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://node.example/")
    assert RemoteNode(coordinator, "n1").take()
    assert coordinator.post("/v1/fetch/result", result("http://node.example/")).code == "not_leased"


def test_robots_rules_that_a_worker_tells_are_kept_and_obeyed_for_all(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://rules.example/private/x", "http://rules.example/open")
    first = next_url(coordinator)
    assert first is not None
    assert first["url"] == "http://rules.example/private/x"
    assert coordinator.get("/v1/robots/cache?host=rules.example").code == "robots_unknown"
    denied = result(first["url"], statusCode=0, contentSha256="", outcome="denied")
    told = denied | {"robots": {"statusCode": 200, "body": ROBOTS}}
    assert coordinator.post("/v1/fetch/result", told).status == 204
    cache = coordinator.get("/v1/robots/cache?host=rules.example").json
    assert (cache["rulesBlob"], cache["productToken"]) == (ROBOTS, "drumlin")
    assert cache["expiresAt"] > time.time()
    coordinator.enqueue("http://rules.example/private/y")
    given = _wait_for_next(coordinator)
    assert (given["url"], given["minDelayMs"]) == ("http://rules.example/open", 200)
    assert given["robots"]["rulesBlob"] == ROBOTS
    assert coordinator.post("/v1/fetch/result", result(given["url"])).status == 204
    _wait_for_state(coordinator, "http://rules.example/private/y", "done")
    assert coordinator.get("/api/v1/stats").json["outcomes"]["denied"] == 2


def test_of_a_long_robots_txt_that_a_worker_tells_the_rules_for_us_count(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://long.example/")
    assert next_url(coordinator) is not None
    body = "User-agent: drumlin\nDisallow: /private\n\nUser-agent: *\nAllow: /\n" + "# padding\n" * 10_000
    told = result("http://long.example/") | {"robots": {"statusCode": 200, "body": body}}
    assert coordinator.post("/v1/fetch/result", told).status == 204
    kept = coordinator.get("/v1/robots/cache?host=long.example").json["rulesBlob"]
    assert "Disallow: /private" in kept


def test_robots_rules_that_a_worker_tells_leave_the_rest_of_the_hosts_note_as_it_is(
    coordinator: RunningCoordinator,
) -> None:
    coordinator.enqueue("http://slow.example/1", "http://slow.example/2")
    node = RemoteNode(coordinator, "n1")
    (lease,) = node.post("work/request", {"max_tasks": 1, "max_hosts": 1}).json["leases"]
    note = b64encode(write_note(HostNote(hsts_until=9.0, slow_s=0.3))).decode()
    report = {"lease_id": lease["lease_id"], "host": lease["host"], "release": True, "note": note}
    assert node.send(json.dumps({"results": [], "hosts": [report]}).encode()).status == 200
    given = _wait_for_next(coordinator)
    told = result(given["url"]) | {"robots": {"statusCode": 200, "body": ROBOTS}}
    assert coordinator.post("/v1/fetch/result", told).status == 204
    engine = coordinator.dispatcher.engine
    after = read_note(coordinator.do(engine.host_note(engine.shard_of("slow.example"), "slow.example")))
    assert (list(after.robots), after.hsts_until, after.slow_s) == (["http"], 9.0, 0.3)


def test_a_host_without_an_answer_for_robots_is_left_alone(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://broken.example/")
    next_url(coordinator)
    failed = result("http://broken.example/", statusCode=0, contentSha256="", outcome="failed", error="robots.txt: 503")
    assert coordinator.post("/v1/fetch/result", failed | {"robots": {"statusCode": 503}}).status == 204
    host = coordinator.get("/api/v1/hosts/broken.example").json
    assert host["next_contact"] - time.time() > 300
    assert coordinator.get("/v1/robots/cache?host=broken.example").status == 404


def test_a_failed_fetch_is_tried_again_later(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://fails.example/")
    next_url(coordinator)
    coordinator.post("/v1/fetch/result", result("http://fails.example/", statusCode=503, contentSha256=""))
    story = coordinator.get("/api/v1/urls?url=http://fails.example/").json
    assert (story["state"], story["attempts"]) == ("scheduled", 1)
    assert story["retry_at"] > time.time()


def test_a_priority_can_be_changed_while_a_url_is_queued(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://order.example/1", "http://order.example/2")
    change = {"url": "http://order.example/2", "newPriority": 9, "reason": "it is news"}
    assert coordinator.post("/v1/frontier/reprioritize", change).json == {"accepted": True}
    assert coordinator.post("/v1/frontier/reprioritize", change).json == {"accepted": True}
    given = next_url(coordinator)
    assert given is not None
    assert given["url"] == "http://order.example/2"
    assert coordinator.post("/v1/frontier/reprioritize", change).code == "not_queued"
    unknown = change | {"url": "http://order.example/3"}
    assert coordinator.post("/v1/frontier/reprioritize", unknown).code == "no_such_url"


def test_a_real_page_is_fetched_by_hand(coordinator: RunningCoordinator) -> None:
    """What a worker of a few lines does, against a real site."""
    with FakeWeb() as web:
        url = web.page("a.test", "/", "<title>By hand</title>")
        coordinator.enqueue(url)
        given = next_url(coordinator)
        assert given is not None
        assert given["url"] == url
        assert coordinator.post("/v1/fetch/result", result(url, fetchedAt="2026-03-01T12:00:00Z")).status == 204


def test_a_lease_that_ran_out_is_given_to_another() -> None:
    with RunningCoordinator(config=CrawlConfig(allow_private=True, delay_s=0.0, lease_s=1.0)) as running:
        running.enqueue("http://late.example/")
        assert next_url(running, "w1") is not None
        given = _wait_for_next(running, "w2")
        assert given["url"] == "http://late.example/"
        late = running.post("/v1/fetch/result", result("http://late.example/", workerId="w1"))
        assert (late.status, late.code) == (410, "over")
        never = running.post("/v1/fetch/result", result("http://late.example/", workerId="w3"))
        assert (never.status, never.code) == (409, "not_leased")


def test_a_late_result_of_a_url_that_nobody_holds_counts() -> None:
    with RunningCoordinator(config=CrawlConfig(allow_private=True, delay_s=0.0, lease_s=1.0)) as running:
        running.enqueue("http://slow.example/1", "http://slow.example/2")
        first = next_url(running, "w1")
        assert first is not None
        deadline = time.monotonic() + 30
        while state_of(running, first["url"]) != "queued":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert running.post("/v1/fetch/result", result(first["url"], workerId="w1")).status == 204
        assert state_of(running, first["url"]) == "done"
        stranger = result("http://slow.example/2", workerId="w1", assignmentId=first["assignmentId"])
        assert running.post("/v1/fetch/result", stranger).status == 409, "an id is good for one URL"


def _wait_for_next(coordinator: RunningCoordinator, worker: str = "w1") -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while (given := next_url(coordinator, worker)) is None:
        assert time.monotonic() < deadline, json.dumps(coordinator.get("/api/v1/why-idle").json)
        time.sleep(0.02)
    return given


def _wait_for_state(coordinator: RunningCoordinator, url: str, state: str) -> None:
    deadline = time.monotonic() + 30
    while state_of(coordinator, url) != state:
        next_url(coordinator)
        assert time.monotonic() < deadline
        time.sleep(0.02)
