"""A TCP proxy that can cut the network between two programs and mend it: bytes stop but connections stay, as when a
cable is pulled. It can also hold back requests of one kind, as if they took long, or pass everything on late."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 65_536
POLL_S = 0.05


class CuttingProxy:
    """Listens on loopback and passes everything on to a port, until `cut`; then nothing, until `mend`."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._held: list[tuple[socket.socket, socket.socket, bytes]] = []
        self._hold = b""
        self._late_s = 0.0
        self._cut = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._closing.set()
        self._thread.join()
        self._listener.close()
        for pair in self._pairs:
            for one in pair:
                one.close()

    def cut(self) -> None:
        """Pass nothing on any more, in either direction. Programs that send or connect have to wait."""
        self._cut.set()

    def mend(self) -> None:
        self._cut.clear()

    def slow_down(self, late_s: float) -> None:
        """Pass on every piece of data so much later, one after the other."""
        self._late_s = late_s

    def hold(self, start: bytes) -> None:
        """Hold back requests that begin like this, and all that follows on their connections, until `let_go`."""
        self._hold = start

    def let_go(self) -> None:
        self._hold = b""

    @property
    def holds(self) -> int:
        """How many connections are held back."""
        return len(self._held)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, None)
            while not self._closing.is_set():
                if self._cut.is_set():
                    self._closing.wait(POLL_S)
                    continue
                if self._held and not self._hold:
                    self._pass_on_held(selector)
                for key, _ in selector.select(POLL_S):
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._pass_on(selector, key)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target, timeout=5)
        except OSError:
            near.close()
            return
        self._pairs.append((near, far))
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)

    def _pass_on(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        source, sink = key.fileobj, key.data
        assert isinstance(source, socket.socket)
        data = b""
        with suppress(OSError):
            data = source.recv(CHUNK_BYTES)
            if self._hold and data.startswith(self._hold):
                selector.unregister(source)
                self._held.append((source, sink, data))
                return
            self._closing.wait(self._late_s)
            sink.sendall(data)
        if data:
            return
        for one in (source, sink):
            with suppress(KeyError, ValueError):
                selector.unregister(one)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pass_on_held(self, selector: selectors.BaseSelector) -> None:
        held, self._held = self._held, []
        for source, sink, data in held:
            with suppress(OSError):
                sink.sendall(data)
            selector.register(source, selectors.EVENT_READ, sink)
