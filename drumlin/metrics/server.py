"""Serves a page of metrics from a thread of its own, for processes whose own thread must not wait.

Nobody is asked for a token: the page has figures only, no hosts and no URLs. So it is served where the user says, and
by a port alone on this machine only.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from drumlin.errors import BusyError, ConfigError
from drumlin.metrics.text import MEDIA_TYPE

PATH = "/metrics"
ANSWER_S_MAX = 5.0
"""A client that is slower than this is left: one is answered at a time."""
POLL_S = 0.2
"""How long an ending process may wait for the server to notice."""


@contextlib.contextmanager
def serving(host: str, port: int, page: Callable[[], bytes]) -> Iterator[None]:
    """Answer `GET /metrics` with what `page` returns, for as long as the context lasts."""
    server = _bound(host, port, _handler(page))
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Server(socketserver.TCPServer):
    allow_reuse_address = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def _bound(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    try:
        return (_Server6 if ":" in host else _Server)((host, port), handler)
    except OSError as cause:
        if cause.errno == errno.EADDRINUSE:
            message = f"Another program listens on {host}:{port}."
            raise BusyError(message, "Stop it, or choose another port with --metrics.") from cause
        message = f"Cannot serve metrics on {host}:{port}: {cause.strerror}."
        raise ConfigError(message, "Choose another address with --metrics.") from cause


def _handler(page: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = ANSWER_S_MAX
        server_version = "drumlin"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404, f"Only {PATH} is here")
                return
            body = page()
            self.send_response(200)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that it overrides
            """Scrapes are not worth a line each."""

    return Handler
