"""Long bodies under way hold only so many bytes together, and all of them come to an end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from drumlin.fetch import Fetcher, FetchLimits
from drumlin.fetch.budget import BODY_BYTES_FREE, PIECE_BYTES_MAX
from drumlin.fetch.guard import Guard
from drumlin.fetch.transfer import Transfer

MIB = 1024 * 1024
BODY_BYTES = 2 * MIB
BUDGET_BYTES = 6 * MIB
TRANSFERS = 24
MOST_BYTES = BUDGET_BYTES + BODY_BYTES + TRANSFERS * (BODY_BYTES_FREE + PIECE_BYTES_MAX)
ROUNDS_MAX = 20_000
LIMITS = FetchLimits(
    connect_timeout_s=10.0, fetch_timeout_s=60.0, body_bytes_max=BODY_BYTES, speed_min_bytes_s=0, speed_window_s=60
)


class Withholding:
    """A server that sends each body except its last byte, which it sends when the test says so."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=TRANSFERS)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % BODY_BYTES
            connection.sendall(head + b"x" * (BODY_BYTES - 1))
            self.released.wait(60.0)
            connection.sendall(b"x")

    def close(self) -> None:
        self.released.set()
        self._listener.close()


@contextmanager
def fetching(transfers: int) -> Iterator[tuple[Fetcher, Withholding, list[tuple[str, int]]]]:
    server, done = Withholding(), list[tuple[str, int]]()
    fetcher = Fetcher(LIMITS, user_agent="test", guard=Guard(allow_private=True), bodies_bytes_max=BUDGET_BYTES)

    def ended(transfer: Transfer) -> None:
        done.append((transfer.failure, transfer.body_bytes))

    try:
        for number in range(transfers):
            fetcher.start(f"{server.url}{number}", ended, "context")
        yield fetcher, server, done
    finally:
        server.close()
        fetcher.close()


def held(fetcher: Fetcher) -> int:
    return sum(transfer.body_bytes for transfer in fetcher._active.values())


def run_until_full(fetcher: Fetcher) -> None:
    """Wait until long bodies have used up the budget."""
    for _ in range(ROUNDS_MAX):
        fetcher.run_once(0.05)
        assert held(fetcher) <= MOST_BYTES
        if fetcher._budget._paused:
            return
    pytest.fail("no body was ever paused")


def test_many_long_bodies_hold_only_so_much_and_all_arrive_whole() -> None:
    with fetching(TRANSFERS) as (fetcher, server, done):
        run_until_full(fetcher)
        for _ in range(100):
            fetcher.run_once(0.01)
            assert held(fetcher) <= MOST_BYTES
        assert not done
        server.released.set()
        for _ in range(ROUNDS_MAX):
            if len(done) == TRANSFERS:
                break
            fetcher.run_once(0.05)
            assert held(fetcher) <= MOST_BYTES
        assert done == [("", BODY_BYTES)] * TRANSFERS


def test_bodies_that_wait_elsewhere_count_and_one_always_goes_on() -> None:
    with fetching(3) as (fetcher, server, done):
        waiting = BUDGET_BYTES
        fetcher.count_beside(lambda: waiting)
        run_until_full(fetcher)
        server.released.set()
        for _ in range(ROUNDS_MAX):
            if len(done) == 3:
                break
            fetcher.run_once(0.05)
            longer = [one for one in fetcher._active.values() if one.body_bytes > BODY_BYTES_FREE]
            assert len(longer) <= 1
        assert done == [("", BODY_BYTES)] * 3
