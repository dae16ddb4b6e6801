"""Talking to coordinators that fail, refuse, or ask for patience: a real client against real servers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from drumlin.access.signing import verify
from drumlin.fetch import Fetcher, FetchLimits, http
from drumlin.fetch.guard import Guard
from drumlin.node.calling import client as calling
from drumlin.node.calling.client import (
    REJOINS_MAX,
    RETRY_WAIT_MAX_S,
    CoordinatorClient,
    CoordinatorGone,
    CoordinatorRefused,
)
from drumlin.node.calling.parties import Coordinators, Credentials
from drumlin.protocol import Done, Register, Registered, Result, Results
from drumlin.protocol.paths import SIGNATURE_HEADER

KEY = b"k" * 32
WITHIN_S = 60.0
Answer = tuple[int, Any, dict[str, str]]
OK: Answer = (200, Done("ok"), {})
CLOSED: Answer = (0, None, {})
"""No answer: the connection is closed after the request has arrived."""


class Asked(msgspec.Struct):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Gives the answers of a list, one after the other, and then good ones."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []
        self.answer: Callable[[Asked], Answer] = lambda asked: self.answers.pop(0) if self.answers else OK
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                server.asked.append(asked)
                status, reply, more = server.answer(asked)
                if not status:
                    self.close_connection = True
                    return
                content = reply if isinstance(reply, bytes) else msgspec.msgpack.encode(reply)
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **more}.items():
                    self.send_header(name, value)
                # A client that has given up does not hear the answer, which is no error of the server.
                with suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(content)

            do_POST = do_PUT = do_DELETE = answer  # noqa: N815  # the names that the base class calls

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def refusal(status: int, code: str = "no", **headers: str) -> Answer:
    error = {"error": {"code": code, "message": f"The {code}.", "hint": "Do so."}}
    return status, error, {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def client_of(*endpoints: str, **more: Any) -> Iterator[CoordinatorClient]:
    fetcher = Fetcher(FetchLimits(5.0, 60.0, 1 << 30, 0, 60), user_agent="test", guard=Guard(allow_private=True))
    try:
        yield CoordinatorClient(fetcher, Coordinators(endpoints), chance=lambda: 0.5, **more)
    finally:
        fetcher.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


@pytest.fixture
def other() -> Iterator[Server]:
    with Server() as made:
        yield made


@pytest.fixture
def dead_endpoint() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def say(client: CoordinatorClient, within_s: float = WITHIN_S, **more: Any) -> Done:
    return client.call("/hello", Done("said"), Done, within_s=within_s, **more)


def test_a_call_that_fails_is_repeated_until_it_comes_through(server: Server) -> None:
    server.answers = [refusal(503), refusal(500), refusal(408)]
    with client_of(server.endpoint) as client:
        assert say(client).status == "ok"
        assert not client.cut_off
    assert len(server.asked) == 4


def test_the_first_repetition_goes_to_another_coordinator_at_once_and_calls_stay_there(
    server: Server, dead_endpoint: str
) -> None:
    with client_of(dead_endpoint, server.endpoint) as client:
        asked: list[bool] = []

        def chance() -> float:
            asked.append(True)
            return 0.5

        client._chance = chance
        for _ in range(3):
            say(client)
        assert asked == [], "nothing had to wait"
        assert client._coordinators.current == 1
    assert len(server.asked) == 3


def test_a_coordinator_that_fails_later_is_left_for_the_other_and_taken_again_when_that_one_fails(
    server: Server, other: Server
) -> None:
    with client_of(server.endpoint, other.endpoint) as client:
        say(client)
        server.answers = [refusal(503)]
        say(client)
        say(client)
        assert (len(server.asked), len(other.asked)) == (2, 2)
        other.answers = [refusal(500)]
        say(client)
    assert (len(server.asked), len(other.asked)) == (3, 3)


def test_pauses_grow_with_failures_and_are_bounded(dead_endpoint: str) -> None:
    with client_of(dead_endpoint) as client:
        waits = []
        for failures in range(40):
            client._failures = failures
            waits.append(client.wait_s())
        assert waits == sorted(waits)
        assert waits[0] < 0.1
        assert waits[-1] <= RETRY_WAIT_MAX_S


def test_a_coordinator_that_asks_for_patience_gets_it(server: Server) -> None:
    server.answers = [refusal(429, "too_fast", retry_after="1")]
    with client_of(server.endpoint) as client:
        started = time.monotonic()
        say(client)
        assert time.monotonic() - started >= 1.0
        assert not client.cut_off, "a coordinator that answers is no outage"


@pytest.mark.parametrize(("status", "code"), [(429, "too_fast"), (429, "quarantined"), (503, "busy")])
def test_a_call_that_is_not_repeated_tells_how_long_to_wait_before_the_next(
    server: Server, status: int, code: str
) -> None:
    """Otherwise a node in quarantine would ask for work ten times a second, and be punished for that too."""
    server.answers = [refusal(status, code, retry_after="7")]
    with client_of(server.endpoint) as client:
        told: list[float] = []
        client.post("/x", Done(), Done, lambda _: None, on_failure=told.append, repeat_s=0.0)
        client.wait_for(lambda: bool(told))
    assert told[0] >= 7.0


def _has(told: list[float], count: int) -> bool:
    return len(told) == count


def test_a_call_that_nobody_answers_tells_longer_and_longer_waits(dead_endpoint: str) -> None:
    with client_of(dead_endpoint, dead_endpoint) as client:
        told: list[float] = []
        for failures in range(1, 12):
            client.post("/x", Done(), Done, lambda _: None, on_failure=told.append, repeat_s=0.0)
            client.wait_for(partial(_has, told, failures))
    assert told[0] < RETRY_WAIT_MAX_S / 10
    assert told[-1] >= RETRY_WAIT_MAX_S / 2


def test_a_wait_that_nobody_can_read_is_not_waited_for(server: Server) -> None:
    server.answers = [refusal(429, "too_fast", retry_after="123456789x")]
    with client_of(server.endpoint) as client:
        say(client)
        assert len(server.asked) == 2


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413])
def test_what_a_coordinator_will_never_take_is_an_error_in_its_own_words(server: Server, status: int) -> None:
    server.answers = [refusal(status, "flaw")]
    with client_of(server.endpoint) as client, pytest.raises(CoordinatorRefused) as refused:
        say(client)
    assert "The flaw. Do so." in str(refused.value)
    assert len(server.asked) == 1


PAGE = b"<html><title>Not here</title></html>"


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 405, 413, 502])
def test_what_a_proxy_answers_in_a_coordinators_place_ends_nobody(server: Server, status: int) -> None:
    server.answers = [(status, PAGE, {})] * 3
    with client_of(server.endpoint) as client:
        assert say(client).status == "ok"
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((502, PAGE, {}), "(the server at http://127.0.0.1:{port} reaches no coordinator, status 502)"),
        ((500, PAGE, {}), "(http://127.0.0.1:{port} answers with status 500, but not as a coordinator would)"),
        (refusal(503, "flaw"), "(The flaw)"),
    ],
)
def test_an_outage_is_told_of_in_our_own_words(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, answer: Answer, told: str
) -> None:
    monkeypatch.setattr(calling, "OUTAGE_TOLD_AFTER_S", 0.0)
    server.answers = [answer]
    with client_of(server.endpoint) as client:
        assert say(client).status == "ok"
    said = f"no coordinator gives or takes work {told.format(port=server.endpoint.rpartition(':')[2])}; trying again"
    assert caplog.messages[0] == said


def test_a_bundle_that_a_proxy_finds_too_large_is_sent_again_ever_more_seldom_and_told_of(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other calls get through meanwhile: they must not make it hurry."""
    path = tmp_path / "bundle"
    path.write_bytes(bytes(2_000_000))
    allowed: list[bool] = []
    server.answer = lambda asked: (413, PAGE, {}) if asked.method == "PUT" and not allowed else OK
    with client_of(server.endpoint) as client, path.open("rb") as file:
        stored: list[Done] = []
        client.upload("/bundle", file, [], Done, stored.append)
        began = time.monotonic()
        client.wait_for(lambda: bool(client._repeat) and say(client).status == "ok" and time.monotonic() - began > 5)
        assert sum(asked.method == "PUT" for asked in server.asked) < 12
        allowed.append(True)
        client.wait_for(lambda: bool(stored))
    told = caplog.text
    assert "/bundle with status 413" in told
    assert "must let bodies of 2,000,000 bytes and more pass" in told
    assert "/bundle gets through again" in told


