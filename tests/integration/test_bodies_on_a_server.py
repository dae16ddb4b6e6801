"""A real server on loopback against clients that mean harm: huge, slow, lying and exploding bodies, answers that nobody
reads, and wrong TLS."""

from __future__ import annotations

import itertools
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
import pycurl
import pytest
import uvicorn
import zstandard

from drumlin.api import wire
from drumlin.api.bodies import (
    JSON,
    Format,
    Receive,
    Send,
    decompress,
    encode,
    header_of,
    read_body,
    reply,
    reply_refused,
)
from drumlin.errors import ConfigError
from drumlin.http.refusal import Refused
from drumlin.tls import CertificateFiles, create_certificates, curl_options, server_context

BYTES_MAX = 1_000_000
GRACE_S = 1.0
WAIT_S = 30.0
GIGABYTE = 1 << 30
LARGE_ANSWER = bytes(range(256)) * (1 << 17)
"""Far more than the kernel's buffers of both ends have room for."""
SMALL_ANSWER = bytes(16 * 1024)

_anything: Format[Any] = Format(Any)


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Reads JSON as a coordinator does, and answers how many characters it has. A GET is answered at more length."""
    if scope["method"] == "GET":
        await reply(send, 200, LARGE_ANSWER if scope["path"] == "/large" else SMALL_ANSWER, "application/octet-stream")
        return
    try:
        headers = scope["headers"]
        raw = await read_body(headers, receive, bytes_max=BYTES_MAX, grace_s=GRACE_S, rate_min=1_000_000)
        body = decompress(raw, header_of(headers, b"content-encoding"), BYTES_MAX)
        _anything.decode(body, header_of(headers, b"content-type"))
        await reply(send, 200, encode(len(body), JSON), JSON)
    except Refused as refused:
        await reply_refused(send, refused, JSON)


@contextmanager
def serving(**options: Any) -> Iterator[int]:
    """The application on a port of its own."""
    with server_of(**options) as server:
        yield port_of(server)


def port_of(server: uvicorn.Server) -> int:
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port


@contextmanager
def server_of(**options: Any) -> Iterator[uvicorn.Server]:
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", **{"loop": "uvloop", **options})
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        _wait(lambda: server.started)
        yield server
    finally:
        server.should_exit = server.force_exit = True
        thread.join(WAIT_S)


def _wait(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as number:
        yield number


def head(*headers: str) -> bytes:
    return "\r\n".join(["POST / HTTP/1.1", "Host: localhost", f"Content-Type: {JSON}", *headers, "", ""]).encode()


class Talk:
    """A connection on which a test can send any bytes."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.sent_bytes = 0

    def send(self, data: bytes) -> bool:
        """False when the server no longer listens."""
        try:
            self.connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.sent_bytes += len(data)
        return True

    def answer(self) -> tuple[int, str]:
        """Status and error code of one answer, after which the connection must end."""
        answer = b""
        try:
            while part := self.connection.recv(65_536):
                answer += part
        except ConnectionResetError:
            pass
        self.connection.close()
        start, _, body = answer.partition(b"\r\n\r\n")
        return int(start.split()[1]), json.loads(body)["error"]["code"]


def test_an_honest_body_is_read_and_its_connection_kept(port: int) -> None:
    talk = Talk(port)
    for text in (b"[1]", b'"' + b"x" * 900_000 + b'"'):
        talk.send(head(f"Content-Length: {len(text)}") + text)
        answer = b""
        while not answer.endswith(b"\r\n\r\n%d" % len(text)):
            answer += talk.connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 200")
    talk.connection.close()


def test_a_gigabyte_that_says_so_is_refused_at_once_and_the_connection_ends(port: int) -> None:
    talk = Talk(port)
    talk.send(head(f"Content-Length: {GIGABYTE}"))
    assert talk.answer() == (413, "too_large")


def test_who_asks_before_sending_a_gigabyte_is_told_not_to(port: int) -> None:
    talk = Talk(port)
    talk.send(head(f"Content-Length: {GIGABYTE}", "Expect: 100-continue"))
    assert talk.answer() == (413, "too_large")


