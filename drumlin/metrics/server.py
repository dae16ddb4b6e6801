"""Serves a page of metrics from threads of its own, for processes whose own thread must not wait.

Nobody is asked for a token: the page has figures only, no hosts and no URLs. So it is served where the user says, and
by a port alone on this machine only, where web pages that are open in a browser must not read it either.

A few clients are answered at once, each within a time limit, and an ending process waits for none of them: who sends a
byte now and then keeps nobody from their figures, and no node from ending.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any

from drumlin.clock import monotonic
from drumlin.errors import BusyError, ConfigError
from drumlin.http.names import LOOPBACK, is_own_name, name_in
from drumlin.logs import Event, event
from drumlin.metrics.text import MEDIA_TYPE

PATH = "/metrics"
REQUEST_S_MAX = 5.0
"""A client that takes longer to say what it wants is left, and so is one that takes longer for the answer."""
REQUEST_BYTES_MAX = 16 * 1024
HEAD_END = b"\r\n\r\n"
RECEIVE_BYTES = 4096
CLIENTS_MAX = 16
"""How many are answered at once; further ones are hung up on."""
POLL_S = 0.2
"""How long an ending process may wait for the server to notice."""

log = logging.getLogger("drumlin.metrics")


@contextlib.contextmanager
def serving(host: str, port: int, page: Callable[[], bytes]) -> Iterator[None]:
    """Answer `GET /metrics` with what `page` returns, for as long as the context lasts. Several threads call it."""
    server = _bound(host, port, _handler(page, (host.lower(), socket.gethostname().lower())))
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.BoundedSemaphore(CLIENTS_MAX)
        self._served: set[Any] = set()
        super().__init__(*arguments)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a place for a client; without one it is hung up on."""
        if not self._room.acquire(blocking=False):
            return False
        self._served.add(request)
        return True

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        if request in self._served:
            self._served.remove(request)
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is slow or hangs up is not worth a line."""
        odd = sys.exception()
        if not isinstance(odd, OSError):
            log.error("metrics could not be told, for a reason nobody foresaw", exc_info=odd, extra=event(Event.BUG))


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


def _handler(page: Callable[[], bytes], names: tuple[str, ...]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S_MAX
        """For sending the answer."""
        server_version = "drumlin"
        sys_version = ""

        def setup(self) -> None:
            super().setup()
            self.rfile.close()
            self.rfile = BytesIO(_head(self.connection, monotonic() + REQUEST_S_MAX))
            self.connection.settimeout(REQUEST_S_MAX)

        def do_GET(self) -> None:
            if _by_foreign_name(self.client_address[0], self.headers.get("Host", ""), names):
                self.send_error(403, "Metrics are not told by that name")
                return
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


def _head(connection: socket.socket, deadline: float) -> bytes:
    """A request's head. `TimeoutError` if it is not whole by the deadline: the library's own limit is for each byte."""
    head = b""
    while HEAD_END not in head and len(head) < REQUEST_BYTES_MAX:
        left_s = deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        received = connection.recv(RECEIVE_BYTES)
        if not received:
            break
        head += received
    return head


def _by_foreign_name(sender: str, host: str, names: tuple[str, ...]) -> bool:
    """Whether a page of another site may have caused this request: it comes from this machine, by a name that is not
    ours. Clients on other machines were let in by whoever chose the address, and may have names for us that we do not
    know."""
    return bool(host) and sender.startswith(LOOPBACK) and not is_own_name(name_in(f"//{host}"), *names)
