"""The fetcher against a real server on loopback: limits, broken answers, kept connections, forbidden addresses."""

from __future__ import annotations

import os
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from drumlin.fetch import Fetcher, FetchLimits
from drumlin.fetch.guard import Guard
from drumlin.fetch.transfer import Transfer
from drumlin.model import FailureKind
from drumlin.testing import Ending, FakeWeb, Response

LIMITS = FetchLimits(
    connect_timeout_s=5.0,
    fetch_timeout_s=5.0,
    body_bytes_max=100_000,
    speed_min_bytes_s=0,
    speed_window_s=60,
    header_bytes_max=20_000,
)


class Fetched(NamedTuple):
    """A copy of what a transfer brought, because the fetcher uses the transfer again."""

    status: int
    failure: str
    error: str
    headers: bytes
    body: bytes
    ip: str
    protocol: str
    started: float
    first_byte: float
    finished: float


def kept(transfer: Transfer) -> Fetched:
    return Fetched(
        transfer.status,
        transfer.failure,
        transfer.error,
        transfer.response_headers(),
        transfer.body.getvalue(),
        transfer.ip,
        transfer.protocol,
        transfer.started,
        transfer.first_byte,
        transfer.finished,
    )


class AllBut(Guard):
    """Refuses forbidden addresses except one."""

    def __init__(self, excepted: str) -> None:
        super().__init__()
        self._excepted = excepted

    def refuses(self, address: str) -> bool:
        return address != self._excepted and super().refuses(address)


def fetch_all(fetcher: Fetcher, *urls: str) -> list[Fetched]:
    """Fetch the URLs one after the other."""
    fetched: list[Fetched] = []
    for number, url in enumerate(urls, 1):
        fetcher.start(url, lambda transfer: fetched.append(kept(transfer)), "context")
        while len(fetched) < number:
            fetcher.run_once(1.0)
    return fetched


def fetch(url: str, limits: FetchLimits = LIMITS, guard: Guard | None = None) -> Fetched:
    fetcher = Fetcher(limits, user_agent="drumlin/test", guard=guard or Guard(allow_private=True))
    try:
        return fetch_all(fetcher, url)[0]
    finally:
        fetcher.close()


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    made = Fetcher(LIMITS, user_agent="drumlin/test", guard=Guard(allow_private=True))
    yield made
    made.close()


def test_a_response_comes_whole_with_its_exact_head(web: FakeWeb) -> None:
    url = web.respond("plain", "/", Response(body="hello", headers={"X-Odd-CASE": "kept  as it is"}))
    got = fetch(url)
    assert (got.status, got.failure, got.body, got.protocol) == (200, "", b"hello", "http/1.1")
    assert b"X-Odd-CASE: kept  as it is\r\n" in got.headers
    assert got.headers.endswith(b"\r\n\r\n")
    assert got.ip == web.address("plain").partition(":")[0]
    assert got.started <= got.first_byte <= got.finished


def test_what_is_sent_is_what_the_archive_says_was_sent(web: FakeWeb, fetcher: Fetcher) -> None:
    seen: list[dict[str, str]] = []

    def answer(request: object) -> Response:
        seen.append(dict(request.headers))  # type: ignore[attr-defined]
        return Response(body="x")

    fetch_all(fetcher, web.respond("request", "/", answer))
    lines = fetcher.request_headers.decode().split("\r\n")
    said = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines if line}
    assert seen == [said | {"host": web.address("request")}]


def test_bodies_are_left_encoded(web: FakeWeb) -> None:
    got = fetch(web.respond("packed", "/", Response(body="hello " * 100, encoding="gzip")))
    assert (got.failure, got.body[:2]) == ("", b"\x1f\x8b")