def test_a_gigabyte_in_chunks_is_cut_off_soon_after_the_limit(port: int) -> None:
    before_bytes = psutil.Process().memory_info().rss
    talk = Talk(port)
    talk.send(head("Transfer-Encoding: chunked"))
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    while talk.sent_bytes < GIGABYTE and talk.send(piece):
        pass
    # The kernel's buffers of both ends come on top of the limit.
    assert talk.sent_bytes < 64 * BYTES_MAX
    assert psutil.Process().memory_info().rss - before_bytes < 100 * BYTES_MAX
    talk.connection.close()


@pytest.mark.parametrize("said", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_never_comes_is_cut_off(port: int, said: str) -> None:
    talk = Talk(port)
    talk.send(head(said))
    assert talk.answer() == (408, "too_slow")


def test_a_body_that_drips_is_cut_off(port: int) -> None:
    talk = Talk(port)
    talk.send(head("Content-Length: 1000"))
    deadline = time.monotonic() + WAIT_S
    while talk.send(b"1") and time.monotonic() < deadline:
        time.sleep(0.02)
    talk.connection.close()
    assert talk.sent_bytes < 1000, "the server waited for all of it"


def test_slow_senders_do_not_keep_others_waiting(port: int) -> None:
    slow = [Talk(port) for _ in range(100)]
    for talk in slow:
        talk.send(head("Content-Length: 1000"))
    fast = Talk(port)
    fast.send(head("Content-Length: 3", "Connection: close") + b"[1]")
    assert fast.connection.recv(65_536).startswith(b"HTTP/1.1 200")
    fast.connection.close()
    assert {talk.answer() for talk in slow} == {(408, "too_slow")}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (["Content-Encoding: zstd"], zstandard.compress(bytes(GIGABYTE >> 3)), (413, "too_large")),
        (["Content-Encoding: zstd"], b"rubbish", (400, "damaged")),
        (["Content-Encoding: br"], b"rubbish", (415, "unknown_encoding")),
        ([], b"[" * 900_000, (400, "malformed")),
        ([], b"", (400, "malformed")),
    ],
)
def test_a_body_that_is_whole_but_wrong_is_refused(
    port: int, headers: list[str], body: bytes, expected: tuple[int, str]
) -> None:
    talk = Talk(port)
    talk.send(head(f"Content-Length: {len(body)}", "Connection: close", *headers) + body)
    assert talk.answer() == expected


# Answers


