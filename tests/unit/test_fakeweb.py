"""The fake web answers as it is scripted, and remembers what a client requested."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from drumlin.testing import Ending, FakeWeb, Request, Response

CLIENT_S_MAX = 10.0


def get(url: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=CLIENT_S_MAX)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as web:
        yield web


def test_a_page_is_served_at_its_url(web: FakeWeb) -> None:
    url = web.page("shop", "/", "<p>hello")
    assert get(url)[:2] == (200, b"<p>hello")


def test_an_unknown_page_is_not_found(web: FakeWeb) -> None:
    assert get(web.url("shop", "/nothing"))[0] == 404


def test_hosts_have_addresses_of_their_own_on_one_port(web: FakeWeb) -> None:
    first, second = web.address("one"), web.address("two")
    assert first != second
    assert first.split(":")[1] == second.split(":")[1] == str(web.port)


def test_a_responder_counts_the_visits_to_its_path(web: FakeWeb) -> None:
    url = web.respond("shop", "/", lambda request: Response(status=500 if request.number == 1 else 200))
    assert [get(url)[0], get(url)[0]] == [500, 200]


def test_a_star_answers_every_path_that_begins_so_and_the_longest_wins(web: FakeWeb) -> None:
    web.respond("shop", "/item/*", lambda request: Response(body=request.path))
    web.respond("shop", "/item/old/*", Response(status=410))
    assert get(web.url("shop", "/item/7?x=1"))[1] == b"/item/7?x=1"
    assert get(web.url("shop", "/item/old/7"))[0] == 410


def test_the_request_headers_reach_the_responder(web: FakeWeb) -> None:
    def answer(request: Request) -> Response:
        return Response(body=request.headers["user-agent"])

    assert get(web.respond("shop", "/", answer), **{"User-Agent": "drumlin/1"})[1] == b"drumlin/1"


def test_a_responder_that_raises_answers_500_and_says_why(web: FakeWeb) -> None:
    def answer(request: Request) -> Response:
        raise KeyError(request.path)

    status, body, _ = get(web.respond("shop", "/", answer))
    assert status == 500
    assert b"KeyError" in body


def test_every_request_is_logged_with_its_status(web: FakeWeb) -> None:
    get(web.page("shop", "/", ""))
    get(web.url("shop", "/missing"))
    assert [(request.host, request.path, request.status) for request in web.requests] == [
        ("shop", "/", 200),
        ("shop", "/missing", 404),
    ]
    assert web.requested == {web.url("shop", "/"), web.url("shop", "/missing")}


def test_the_least_gap_is_of_one_host_and_infinite_without_two_requests(web: FakeWeb) -> None:
    get(web.page("one", "/", ""))
    get(web.page("two", "/", ""))
    assert web.min_gap("one") == float("inf")
    get(web.url("one", "/"))
    assert 0.0 < web.min_gap("one") < CLIENT_S_MAX


def test_a_reset_reaches_the_client_and_is_logged_as_status_0(web: FakeWeb) -> None:
    url = web.respond("shop", "/", Response(ending=Ending.RESET))
    with pytest.raises(ConnectionResetError):
        get(url)
    assert web.requests[0].status == 0


def test_a_cut_body_is_shorter_than_it_was_announced(web: FakeWeb) -> None:
    url = web.respond("shop", "/", Response(body=b"x" * 1000, ending=Ending.CUT))
    with pytest.raises(http.client.IncompleteRead) as caught:
        get(url)
    assert len(caught.value.partial) == 500


def test_a_chunked_body_arrives_whole_and_without_a_length(web: FakeWeb) -> None:
    body = bytes(range(256)) * 20
    _, received, headers = get(web.respond("shop", "/", Response(body=body, chunked=True)))
    assert received == body
    assert "Content-Length" not in headers


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_an_encoded_body_says_so_and_is_not_sent_plain(web: FakeWeb, encoding: str) -> None:
    url = web.respond("shop", "/", Response(body="again " * 500, encoding=encoding))
    _, received, headers = get(url, **{"Accept-Encoding": "gzip, br"})
    assert headers["Content-Encoding"] == encoding
    assert len(received) < 200


def test_a_body_is_sent_plain_to_a_client_that_does_not_offer_its_encoding(web: FakeWeb) -> None:
    url = web.respond("shop", "/", Response(body="again " * 500, encoding="br"))
    _, received, headers = get(url, **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] is None
    assert received == b"again " * 500


def test_a_connection_serves_several_requests(web: FakeWeb) -> None:
    web.page("shop", "/a", "first")
    web.page("shop", "/b", "second")
    connection = http.client.HTTPConnection(web.address("shop"), timeout=CLIENT_S_MAX)
    bodies = []
    for path in ("/a", "/b"):
        connection.request("GET", path)
        bodies.append(connection.getresponse().read())
    connection.close()
    assert bodies == [b"first", b"second"]


def test_leaving_the_block_ends_the_thread_and_frees_the_port() -> None:
    with FakeWeb(hosts=0) as web:
        url = web.page("shop", "/", "")
        get(url)
    assert "fake web" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(ConnectionRefusedError):
        get(url)
    web.close()


def test_a_dripping_answer_does_not_keep_the_web_from_closing() -> None:
    with FakeWeb(hosts=0) as web:
        web.respond("shop", "/", Response(body=b"x" * 1000, drip_s=60.0))
        connection = http.client.HTTPConnection(web.address("shop"), timeout=CLIENT_S_MAX)
        connection.request("GET", "/")
        assert connection.getresponse().read(1) == b"x"
    connection.close()


def paths_of(web: FakeWeb) -> dict[str, list[str]]:
    expected = {"fetched": web.expected.fetched, "never": web.expected.never} | web.expected.dead
    return {name: sorted(urlsplit(url).path for url in urls) for name, urls in expected.items()}


def test_the_bundled_web_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    first, again, other = FakeWeb(seed=1), FakeWeb(seed=1), FakeWeb(seed=2)
    try:
        assert paths_of(first) == paths_of(again) != paths_of(other)
    finally:
        for web in (first, again, other):
            web.close()


def test_the_bundled_web_expects_nothing_twice_and_knows_every_kind() -> None:
    web = FakeWeb()
    web.close()
    dead = set[str]().union(*web.expected.dead.values())
    assert len(web.seeds) == 30
    assert not web.expected.fetched & web.expected.never
    assert not web.expected.fetched & dead
    assert set(web.expected.dead) >= {"robots_unreachable", "redirect_loop", "redirect_limit", "http_5xx", "timeout"}


def test_what_the_bundled_web_expects_to_be_fetched_is_there() -> None:
    slow = "/slow.html"
    with FakeWeb() as web:
        for url in sorted(url for url in web.expected.fetched if not url.endswith(slow)):
            try:
                status = get(url)[0]
            except http.client.IncompleteRead:
                # It breaks off every time; what came of it is kept at the last try.
                continue
            except ConnectionResetError:
                status = 500
            if status in (429, 500, 503):
                status = get(url)[0]
            assert status < 400 or url.endswith(("/missing", "/gone")), url


@pytest.mark.parametrize("hosts", [-1, 1001])
def test_an_impossible_number_of_hosts_is_refused(hosts: int) -> None:
    with pytest.raises(ValueError, match="hosts must be between"):
        FakeWeb(hosts=hosts)