def test_a_body_in_tiny_pieces_takes_hardly_more_memory_than_it_has_bytes() -> None:
    """The body comes two bytes at a time. A list of such pieces would take twenty times as much memory."""
    pieces = 1_000_000
    limits = msgspec.structs.replace(LIMITS, body_bytes_max=4 * pieces, fetch_timeout_s=60.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sending = threading.Thread(target=send_in_pieces, args=(server, pieces))
        sending.start()
        tracemalloc.start()
        try:
            got = fetch(f"http://127.0.0.1:{server.getsockname()[1]}/", limits)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            sending.join()
    assert (got.failure, len(got.body)) == ("", 2 * pieces)
    assert peak_bytes < 6 * 2 * pieces


def send_in_pieces(server: socket.socket, pieces: int) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        thousand = b"2\r\nab\r\n" * 1_000
        for _ in range(pieces // 1_000):
            connection.sendall(thousand)
        connection.sendall(b"0\r\n\r\n")


def test_what_arrives_together_and_is_slow_to_take_leaves_the_loop_its_turn(
    web: FakeWeb, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drumlin.fetch.http.FINISHING_S_MAX", -1.0)
    url = web.page("together", "/", "x")
    bodies: list[bytes] = []
    for _ in range(6):
        fetcher.start(url, lambda transfer: bodies.append(transfer.body.getvalue()), "context")
    at_once = []
    while len(bodies) < 6:
        at_once.append(fetcher.run_once(1.0))
    assert max(at_once) == 1
    assert set(map(len, bodies)) == {len(bodies[0])}


def test_connections_are_kept_and_used_again(web: FakeWeb, fetcher: Fetcher) -> None:
    url = web.page("kept", "/", "x")
    before = open_sockets()
    fetch_all(fetcher, *[url] * 5)
    assert open_sockets() - before <= 2  # ours and the fake web's end


def open_sockets() -> int:
    links = (os.readlink(f"/proc/self/fd/{name}") if os.path.exists(f"/proc/self/fd/{name}") else "" for name in fds())
    return sum(1 for link in links if link.startswith("socket:"))


def fds() -> list[str]:
    return os.listdir("/proc/self/fd")


def test_redirects_are_not_followed_by_the_fetcher(web: FakeWeb) -> None:
    got = fetch(web.respond("moved", "/", Response(status=302, headers={"Location": "/elsewhere"})))
    assert (got.status, got.failure) == (302, "")
    assert [request.path for request in web.requests if request.host == "moved"] == ["/"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Response(body=b"x" * 100_001), FailureKind.TOO_LARGE),
        (Response(body=b"x" * 100_001, chunked=True), FailureKind.TOO_LARGE),
        (Response(headers={f"X-{number}": "y" * 1000 for number in range(21)}), FailureKind.TOO_LARGE),
        (Response(headers={f"X-{number}": "y" * 8000 for number in range(60)}), FailureKind.TOO_LARGE),
        (Response(ending=Ending.RESET), FailureKind.RESET),
        (Response(body="<p>a page that stops half-way" * 10, ending=Ending.CUT), FailureKind.RESET),
    ],
    ids=["declared", "chunked", "head", "endless head", "reset", "cut"],
)
def test_an_answer_that_is_too_much_or_broken_is_named(web: FakeWeb, answer: Response, kind: str) -> None:
    got = fetch(web.respond(f"bad {kind} {id(answer)}", "/", answer))
    assert (got.failure, bool(got.error)) == (kind, True)
    assert len(got.body) <= LIMITS.body_bytes_max


@pytest.mark.parametrize("said", [b"220 mail.test ESMTP\r\n", b"HTTP/1.1 banana\r\n\r\n", b"\x00\xff" * 50, b""])
def test_an_answer_that_is_not_http_is_a_failure_and_not_a_page(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        got = fetch(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert got.failure == (FailureKind.PROTOCOL if said else FailureKind.RESET)


def test_exactly_as_much_as_is_allowed_is_fine(web: FakeWeb) -> None:
    assert fetch(web.respond("brim", "/", Response(body=b"x" * 100_000))).failure == ""


def test_a_request_whose_kept_connection_breaks_is_not_repeated_behind_our_back(web: FakeWeb, fetcher: Fetcher) -> None:
    good, bad = web.page("breaks", "/", "x"), web.respond("breaks", "/bad", Response(ending=Ending.RESET))
    results = fetch_all(fetcher, good, bad, good)
    assert [got.failure for got in results] == ["", FailureKind.RESET, ""]
    assert [request.path for request in web.requests if request.host == "breaks"] == ["/", "/bad", "/"]


def test_an_answer_that_does_not_come_times_out(web: FakeWeb) -> None:
    url = web.respond("late", "/", Response(delay_s=30.0))
    limits = FetchLimits(5.0, 0.2, 100_000, 0, 60)
    assert fetch(url, limits).failure == FailureKind.TIMEOUT


def test_a_slow_drip_is_cut_off_long_before_the_time_limit(web: FakeWeb) -> None:
    url = web.respond("drip", "/", Response(body=b"x" * 1000, drip_s=0.1))
    limits = FetchLimits(5.0, 60.0, 100_000, 1000, 1)
    got = fetch(url, limits)
    assert got.failure == FailureKind.TIMEOUT
    assert len(got.body) < 1000


def test_a_closed_port_and_an_unknown_name_are_told_apart() -> None:
    assert fetch("http://127.0.0.1:9/").failure == FailureKind.CONNECT
    assert fetch("http://no-such-host.invalid/").failure == FailureKind.DNS


def test_forbidden_addresses_are_refused_by_number_and_by_name_and_after_a_redirect(web: FakeWeb) -> None:
    inside = web.page("inside", "/", "secret")
    port = web.port
    outside = web.respond("outside", "/", Response(status=302, headers={"Location": inside}))
    guard = AllBut(web.address("outside").partition(":")[0])
    assert fetch(outside, guard=guard).status == 302
    for url in (inside, f"http://localhost:{port}/", f"http://[::1]:{port}/", f"http://2130706433:{port}/"):
        assert fetch(url, guard=guard).failure == FailureKind.FORBIDDEN_ADDRESS, url
    assert not [request for request in web.requests if request.host == "inside"]


def test_a_kept_transfer_does_not_remember_the_one_before(web: FakeWeb, fetcher: Fetcher) -> None:
    refused = "http://127.0.0.1:9/"
    page = web.page("fresh", "/", "fresh page")
    first, second = fetch_all(fetcher, refused, page)
    assert (first.failure, second.failure, second.error, second.body) == ("connect", "", "", b"fresh page")
    assert fetcher.in_flight == 0


def test_many_transfers_run_at_once(web: FakeWeb, fetcher: Fetcher) -> None:
    urls = [web.respond(f"many{number}", "/", Response(body=str(number), delay_s=0.1)) for number in range(50)]
    bodies: list[bytes] = []
    for url in urls:
        fetcher.start(url, lambda transfer: bodies.append(transfer.body.getvalue()), "context")
    assert fetcher.in_flight == 50
    while fetcher.in_flight:
        fetcher.run_once(1.0)
    assert sorted(map(int, bodies)) == list(range(50))


def test_what_comes_before_the_final_answer_is_left_out_of_its_head() -> None:
    transfer = Transfer(None)
    transfer.header_lines += [
        b"HTTP/1.1 103 Early Hints\r\n",
        b"Link: </a>\r\n",
        b"\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"\r\n",
    ]
    assert transfer.response_headers() == b"HTTP/1.1 200 OK\r\n\r\n"


def test_escapes_are_asked_for_as_they_are_spelled_and_the_next_request_is_its_own(
    web: FakeWeb, fetcher: Fetcher
) -> None:
    home = web.page("spelled", "/", "x")
    fetch_all(fetcher, home + "a%c3%A9?b=%c3", home + "plain", home + "c%2f")
    asked = [request.path for request in web.requests if request.host == "spelled"]
    assert asked == ["/a%c3%A9?b=%c3", "/plain", "/c%2f"]


def test_a_process_that_was_frozen_while_it_waited_for_events_knows_it() -> None:
    times = iter([0.0, 0.0, 30.0])
    clock = lambda: next(times, 30.0)  # noqa: E731
    fetcher = Fetcher(LIMITS, user_agent="drumlin/test", guard=Guard(allow_private=True), clock=clock)
    fetcher.run_once(0.0)
    assert fetcher.absent_at == 30.0
    fetcher.close()
