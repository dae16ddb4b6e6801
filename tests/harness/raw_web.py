"""A web server that answers with the very bytes that a test gives it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping

RECEIVE_BYTES = 65_536
ACCEPT_S_MAX = 0.1
RECEIVE_S_MAX = 5.0
JOIN_S_MAX = 10.0

Answer = bytes | Callable[[bytes], bytes]
"""The bytes to send, or a function that makes them from the head of the request."""
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class RawWeb:
    """Answers by path, for as long as the context lasts. `ends` says how the connection ends after the answer to a
    path; otherwise it is kept open."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.ends: dict[str, Callable[[socket.socket], None]] = {}
        self.asked: list[str] = []
        self.requests: list[bytes] = []
        self._ending = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ACCEPT_S_MAX)
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}{path}"

    def __enter__(self) -> RawWeb:
        self._thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._ending.set()
        self._thread.join(JOIN_S_MAX)
        self._listener.close()

    def _serve(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(RECEIVE_S_MAX)
            while self._answer(connection):
                pass

    def _answer(self, connection: socket.socket) -> bool:
        """Answer one request. Returns whether the connection stays open."""
        head = b""
        while b"\r\n\r\n" not in head:
            more = connection.recv(RECEIVE_BYTES)
            if not more:
                return False
            head += more
        path = head.split(b" ", 2)[1].decode("latin-1")
        self.asked.append(path)
        self.requests.append(head)
        answer = self.answers.get(path, NOT_FOUND)
        connection.sendall(answer if isinstance(answer, bytes) else answer(head))
        if path not in self.ends:
            return True
        self.ends[path](connection)
        return False
