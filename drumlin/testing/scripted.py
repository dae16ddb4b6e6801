"""`ScriptedWeb`: hosts on loopback with scripted answers, a log of requests, and a thread that serves.

It knows nothing of the bundled hosts: `sites` fills it with them, and `fakeweb` joins the two.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

from drumlin.testing.expectations import Expected
from drumlin.testing.messages import HEAD_BYTES_MAX, Ending, Request, Response, parse_head, send

REQUESTS_MAX = 1_000_000
HOSTS_MAX = 1000
ADDRESSES_TRIED_MAX = 10 * HOSTS_MAX
BACKLOG = 128
START_S_MAX = 30.0

Responder = Callable[[Request], Response]
NOT_FOUND = Response(status=404, body="<!DOCTYPE html><title>Not found</title><p>There is no such page.")


class LoggedRequest(NamedTuple):
    """One request as the server saw it. `time` is that of the monotonic clock; `status` is 0 if it was reset."""

    time: float
    host: str
    path: str
    status: int


class ScriptedWeb:
    """A web on loopback that is empty at first. Pages can be added before and while it serves. Use it as a context
    manager, or call `serve_forever`."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.expected = Expected()
        self.seeds: list[str] = []
        self._sockets: dict[str, socket.socket] = {}
        self._addresses_tried = 0
        self._answers: dict[str, dict[str, Responder]] = {}
        self._prefixes: dict[str, dict[str, Responder]] = {}
        self._log: deque[LoggedRequest] = deque(maxlen=REQUESTS_MAX)
        self._visits: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._servers: list[asyncio.Server] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # Scripting

    def page(self, host: str, path: str, html: str) -> str:
        """Let `host` answer `path` with a page. Returns its URL."""
        return self.respond(host, path, Response(body=html))

    def respond(self, host: str, path: str, answer: Response | Responder) -> str:
        """Let `host` answer `path`; with a `*` at its end, every path that begins like it. Returns its URL."""
        self._open(host)
        responder = (lambda _: answer) if isinstance(answer, Response) else answer
        if path.endswith("*"):
            self._prefixes[host][path[:-1]] = responder
        else:
            self._answers[host][path] = responder
        return self.url(host, path)

    def url(self, host: str, path: str = "/") -> str:
        self._open(host)
        return f"http://{self.address(host)}{path}"

    def address(self, host: str) -> str:
        """The address and port of a host, by which crawlers know it."""
        self._open(host)
        address, port = self._sockets[host].getsockname()
        return f"{address}:{port}"

    @property
    def hosts(self) -> list[str]:
        return list(self._sockets)

    # What was asked

    @property
    def requests(self) -> list[LoggedRequest]:
        """Every request in order, robots.txt included."""
        with self._lock:
            return list(self._log)

    @property
    def requested(self) -> set[str]:
        """The URLs that were requested."""
        return {self.url(request.host, request.path) for request in self.requests}

    def min_gap(self, host: str) -> float:
        """The shortest time in seconds between two requests to a host; infinity if there were fewer than two."""
        times = [request.time for request in self.requests if request.host == host]
        return min((after - before for before, after in pairwise(times)), default=float("inf"))

    def forget_requests(self) -> None:
        """Clear the log, and the counts of requests for each path."""
        with self._lock:
            self._log.clear()
            self._visits.clear()

    # Serving

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="fake web", daemon=True)
        self._thread.start()
        if not ready.wait(START_S_MAX):
            raise TimeoutError(f"the fake web did not start within {START_S_MAX} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving and close every socket. Closing twice is allowed."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
        for sock in self._sockets.values():
            sock.close()

    def serve_forever(self) -> None:
        """Serve until interrupted (Ctrl-C)."""
        with self, suppress(KeyboardInterrupt):
            threading.Event().wait()

    def _open(self, host: str) -> None:
        """Give a new host an address and listen there."""
        if host in self._sockets:
            return
        sock = self._bind()
        self._answers[host], self._prefixes[host] = {}, {}
        self._sockets[host] = sock
        loop = self._loop
        if loop is not None and loop.is_running():
            asyncio.run_coroutine_threadsafe(self._listen(host), loop).result(START_S_MAX)

    def _bind(self) -> socket.socket:
        """A socket on the next address where the web's port is free."""
        while self._addresses_tried < ADDRESSES_TRIED_MAX:
            high, low = divmod(self._addresses_tried, 250)
            self._addresses_tried += 1
            # asyncio turns off Nagle's algorithm, which delays answers, only for sockets that are declared as TCP.
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((f"127.77.{high}.{low + 1}", self.port))
            except OSError:
                sock.close()
                continue
            self.port = sock.getsockname()[1]
            sock.listen(BACKLOG)
            return sock
        raise OSError(f"port {self.port} is free on none of {ADDRESSES_TRIED_MAX} loopback addresses")

    def _run(self, ready: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        try:
            for host in list(self._sockets):
                loop.run_until_complete(self._listen(host))
            self._loop = loop
            loop.call_soon(ready.set)
            loop.run_forever()
        finally:
            self._end_conversations(loop)
            loop.close()

    def _end_conversations(self, loop: asyncio.AbstractEventLoop) -> None:
        for server in self._servers:
            server.close()
        conversations = asyncio.all_tasks(loop)
        for conversation in conversations:
            conversation.cancel()
        if conversations:
            loop.run_until_complete(asyncio.wait(conversations))
        loop.run_until_complete(
            asyncio.sleep(0)
        )  # one turn of the loop, in which the transports that were just closed release their sockets

    async def _listen(self, host: str) -> None:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._converse(host, reader, writer)

        self._servers.append(await asyncio.start_server(converse, sock=self._sockets[host], limit=HEAD_BYTES_MAX))

    async def _converse(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until either side ends it."""
        try:
            going = True
            while going:
                method, path, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
                going = await send(writer, self._answer(host, method, path, headers), method)
                going = going and headers.get("connection", "").lower() != "close"
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, host: str, method: str, path: str, headers: dict[str, str]) -> Response:
        now = time.monotonic()
        with self._lock:
            self._visits[host, path] += 1
            number = self._visits[host, path]
        response = self._respond_to(Request(host, path, headers, number, method))
        if response.encoding not in headers.get("accept-encoding", ""):
            # Like a real server, use an encoding only if the client accepts it.
            response = replace(response, encoding="")
        status = 0 if response.ending is Ending.RESET else response.status
        with self._lock:
            self._log.append(LoggedRequest(now, host, path, status))
        return response

    def _respond_to(self, request: Request) -> Response:
        try:
            return self._responder(request.host, request.path)(request)
        except Exception as error:  # the user's script failed: say so, since a web that hangs would hide it
            return Response(
                status=500, body=f"the answer to {request.path} failed: {error!r}", content_type="text/plain"
            )

    def _responder(self, host: str, path: str) -> Responder:
        exact = self._answers[host].get(path)
        if exact is not None:
            return exact
        matching = [prefix for prefix in self._prefixes[host] if path.startswith(prefix)]
        return self._prefixes[host][max(matching, key=len)] if matching else lambda _: NOT_FOUND