@pytest.mark.parametrize("busy", [False, True])
def test_calls_that_hang_while_others_are_answered_are_told_of_unless_it_was_the_node_that_hung(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """One of several coordinators behind a balancer is frozen; or this node was busy with a page all the time."""
    monkeypatch.setattr(http, "ABSENT_S", 0.5)
    hangs = threading.Event()

    def answer(asked: Asked) -> Answer:
        if asked.path == "/hangs":
            hangs.wait(WITHIN_S)
        return OK

    server.answer = answer
    with client_of(server.endpoint) as client:
        failed: list[bool] = []
        more: dict[str, Any] = {"on_failure": lambda again_s: failed.append(True), "repeat_s": 0.0, "timeout_s": 1.0}
        client.post("/hangs", Done(), Done, lambda _: None, **more)
        say(client)
        if busy:
            time.sleep(1.0)
        client.wait_for(lambda: bool(failed))
    hangs.set()
    assert (f"{server.endpoint} answers some calls, but not others within 1 s" in caplog.text) != busy


def test_a_coordinator_that_answers_nothing_while_another_one_does_is_named(
    server: Server, other: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = threading.Event()

    def answer(asked: Asked) -> Answer:
        hangs.wait(WITHIN_S)
        return OK

    server.answer = answer
    with client_of(server.endpoint, other.endpoint) as client:
        failed: list[bool] = []
        more: dict[str, Any] = {"on_failure": lambda again_s: failed.append(True), "repeat_s": 0.0}
        client.post("/first", Done(), Done, lambda _: None, **more, timeout_s=0.5)
        client.post("/second", Done(), Done, lambda _: None, **more, timeout_s=2.0)
        client.wait_for(lambda: len(failed) == 1)
        assert caplog.text == "", "nobody has answered yet"
        say(client)
        client.wait_for(lambda: len(failed) == 2)
    hangs.set()
    said = f"{server.endpoint} has answered nothing for 2 s, while {other.endpoint} answers; calls go there."
    assert [said in message for message in caplog.messages] == [True]
    assert "load balancer" not in caplog.text


def test_a_caller_that_does_not_wait_for_ever_is_told_who_did_not_answer(dead_endpoint: str) -> None:
    with client_of(dead_endpoint) as client, pytest.raises(CoordinatorGone) as gone:
        say(client, within_s=0.3)
    assert dead_endpoint in str(gone.value)
    assert "Check --coordinator" in str(gone.value)


def test_a_call_that_is_not_repeated_says_so_once(dead_endpoint: str) -> None:
    with client_of(dead_endpoint) as client:
        failed: list[bool] = []
        client.post("/x", Done(), Done, lambda _: None, on_failure=lambda again_s: failed.append(True), repeat_s=0.0)
        client.wait_for(lambda: bool(failed))
        assert (failed, client.cut_off, client.due()) == ([True], True, float("inf"))


def results(count: int = 1) -> Results:
    link = "http://a.test/" + "x" * 50
    return Results([Result("n0:a/1.0.0", f"http://a.test/{number}", 200, "", [link], 1.0) for number in range(count)])


def test_large_messages_are_packed_and_small_ones_are_not(server: Server) -> None:
    with client_of(server.endpoint) as client:
        client.call("/results", results(100), Done, within_s=WITHIN_S)
        say(client)
    large, small = server.asked
    assert large.headers["content-encoding"] == "zstd"
    unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(large.body)
    assert len(msgspec.msgpack.decode(unpacked, type=Results).results) == 100
    assert len(large.body) < len(unpacked) // 4
    assert "content-encoding" not in small.headers


def test_results_are_signed_as_sent_and_anew_each_time(server: Server) -> None:
    server.answers = [refusal(503), refusal(401, "replayed"), refusal(401, "signature_out_of_time")]
    access = Credentials("join", "mine", KEY)
    with client_of(server.endpoint, access=access, rejoin=lambda: Register(0.0, "n0")) as client:
        client.call("/api/v1/nodes/n0/results", results(100), Done, within_s=WITHIN_S, signed=True)
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["results"] * 4, "it need not join again"
    assert len(names_of(server.asked)) == 4
    assert server.asked[0].headers["authorization"] == "Bearer mine"


def names_of(sent: list[Asked]) -> set[str]:
    """The names of signed requests, which no two of them share."""
    return {verify(KEY, one.headers[SIGNATURE_HEADER.lower()], "POST", one.path, one.body, time.time()) for one in sent}


def test_what_a_dying_connection_may_have_carried_is_signed_anew(server: Server) -> None:
    """Behind a load balancer a kept connection leads to a coordinator that was killed. libcurl would send the request
    again by itself."""
    server.answers = [OK, CLOSED, CLOSED]
    with client_of(server.endpoint, access=Credentials("join", "mine", KEY)) as client:
        for _ in range(2):
            client.call("/api/v1/nodes/n0/results", results(100), Done, within_s=WITHIN_S, signed=True)
    assert len(server.asked) == len(names_of(server.asked)) == 4


OK_REGISTERED: Answer = (
    200,
    Registered("n0", "registered", 1.0, "", {}, "", [], [], token="new", key=KEY.hex()),
    {},
)


def _rejoining(refused: Answer, taken: str = "new") -> Callable[[Asked], Answer]:
    """Registrations get a new token; other calls are refused unless they come with the token that is `taken`. A call
    may be repeated several times before its node's registration is answered."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("register"):
            return OK_REGISTERED
        return OK if asked.headers.get("authorization") == f"Bearer {taken}" else refused

    return answer


def tokens_sent(server: Server) -> list[tuple[str, str]]:
    """The last part of each call's path, and what it was authorised with."""
    return [(asked.path.rpartition("/")[2], asked.headers.get("authorization", "")) for asked in server.asked]


def test_a_node_whose_token_is_not_taken_any_more_joins_again_and_goes_on(server: Server) -> None:
    server.answer = _rejoining(refusal(401, "invalid_token"))
    with client_of(server.endpoint, access=Credentials("join", "old"), rejoin=lambda: Register(0.0, "n0")) as client:
        assert say(client).status == "ok"
    assert tokens_sent(server)[:2] == [("hello", "Bearer old"), ("register", "Bearer join")]
    assert tokens_sent(server)[-1] == ("hello", "Bearer new")


def test_a_node_that_the_coordinators_forgot_registers_with_its_own_token(server: Server) -> None:
    server.answer = _rejoining(refusal(404, "not_registered"))
    with client_of(server.endpoint, access=Credentials("join", "mine"), rejoin=lambda: Register(0.0, "n0")) as client:
        assert say(client).status == "ok"
    assert tokens_sent(server)[:2] == [("hello", "Bearer mine"), ("register", "Bearer mine")]
    assert tokens_sent(server)[-1] == ("hello", "Bearer new")


def test_a_node_whose_own_token_does_not_let_it_register_joins_with_its_join_token(server: Server) -> None:
    server.answers = [refusal(401, "token_revoked"), OK_REGISTERED]
    with client_of(server.endpoint, access=Credentials("join", "mine"), rejoin=lambda: Register(0.0, "n0")) as client:
        client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=WITHIN_S)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer mine", "Bearer join"]


def test_a_token_that_a_heartbeat_brought_is_used_from_then_on(server: Server) -> None:
    with client_of(server.endpoint, access=Credentials("join", "mine")) as client:
        for token in (None, "next"):
            client.renewed(token)
            say(client)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer mine", "Bearer next"]


def test_a_node_whose_join_token_is_revoked_too_ends_with_one_clear_sentence(server: Server) -> None:
    server.answers = [refusal(401, "token_revoked")] * 100
    with (
        client_of(server.endpoint, access=Credentials("join", "mine"), rejoin=lambda: Register(0.0, "n0")) as client,
        pytest.raises(CoordinatorRefused) as ended,
    ):
        say(client)
    assert str(ended.value) == (
        "The coordinator does not let this node join: The token_revoked. "
        "Ask for another: `drumlin tokens create --role join` makes one."
    )


def test_a_name_that_is_taken_is_waited_for(server: Server) -> None:
    server.answers = [refusal(409, "node_id_taken"), refusal(409, "node_id_taken"), OK_REGISTERED]
    with client_of(server.endpoint, access=Credentials("join")) as client:
        client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=WITHIN_S)
    assert len(server.asked) == 3


