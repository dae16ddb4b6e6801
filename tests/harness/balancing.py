"""A TCP load balancer that gives each new connection to the next living backend, and can throw replies away."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from itertools import cycle

CHUNK_BYTES = 65_536
POLL_S = 0.05
CONNECT_S_MAX = 2.0


class Balancer:
    """Listens on loopback. While it loses replies, requests reach the backends but the answers are thrown away.
    Connections that lost something are closed when replies pass again."""

    def __init__(self, ports: list[int]) -> None:
        self._backends = cycle(ports)
        self._count = len(ports)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._far: dict[socket.socket, socket.socket] = {}
        """For each side of a connection its other side."""
        self._backend_sides: set[socket.socket] = set()
        self._lossy: set[socket.socket] = set()
        self._losing = threading.Event()
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.lost_bytes = 0

    def __enter__(self) -> Balancer:
        self._thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._closing.set()
        self._thread.join()
        for one in [*self._far, self._listener]:
            one.close()
        self._selector.close()

    def lose_replies(self) -> None:
        self._losing.set()

    def pass_replies(self) -> None:
        self._losing.clear()

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._closing.is_set():
            for key, _ in self._selector.select(POLL_S):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._far:
                    self._pass_on(key.fileobj)
            if not self._losing.is_set():
                for side in list(self._lossy):
                    self._end(side)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        for _ in range(self._count):
            with suppress(OSError):
                far = socket.create_connection(("127.0.0.1", next(self._backends)), timeout=CONNECT_S_MAX)
                self._far |= {near: far, far: near}
                self._backend_sides.add(far)
                for side in (near, far):
                    self._selector.register(side, selectors.EVENT_READ)
                return
        near.close()

    def _pass_on(self, side: socket.socket) -> None:
        try:
            data = side.recv(CHUNK_BYTES)
            if data and side in self._backend_sides and self._losing.is_set():
                self._lossy.add(side)
                self.lost_bytes += len(data)
            else:
                self._far[side].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._end(side)

    def _end(self, side: socket.socket) -> None:
        """If one side ends a connection, end the other side too."""
        for one in (side, self._far.get(side)):
            if one is None:
                continue
            self._far.pop(one, None)
            self._backend_sides.discard(one)
            self._lossy.discard(one)
            with suppress(KeyError, ValueError):
                self._selector.unregister(one)
            one.close()
