"""An HTTP/1.1 server on many addresses that closes connections which were idle for a while."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.harness.many_addresses import ManyAddresses

HEAD_BYTES_MAX = 65_536


class IdleWeb(ManyAddresses):
    """Answers every path on 127.`net`.0.1 and following, and closes a connection `idle_s` after its last answer."""

    def __init__(self, idle_s: float, hosts: int, *, net: int, pages: int = 0) -> None:
        super().__init__(hosts, net=net)
        self.asked: Counter[str] = Counter()
        """How often each URL was requested."""
        self._idle_s = idle_s
        self._pages = pages

    @property
    def origins(self) -> list[str]:
        return [f"http://{authority}" for authority in self.authorities]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
