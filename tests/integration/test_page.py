"""The dashboard of a coordinator: its files, logging in, and what a browser's cookie may and may not do."""

from __future__ import annotations

import http.client
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.access.limits import REQUESTS_BURST
from drumlin.access.tokens import Role, revoke_token
from drumlin.api.calls import page
from drumlin.ui import page_files
from tests.harness.coordinators import Answer, RunningCoordinator
from tests.harness.crawls import wait_until

REVOKED_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def coordinator() -> Iterator[RunningCoordinator]:
    with RunningCoordinator(controlled=True) as running:
        yield running


def own(coordinator: RunningCoordinator, **more: str) -> dict[str, str]:
    """The headers that our own page sends."""
    return {"Origin": coordinator.url, "X-Drumlin-Page": "1", **more}


def log_in(coordinator: RunningCoordinator, role: str) -> Answer:
    return coordinator.post("/session", {"token": coordinator.tokens[role]}, headers=own(coordinator))


def cookie(coordinator: RunningCoordinator, role: str) -> str:
    return log_in(coordinator, role).headers["set-cookie"].partition(";")[0]


# The files


def test_the_page_runs_nothing_but_its_own_files(coordinator: RunningCoordinator) -> None:
    answer = coordinator.get("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_every_file_is_served_and_names_others_relatively(coordinator: RunningCoordinator) -> None:
    names = [file.name for file in page_files() if file.name != "index.html"]
    assert "app.js" in names
    assert "screens/overview.js" in names
    for name in names:
        answer = coordinator.get(f"/ui/{name}")
        assert answer.status == 200, name
        assert answer.headers["content-security-policy"], name
    page = coordinator.get("/").body.decode()
    assert re.findall(r'(?:src|href)="(?!ui/|#)', page) == [], "absolute addresses would not work behind a prefix"
    for name in names:
        text = coordinator.get(f"/ui/{name}").body.decode()
        assert re.findall(r'from "(?!\./|\.\./)', text) == [], name
        assert "innerHTML" not in text, "text of the web must never be read as markup"
        assert "insertAdjacentHTML" not in text
        assert re.findall(r"https?://(?!www\.w3\.org/)[\w.-]+\.\w+/", text.replace("https://example.org/", "")) == [], (
            name
        )


def test_a_page_whose_files_an_upgrade_takes_away_is_still_that_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "static"
    files.mkdir()
    (files / "index.html").write_text("the page")
    (files / "old.js").write_text("a script")
    monkeypatch.setattr("drumlin.ui.FOLDER", files)
    page_files.cache_clear()
    try:
        with RunningCoordinator() as running:
            shutil.rmtree(files)
            assert [running.get(path).body for path in ("/", "/ui/old.js")] == [b"the page", b"a script"]
    finally:
        page_files.cache_clear()


def test_there_is_nothing_else_below_the_page(coordinator: RunningCoordinator) -> None:
    for path in ("/ui/", "/ui/../app.py", "/ui/%2e%2e/__init__.py", "/ui/screens", "/ui/nothing.js"):
        assert coordinator.get(path).status == 404


def test_a_foreign_name_gets_no_page(coordinator: RunningCoordinator) -> None:
    for path in ("/", "/ui/app.js", "/session"):
        assert coordinator.get(path, headers={"Host": "evil.test"}).code == "foreign_name"


# Logging in


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(coordinator: RunningCoordinator) -> None:
    answer = log_in(coordinator, Role.VIEWER)
    assert answer.json["role"] == "viewer"
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name.startswith(f"drumlin_{coordinator.dispatcher.crawl_id}=viewer.")
    assert {"HttpOnly", "SameSite=Strict"} <= set(attributes)
    assert not any(one.startswith("Path") for one in attributes), "so it also fits a prefix that we do not know"
    assert coordinator.tokens[Role.VIEWER] not in answer.headers["set-cookie"]


def test_a_browser_that_comes_back_learns_when_its_session_ends(coordinator: RunningCoordinator) -> None:
    opened = log_in(coordinator, Role.VIEWER)
    shown = opened.headers["set-cookie"].partition(";")[0]
    assert opened.json["expires"] > 0
    assert coordinator.get("/session", headers={"Cookie": shown}).json == opened.json


def test_who_has_not_logged_in_learns_nothing(coordinator: RunningCoordinator) -> None:
    answer = coordinator.get("/session")
    assert answer.status == 200
    assert answer.json == {
        "role": None,
        "log_in": "token",
        "expires": None,
        "crawl": "",
        "hosts": [],
        "seeds": 0,
        "running": True,
    }
    assert coordinator.get("/api/v1/stats").code == "no_token"


def test_what_is_no_token_opens_nothing(coordinator: RunningCoordinator) -> None:
    for token in ("", "nonsense", coordinator.tokens[Role.VIEWER] + "x"):
        answer = coordinator.post("/session", {"token": token}, headers=own(coordinator))
        assert answer.code == "invalid_token"
        assert "set-cookie" not in answer.headers
    joining = coordinator.post("/session", {"token": coordinator.tokens[Role.JOIN]}, headers=own(coordinator))
    assert joining.code == "wrong_role"
    assert coordinator.post("/session", {"code": "abc"}, headers=own(coordinator)).code == "code_used"


def test_logging_in_and_out_has_a_pace(coordinator: RunningCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, access = coordinator.dispatcher.engine, coordinator.access
    token, other = (coordinator.do(access.issue(engine, Role.VIEWER, "", 0.0)) for _ in range(2))
    monkeypatch.setattr(page, "LOG_IN_COST", REQUESTS_BURST - 1)
    answer = coordinator.post("/session", {"token": token}, headers=own(coordinator))
    shown = answer.headers["set-cookie"].partition(";")[0]
    for method, message, headers in (("POST", {"token": token}, {}), ("DELETE", None, {"Cookie": shown})):
        refused = coordinator.ask(method, "/session", message, headers=own(coordinator, **headers))
        assert (refused.status, refused.code) == (429, "too_fast")
        assert int(refused.headers["retry-after"]) >= 1
        assert "set-cookie" not in refused.headers
    assert coordinator.post("/session", {"token": other}, headers=own(coordinator)).status == 200


def test_logging_out_takes_the_cookie_away(coordinator: RunningCoordinator) -> None:
    shown = cookie(coordinator, Role.VIEWER)
    answer = coordinator.ask("DELETE", "/session", headers=own(coordinator, Cookie=shown))
    assert answer.json["role"] is None
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_a_copy_of_the_cookie_is_worth_nothing_after_logging_out_and_another_session_goes_on(
    coordinator: RunningCoordinator,
) -> None:
    left, other = cookie(coordinator, Role.VIEWER), cookie(coordinator, Role.VIEWER)
    assert coordinator.get("/api/v1/stats", headers={"Cookie": left}).status == 200
    coordinator.ask("DELETE", "/session", headers=own(coordinator, Cookie=left))
    assert coordinator.get("/api/v1/stats", headers={"Cookie": left}).code == "invalid_token"
    assert coordinator.get("/session", headers={"Cookie": left}).json["role"] is None
    assert coordinator.get("/api/v1/stats", headers={"Cookie": other}).status == 200


def test_who_logs_in_is_in_the_audit_log(coordinator: RunningCoordinator) -> None:
    looks = cookie(coordinator, Role.VIEWER)
    entry = coordinator.get("/api/v1/audit", headers={"Cookie": looks}).json["entries"][0]
    told = (entry["action"], entry["name"], entry["role"], entry["target"], entry["outcome"], entry["address"])
    assert told == ("session.open", "a viewer", "viewer", "/session", "done", "127.0.0.1")


def test_a_cookie_that_another_page_added_does_not_shut_us_out(coordinator: RunningCoordinator) -> None:
    valid = cookie(coordinator, Role.VIEWER)
    tossed = f"{valid.partition('=')[0]}=garbage; {valid}"
    assert coordinator.get("/api/v1/stats", headers={"Cookie": tossed}).status == 200
    assert coordinator.get("/session", headers={"Cookie": tossed}).json["role"] == "viewer"
    coordinator.ask("DELETE", "/session", headers=own(coordinator, Cookie=tossed))
    assert coordinator.get("/api/v1/stats", headers={"Cookie": valid}).code == "invalid_token"


def test_a_log_in_is_short_and_no_room_is_kept_for_more(coordinator: RunningCoordinator) -> None:
    long = coordinator.post("/session", {"token": "a" * 2_000}, headers=own(coordinator))
    assert (long.status, long.code) == (413, "too_large")


# What a cookie may do


def test_a_viewers_cookie_looks_and_an_operators_steers(coordinator: RunningCoordinator) -> None:
    looks, steers = cookie(coordinator, Role.VIEWER), cookie(coordinator, Role.OPERATOR)
    answer = coordinator.get("/api/v1/stats", headers={"Cookie": looks})
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert coordinator.get("/session", headers={"Cookie": looks}).json["role"] == "viewer"
    assert coordinator.post("/api/v1/crawl/pause", headers=own(coordinator, Cookie=looks)).code == "wrong_role"
    assert coordinator.post("/api/v1/crawl/pause", headers=own(coordinator, Cookie=steers)).json["status"] == "paused"
    assert coordinator.post("/api/v1/crawl/resume", headers=own(coordinator, Cookie=steers)).status == 200
    entry = coordinator.get("/api/v1/audit", headers={"Cookie": looks}).json["entries"][0]
    assert (entry["action"], entry["name"]) == ("crawl.resume", "a operator")


@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Drumlin-Page": "1"}, {"X-Drumlin-Page": "1", "Origin": "http://evil.test"}, {"Origin": "OWN"}],
    ids=["nothing", "no origin", "another origin", "no header"],
)
def test_another_site_changes_nothing_with_our_cookie(coordinator: RunningCoordinator, headers: dict[str, str]) -> None:
    sent = {name: coordinator.url if value == "OWN" else value for name, value in headers.items()}
    sent["Cookie"] = cookie(coordinator, Role.OPERATOR)
    assert coordinator.post("/api/v1/crawl/pause", headers=sent).code == "foreign_page"
    assert coordinator.get("/api/v1/crawl", token=coordinator.tokens[Role.VIEWER]).json["state"] == "running"


def test_another_site_is_not_permitted_to_send_our_header(coordinator: RunningCoordinator) -> None:
    asks = {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"}
    answer = coordinator.ask("OPTIONS", "/api/v1/crawl/pause", headers=asks)
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_name_bent_to_our_address_does_nothing_with_a_cookie(coordinator: RunningCoordinator) -> None:
    bent = {"Cookie": cookie(coordinator, Role.VIEWER), "Host": "evil.test"}
    assert coordinator.get("/api/v1/stats", headers=bent).code == "foreign_name"


def test_a_cookie_does_nothing_that_nodes_do(coordinator: RunningCoordinator) -> None:
    headers = own(coordinator, Cookie=cookie(coordinator, Role.OPERATOR))
    assert coordinator.post("/api/v1/nodes/register", {"node_id": "n9"}, headers=headers).code == "no_token"
    assert coordinator.get("/v1/fetch/next?workerId=n9", headers=headers).code == "no_token"


def test_a_session_is_no_authorization(coordinator: RunningCoordinator) -> None:
    text = cookie(coordinator, Role.OPERATOR).partition("=")[2]
    for scheme in ("Session", "Bearer"):
        answer = coordinator.get("/api/v1/stats", headers={"Authorization": f"{scheme} {text}"})
        assert answer.status == 401


def test_revoking_a_token_ends_its_sessions_and_streams() -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        shown = cookie(coordinator, Role.VIEWER)
        connection = http.client.HTTPConnection("127.0.0.1", coordinator.port, timeout=REVOKED_WITHIN_S)
        connection.request("GET", "/api/v1/events", headers={"Cookie": shown, "Accept": "text/event-stream"})
        stream = connection.getresponse()
        assert stream.status == 200
        token_id = coordinator.tokens[Role.VIEWER].split("_")[2]
        coordinator.do(revoke_token(coordinator.dispatcher.engine, token_id, 1.0))
        refused = lambda: coordinator.get("/api/v1/stats", headers={"Cookie": shown}).status == 401  # noqa: E731
        wait_until(refused, REVOKED_WITHIN_S, "the session to end")
        assert b"event: stats" in stream.read(), "the stream has ended"
        connection.close()


def test_without_tokens_the_page_needs_no_log_in() -> None:
    with RunningCoordinator() as coordinator:
        assert coordinator.get("/session").json["role"] == "operator"
        worthless = {"Cookie": f"drumlin_{coordinator.dispatcher.crawl_id}=viewer.abc.1.abc.abc"}
        assert coordinator.get("/session", headers=worthless).json["expires"] is None
        assert coordinator.get("/").status == 200
        evil = {"Origin": "http://evil.test"}
        assert coordinator.post("/api/v1/crawl/pause", headers=evil).code == "foreign_page"


# What the page shows


def test_settings_say_their_value_and_where_it_comes_from(coordinator: RunningCoordinator) -> None:
    token = coordinator.tokens[Role.OPERATOR]
    change = coordinator.ask("PATCH", "/api/v1/crawl", {"pages_max": 5000}, token=token)
    assert change.status == 200
    found = {one["name"]: one for one in coordinator.get("/api/v1/settings", token=token).json["settings"]}
    assert found["pages_max"]["value"] == 5000
    assert found["pages_max"]["changeable"]
    assert found["retries_max"]["origin"] == "default"
    assert not found["user_agent"]["changeable"]


def test_causes_of_failures_are_told_in_words(coordinator: RunningCoordinator) -> None:
    found = coordinator.get("/api/v1/dead-letters/groups", token=coordinator.tokens[Role.VIEWER]).json
    assert found["groups"] == []
