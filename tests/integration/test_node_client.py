"""Talking to coordinators that fail, refuse, or ask for patience: a real client against real servers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from drumlin.fetch import http
from drumlin.node.calling import client as calling
from drumlin.node.calling.client import (
    RETRY_WAIT_MAX_S,
    CoordinatorGone,
    CoordinatorRefused,
)
from drumlin.protocol import Done, Results
from tests.harness.answering import OK, WITHIN_S, Answer, Asked, Server, client_of, refusal, results, say
from tests.harness.certificates import Authority


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


@pytest.mark.parametrize("trusted", [True, False])
def test_a_bundle_is_sent_elsewhere_only_to_a_service_whose_authority_is_trusted(tmp_path: Path, trusted: bool) -> None:
    authority, bundle, heard = Authority(tmp_path, "private"), tmp_path / "bundle", list[int]()
    bundle.write_bytes(b"pages")
    with Server(authority.sign("store", "IP:127.0.0.1")) as store, Server() as coordinator, bundle.open("rb") as file:
        named = {"store_authority": str(authority.file)} if trusted else {}
        with client_of(coordinator.endpoint, **named) as client:
            client.put_elsewhere(f"{store.endpoint}/bundle", file, [], heard.append)
            client.wait_for(lambda: bool(heard))
    assert heard == [200 if trusted else 0]
    assert [asked.body for asked in store.asked] == ([b"pages"] if trusted else [])
