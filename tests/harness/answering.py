"""A stand-in for a coordinator that answers as a test tells it, and a real client of nodes that asks it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from drumlin.fetch import Fetcher, FetchLimits
from drumlin.fetch.guard import Guard
from drumlin.node.calling.client import CoordinatorClient
from drumlin.node.calling.parties import Coordinators
from drumlin.protocol import Done, Result, Results
from tests.harness.certificates import Certificate

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
    """Gives the answers of a list, one after the other, and then good ones. With a certificate it speaks TLS."""

    def __init__(self, certificate: Certificate | None = None) -> None:
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
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.certificate, certificate.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            # A client that does not trust the certificate hangs up, which is no error of the server.
            self._server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        self.endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}"
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


def say(client: CoordinatorClient, within_s: float = WITHIN_S, **more: Any) -> Done:
    return client.call("/hello", Done("said"), Done, within_s=within_s, **more)


def results(count: int = 1) -> Results:
    link = "http://a.test/" + "x" * 50
    return Results([Result("n0:a/1.0.0", f"http://a.test/{number}", 200, "", [link], 1.0) for number in range(count)])