@contextmanager
def little_room(port: int, context: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
    """A connection of a client whose kernel takes little that the client does not read."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(WAIT_S)
    plain.connect(("127.0.0.1", port))
    with plain if context is None else context.wrap_socket(plain, server_hostname="localhost") as connection:
        yield connection


def cut_off(connection: socket.socket) -> bool:
    """Wait until the server has cut a connection, without reading from it."""
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(WAIT_S * 1_000))


def asked(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize(
    "sent",
    [asked("/large"), asked("/large") * 3, asked("/large", "Connection: close")],
    ids=["once", "again behind it", "for the last time"],
)
def test_who_does_not_read_a_large_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch, sent: bytes, loop: str) -> None:
    monkeypatch.setattr(wire, "UNREAD_S_MAX", 0.3)
    with serving(http=wire.LimitedProtocol, loop=loop) as port, little_room(port) as connection:
        connection.sendall(sent)
        assert cut_off(connection)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_who_does_not_read_by_tls_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, files: CertificateFiles, loop: str
) -> None:
    monkeypatch.setattr(wire, "UNREAD_S_MAX", 0.3)
    context = ssl.create_default_context(cafile=files.authority)
    with (
        serving(http=wire.LimitedProtocol, loop=loop, **tls(files)) as port,
        little_room(port, context) as connection,
    ):
        connection.sendall(asked("/large"))
        assert cut_off(connection)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_who_says_goodbye_and_leaves_a_little_unread_is_cut_off(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    monkeypatch.setattr(wire, "UNREAD_S_MAX", 0.3)
    with server_of(http=wire.LimitedProtocol, loop=loop) as server, little_room(port_of(server)) as connection:
        for answered in itertools.count(1):
            connection.sendall(asked("/small"))
            _wait(lambda answered=answered: server.server_state.total_requests == answered)  # type: ignore[misc]
            if unsent := _unsent(server):
                break
        assert unsent <= wire.UNREAD_BYTES_MAX
        connection.shutdown(socket.SHUT_WR)
        assert cut_off(connection)


def _unsent(server: uvicorn.Server) -> int:
    """What waits in the server's own buffers."""
    return sum(one.transport.get_write_buffer_size() for one in list(server.server_state.connections))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_large_answer_arrives_whole_and_little_of_it_waits(files: CertificateFiles, secure: bool) -> None:
    context = ssl.create_default_context(cafile=files.authority) if secure else None
    options = tls(files) if secure else {}
    with (
        server_of(http=wire.LimitedProtocol, **options) as server,
        little_room(port_of(server), context) as connection,
    ):
        for _ in range(2):
            connection.sendall(asked("/large"))
            received, unsent = bytearray(), 0
            while (begin := received.find(b"\r\n\r\n")) < 0 or len(received) < begin + 4 + len(LARGE_ANSWER):
                received += connection.recv(1 << 20)
                unsent = max(unsent, _unsent(server))
            assert received[begin + 4 :] == LARGE_ANSWER
            assert unsent < 4 * wire.UNREAD_BYTES_MAX


# TLS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return create_certificates(tmp_path_factory.mktemp("certificates"), ["localhost", "127.0.0.1"], time.time())


def tls(files: CertificateFiles, client_authority: Path | None = None) -> dict[str, Any]:
    context = server_context(files.server, files.server_key, client_authority)
    return {"ssl_context_factory": lambda config, default: context}


def post(url: str, options: dict[int, str | int]) -> int:
    """The status of a small request by libcurl, as nodes send it; the negative error code if there is no answer."""
    curl = pycurl.Curl()
    settings = {
        **options,
        pycurl.URL: url,
        pycurl.PROXY: "",
        pycurl.HTTPHEADER: [f"Content-Type: {JSON}"],
        pycurl.POSTFIELDS: "[1]",
        pycurl.WRITEDATA: BytesIO(),
        pycurl.TIMEOUT: int(WAIT_S),
    }
    try:
        for option, value in settings.items():
            curl.setopt(option, value)
        curl.perform()
        return int(curl.getinfo(pycurl.RESPONSE_CODE))
    except pycurl.error as error:
        return -int(error.args[0])
    finally:
        curl.close()


def test_who_trusts_the_authority_gets_in_by_every_name_of_the_certificate(files: CertificateFiles) -> None:
    with serving(**tls(files)) as port:
        options = curl_options(files.authority)
        assert post(f"https://127.0.0.1:{port}/", options) == 200
        assert post(f"https://localhost:{port}/", options) == 200
        assert post(f"https://127.0.0.2:{port}/", options) < 0, "not in the certificate"
        assert post(f"https://127.0.0.1:{port}/", curl_options(None)) < 0, "an authority that nobody trusts"


def test_an_old_protocol_is_refused(files: CertificateFiles) -> None:
    with serving(**tls(files)) as port:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(files.authority)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="localhost")


def test_a_server_that_asks_for_a_clients_certificate_lets_nobody_else_in(files: CertificateFiles) -> None:
    with serving(**tls(files, files.authority)) as port:
        url = f"https://localhost:{port}/"
        assert post(url, curl_options(files.authority, files.client)) == 200
        assert post(url, curl_options(files.authority)) < 0


def test_files_that_do_not_fit_are_named_in_one_sentence(files: CertificateFiles, tmp_path: Path) -> None:
    for certificate, key in (
        (files.server, files.authority_key),
        (tmp_path / "no", tmp_path / "no"),
        (tmp_path, tmp_path),
    ):
        with pytest.raises(ConfigError, match="Cannot use the certificate files"):
            server_context(certificate, key)
    with pytest.raises(ConfigError, match="Cannot use the certificate files"):
        curl_options(files.server_key)
