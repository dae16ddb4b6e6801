"""The calls of people: questions and changes, live events, metrics, health."""

from __future__ import annotations

import errno
import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from drumlin.access.tokens import Role
from drumlin.api import watch, wire
from drumlin.api.calls import events
from drumlin.api.calls.events import CLIENTS_EACH_MAX, CLIENTS_MAX
from drumlin.cli.main import drumlin
from drumlin.errors import Cause, EngineError, StorageError
from drumlin.metrics.registry import METRICS, Teller
from tests.harness.coordinators import (
    ANSWERS_WITHIN_S,
    Answer,
    RemoteNode,
    RunningCoordinator,
    result_of,
    results_body,
)
from tests.harness.crawls import wait_until
from tests.harness.prometheus import check_page, families, samples


@pytest.fixture
def coordinator() -> Iterator[RunningCoordinator]:
    with RunningCoordinator() as running:
        yield running


def until(happened: Any, what: str) -> Any:
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while not (found := happened()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


def test_the_crawl_pauses_goes_on_and_stops(coordinator: RunningCoordinator) -> None:
    assert coordinator.get("/api/v1/crawl").json["state"] == "running"
    assert coordinator.post("/api/v1/crawl/pause").json == {"status": "paused"}
    assert coordinator.get("/api/v1/why-idle").json["reasons"][0]["code"] == "paused"
    assert coordinator.post("/api/v1/crawl/resume").json == {"status": "running"}
    assert coordinator.post("/api/v1/crawl/stop").json == {"status": "draining"}
    crawl = coordinator.get("/api/v1/crawl").json
    assert (crawl["state"], crawl["stop_reason"]) == ("draining", "stopped by an operator")


def test_stats_follow_the_crawl(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://s.example/1", "http://s.example/2")
    node = RemoteNode(coordinator, "n1")
    node.send(results_body(node.take(), stored=True))

    def settled() -> Any:
        stats = coordinator.get("/api/v1/stats").json
        return stats if stats["pages"] == 2 and stats["nodes"] else None

    stats = until(settled, "two pages in the figures")
    assert (stats["totals"]["done"], stats["bytes"], stats["statuses"]) == (2, 2_000, {"200": 2})
    assert stats["nodes"] == {"active": 1}
    assert stats["duplicates"] == {"exact": 1}


def test_a_batch_of_urls_says_what_became_of_them(coordinator: RunningCoordinator) -> None:
    urls = ["http://b.example/", "http://b.example/#again", "no address", "http://c.example/"]
    answer = coordinator.post("/api/v1/urls", {"urls": urls, "priority": 8}).json
    assert answer == {"added": 2, "seen": 1, "capped": 0, "invalid": ["no address"], "removed": 0}


def test_hosts_are_listed_by_state_and_looked_at(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://h1.example/", "http://h2.example/", "http://h2.example/x")
    ready = coordinator.get("/api/v1/hosts?state=ready").json["hosts"]
    assert {host["host"]: host["queued"] for host in ready} == {"h1.example": 1, "h2.example": 2}
    assert len(coordinator.get("/api/v1/hosts?state=ready&limit=1").json["hosts"]) == 1
    RemoteNode(coordinator, "n1").take()
    leased = coordinator.get("/api/v1/hosts?state=leased").json["hosts"]
    assert {host["lease_node"] for host in leased} == {"n1"}
    host = coordinator.get("/api/v1/hosts/h1.example").json
    assert (host["state"], host["domain"]) == ("leased", "h1.example")
    assert "n1 may contact it" in host["why"]
    assert coordinator.get("/api/v1/hosts/unknown.example").code == "no_such_host"
    assert coordinator.get("/api/v1/hosts/a%2Fb").code == "not_found"
    assert coordinator.get("/api/v1/hosts?state=sleepy").code == "invalid"


def told(answer: Answer) -> str:
    """The hint of a refusal."""
    hint: str = answer.json["error"]["hint"]
    return hint


@pytest.mark.parametrize("asked", ["hosts/h.example", "hosts/h.example:82", "urls?url=http://h.example/x"])
def test_a_forgotten_port_is_named(coordinator: RunningCoordinator, asked: str) -> None:
    coordinator.enqueue("http://h.example:81/x", "http://hh.example/")
    assert "The crawl knows this name as h.example:81." in told(coordinator.get(f"/api/v1/{asked}"))


def test_a_port_too_many_is_named(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://[2001:db8::1]/x", "http://h.example/x")
    assert "The crawl knows this name as h.example." in told(coordinator.get("/api/v1/hosts/h.example:81"))
    assert "The crawl knows this name as [2001:db8::1]." in told(coordinator.get("/api/v1/hosts/[2001:db8::1]:81"))
    assert "knows this name" not in told(coordinator.get("/api/v1/hosts/example"))


def test_a_hosts_delay_can_be_changed_and_a_host_blocked(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://p.example/")
    changed = coordinator.ask("PATCH", "/api/v1/hosts/p.example", {"delay_s": 30, "blocked": True}).json
    assert (changed["delay_s"], changed["state"], changed["blocked"]) == (30, "blocked", True)
    assert RemoteNode(coordinator, "n1").take() == []
    assert coordinator.get("/api/v1/hosts?state=blocked").json["hosts"][0]["host"] == "p.example"
    reasons = coordinator.get("/api/v1/why-idle").json["reasons"]
    assert "blocked" in {reason["code"] for reason in reasons}
    freed = coordinator.ask("PATCH", "/api/v1/hosts/p.example", {"delay_s": None, "blocked": False}).json
    assert (freed["delay_s"], freed["state"]) == (0.0, "ready")
    assert RemoteNode(coordinator, "n1").take()
    assert coordinator.ask("PATCH", "/api/v1/hosts/p.example", {"delay": 3}).code == "invalid"


def test_a_list_of_hosts_has_each_once(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://h1.example/", "http://h2.example/")
    coordinator.ask("PATCH", "/api/v1/hosts/h1.example", {"blocked": True})
    arguments = ["hosts", "list", "--json", "--coordinator", coordinator.url]
    listed = json.loads(CliRunner().invoke(drumlin, arguments, catch_exceptions=False).stdout)
    assert sorted((host["host"], host["state"]) for host in listed) == [
        ("h1.example", "blocked"),
        ("h2.example", "ready"),
    ]


def test_no_more_pages_of_a_host_are_given_out_than_its_budget_allows(coordinator: RunningCoordinator) -> None:
    for number in range(5):
        coordinator.enqueue(f"http://q.example/{number}")
    changed = coordinator.ask("PATCH", "/api/v1/hosts/q.example", {"budget": 2}).json
    assert (changed["budget"], changed["state"]) == (2, "ready")
    node = RemoteNode(coordinator, "n1")
    taken = node.take()
    assert len(taken) == 2
    lease_id = taken[0]["assignment_id"].rpartition("/")[0]
    release = [{"lease_id": lease_id, "host": "q.example", "release": True}]
    node.send(json.dumps({"results": [result_of(one) for one in taken], "hosts": release}).encode())
    spent = coordinator.get("/api/v1/hosts/q.example").json
    assert (spent["pages"], spent["state"], spent["why"]) == (2, "idle", "Its budget of pages is spent (2).")
    assert node.take() == []

    def reasons() -> set[str]:
        return {reason["code"] for reason in coordinator.get("/api/v1/why-idle").json["reasons"]}

    until(lambda: "budgeted" in reasons(), "the crawl to be idle for lack of a budget")
    freed = coordinator.ask("PATCH", "/api/v1/hosts/q.example", {"budget": None}).json
    assert (freed["budget"], freed["state"]) == (None, "ready")
    assert len(node.take()) == 3
    assert coordinator.ask("PATCH", "/api/v1/hosts/q.example", {"budget": -1}).code == "invalid"


def test_the_story_of_a_url_is_told(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://story.example/")
    node = RemoteNode(coordinator, "teller")
    taken = node.take()
    leased = coordinator.get("/api/v1/urls?url=http://story.example/").json
    assert (leased["state"], leased["lease_node"]) == ("leased", "teller")
    node.send(results_body(taken, status_code=0, outcome="failed", kind="trap", error="it never ends"))
    dead = coordinator.get("/api/v1/urls?url=http://story.example/").json
    assert (dead["state"], dead["dead_letter"]["kind"]) == ("dead", "trap")
    assert any("it never ends" in sentence for sentence in dead["story"])
    assert coordinator.get("/api/v1/urls?url=http://never.example/").status == 404
    assert coordinator.get("/api/v1/urls?url=nonsense").status == 404


def test_dead_letters_are_listed_retried_and_dropped(coordinator: RunningCoordinator) -> None:
    urls = [f"http://d.example/{number}" for number in range(4)]
    coordinator.enqueue(*urls)
    node = RemoteNode(coordinator, "n1")
    node.send(results_body(node.take(), status_code=0, outcome="failed", kind="trap", error="a trap"))
    listed = coordinator.get("/api/v1/dead-letters?kind=trap&host=d.example").json["dead_letters"]
    assert {letter["url"] for letter in listed} == set(urls)
    assert coordinator.get("/api/v1/dead-letters?kind=dns").json["dead_letters"] == []
    for other in ({"kind": "dns"}, {"host": "e.example"}, {"kind": "trap", "host": "e.example"}):
        assert coordinator.post("/api/v1/dead-letters/drop", {"urls": urls, **other}).json == {"changed": 0}
    wrong = coordinator.post("/api/v1/dead-letters/retry", {"urls": ["htp:x"]})
    assert wrong.json == {"changed": 0, "invalid": ["htp:x"]}
    assert coordinator.get("/api/v1/stats").json["dead_letters"] == {"trap": 4}
    assert coordinator.post("/api/v1/dead-letters/drop", {"urls": urls[:1], "kind": "trap"}).json == {"changed": 1}
    assert coordinator.post("/api/v1/dead-letters/retry", {"kind": "trap", "limit": 2}).json == {"changed": 2}
    assert coordinator.post("/api/v1/dead-letters/retry", {"host": "d.example"}).json == {"changed": 1}
    assert coordinator.get("/api/v1/dead-letters").json["dead_letters"] == []
    wait_until(lambda: coordinator.get("/api/v1/stats").json["dead_letters"] == {}, ANSWERS_WITHIN_S, "no letters")


def test_dead_letters_are_told_in_pages_and_counted_by_host(coordinator: RunningCoordinator) -> None:
    urls = [
        f"http://{host}.example/{number}" for host, count in (("p", 3), ("q", 2), ("r", 2)) for number in range(count)
    ]
    coordinator.enqueue(*urls)
    node = RemoteNode(coordinator, "n1")
    node.send(results_body(node.take(), status_code=0, outcome="failed", kind="trap", error="a trap"))
    told: list[str] = []
    after = ""
    while not told or after:
        page = coordinator.get(f"/api/v1/dead-letters?limit=3&after={quote(after)}").json
        told += [letter["url"] for letter in page["dead_letters"]]
        after = page["next"]
    assert told == urls
    groups = coordinator.get("/api/v1/dead-letters/groups?by=host&limit=2").json
    assert [(one["host"], one["kind"], one["urls"]) for one in groups["groups"]] == [
        ("p.example", "trap", 3),
        ("q.example", "trap", 2),
    ]
    rest = coordinator.get(f"/api/v1/dead-letters/groups?by=host&kind=trap&after={quote(groups['next'])}").json
    assert ([one["host"] for one in rest["groups"]], rest["next"]) == (["r.example"], "")
    assert coordinator.get("/api/v1/dead-letters/groups?by=host&kind=nonsense").json["groups"] == []
    for call in (
        "dead-letters?after=x",
        "dead-letters?after=trap%20a%20b",
        "dead-letters/groups?by=host&after=a%20b%20c",
        "dead-letters?after=%0A",
        "dead-letters/groups?by=host&after=%0A",
    ):
        assert coordinator.get(f"/api/v1/{call}").code == "invalid"


def test_hosts_are_found_by_the_beginning_of_their_names_in_pages(coordinator: RunningCoordinator) -> None:
    names = [f"{name}.find.example" for name in ("a", "find-a", "find-b", "find-c", "z")]
    coordinator.enqueue(*(f"http://{name}/" for name in names))
    page = coordinator.get("/api/v1/hosts?state=all&prefix=FIND-&limit=2").json
    assert ([host["host"] for host in page["hosts"]], page["next"]) == (names[1:3], names[2])
    rest = coordinator.get(f"/api/v1/hosts?state=all&prefix=find-&limit=2&after={page['next']}").json
    assert ([host["host"] for host in rest["hosts"]], rest["next"]) == (names[3:4], "")
    assert coordinator.get("/api/v1/hosts?prefix=a").code == "not_by_name"


def test_nodes_are_told_in_pages_and_found_by_the_beginning_of_their_names(coordinator: RunningCoordinator) -> None:
    for name in ("page-b", "page-a", "page-c"):
        RemoteNode(coordinator, name)
    first = coordinator.get("/api/v1/nodes?prefix=page-&limit=2").json
    assert ([node["node_id"] for node in first["nodes"]], first["next"]) == (["page-a", "page-b"], "page-b")
    rest = coordinator.get("/api/v1/nodes?prefix=page-&limit=2&after=page-b").json
    assert ([node["node_id"] for node in rest["nodes"]], rest["next"]) == (["page-c"], "")


def test_nodes_are_listed_by_status(coordinator: RunningCoordinator) -> None:
    RemoteNode(coordinator, "n1")
    RemoteNode(coordinator, "n2")
    coordinator.post("/api/v1/nodes/n2/quarantine")
    listed = coordinator.get("/api/v1/nodes?status=quarantined").json["nodes"]
    assert [node["node_id"] for node in listed] == ["n2"]
    fields = {"node_id", "ip_address", "last_seen", "status", "capacity", "current_load", "total_crawled"}
    assert fields | {"registered_at", "metadata"} <= set(listed[0])
    assert len(coordinator.get("/api/v1/nodes").json["nodes"]) == 2


def test_what_was_ordered_of_a_node_is_told_also_after_it_has_left(coordinator: RunningCoordinator) -> None:
    def told(what: str) -> str | None:
        value: str | None = coordinator.get("/api/v1/nodes").json["nodes"][0][what]
        return value

    RemoteNode(coordinator, "n1")
    assert told("ordered") is None
    coordinator.post("/api/v1/nodes/n1/drain")
    coordinator.do(coordinator.dispatcher.leave("n1", coordinator.time.reading()))
    until(lambda: told("status") == "inactive", "the node to have left")
    assert told("ordered") == "draining"
    coordinator.post("/api/v1/nodes/n1/release")
    until(lambda: told("ordered") is None, "its release")


def test_metrics_are_in_prometheus_form(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://m.example/")
    until(lambda: coordinator.dispatcher.leads, "the first tick")
    answer = coordinator.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")?\})? -?[0-9.e+-]+')
    assert all(line.startswith("#") or sample.fullmatch(line) for line in lines)
    assert {'drumlin_urls{state="queued"} 1', "drumlin_leader 1"} <= set(lines)
    assert 'drumlin_requests_total{route="POST /api/v1/urls",status="200"} 1' in lines


def test_promtool_finds_nothing_wrong_with_the_page_of_a_coordinator(coordinator: RunningCoordinator) -> None:
    until(lambda: coordinator.dispatcher.leads, "the first tick")
    check_page(coordinator.get("/metrics").body.decode())


def test_a_coordinator_tells_all_metrics_but_those_of_nodes(coordinator: RunningCoordinator) -> None:
    until(lambda: coordinator.dispatcher.leads, "the first tick")
    told = families(coordinator.get("/metrics").body.decode())
    others = (Teller.NODE, Teller.WITH_EVENTS, Teller.WITH_SEEDS)
    assert told == {name: str(metric.kind) for name, metric in METRICS.items() if metric.told_by not in others}


def test_metrics_tell_why_requests_were_refused_and_how_long_the_engine_took(coordinator: RunningCoordinator) -> None:
    assert coordinator.get("/api/v1/nowhere").status == 404
    coordinator.enqueue("http://m.example/")
    told = samples(coordinator.get("/metrics").body.decode())
    assert told['drumlin_refusals_total{code="not_found"}'] == 1
    assert told['drumlin_engine_call_seconds_count{call="add_all"}'] == 1
    assert told['drumlin_engine_call_seconds_bucket{call="add_all",le="+Inf"}'] == 1
    assert told['drumlin_engine_call_seconds_count{call="stats_all"}'] >= 1


def test_a_lease_that_runs_out_is_counted_once(coordinator: RunningCoordinator) -> None:
    node = RemoteNode(coordinator, "n1")
    coordinator.enqueue("http://m.example/")
    assert len(node.take()) == 1

    async def run_out() -> None:
        dispatcher = coordinator.dispatcher
        await dispatcher.engine.expire_all(await coordinator.time.now() + 2 * dispatcher.config.lease_s)

    coordinator.do(run_out())
    assert "drumlin_leases_expired_total 1" in coordinator.get("/metrics").body.decode().splitlines()


def test_every_coordinator_tells_the_figures_of_the_crawl_whoever_leads(
    coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> bool:
        return False

    coordinator.enqueue("http://m.example/")
    until(lambda: "drumlin_leader 1" in coordinator.get("/metrics").body.decode(), "a leader")
    monkeypatch.setattr(coordinator.dispatcher.engine, "claim", lost)
    told = until(
        lambda: "drumlin_leader 0" in (page := coordinator.get("/metrics").body.decode()) and page, "another leader"
    )
    assert {"drumlin_pages_total 0", 'drumlin_urls{state="queued"} 1'} <= set(told.splitlines())


def test_a_counter_of_the_crawl_does_not_fall_when_the_engine_comes_back_with_older_data(
    coordinator: RunningCoordinator,
) -> None:
    def told() -> float:
        return samples(coordinator.get("/metrics").body.decode()).get('drumlin_responses_total{code="200"}', 0)

    engine = coordinator.dispatcher.engine
    coordinator.do(engine.count(0, {"status.200": 5}))
    until(lambda: told() == 5, "five responses")
    coordinator.do(engine.count(0, {"status.200": -3, "status.404": 1}))
    until(lambda: 'drumlin_responses_total{code="404"} 1' in coordinator.get("/metrics").body.decode(), "new figures")
    assert told() == 5


def test_health_and_readiness_differ_when_the_engine_is_gone(
    coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert coordinator.get("/healthz").json == {"status": "ok"}
    assert coordinator.get("/readyz").json == {"status": "ready"}

    async def gone(within_s: float) -> None:
        raise EngineError("Nobody answers.")

    monkeypatch.setattr(coordinator.dispatcher.engine, "check", gone)
    monkeypatch.setattr(watch, "FRESH_S", 0.0)
    unready = coordinator.get("/readyz")
    assert (unready.status, unready.code) == (503, "engine_failed")
    assert coordinator.get("/healthz").status == 200


# Live


class Listener:
    """A client of the live events."""

    def __init__(self, coordinator: RunningCoordinator, token: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=ANSWERS_WITHIN_S)
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        self.connection.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream", **shown})
        self.response = self.connection.getresponse()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *ending: object) -> None:
        self.response.close()
        self.connection.close()

    def next(self, kind: str) -> Any:
        """The data of the next event of a kind."""
        event = ""
        while True:
            line = self.response.readline().decode().strip()
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == kind:
                return json.loads(line.removeprefix("data: "))


def test_events_tell_figures_and_changes_as_they_come(coordinator: RunningCoordinator) -> None:
    with Listener(coordinator) as listener:
        assert listener.response.headers["Content-Type"] == "text/event-stream"
        assert listener.next("stats")["state"] == "running"
        listener.next("stats")
        coordinator.post("/api/v1/crawl/pause")
        assert listener.next("crawl") == {"status": "paused"}
        RemoteNode(coordinator, "newcomer")
        assert listener.next("node") == {"node_id": "newcomer", "status": "active"}


def test_events_tell_marks_as_the_history_has_them(coordinator: RunningCoordinator) -> None:
    RemoteNode(coordinator, "before")
    until(lambda: coordinator.get("/api/v1/history").json["marks"], "the first mark")
    with Listener(coordinator) as listener:
        # The second of these is from the first look at the crawl.
        listener.next("stats")
        listener.next("stats")
        RemoteNode(coordinator, "newcomer")
        told = listener.next("mark")
    assert told["text"] == "newcomer joined"
    assert told in coordinator.get("/api/v1/history").json["marks"]


def test_a_listener_that_never_reads_loses_its_place(
    coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "EVERY_S", 0.001)
    monkeypatch.setattr(wire, "UNREAD_S_MAX", 0.5)
    with Listener(coordinator) as listener:
        listening = coordinator.app._people._events._clients
        assert len(listening) == 1
        until(lambda: not listening, "an end of the stream")
        assert listener.response.fp is not None, "the client has not hung up"


def test_events_are_one_look_for_those_who_ask_for_no_stream(coordinator: RunningCoordinator) -> None:
    answer = coordinator.get("/api/v1/events")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body.startswith(b"event: stats\ndata: {")


def test_one_token_cannot_keep_others_from_listening() -> None:
    with RunningCoordinator(controlled=True) as coordinator, ExitStack() as stack:
        for _ in range(CLIENTS_EACH_MAX):
            stack.enter_context(Listener(coordinator, coordinator.tokens[Role.VIEWER])).next("stats")
        greedy = stack.enter_context(Listener(coordinator, coordinator.tokens[Role.VIEWER]))
        other = stack.enter_context(Listener(coordinator, coordinator.tokens[Role.OPERATOR]))
        assert (greedy.response.status, other.response.status) == (503, 200)


def test_listeners_are_bounded_and_make_room_when_they_go(coordinator: RunningCoordinator) -> None:
    def status() -> int:
        with Listener(coordinator) as listener:
            return listener.response.status

    with ExitStack() as stack:
        for _ in range(CLIENTS_MAX):
            stack.enter_context(Listener(coordinator)).next("stats")
        assert status() == 503
    until(lambda: status() == 200, "room for a listener")


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/stats", "/metrics", "/api/v1/nodes", "/api/v1/openapi.json"])
def test_head_answers_as_get_does_without_the_body(coordinator: RunningCoordinator, path: str) -> None:
    asked, got = coordinator.ask("HEAD", path), coordinator.get(path)
    assert (asked.status, asked.body) == (200, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]
    assert int(asked.headers["content-length"]) > 0


def test_head_of_events_opens_no_stream_and_head_of_a_refusal_has_no_body(coordinator: RunningCoordinator) -> None:
    accepting = {"Accept": "text/event-stream"}
    for _ in range(CLIENTS_MAX + 1):
        answer = coordinator.ask("HEAD", "/api/v1/events", headers=accepting)
        assert (answer.status, answer.body) == (200, b"")
    refused = coordinator.ask("HEAD", "/nowhere")
    assert (refused.status, refused.body) == (404, b"")


def test_head_takes_no_work_away(coordinator: RunningCoordinator) -> None:
    coordinator.enqueue("http://a.test/")
    assert coordinator.ask("HEAD", "/v1/fetch/next?workerId=w").status == 405
    assert coordinator.get("/v1/fetch/next?workerId=w").json["url"] == "http://a.test/"


def test_an_escaped_slash_leads_nowhere(coordinator: RunningCoordinator) -> None:
    for path in ("/api%2fv1/stats", "/api/v1%2Fstats", "/api/v1/nodes%2fx/status"):
        answer = coordinator.get(path)
        assert (answer.status, answer.code) == (404, "not_found")


def test_a_question_that_no_process_can_be_started_for_is_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_left(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("drumlin.sql.asking.asyncio.create_subprocess_exec", none_left)
    (tmp_path / "tables").mkdir()
    with RunningCoordinator(store=tmp_path) as running:
        answer = running.post("/api/v1/sql", {"sql": "SELECT 1"})
    assert (answer.status, answer.code) == (503, "not_started")
    assert answer.headers["retry-after"]


def test_a_store_that_cannot_be_used_is_named_first_and_the_crawl_is_not_called_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise StorageError("The disk is full.", code=Cause.STORE_FULL)

    monkeypatch.setattr(watch, "try_store", full)
    with RunningCoordinator(store=tmp_path) as running:
        node = RemoteNode(running, "n1")

        def why() -> Any:
            node.post("heartbeat", {"status": "active", "current_load": 3, "total_crawled": 2})
            return running.get("/api/v1/why-idle").json

        told = until(lambda: None if (said := why())["idle"] else said, "the load of a node")
        assert (told["reasons"], told["bound_by"][0]["code"]) == ([], "store_full")
        running.post("/api/v1/crawl/pause")
        assert [reason["code"] for reason in why()["reasons"]] == ["store_full", "paused"]
