"""Which idle connections are used again: with real sockets, and time as the test says."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from drumlin.fetch.kept import Choice, KeptConnections, origin_of

ORIGIN = "http://a.test"
AS_EVER, ONCE = Choice(False, True), Choice(True, False)


class Host:
    """A server's connections to us: each is opened, used and left idle at times that the test names."""

    def __init__(self) -> None:
        self.unwatched: list[int] = []
        self.kept = KeptConnections(self.unwatched.append)
        self.sockets: list[socket.socket] = []

    def connect(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        self.sockets += [listener, ours, theirs]
        self.kept.opened(ours.fileno(), ORIGIN)
        return ours.fileno()

    def answer(self, number: int, now: float) -> None:
        self.kept.used(number)
        self.kept.rests(number, now)
        self.kept.ended(ORIGIN, now)


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    for one in made.sockets:
        one.close()


def test_a_connection_is_used_again_at_once(host: Host) -> None:
    host.answer(host.connect(), 10.0)
    assert host.kept.choose(ORIGIN, 10.4) == AS_EVER


def test_an_idle_connection_is_watched_until_the_server_is_known_to_wait_long_enough(host: Host) -> None:
    host.answer(host.connect(), 10.0)
    for now in (11.0, 12.0):
        assert host.kept.choose(ORIGIN, now) == ONCE
        host.kept.ended(ORIGIN, now)
    assert host.kept.choose(ORIGIN, 13.0) == AS_EVER, "it has waited 3 s, and 1 s lies between two requests"
    assert len(host.unwatched) == 1, "the one that has been idle for 3 s is not used"
    host.answer(host.connect(), 13.0)
    assert host.kept.choose(ORIGIN, 14.0) == AS_EVER


def test_what_a_server_closes_is_its_limit(host: Host) -> None:
    first = host.connect()
    host.answer(first, 10.0)
    assert host.kept.closed(first, 12.0)
    assert not host.kept.closed(first, 12.0), "once"
    host.answer(host.connect(), 12.0)
    assert host.kept.choose(ORIGIN, 13.0) == AS_EVER
    host.answer(host.connect(), 13.0)
    assert host.kept.choose(ORIGIN, 15.0) == ONCE, "as long as the limit"
    host.kept.ended(ORIGIN, 15.0)
    assert host.kept.choose(ORIGIN, 17.0) == ONCE, "and none is kept for nothing"


def test_nothing_can_be_sent_on_what_was_shut_and_it_is_known_by_its_port(host: Host) -> None:
    number = host.connect()
    ours = next(one for one in host.sockets if one.fileno() == number)
    port = ours.getsockname()[1]
    host.answer(number, 10.0)
    assert not host.kept.is_shut(port)
    host.kept.closed(number, 11.0)
    with pytest.raises(BrokenPipeError):
        ours.send(b"GET / HTTP/1.1\r\n\r\n")
    assert host.kept.is_shut(port)
    assert not host.kept.is_shut(port), "the port may be given to another"


def test_a_number_that_went_to_another_file_is_left_alone(host: Host) -> None:
    number, other = host.connect(), host.connect()
    host.answer(number, 10.0)
    os.dup2(other, number)
    assert host.kept.choose(ORIGIN, 20.0) == AS_EVER, "there is nothing idle"
    host.kept.forget(number)
    assert not host.kept.rests(number, 21.0)
    assert os.write(number, b"x") == 1


def test_an_origin_is_scheme_and_authority() -> None:
    assert origin_of("https://a.test:8443/x/y?z") == "https://a.test:8443"
