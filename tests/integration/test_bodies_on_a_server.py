"""A real server on loopback against senders that mean harm: huge, slow, lying and exploding bodies, and wrong TLS."""

from __future__ import annotations

import json
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

_anything: Format[Any] = Format(Any)


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Reads JSON as a coordinator does, and answers how many characters it has."""
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
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", loop="uvloop", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        _wait(lambda: server.started)
        port: int = server.servers[0].sockets[0].getsockname()[1]
        yield port
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
