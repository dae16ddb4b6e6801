"""A server whose pages break in a chosen way, behind a robots.txt that works."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

RECEIVE_BYTES = 65_536
ACCEPT_S_MAX = 0.2
RECEIVE_S_MAX = 5.0
JOIN_S_MAX = 10.0
# With a linger time of zero, closing sends a reset instead of an orderly end.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Fault = Callable[[socket.socket], None]


def reset(connection: socket.socket) -> None:
    """The connection is reset before any answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def cut_short(connection: socket.socket) -> None:
    """The body ends before the length that was promised."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5000\r\n\r\n<p>A beginning")


def no_http(connection: socket.socket) -> None:
    """The answer is of another protocol."""
    connection.sendall(b"220 mail.example ESMTP ready\r\n")


@contextlib.contextmanager
def faulty_server(address: str, fault: Fault) -> Iterator[str]:
    """Its host (address and port), until the block is left."""
    ending = threading.Event()
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(ACCEPT_S_MAX)
        thread = threading.Thread(target=_serve, args=(listener, fault, ending))
        thread.start()
        try:
            yield f"{address}:{listener.getsockname()[1]}"
        finally:
            ending.set()
            thread.join(JOIN_S_MAX)


def _serve(listener: socket.socket, fault: Fault, ending: threading.Event) -> None:
    while not ending.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection, contextlib.suppress(OSError):
            connection.settimeout(RECEIVE_S_MAX)
            _answer(connection, fault)


def _answer(connection: socket.socket, fault: Fault) -> None:
    if connection.recv(RECEIVE_BYTES).startswith(b"GET /robots.txt "):
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    else:
        fault(connection)
