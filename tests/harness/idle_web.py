"""A web server of HTTP/1.1 that closes connections which nobody has used for a while, on many addresses."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack

HEAD_BYTES_MAX = 65_536
START_S_MAX = 10.0
JOIN_S_MAX = 10.0


class IdleWeb:
    """Answers every path on 127.`net`.0.1 and following, and closes a connection `idle_s` after its last answer."""

    def __init__(self, idle_s: float, hosts: int, *, net: int, pages: int = 0) -> None:
        self.asked: Counter[str] = Counter()
        """How often each URL was asked for."""
        self.connections = 0
        self.origins: list[str] = []
        self._idle_s = idle_s
        self._pages = pages
        self._addresses = [f"127.{net}.0.{number}" for number in range(1, hosts + 1)]
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)

    def __enter__(self) -> IdleWeb:
        self._thread.start()
        assert self._started.wait(START_S_MAX)
        return self

    def __exit__(self, *ending: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN_S_MAX)

    async def _live(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            for address in self._addresses:
                server = await asyncio.start_server(self._serve, address, 0, backlog=1024)
                await stack.enter_async_context(server)
                self.origins.append(f"http://{address}:{server.sockets[0].getsockname()[1]}")
            self._started.set()
            await self._stop.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        address, port = writer.get_extra_info("sockname")[:2]
        try:
            while True:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._idle_s)
                path = head.split(b" ", 2)[1].decode()
                self.asked[f"http://{address}:{port}{path}"] += 1
                writer.write(self._answer(path))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, path: str) -> bytes:
        if path == "/robots.txt":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        links = "".join(f'<a href="/{number}">{number}</a>' for number in range(self._pages)) if path == "/" else ""
        body = f"<title>{path}</title><p>page {path} {links}".encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