def test_a_name_that_stays_taken_is_an_error_in_the_coordinators_words(server: Server) -> None:
    server.answers = [refusal(409, "node_id_taken")] * 100
    with client_of(server.endpoint) as client, pytest.raises(CoordinatorRefused, match="node_id_taken"):
        client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=1.5)


def test_a_node_that_is_never_let_in_says_so_and_ends(server: Server) -> None:
    server.answer = _rejoining(refusal(401, "invalid_token"), taken="another")
    with (
        client_of(server.endpoint, access=Credentials("join", "old"), rejoin=lambda: Register(0.0, "n0")) as client,
        pytest.raises(CoordinatorRefused, match="refuses this node even after it registered again"),
    ):
        say(client)
    assert sum(asked.path.endswith("register") for asked in server.asked) == REJOINS_MAX


def test_a_join_token_that_is_not_taken_is_an_error_at_once(server: Server) -> None:
    server.answers = [refusal(401, "invalid_token")]
    with client_of(server.endpoint, access=Credentials("join"), rejoin=lambda: Register(0.0, "n0")) as client:
        with pytest.raises(CoordinatorRefused, match="invalid_token"):
            client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=WITHIN_S)
    assert len(server.asked) == 1


def test_a_file_is_sent_as_it_is_and_again_from_its_beginning(server: Server, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("file") / "bundle"
    path.write_bytes(bytes(range(256)) * 10_000)
    server.answers = [refusal(503), refusal(409, "damaged")]
    with client_of(server.endpoint) as client, path.open("rb") as file:
        stored: list[Done] = []
        client.upload("/bundle", file, ["X-Test: 1"], Done, stored.append)
        client.wait_for(lambda: bool(stored))
        say(client)
    *uploads, after = server.asked
    assert [(asked.method, asked.body == path.read_bytes(), asked.headers["x-test"]) for asked in uploads] == [
        ("PUT", True, "1")
    ] * 3
    assert (after.method, msgspec.msgpack.decode(after.body, type=Done)) == ("POST", Done("said"))
