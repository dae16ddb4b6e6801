"""A server on many addresses of loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Self

START_S_MAX = 10.0
JOIN_S_MAX = 10.0


class ManyAddresses:
    """Listens on 127.`net`.0.1 and following, each on a port of its own. Subclasses define `serve`, which handles a
    connection."""

    def __init__(self, hosts: int, *, net: int) -> None:
        self.connections = 0
        self.authorities: list[str] = []
        self._addresses = [f"127.{net}.0.{number}" for number in range(1, hosts + 1)]
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)

    def __enter__(self) -> Self:
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
                server = await asyncio.start_server(self._connected, address, 0, backlog=1024)
                await stack.enter_async_context(server)
                self.authorities.append(f"{address}:{server.sockets[0].getsockname()[1]}")
            self._started.set()
            await self._stop.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self.serve(reader, writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError
