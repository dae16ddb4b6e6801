"""Requests that web pages have a browser send to a coordinator without tokens."""

from __future__ import annotations

import pytest

from drumlin.api.browsers import (
    SESSIONS_MAX,
    check_name,
    check_own_page,
    comes_by_tls,
    own_names,
    refuse_pages,
    sessions_of,
)
from drumlin.http.refusal import Refused
from tests.harness.coordinators import RunningCoordinator

HERE = "127.0.0.1:8700"
ENDPOINT = "http://crawl.example:8700"


def judged(sender: str = "127.0.0.1", **headers: str) -> str:
    """The code of the refusal; empty if the request passes."""
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    try:
        refuse_pages(sender, sent, ENDPOINT)
    except Refused as refused:
        return refused.code
    return ""


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1:87000", ""])
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    assert judged(host=HERE, origin=origin) == "foreign_page"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_a_picture_or_a_link_on_a_page_of_another_site_is_refused_though_it_has_no_origin(site: str) -> None:
    assert judged(host=HERE, sec_fetch_site=site) == "foreign_page"


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_our_own_page_and_an_address_that_was_typed_pass(site: str) -> None:
    assert judged(host=HERE, sec_fetch_site=site) == ""


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
        picture = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert coordinator.get("/v1/fetch/next?workerId=evil", headers=picture).code == "foreign_page"
        assert coordinator.get("/api/v1/crawl").json["state"] == "running"
        assert coordinator.get("/healthz", headers=page).status == 200
    with RunningCoordinator(controlled=True) as coordinator:
        assert coordinator.post("/api/v1/crawl/stop", headers=page).code == "no_token"


# Browsers with a session

OWN = frozenset({"localhost", "crawl.test"})


@pytest.mark.parametrize(
    "host", ["crawl.test", "crawl.test:8700", "CRAWL.test", "localhost:1", "127.0.0.1:8700", "[::1]:8"]
)
def test_the_page_is_served_under_our_own_names_and_under_addresses(host: str) -> None:
    check_name({b"host": host.encode()}, OWN, addresses=True)


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8700", "crawl.test.evil.test", "", "[", "127.0.0.1.evil.test"]
)
def test_a_name_that_was_bent_to_our_address_is_refused(host: str) -> None:
    with pytest.raises(Refused) as refused:
        check_name({b"host": host.encode()}, OWN, addresses=True)
    assert refused.value.code == "foreign_name"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8701", "127.0.0.2:8700", "localhost:8700"])
def test_the_page_of_a_local_crawl_has_one_name_and_port(host: str) -> None:
    names = frozenset({"127.0.0.1:8700"})
    check_name({b"host": b"127.0.0.1:8700"}, names, addresses=False)
    with pytest.raises(Refused):
        check_name({b"host": host.encode()}, names, addresses=False)


def test_the_names_are_those_of_the_endpoint_and_of_the_machine() -> None:
    assert own_names("https://Crawl.test/prefix", "Machine7") == {"localhost", "crawl.test", "machine7"}


PAGE = {b"host": b"crawl.test", b"origin": b"https://crawl.test", b"x-drumlin-page": b"1"}


def test_our_own_page_may_change_things_also_behind_a_proxy() -> None:
    check_own_page("POST", PAGE, "")
    check_own_page("PATCH", {**PAGE, b"host": b"10.0.0.1:8700"}, "https://crawl.test")


@pytest.mark.parametrize(
    "changed",
    [
        {b"origin": b"https://evil.test"},
        {b"origin": b"null"},
        {b"origin": b"https://crawl.test:444"},
        {b"origin": b""},
        {b"x-drumlin-page": None},
        {b"origin": None},
    ],
    ids=str,
)
def test_a_change_from_elsewhere_is_refused(changed: dict[bytes, bytes | None]) -> None:
    headers = {name: value for name, value in {**PAGE, **changed}.items() if value is not None}
    check_own_page("GET", headers, "")
    with pytest.raises(Refused) as refused:
        check_own_page("DELETE", headers, "")
    assert refused.value.code == "foreign_page"


def test_a_proxy_that_drops_the_port_is_named_with_both_addresses() -> None:
    headers = {**PAGE, b"host": b"crawl.test", b"origin": b"https://crawl.test:8443"}
    with pytest.raises(Refused) as refused:
        check_own_page("POST", headers, "http://127.0.0.1:8700")
    assert "a page at crawl.test:8443, to crawl.test." in refused.value.message
    assert "$http_host" in refused.value.hint
    check_own_page("POST", headers | {b"host": b"crawl.test:8443"}, "http://127.0.0.1:8700")


def test_a_proxy_that_takes_tls_off_is_known_by_the_name_that_the_browser_used() -> None:
    assert comes_by_tls({b"host": b"crawl.test"}, "https://crawl.test")
    assert not comes_by_tls({b"host": b"127.0.0.1:8700"}, "https://crawl.test")
    assert not comes_by_tls({b"host": b"crawl.test"}, "http://crawl.test")


def test_the_session_is_that_of_this_crawls_cookie() -> None:
    headers = {b"cookie": b"drumlin_aa=one; other=x; drumlin_bb=two"}
    assert sessions_of(headers, "drumlin_bb") == ["Session two"]
    assert sessions_of(headers, "drumlin_b") == []
    assert sessions_of({}, "drumlin_bb") == []


def test_every_cookie_of_that_name_counts_up_to_a_bound() -> None:
    assert sessions_of({b"cookie": b"a=1; b=2; a=3"}, "a") == ["Session 1", "Session 3"]
    assert len(sessions_of({b"cookie": b"a=1;" * 100}, "a")) == SESSIONS_MAX
