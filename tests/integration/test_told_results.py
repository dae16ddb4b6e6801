"""Results of nodes and workers without a store are stored by the coordinator that accepts them."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.coordinators import Answer, RemoteNode, RunningCoordinator, result_of
from tests.harness.outputs import (
    check_index_matches_tables,
    check_no_leftovers,
    check_rows_lead_to_records,
    check_warcs,
    query,
)

T = 1_790_000_000.0
PAGE = (
    "<html lang=de><title>Ein Titel</title><body><p>Dies ist der Text einer Seite, die jemand anders geholt hat.</p>"
    "<a href='/next'>weiter</a><a href='/never' rel=nofollow>nie</a></body></html>"
)
DIGEST = hashlib.sha256(PAGE.encode()).hexdigest()
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nServer: old\r\n\r\n"
ROW = "SELECT url, text, fetch_status, node, content_digest, body_bytes, warc_filename, text_data_url FROM {pages}"


def take(coordinator: RunningCoordinator, url: str, worker: str = "w1") -> dict[str, Any]:
    coordinator.enqueue(url)
    given: dict[str, Any] = coordinator.get(f"/v1/fetch/next?workerId={worker}").json
    assert given["url"] == url
    return given


def give(coordinator: RunningCoordinator, url: str, **more: Any) -> Answer:
    said = {"url": url, "statusCode": 200, "contentSha256": None, "fetchedAt": T, "links": None, "workerId": "w1"}
    return coordinator.post("/v1/fetch/result", said | more)


def send(node: RemoteNode, results: list[dict[str, Any]], **more: Any) -> Answer:
    return node.send(json.dumps({"results": results} | more).encode())


def test_a_page_sent_by_a_simple_worker_is_a_row_with_its_text(tmp_path: Path) -> None:
    url = "http://a.example/page"
    with RunningCoordinator(store=tmp_path) as running:
        assert take(running, url)["keepsResults"] is True
        assert (
            give(running, url, body=PAGE, contentType="text/html", contentSha256=f"sha256:{DIGEST.upper()}").status
            == 204
        )
        assert running.get("/api/v1/urls?url=http://a.example/next").json["state"] == "queued"
        assert running.get("/api/v1/urls?url=http://a.example/never").status == 404
    [(text, *row)] = query(
        tmp_path, "SELECT text, title, content_languages, node, content_digest, body_bytes FROM {pages}"
    )
    assert text.startswith("Dies ist der Text einer Seite, die jemand anders geholt hat.")
    assert row == ["Ein Titel", "deu", "w1", f"sha256:{DIGEST}", len(PAGE)]
    assert query(tmp_path, "SELECT target FROM {links} ORDER BY target") == [
        ("http://a.example/never",),
        ("http://a.example/next",),
    ]
    assert query(tmp_path, "SELECT url, outcome, fetch_status, node, attempt FROM {fetches}") == [
        (url, "fetched", 200, "w1", 1)
    ]
    assert query(tmp_path, "SELECT warc_filename FROM {pages}") == [(None,)], "without headers no record is honest"
    check_no_leftovers(tmp_path)


@pytest.mark.parametrize(
    ("text_url", "text"),
    [
        ("data:text/plain,Gr%C3%BC%C3%9Fe", "Grüße"),
        ("data:text/plain;charset=iso-8859-1,Gr%FC%DFe", "Grüße"),
        ("data:;base64," + base64.b64encode("Grüße".encode()).decode(), "Grüße"),
        ("http://169.254.169.254/latest/", None),
        ("file:///etc/passwd", None),
        (None, None),
    ],
)
def test_the_text_of_a_data_url_is_the_rows_and_any_other_is_only_written_down(
    tmp_path: Path, text_url: str | None, text: str | None
) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue("http://b.example/")
        node = RemoteNode(running, "batch")
        assert node.registered["keeps_results"] is True
        [one] = node.take()
        told = result_of(one, content_hash=None, text_data_url=text_url, crawl_time="2026-09-21T14:13:20Z")
        assert send(node, [told]).json["accepted_count"] == 1
    reference = None if text is not None else text_url
    row = ("http://b.example/", text, 200, "batch", None, 1_000, None, reference)
    assert query(tmp_path, ROW) == [row]
    assert query(tmp_path, "SELECT epoch(fetch_time)::DOUBLE FROM {pages}") == [(T,)]


def test_a_page_with_its_head_becomes_a_warc_record(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://c.example/")
        body = base64.b64encode(PAGE.encode()).decode()
        assert give(running, "http://c.example/", bodyBase64=body, responseHead=HEAD).status == 204
    assert check_rows_lead_to_records(tmp_path) == 1
    check_warcs(tmp_path)
    check_no_leftovers(tmp_path)


@pytest.mark.parametrize(
    ("declared", "text", "records"),
    [
        ("iso-8859-1", "Grüße ☃", 0),
        ("utf-8", "Grüße ☃", 1),
        ("iso-8859-1", "Gruesse", 1),
        ("", "<meta charset=shift_jis>日本", 0),
        ("", "日本", 1),
    ],
)
def test_a_body_that_comes_as_a_text_is_not_decoded_again(
    tmp_path: Path, declared: str, text: str, records: int
) -> None:
    head = HEAD.replace("; charset=utf-8", f"; charset={declared}" if declared else "")
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://c.example/")
        assert (
            give(running, "http://c.example/", body=f"<title>{text}</title><p>{text}", responseHead=head).status == 204
        )
    [(title, stored, name)] = query(tmp_path, "SELECT title, text, warc_filename FROM {pages}")
    words = text.rpartition(">")[2]
    assert (title.rpartition(">")[2], stored) == (words, words)
    assert len([name] if name else []) == records, "a record holds what the site sent, or there is none"


@pytest.mark.parametrize("more", [{"bodyBase64": ""}, {}, {"redirectTo": "/new"}])
def test_a_redirect_is_followed_to_where_its_head_or_the_worker_says(tmp_path: Path, more: dict[str, Any]) -> None:
    url, target = "http://d.example/old", "http://d.example/new"
    location = "" if "redirectTo" in more else "Location: /new\r\n"
    head = f"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n{location}\r\n"
    with RunningCoordinator(store=tmp_path) as running:
        take(running, url)
        assert give(running, url, statusCode=301, responseHead=head, **more).status == 204
        assert running.get(f"/api/v1/urls?url={target}").json["state"] == "queued"
    assert query(tmp_path, "SELECT outcome, redirect_to FROM {fetches}") == [("redirected", target)]
    if "bodyBase64" in more:
        check_warcs(tmp_path)


def test_the_pause_that_a_head_asks_for_is_kept_though_the_worker_does_not_repeat_it(tmp_path: Path) -> None:
    url = "http://g.example/"
    with RunningCoordinator(store=tmp_path) as running:
        take(running, url)
        running.enqueue("http://g.example/other")
        head = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 600\r\n\r\n"
        assert give(running, url, statusCode=429, responseHead=head).status == 204
        assert running.get("/v1/fetch/next?workerId=w1").status == 204
        host = running.get("/api/v1/hosts/g.example").json
        story = running.get(f"/api/v1/urls?url={url}").json
    assert host["next_contact"] > time.time() + 500
    assert story["state"] == "scheduled"


def test_a_redirect_in_a_batch_may_be_relative(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue("http://e.example/a/old")
        node = RemoteNode(running, "batch")
        [one] = node.take()
        told = result_of(one, content_hash=None, status_code=302, redirect_to="new")
        assert send(node, [told]).json["accepted_count"] == 1
        assert running.get("/api/v1/urls?url=http://e.example/a/new").json["state"] == "queued"


def test_a_304_with_its_head_becomes_a_warc_record(tmp_path: Path) -> None:
    url = "http://f.example/"
    with RunningCoordinator(store=tmp_path) as running:
        take(running, url)
        head = 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'
        assert give(running, url, statusCode=304, responseHead=head).status == 204
    check_warcs(tmp_path)
    [(record_id,)] = query(tmp_path, "SELECT record_id FROM {fetches}")
    [path] = (tmp_path / "warc").glob("*.cdxj")
    assert (path.read_text().count("\n"), record_id.startswith("urn:uuid:")) == (1, True)
    assert query(tmp_path, "SELECT url FROM {pages}") == []


def test_a_refusal_with_its_head_and_body_becomes_a_warc_record(tmp_path: Path) -> None:
    url = "http://f.example/"
    with RunningCoordinator(store=tmp_path) as running:
        take(running, url)
        head = "HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\n\r\n"
        assert give(running, url, statusCode=503, responseHead=head, body="<a href=/x>Not now").status == 204
        assert running.get("/api/v1/urls?url=http://f.example/x").status == 404
    check_warcs(tmp_path)
    check_index_matches_tables(tmp_path)
    rows = query(tmp_path, "SELECT outcome, kind, fetch_status, record_id <> '' FROM {fetches}")
    assert rows == [("failed", "http_5xx", 503, True)]
    assert query(tmp_path, "SELECT url FROM {pages}") == []


def test_a_status_beyond_the_standard_may_be_told(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://h.example/")
        assert give(running, "http://h.example/", statusCode=999).status == 204
    assert query(tmp_path, "SELECT outcome, fetch_status FROM {fetches}") == [("failed", 999)]


@pytest.mark.parametrize(
    "more",
    [
        {"body": PAGE, "contentSha256": "0" * 64},
        {"body": PAGE, "bodyBase64": "AAAA"},
        {"body": PAGE, "responseHead": HEAD.replace("200", "404")},
        {"body": PAGE, "responseHead": HEAD.replace("Server: old", "Content-Encoding: gzip")},
        {"contentSha256": "sha1:abc"},
        {"textDataUrl": "data:;base64,!"},
        {"fetchedAt": "yesterday"},
        {"statusCode": 1_000},
        {"statusCode": None, "body": PAGE},
        {"statusCode": None, "textDataUrl": "data:,hello"},
    ],
)
def test_what_contradicts_itself_is_422_and_changes_nothing(tmp_path: Path, more: dict[str, Any]) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://d.example/")
        assert give(running, "http://d.example/", **more).status == 422
        assert running.get("/api/v1/urls?url=http://d.example/").json["state"] == "leased"
        assert give(running, "http://d.example/").status == 204
    assert len(query(tmp_path, ROW)) == 1


def test_a_result_sent_again_is_stored_once(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://e.example/1")
        assert [give(running, "http://e.example/1", body="Plain.").status for _ in range(3)] == [204] * 3
        running.enqueue("http://f.example/1", "http://f.example/2")
        node = RemoteNode(running, "batch")
        batch = [result_of(one) for one in node.take()]
        answers = [send(node, batch).json for _ in range(3)]
        assert answers == [answers[0]] * 3
        assert answers[0]["accepted_count"] == 2
    assert query(tmp_path, "SELECT url, count(*) FROM {pages} GROUP BY url ORDER BY url") == [
        ("http://e.example/1", 1),
        ("http://f.example/1", 1),
        ("http://f.example/2", 1),
    ]
    assert query(tmp_path, "SELECT count(*) FROM {fetches}") == [(3,)]


def test_a_row_says_where_its_url_was_found(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://r.example/")
        give(running, "http://r.example/", links=["/one", "/two"])
        node = RemoteNode(running, "batch")
        assert send(node, [result_of(one, size=None) for one in node.take()]).json["accepted_count"] == 2
    assert query(tmp_path, "SELECT url, found_on, depth FROM {pages} ORDER BY url") == [
        ("http://r.example/", None, 0),
        ("http://r.example/one", "http://r.example/", 1),
        ("http://r.example/two", "http://r.example/", 1),
    ]


def test_what_a_node_has_stored_itself_is_not_stored_again(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue("http://g.example/")
        node = RemoteNode(running, "own")
        assert send(node, [result_of(one) for one in node.take()], stored=True).json["accepted_count"] == 1
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_node_that_stores_itself_may_write_its_results_in_any_form(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue("http://own.example/1", "http://own.example/2")
        node = RemoteNode(running, "own")
        forms = ["ab" * 32, "sha256:" + "AB" * 32]
        told = [
            result_of(one, content_hash=form, crawl_time="2026-09-21T14:13:20Z")
            for one, form in zip(node.take(), forms, strict=True)
        ]
        answer = send(node, told, stored=True).json
        assert (answer["accepted_count"], len(answer["duplicates"])) == (2, 1)
    assert not list(tmp_path.rglob("*.parquet"))


def test_without_a_store_results_settle_and_who_asks_is_told(tmp_path: Path) -> None:
    with RunningCoordinator() as running:
        assert take(running, "http://h.example/")["keepsResults"] is False
        assert give(running, "http://h.example/", body=PAGE, contentType="text/html").status == 204
        assert running.get("/api/v1/urls?url=http://h.example/").json["state"] == "done"
        assert running.get("/api/v1/urls?url=http://h.example/next").json["state"] == "queued"
        assert RemoteNode(running, "n").registered["keeps_results"] is False


def test_failures_and_denials_are_in_the_fetch_log(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        take(running, "http://i.example/")
        assert give(running, "http://i.example/", statusCode=0, error="no route to host").status == 204
        take(running, "http://j.example/", "w1")
        assert give(running, "http://j.example/", statusCode=0, outcome="denied").status == 204
    assert query(tmp_path, "SELECT url, outcome, kind, error FROM {fetches} ORDER BY url") == [
        ("http://i.example/", "failed", "connect", "no route to host"),
        ("http://j.example/", "denied", None, None),
    ]
    assert query(tmp_path, "SELECT count(*) FROM {pages}") == [(0,)]


def test_rejected_results_are_stored_nowhere(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path) as running:
        node = RemoteNode(running, "liar")
        made_up = {"assignment_id": "liar:x.0.0/1.0.0", "url": "http://k.example/"}
        assert send(node, [result_of(made_up)]).json["rejected_count"] == 1
    assert not list(tmp_path.rglob("*.parquet"))
    check_no_leftovers(tmp_path)


def test_a_told_hash_without_a_body_makes_no_page_a_duplicate(tmp_path: Path) -> None:
    """Otherwise pages of honest nodes would be called duplicates of a page that nobody has seen."""
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue("http://l.example/1", "http://l.example/2")
        node = RemoteNode(running, "batch")
        for one in node.take():
            send(node, [result_of(one, content_hash="ab" * 32)])
    assert query(tmp_path, "SELECT count(*) FROM {pages} WHERE duplicate_of IS NOT NULL") == [(0,)]


def story_of(coordinator: RunningCoordinator, url: str) -> dict[str, Any]:
    story: dict[str, Any] = coordinator.get(f"/api/v1/urls?url={url}").json
    return story


def test_the_story_of_a_told_page_says_by_whom_when_and_where_it_is(tmp_path: Path) -> None:
    url = "http://m.example/dir/page?q=1"
    with RunningCoordinator(store=tmp_path) as running:
        take(running, url)
        assert story_of(running, url)["fetches"] == []
        give(running, url, body=PAGE, responseHead=HEAD)
        story = story_of(running, url)
        assert (story["state"], story["status"], story["path"]) == ("done", "done", "/dir/page?q=1")
        [fetch] = story["fetches"]
        said = (fetch["node_id"], fetch["crawl_time"], fetch["status_code"], fetch["outcome"], fetch["page"])
        assert said == ("w1", T, 200, "fetched", True)
        assert story["last_crawled"] == T
        assert (
            "Fetched by w1 at 2026-09-21 14:13:20 UTC with status 200; its row is in tables/pages/coordinator-"
            in "\n".join(story["story"])
        )
    with RunningCoordinator(store=tmp_path) as another:
        another.enqueue(url)
        assert another.get("/v1/fetch/next?workerId=w2").json["url"] == url
        give(another, url, statusCode=404, workerId="w2", fetchedAt=T + 60)
        found = story_of(another, url)["fetches"]
    assert [(one["node_id"], one["status_code"]) for one in found] == [("w2", 404), ("w1", 200)]
    assert found[1] == fetch, "the tables say what was said before they were complete"
    assert (tmp_path / "tables" / "pages" / f"{fetch['segment']}.parquet").exists()
    assert (tmp_path / "warc" / fetch["warc_filename"]).exists()


def test_the_story_without_a_store_or_a_row_says_so(tmp_path: Path) -> None:
    url = "http://n.example/"
    with RunningCoordinator() as running:
        take(running, url)
        give(running, url)
        assert "This coordinator has no store" in story_of(running, url)["story"][-1]
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue(url)
        node = RemoteNode(running, "own")
        send(node, [result_of(one) for one in node.take()], stored=True)
        assert story_of(running, url)["story"][-1].startswith("No table and no journal in the store has a row")


def test_a_failure_is_in_the_story_before_the_next_attempt(tmp_path: Path) -> None:
    url = "http://o.example/"
    with RunningCoordinator(store=tmp_path) as running:
        take(running, url)
        give(running, url, statusCode=503)
        story = story_of(running, url)
        assert (story["state"], story["fetches"][0]["kind"]) == ("scheduled", "http_5xx")
        assert story["next_fetch_after"] == story["retry_at"]


def test_a_flat_assignment_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    with RunningCoordinator() as running:
        running.enqueue("http://www.p.example/")
        [one] = RemoteNode(running, "n1").take()
    named = {"assignment_id", "lease_id", "node_id", "url", "domain", "priority", "assigned_at", "deadline", "status"}
    assert named | {"retry_count"} <= set(one)
    assert (one["node_id"], one["domain"], one["status"]) == ("n1", "p.example", "in_progress")
    assert one["assignment_id"].startswith(one["lease_id"] + "/")


@pytest.mark.parametrize("missing", [None, "absent"])
def test_what_is_unknown_may_be_null_or_left_out(tmp_path: Path, missing: str | None) -> None:
    unknown = ("status_code", "content_hash", "links", "crawl_time", "size", "sketch", "error", "outcome", "etag")
    with RunningCoordinator(store=tmp_path) as running:
        running.enqueue("http://q.example/")
        node = RemoteNode(running, "n1")
        [one] = node.take()
        told = {"assignment_id": one["assignment_id"], "url": one["url"]}
        if missing is None:
            told |= dict.fromkeys(unknown)
        assert send(node, [told]).json["accepted_count"] == 1
        assert story_of(running, "http://q.example/")["state"] == "scheduled", "status 0 is no answer"
