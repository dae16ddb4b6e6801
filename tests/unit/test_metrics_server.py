"""The small server of metrics among clients that are slow, hang up, or are browsers."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading

import pytest

from drumlin.metrics import server
from drumlin.metrics.server import serving
from tests.harness.crawls import wait_until

WITHIN_S = 10.0
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def asked(port: int, host: str = "localhost") -> tuple[int, bytes]:
    """The status of the page when it is asked for by this name, and the page."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)) as connection:
        connection.request("GET", "/metrics", headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()


def silent_client(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
    return client


def answering() -> int:
    """How many clients are being answered in this process."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests may take as long as they like, so no test passes because a limit has passed."""
    monkeypatch.setattr(server, "REQUEST_S_MAX", PATIENCE_S)


@pytest.mark.usefixtures("endless")
def test_clients_that_say_nothing_keep_nobody_from_the_page_nor_the_process_from_ending() -> None:
    port = free_port()
    with contextlib.ExitStack() as silent:
        with serving("127.0.0.1", port, lambda: b"a 1\n"):
            for _ in range(server.CLIENTS_MAX - 1):
                silent.enter_context(silent_client(port))
            assert asked(port) == (200, b"a 1\n")
            wait_until(lambda: answering() == server.CLIENTS_MAX - 1, WITHIN_S, "the silent ones are listened to")
        assert answering() == server.CLIENTS_MAX - 1
    wait_until(lambda: answering() == 0, WITHIN_S, "they are gone")


@pytest.mark.usefixtures("endless")
def test_clients_beyond_the_bound_are_hung_up_on_and_later_ones_find_room_again() -> None:
    port = free_port()
    with serving("127.0.0.1", port, lambda: b"a 1\n"):
        with contextlib.ExitStack() as silent:
            for _ in range(server.CLIENTS_MAX):
                silent.enter_context(silent_client(port))
            with pytest.raises((ConnectionError, http.client.BadStatusLine)):
                asked(port)
        wait_until(lambda: answering() == 0, WITHIN_S, "they are gone")
        assert asked(port) == (200, b"a 1\n")


def test_a_request_has_one_time_limit_however_slowly_its_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S_MAX", 0.5)
    port = free_port()
    with serving("127.0.0.1", port, bytes), silent_client(port) as slow:
        slow.settimeout(0.05)
        for _ in range(200):
            with contextlib.suppress(TimeoutError):
                try:
                    slow.sendall(b"a")
                    assert slow.recv(1) == b""
                except ConnectionError:
                    pass
                return
    pytest.fail("it was listened to for 10 s")


def test_a_client_that_hangs_up_leaves_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    port, gone = free_port(), threading.Event()

    def page() -> bytes:
        assert gone.wait(WITHIN_S)
        return bytes(10_000_000)

    with serving("127.0.0.1", port, page):
        with silent_client(port) as client:
            client.sendall(b"alhost\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        assert asked(port)[0] == 200
        wait_until(lambda: answering() == 0, WITHIN_S, "all are answered")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "["])
def test_a_page_whose_name_was_made_ours_cannot_read_metrics(host: str) -> None:
    port = free_port()
    with serving("127.0.0.1", port, bytes):
        assert asked(port, host)[0] == 403
        for own in ("127.0.0.1:1", "[::1]:1", "LOCALHOST", socket.gethostname()):
            assert asked(port, own)[0] == 200
