"""The calls of nodes, over real HTTP: registering, taking work, returning it, leaving; and who may do it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import zstandard

from drumlin.access.tokens import NODE_TOKEN_S, revoke_token
from drumlin.cli.status import state_of
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.nodes import BEATS_TABLE, TABLE
from drumlin.protocol.paths import SIGNATURE_HEADER
from tests.harness.coordinators import RemoteNode, RunningCoordinator, result_of, results_body
from tests.harness.crawls import wait_until

WAIT_S = 10.0
FOREVER = float("inf")


@pytest.fixture(scope="module")
def open_one() -> Iterator[RunningCoordinator]:
    with RunningCoordinator() as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def controlled() -> Iterator[RunningCoordinator]:
    with RunningCoordinator(controlled=True) as coordinator:
        yield coordinator


def test_a_node_works_from_registering_to_leaving(open_one: RunningCoordinator) -> None:
    open_one.enqueue("http://life.example/1", "http://life.example/2")
    node = RemoteNode(open_one, "life")
    assert node.registered["status"] == "registered"
    assert node.registered["config"]["delay_s"] == 0.0
    taken = node.take()
    assert [one["url"] for one in taken] == ["http://life.example/1", "http://life.example/2"]
    assert {"assignment_id", "url", "priority", "deadline", "host", "not_before"} <= set(taken[0])
    answer = node.send(results_body(taken))
    assert (answer.status, answer.json["accepted_count"], answer.json["rejected_count"]) == (200, 2, 0)
    beat = node.post("heartbeat", {"status": "active", "current_load": 3, "total_crawled": 2})
    assert (beat.json["status"], beat.json["config_hash"]) == ("ok", node.registered["config_hash"])
    status = open_one.get(node.path("status")).json
    assert (status["status"], status["current_load"], status["total_crawled"]) == ("active", 3, 2)
    assert open_one.ask("DELETE", node.path()).json == {"status": "ok"}
    assert open_one.get(node.path("status")).code == "no_such_node"
    assert open_one.get("/api/v1/nodes?status=inactive").json["nodes"][0]["node_id"] == "life"


def test_a_node_that_leaves_while_its_call_for_work_waits_stays_gone(open_one: RunningCoordinator) -> None:
    node = RemoteNode(open_one, "leaver")
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(node.post, "work/request", {"max_tasks": 5})
        wait_until(lambda: bool(open_one.app._nodes._waiting), WAIT_S, "the call to wait for work", poll_s=0.001)
        open_one.ask("DELETE", node.path())
        assert asked.result().status == 200
    assert open_one.get(node.path("status")).code == "no_such_node"


def test_the_same_batch_twice_gives_the_same_counts_and_changes_nothing(open_one: RunningCoordinator) -> None:
    open_one.enqueue("http://twice.example/1", "http://twice.example/2")
    node = RemoteNode(open_one, "twice")
    body = results_body(node.take(), links=["http://twice.example/3"])
    first, pages = node.send(body), open_one.do(open_one.dispatcher.totals(time.time())).pages
    second = node.send(body)
    assert second.json == first.json
    assert open_one.do(open_one.dispatcher.totals(time.time())).pages == pages


def test_json_and_msgpack_and_compressed_bodies_mean_the_same(open_one: RunningCoordinator) -> None:
    node = RemoteNode(open_one, "formats")
    request = {"max_tasks": 5, "request_id": "same"}
    as_json = node.post("work/request", request)
    packed = msgspec.msgpack.encode(request)
    kind = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    as_msgpack = open_one.ask("POST", node.path("work/request"), body=packed, headers=kind)
    assert as_msgpack.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(as_msgpack.body) == as_json.json
    smaller = zstandard.compress(packed)
    compressed = open_one.ask(
        "POST", node.path("work/request"), body=smaller, headers=kind | {"Content-Encoding": "zstd"}
    )
    assert compressed.body == as_msgpack.body


def test_a_refusal_is_written_in_the_format_asked_for(open_one: RunningCoordinator) -> None:
    answer = open_one.get("/nowhere", headers={"Accept": "application/msgpack"})
    assert msgspec.msgpack.decode(answer.body)["error"]["code"] == "not_found"


def test_numbers_with_a_point_are_understood_where_whole_ones_are_meant(open_one: RunningCoordinator) -> None:
    assert RemoteNode(open_one, "points").post("work/request", {"max_tasks": 3.0}).status == 200
    assert RemoteNode(open_one, "points").post("work/request", {"max_tasks": 3.5}).code == "invalid"


def test_a_wrong_message_says_where_it_is_wrong(open_one: RunningCoordinator) -> None:
    answer = RemoteNode(open_one, "wrong").post("work/request", {"max_tasks": "many"})
    assert (answer.status, answer.code) == (422, "invalid")
    assert "$.max_tasks" in answer.json["error"]["message"]


def test_a_bad_node_id_is_refused(open_one: RunningCoordinator) -> None:
    assert open_one.post("/api/v1/nodes/a%20b/heartbeat", {}).code == "bad_node_id"
    assert open_one.post("/api/v1/nodes/register", {"node_id": "../x", "capacity": 1}).code == "invalid"
    assert open_one.post("/api/v1/nodes/register", {"node_id": "register", "capacity": 1}).code == "bad_node_id"


def test_a_name_in_use_is_not_given_to_another_node(open_one: RunningCoordinator) -> None:
    first = {"node_id": "taken", "capacity": 1, "instance": "one"}
    assert open_one.post("/api/v1/nodes/register", first).status == 200
    other = open_one.post("/api/v1/nodes/register", first | {"instance": "two"})
    assert (other.status, other.code) == (409, "node_id_taken")
    assert open_one.post("/api/v1/nodes/register", first).status == 200


def test_nobody_sees_what_a_node_proves_itself_with(open_one: RunningCoordinator) -> None:
    open_one.post("/api/v1/nodes/register", {"node_id": "proof", "capacity": 1, "instance": "a-secret-instance"})
    assert b"a-secret-instance" not in open_one.get("/api/v1/nodes").body
    assert b"a-secret-instance" not in open_one.get("/api/v1/nodes/proof/status").body


# Access


def test_a_node_gets_a_token_and_a_key_where_access_is_controlled(
    controlled: RunningCoordinator, open_one: RunningCoordinator
) -> None:
    node = RemoteNode(controlled, "keys")
    assert node.token.startswith("drumlin_node_keys+")
    assert len(node.key) == 32
    assert RemoteNode(open_one, "keys").registered["token"] is None


def test_the_token_of_one_node_cannot_act_for_another(controlled: RunningCoordinator) -> None:
    mine, other = RemoteNode(controlled, "mine"), RemoteNode(controlled, "other")
    controlled.enqueue("http://mine.example/")
    assignments = mine.take()
    calls = [
        ("POST", "work/request", {"max_tasks": 1}),
        ("POST", "known", {"contents": []}),
        ("POST", "results", {"results": [result_of(assignments[0])]}),
        ("POST", "heartbeat", {"status": "active", "current_load": 0, "total_crawled": 0}),
        ("POST", "failed", {"message": "", "hint": "", "exit_code": 1}),
        ("PUT", "bundles/b1", {}),
        ("GET", "status", None),
        ("DELETE", "", None),
    ]
    for method, call, message in calls:
        answer = controlled.ask(method, mine.path(call), message, token=other.token)
        assert (answer.status, answer.code) == (403, "other_node"), call
    again = {"node_id": "mine", "capacity": 1}
    assert controlled.post("/api/v1/nodes/register", again, token=other.token).code == "other_node"


def test_a_join_token_does_not_get_the_token_of_a_node_at_work(controlled: RunningCoordinator) -> None:
    victim, join = RemoteNode(controlled, "victim"), controlled.tokens["join"]
    controlled.post("/api/v1/nodes/register", {"node_id": "plain", "capacity": 1}, token=join)
    for theft in ({"node_id": "victim"}, {"node_id": "victim", "instance": "guessed"}, {"node_id": "plain"}):
        answer = controlled.post("/api/v1/nodes/register", theft | {"capacity": 1}, token=join)
        assert (answer.status, answer.code) == (409, "node_id_taken"), theft
    assert RemoteNode(controlled, "victim").key == victim.key, "its instance opens the door"


def test_a_nodes_own_token_lets_it_in_again_while_it_is_at_work_and_ends_no_lease(
    controlled: RunningCoordinator,
) -> None:
    node = RemoteNode(controlled, "again")
    controlled.enqueue("http://again.example/")
    (taken,) = [one for one in node.take() if one["host"] == "again.example"]
    message = {"node_id": "again", "capacity": 1}
    assert controlled.post("/api/v1/nodes/register", message, token=node.token).status == 200
    assert node.send(results_body([taken])).json["accepted_count"] == 1
    assert RemoteNode(controlled, "again").key == node.key, "and its instance is still known"


async def forget(dispatcher: Dispatcher, node: str) -> None:
    """Remove all traces of a node, as if Redis had lost its last second in a failover, and the coordinator had died."""
    await dispatcher.nodes.flush(dispatcher.engine)
    dispatcher.nodes.let_go(FOREVER)
    for table in (TABLE, BEATS_TABLE):
        await dispatcher.engine.delete_entries(table, [node])


@pytest.mark.parametrize("kind", ["open_one", "controlled"])
def test_a_node_that_no_coordinator_knows_is_told_to_register(kind: str, request: pytest.FixtureRequest) -> None:
    coordinator: RunningCoordinator = request.getfixturevalue(kind)
    node = RemoteNode(coordinator, "forgotten")
    coordinator.do(forget(coordinator.dispatcher, "forgotten"))
    beat = {"status": "active", "current_load": 0, "total_crawled": 0}
    for call, message in (("heartbeat", beat), ("work/request", {"max_tasks": 1}), ("results", {"results": []})):
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json", **node.signature(body, call)}
        answer = coordinator.ask("POST", node.path(call), body=body, token=node.token, headers=headers)
        assert (answer.status, answer.code) == (404, "not_registered"), call
    again = coordinator.post("/api/v1/nodes/register", {"node_id": "forgotten", "capacity": 1}, token=node.token)
    assert again.status == 200
    assert node.post("heartbeat", beat).status == 200


def test_an_old_process_of_a_node_is_told_that_it_was_superseded(open_one: RunningCoordinator) -> None:
    message = {"node_id": "heir", "capacity": 1, "instance": "one", "boot": 2}
    assert open_one.post("/api/v1/nodes/register", message).status == 200
    assert open_one.post("/api/v1/nodes/register", message | {"boot": 1}).code == "superseded"


def test_results_of_another_nodes_lease_do_not_count(controlled: RunningCoordinator) -> None:
    holder, thief = RemoteNode(controlled, "holder"), RemoteNode(controlled, "thief")
    controlled.enqueue("http://held.example/")
    assignments = [one for one in holder.take() if one["host"] == "held.example"]
    stolen = thief.send(results_body(assignments))
    assert stolen.json["rejected"] == [{"assignment_id": assignments[0]["assignment_id"], "reason": "not_yours"}]
    assert holder.send(results_body(assignments)).json["accepted_count"] == 1


def test_results_must_be_signed(controlled: RunningCoordinator) -> None:
    node = RemoteNode(controlled, "unsigned")
    body = results_body([])
    answer = controlled.ask(
        "POST", node.path("results"), body=body, token=node.token, headers={"Content-Type": "application/json"}
    )
    assert (answer.status, answer.code) == (401, "signature_missing")


def test_a_tampered_batch_is_refused(controlled: RunningCoordinator) -> None:
    node = RemoteNode(controlled, "tampered")
    controlled.enqueue("http://tampered.example/")
    assignments = [one for one in node.take() if one["host"] == "tampered.example"]
    body = results_body(assignments)
    changed = body.replace(b"200", b"404")
    assert node.send(changed, node.signature(body)).code == "signature_wrong"
    other = RemoteNode(controlled, "tamperer")
    assert node.send(body, other.signature(body)).code == "signature_wrong"
    assert node.send(body, node.signature(body, at=time.time() - 3_600)).code == "signature_out_of_time"
    story = controlled.get("/api/v1/urls?url=http://tampered.example/", token=controlled.tokens["viewer"])
    assert story.json["state"] == "leased"


def test_a_replayed_batch_is_refused_and_one_signed_anew_is_not(controlled: RunningCoordinator) -> None:
    node = RemoteNode(controlled, "replayed")
    body = results_body([])
    signature = node.signature(body)
    assert node.send(body, signature).status == 200
    replayed = node.send(body, signature)
    assert (replayed.status, replayed.code) == (401, "replayed")
    assert node.send(body).status == 200


def test_a_signature_covers_the_compressed_body(controlled: RunningCoordinator) -> None:
    node = RemoteNode(controlled, "compressed")
    body = zstandard.compress(results_body([]))
    assert node.send(body, {"Content-Encoding": "zstd"}).status == 200
    assert (
        node.send(
            body, {"Content-Encoding": "zstd", SIGNATURE_HEADER: node.signature(results_body([]))[SIGNATURE_HEADER]}
        ).status
        == 401
    )


def test_a_revoked_node_must_register_again(controlled: RunningCoordinator) -> None:
    node = RemoteNode(controlled, "revoked")
    controlled.do(controlled.access.revoke_node(controlled.dispatcher.engine, "revoked"))
    assert node.post("work/request", {"max_tasks": 1}).status == 401
    assert RemoteNode(controlled, "revoked").post("work/request", {"max_tasks": 1}).status == 200


def test_a_nodes_token_that_ends_soon_is_renewed_by_a_heartbeat(
    controlled: RunningCoordinator, open_one: RunningCoordinator
) -> None:
    node = RemoteNode(controlled, "aging")
    beat = {"status": "active", "current_load": 0, "total_crawled": 0}
    assert node.post("heartbeat", beat).json["token"] is None
    old = controlled.access.node_token("aging", time.time() - 0.6 * NODE_TOKEN_S)
    renewed = controlled.post(node.path("heartbeat"), beat, token=old).json["token"]
    assert renewed not in (None, old, node.token)
    assert controlled.post(node.path("heartbeat"), beat, token=renewed).status == 200
    ended = controlled.access.node_token("aging", time.time() - NODE_TOKEN_S)
    assert controlled.post(node.path("heartbeat"), beat, token=ended).code == "token_expired"
    assert RemoteNode(open_one, "aging").post("heartbeat", beat).json["token"] is None


def test_a_token_revoked_with_its_nodes_takes_those_along_that_registered_again_with_their_own() -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        node, operators = RemoteNode(coordinator, "brought"), coordinator.tokens["operator"]
        again = {"node_id": "brought", "capacity": 1}
        renewed = coordinator.post("/api/v1/nodes/register", again, token=node.token).json["token"]
        other = coordinator.post("/api/v1/nodes/register", {"node_id": "other", "capacity": 1}, token=operators)
        join = coordinator.tokens["join"].split("_")[2]
        engine = coordinator.dispatcher.engine
        coordinator.do(revoke_token(engine, join, time.time(), with_nodes=True))
        coordinator.do(coordinator.access.refresh(engine))
        for token in (node.token, renewed, coordinator.tokens["join"]):
            assert coordinator.post("/api/v1/nodes/register", again, token=token).code == "token_revoked"
        beat = {"status": "active", "current_load": 0, "total_crawled": 0}
        assert coordinator.post("/api/v1/nodes/other/heartbeat", beat, token=other.json["token"]).status == 200


# Conduct


def test_who_returns_what_it_never_had_ends_in_quarantine_until_an_operator_releases_it() -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        liar = RemoteNode(coordinator, "liar")
        made_up = {"assignment_id": "nonsense", "url": "http://made-up.example/"}
        body = results_body([made_up] * 50)
        answers = [liar.send(body) for _ in range(6)]
        assert answers[0].json["rejected"][0]["reason"] == "malformed"
        assert (answers[-1].status, answers[-1].code) == (429, "quarantined")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert liar.post("work/request", {"max_tasks": 1}).code == "quarantined"
        operator = coordinator.tokens["operator"]
        status = coordinator.get(liar.path("status"), token=operator).json["status"]
        assert status == "quarantined"
        assert coordinator.post(liar.path("release"), token=operator).json == {"status": "active"}
        assert liar.post("work/request", {"max_tasks": 1}).status == 200


def test_a_failed_node_is_heard(open_one: RunningCoordinator) -> None:
    node = RemoteNode(open_one, "ill")
    failure = {"message": "The disk is full.", "hint": "Free some space.", "exit_code": 3}
    assert node.post("failed", failure).json == {"status": "ok"}
    assert [one.message for one in open_one.failures] == ["The disk is full."]


def test_a_drained_node_is_told_so_and_gets_no_work(open_one: RunningCoordinator) -> None:
    node = RemoteNode(open_one, "drained")
    assert open_one.post(node.path("drain")).json == {"status": "draining"}
    beat = {"status": "active", "current_load": 0, "total_crawled": 0}
    assert node.post("heartbeat", beat).json["state"] == "draining"
    work = node.post("work/request", {"max_tasks": 1}).json
    assert (work["state"], work["leases"]) == ("draining", [])
    assert open_one.post("/api/v1/nodes/nobody/drain").code == "no_such_node"


def test_a_crawl_has_stopped_when_its_nodes_have_left_also_one_that_was_drained() -> None:
    with RunningCoordinator() as coordinator:
        coordinator.enqueue("http://stop.example/")
        node = RemoteNode(coordinator, "n1")
        taken = node.take()
        coordinator.post(node.path("drain"))
        coordinator.post("/api/v1/crawl/stop")
        wait_until(lambda: stats(coordinator)["nodes"] == {"draining": 1}, WAIT_S, "the order in the figures")
        assert state_of(stats(coordinator)) == "draining", "a node still fetches"
        assert coordinator.get("/api/v1/why-idle").json["reasons"][0]["code"] == "draining"
        node.send(results_body(taken))
        coordinator.ask("DELETE", node.path())
        wait_until(lambda: state_of(stats(coordinator)) == "stopped", WAIT_S, "the crawl to stop")
        assert coordinator.get("/api/v1/why-idle").json["reasons"][0]["code"] == "stopped"


def stats(coordinator: RunningCoordinator) -> dict[str, Any]:
    found: dict[str, Any] = coordinator.get("/api/v1/stats").json
    return found


def test_the_document_is_served_and_lists_every_call(open_one: RunningCoordinator) -> None:
    document = open_one.get("/api/v1/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert {"get", "delete"} & set(document["paths"]["/api/v1/nodes/{node_id}"])
    assert json.dumps(document).count("\\\\Z") == 0
