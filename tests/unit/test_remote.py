"""Asking a coordinator from a command line."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drumlin.client import remote
from drumlin.client.remote import CoordinatorError, Remote


def test_who_waits_for_a_coordinator_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "SLOW_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CoordinatorError, match="does not answer"):
            Remote([endpoint], timeout_s=1.0).get("/healthz")
    assert capsys.readouterr().err == f"Waiting for the coordinator at {endpoint}, up to 1 s.\n"


def test_a_coordinator_that_cannot_be_reached_at_all_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        endpoint = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(CoordinatorError, match="No coordinator listens"):
        Remote([endpoint]).get("/healthz")
    assert capsys.readouterr().err == ""


class Answering(http.server.BaseHTTPRequestHandler):
    """A coordinator that says yes to everything; or one that is alive and can do nothing."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        refusal = self.server.refusal if self.path != "/healthz" else None  # type: ignore[attr-defined]
        self.send_response(200 if refusal is None else 503)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}' if refusal is None else refusal)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(asked: list[str], port: int = 0, refusal: bytes | None = None) -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", port), Answering) as server:
        server.asked = asked  # type: ignore[attr-defined]
        server.refusal = refusal  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def connections(silent: socket.socket) -> int:
    """How often somebody has called a server that answers nothing."""
    silent.setblocking(False)
    number = 0
    while True:
        try:
            silent.accept()[0].close()
        except BlockingIOError:
            return number
        number += 1


def test_of_several_coordinators_one_that_is_frozen_is_waited_for_once_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "ALIVE_S_MAX", 0.1)
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as frozen, answering(asked) as endpoint:
        # With the usual patience this test would take 15 s for each call, and the test run would end it.
        both = Remote([f"http://127.0.0.1:{frozen.getsockname()[1]}", endpoint], timeout_s=3600.0)
        for _ in range(3):
            assert both.get("/api/v1/stats") == {"status": "ok"}
        assert connections(frozen) == 1
    assert asked == ["/healthz", *3 * ["/api/v1/stats"]]


def test_a_coordinator_that_was_left_out_is_asked_again_when_the_others_are_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with answering([]) as endpoint:
        both = Remote([f"http://127.0.0.1:{port}", endpoint])
        both.get("/api/v1/stats")
    asked: list[str] = []
    with answering(asked, port):
        both.get("/api/v1/stats")
    assert asked == ["/healthz", "/api/v1/stats"]


@pytest.mark.parametrize(
    "refusal", [b'{"error":{"code":"engine_unreachable","message":"Cannot reach it.","hint":""}}', b"<p>Nobody here"]
)
def test_a_coordinator_that_can_do_nothing_is_passed_over_for_another(refusal: bytes) -> None:
    cut_off: list[str] = []
    asked: list[str] = []
    with answering(cut_off, refusal=refusal) as first, answering(asked) as second:
        both = Remote([first, second])
        for _ in range(3):
            assert both.get("/api/v1/stats") == {"status": "ok"}
        assert cut_off == ["/healthz", "/api/v1/stats"], "it is asked last from then on"
    assert asked == ["/healthz", *3 * ["/api/v1/stats"]]


def test_if_none_can_do_anything_the_first_says_why() -> None:
    said = [b'{"error":{"code":"engine_silent","message":"%b","hint":""}}' % name for name in (b"one", b"two")]
    with answering([], refusal=said[0]) as first, answering([], refusal=said[1]) as second:
        with pytest.raises(CoordinatorError, match="one") as failure:
            Remote([first, second]).get("/api/v1/stats")
    assert (failure.value.status, failure.value.code) == (503, "engine_silent")


def test_a_coordinator_alone_is_asked_without_a_question_before() -> None:
    asked: list[str] = []
    with answering(asked) as endpoint:
        Remote([endpoint]).get("/api/v1/stats")
    assert asked == ["/api/v1/stats"]
