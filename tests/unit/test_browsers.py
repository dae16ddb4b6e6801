"""Requests that web pages have a browser send to a coordinator without tokens."""

from __future__ import annotations

import pytest

from drumlin.api.browsers import refuse_pages
from drumlin.http.refusal import Refused
from tests.harness.coordinators import RunningCoordinator

HERE = "127.0.0.1:8700"
ENDPOINT = "http://crawl.example:8700"


def judged(sender: str = "127.0.0.1", **headers: str) -> str:
    """The code of the refusal; empty if the request passes."""
    try:
        refuse_pages(sender, {name.encode(): value.encode() for name, value in headers.items()}, ENDPOINT)
    except Refused as refused:
        return refused.code
    return ""


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1:87000", ""])
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    assert judged(host=HERE, origin=origin) == "foreign_page"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8700", "127.0.0.1.evil.example", "[::1", "localhost.a"])
def test_a_name_whose_address_was_changed_to_ours_is_refused(host: str) -> None:
    assert judged(host=host, origin=f"http://{host}") == "foreign_name"


@pytest.mark.parametrize("host", [HERE, "[::1]:8700", "localhost", "LOCALHOST:8700", "crawl.example:8700", ""])
def test_programs_and_pages_of_our_own_pass(host: str) -> None:
    assert judged(host=host) == ""
    assert judged(host=host, origin=f"http://{host}") == ""


@pytest.mark.parametrize("sender", ["", "192.0.2.7"])
def test_who_is_no_browser_of_this_machine_passes(sender: str) -> None:
    assert judged(sender, host="coordinator.internal", origin="https://evil.example") == ""


def test_a_page_cannot_stop_a_crawl_and_without_tokens_it_is_told_so() -> None:
    page = {"Origin": "https://evil.example"}
    with RunningCoordinator() as coordinator:
        assert coordinator.post("/api/v1/crawl/stop", headers=page).code == "foreign_page"
        assert coordinator.get("/api/v1/crawl", headers={"Host": "evil.example"}).code == "foreign_name"
        assert coordinator.get("/api/v1/crawl").json["state"] == "running"
        assert coordinator.get("/healthz", headers=page).status == 200
    with RunningCoordinator(controlled=True) as coordinator:
        assert coordinator.post("/api/v1/crawl/stop", headers=page).code == "no_token"
