"""Every call of the API with every kind of token: the table of permissions, as a stranger would try it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drumlin.access.tokens import ROLES, Permission, Role, revoke_token
from drumlin.api.routing import Route
from tests.harness.coordinators import Answer, RemoteNode, RunningCoordinator

NODE = "matrix"
NOBODY = "nobody"
DAMAGED = "damaged"
VALUES = {"node_id": NODE, "bundle_id": "b1", "host": "a.example"}


class Matrix:
    """A coordinator, and a token of every kind."""

    def __init__(self, coordinator: RunningCoordinator) -> None:
        self.coordinator = coordinator
        node = RemoteNode(coordinator, NODE)
        operator = coordinator.tokens[Role.OPERATOR]
        self.tokens = {**coordinator.tokens, Role.NODE: node.token, NOBODY: "", DAMAGED: f"{operator[:-1]}?"}
        self.routes: list[Route] = coordinator.app._router.routes

    def ask(self, route: Route, sender: str) -> Answer:
        """The call with a message that makes no sense: permissions are checked first."""
        path = route.path.format_map(VALUES)
        if route.path == "/v1/fetch/next":
            path += f"?workerId={NODE}"
        message = (
            {"node_id": NODE, "capacity": 1, "instance": f"the one {NODE}"}
            if route.permission is Permission.JOIN
            else None
        )
        return self.coordinator.ask(route.method, path, message, token=self.tokens[sender])


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    with RunningCoordinator(controlled=True) as coordinator:
        yield Matrix(coordinator)


def test_every_call_refuses_those_without_a_valid_token(matrix: Matrix) -> None:
    for route in matrix.routes:
        if route.permission is not None:
            assert matrix.ask(route, NOBODY).code == "no_token", route.path
            refused = matrix.ask(route, DAMAGED)
            assert (refused.status, refused.code) == (401, "invalid_token"), route.path
            assert refused.headers["www-authenticate"] == "Bearer"


def test_who_has_no_token_is_not_told_what_is_wrong_with_the_rest(matrix: Matrix) -> None:
    for route in matrix.routes:
        if route.permission is not None and route.method == "POST":
            refused = matrix.coordinator.ask("POST", route.path.format_map(VALUES), {"nonsense": []}, token="")
            assert (refused.status, refused.code) == (401, "no_token"), route.path


@pytest.mark.parametrize("role", list(Role))
def test_every_call_is_for_the_roles_of_its_permission_and_no_other(matrix: Matrix, role: Role) -> None:
    for route in matrix.routes:
        # Leaving would remove the node, so this call is left out.
        if route.permission is None or route.method == "DELETE":
            continue
        answer = matrix.ask(route, role)
        allowed = role in ROLES[route.permission]
        # A sender with permission may only be refused because of the rest of the request.
        denied = answer.status == 403 or (answer.status == 401 and answer.code != "signature_missing")
        assert denied != allowed, f"{role}: {route.method} {route.path}: {answer.status} {answer.body[:200]!r}"


def test_health_the_document_and_the_page_are_open_to_all(matrix: Matrix) -> None:
    open_paths = {route.path for route in matrix.routes if route.permission is None}
    files = {path for path in open_paths if path.startswith("/ui/")}
    assert open_paths - files == {"/healthz", "/readyz", "/api/v1/openapi.json", "/", "/session"}
    assert all(matrix.coordinator.get(path).status == 200 for path in open_paths)


def test_every_change_by_a_person_is_named_for_the_audit_log(matrix: Matrix) -> None:
    for route in matrix.routes:
        if route.permission is Permission.OPERATE:
            assert route.writes, route.path


def test_changes_and_failed_attempts_are_in_the_audit_log_and_secrets_are_not(matrix: Matrix) -> None:
    coordinator, operator = matrix.coordinator, matrix.tokens[Role.OPERATOR]
    coordinator.post("/api/v1/crawl/pause", token=operator)
    coordinator.post("/api/v1/crawl/resume", token=operator)
    coordinator.post("/api/v1/nodes/nobody-at-all/drain", token=operator)
    coordinator.post("/v1/frontier/enqueue", {"url": "http://audited.example/"}, token=operator)
    log = coordinator.get("/api/v1/audit?limit=4", token=matrix.tokens[Role.VIEWER])
    entries = log.json["entries"]
    assert [(entry["action"], entry["outcome"]) for entry in entries] == [
        ("url.enqueue", "done"),
        ("node.drain", "no_such_node"),
        ("crawl.resume", "done"),
        ("crawl.pause", "done"),
    ]
    assert {(entry["role"], entry["name"], entry["address"]) for entry in entries} == {
        ("operator", "a operator", "127.0.0.1")
    }
    assert "http://audited.example/" in entries[0]["target"]
    assert not any(token.encode() in log.body for token in matrix.tokens.values() if token)


def test_a_node_may_enqueue_and_work_for_itself_alone(matrix: Matrix) -> None:
    coordinator, node = matrix.coordinator, matrix.tokens[Role.NODE]
    wanted = {"url": "http://by-node.example/more"}
    assert coordinator.post("/v1/frontier/enqueue", wanted, token=node).status == 403, "a node cannot widen the scope"
    coordinator.enqueue("http://by-node.example/")
    assert coordinator.post("/v1/frontier/enqueue", wanted, token=node).status == 202
    assert coordinator.get(f"/v1/fetch/next?workerId={NODE}", token=node).status in (200, 204)
    assert coordinator.get("/v1/fetch/next?workerId=somebody-else", token=node).code == "other_node"
    result = {"url": "http://x.example/", "statusCode": 200, "contentSha256": "", "fetchedAt": 0, "links": []}
    assert coordinator.post("/v1/fetch/result", result | {"workerId": "else"}, token=node).code == "other_node"
    assert coordinator.post("/v1/fetch/result", result, token=matrix.tokens[Role.VIEWER]).code == "wrong_role"


def test_a_revoked_token_is_refused(matrix: Matrix) -> None:
    coordinator = matrix.coordinator
    engine, access = coordinator.dispatcher.engine, coordinator.access
    token = coordinator.do(access.issue(engine, Role.VIEWER, "a guest", 0.0))
    assert coordinator.get("/api/v1/stats", token=token).status == 200
    assert coordinator.do(revoke_token(engine, token.split("_")[2], 1.0))
    coordinator.do(access.refresh(engine))
    assert coordinator.get("/api/v1/stats", token=token).code == "token_revoked"
