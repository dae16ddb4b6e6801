"""Results of a simple worker that were accepted are in the store, once, although the coordinator was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.crawls import wait_until
from tests.harness.outputs import query
from tests.harness.redis import redis_server, url_of
from tests.harness.standing import Standing, standing

PAGES = 5
SEEN_WITHIN_S = 60.0
WAITS = ("--no-finish", "--delay", "0")


def take(coordinator: Standing, url: str) -> dict[str, Any]:
    coordinator.remote.post("/v1/frontier/enqueue", {"url": url})
    given: dict[str, Any] = {}

    def got_it() -> bool:
        given.update(coordinator.remote.get("/v1/fetch/next", workerId="me"))
        return bool(given)

    wait_until(got_it, SEEN_WITHIN_S, "a URL to fetch")
    assert given["url"] == url
    return given


def result(given: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "url": given["url"],
        "statusCode": 200,
        "fetchedAt": "2026-11-16T09:00:00Z",
        "textDataUrl": f"data:,{text}",
        "workerId": "me",
        "assignmentId": given["assignmentId"],
    }


def texts(store: Path) -> list[str]:
    return [text for (text,) in query(store, "SELECT text FROM {pages} ORDER BY text")]


def is_visible(store: Path) -> bool:
    return any((store / "tables" / "pages").glob("*.parquet"))


@pytest.mark.timeout(300)
def test_a_coordinator_killed_after_each_answer_has_stored_all_once(tmp_path: Path) -> None:
    with standing(tmp_path, *WAITS) as coordinator:
        for number in range(PAGES):
            said = result(take(coordinator, f"http://h{number}.example/"), f"text {number}")
            coordinator.remote.post("/v1/fetch/result", said)
            coordinator.kill()
            coordinator.start()
            coordinator.remote.post("/v1/fetch/result", said)
            assert texts(coordinator.store) == [f"text {one}" for one in range(number + 1)], "it was stored before"
    assert not list(coordinator.store.rglob("*.kept"))


@pytest.mark.timeout(300)
def test_what_a_killed_coordinator_took_is_seen_through_another_and_a_result_sent_to_both_once(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with redis_server(tmp_path / "redis") as redis:
        shared = ("--engine", url_of(redis, namespace="told"), "--store", str(store), *WAITS)
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        with standing(tmp_path / "a", *shared) as first, standing(tmp_path / "b", *shared) as second:
            said = [result(take(first, f"http://h{number}.example/"), f"text {number}") for number in range(PAGES)]
            for one in said:
                first.remote.post("/v1/fetch/result", one)
            first.kill()
            for one in said:
                second.remote.post("/v1/fetch/result", one)
            wait_until(lambda: is_visible(store), SEEN_WITHIN_S, "the pages of the killed coordinator")
            assert texts(store) == [f"text {number}" for number in range(PAGES)]
            story = second.remote.get("/api/v1/urls", url="http://h0.example/")
            assert (story["state"], [one["node_id"] for one in story["fetches"]]) == ("done", ["me"])
            last = result(take(second, "http://last.example/"), "the last")
            second.remote.post("/v1/fetch/result", last)
            wait_until(lambda: len(texts(store)) > PAGES, SEEN_WITHIN_S, "a page that came alone")
            assert texts(store)[PAGES:] == ["the last"]
