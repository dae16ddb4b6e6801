"""A relay before a web server. It counts requests that were sent in vain, on connections that the server has closed.

It passes bytes on and looks only at their number and at the heads of TLS records, so it also counts encrypted requests.
When the server closes a connection, the relay closes its side to the client at once. If the client still sends
something, that is counted and the connection is reset, as the server's machine would do.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.harness.many_addresses import ManyAddresses

CHUNK_BYTES = 65_536
ANSWER_BYTES_MIN = 400
"""Every page of a test is longer than this; the last messages of TLS and HTTP/2 are shorter."""
TLS_APPLICATION_DATA = 23
TLS_HEAD_BYTES = 5
REQUEST_BYTES_MIN = 150
"""A TLS record with a request for a `LONG_PATH` is longer than this; records with other HTTP/2 frames are not."""
LONG_PATH = "/" + "X" * REQUEST_BYTES_MIN + "/"
"""Every path of a test begins with this. It is so long even after the compression of headers."""


class CountingRelay(ManyAddresses):
    """Listens on 127.`net`.0.1 and following, and passes everything on to a port of 127.0.0.1."""

    def __init__(self, target_port: int, hosts: int, *, net: int) -> None:
        super().__init__(hosts, net=net)
        self.requests = 0
        self.wasted = 0
        """Requests without an answer, because the server was closing the connection or had closed it."""
        self._target_port = target_port

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
            connection = _Connection(self, client, to_client, server, to_server)
            await asyncio.gather(connection.pass_answers(), connection.pass_requests())


class _Connection:
    """One connection of a client and the one to the server that it is passed on to."""

    def __init__(
        self,
        relay: CountingRelay,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        self._relay = relay
        self._client, self._to_client = client, to_client
        self._server, self._to_server = server, to_server
        self._waiting = False
        self._answer_bytes = 0
        self._closed = False

    async def pass_answers(self) -> None:
        with suppress(OSError):
            while data := await self._server.read(CHUNK_BYTES):
                self._answer_bytes += len(data)
                self._waiting = self._waiting and self._answer_bytes < ANSWER_BYTES_MIN
                self._to_client.write(data)
                await self._to_client.drain()
        self._closed = True
        self._relay.wasted += self._waiting
        with suppress(OSError):
            self._to_client.write_eof()

    async def pass_requests(self) -> None:
        with suppress(OSError):
            while data := await self._client.read(CHUNK_BYTES):
                asks = _has_request(data)
                self._relay.requests += asks
                if self._closed and asks:
                    self._relay.wasted += 1
                    break
                if not self._closed:
                    self._waiting, self._answer_bytes = self._waiting or asks, 0
                    self._to_server.write(data)
                    await self._to_server.drain()
        self._to_server.close()
        self._to_client.transport.abort()


def _has_request(data: bytes) -> bool:
    if data.startswith(b"GET "):
        return True
    while len(data) > TLS_HEAD_BYTES:
        length = int.from_bytes(data[3:TLS_HEAD_BYTES], "big")
        if data[0] == TLS_APPLICATION_DATA and length >= REQUEST_BYTES_MIN:
            return True
        data = data[TLS_HEAD_BYTES + length :]
    return False
