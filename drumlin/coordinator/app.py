"""The dispatcher on HTTP: one ASGI application, MessagePack in and out, no framework in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from drumlin.coordinator.dispatch import HEARTBEAT_S, Dispatcher
from drumlin.errors import DrumlinError
from drumlin.protocol import (
    BODY_BYTES_MAX,
    MEDIA_TYPE,
    CrawlState,
    Done,
    Failure,
    Heartbeat,
    KnownRequest,
    Register,
    Registered,
    Results,
    Setup,
    SetupRequest,
    Work,
    WorkRequest,
)

LONG_POLL_S = 0.25

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Answer = Callable[[str, Any], Awaitable[Any]]

_encoder = msgspec.msgpack.Encoder()


class Refused(Exception):
    """A request that cannot be served: an HTTP status and what is wrong."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class CoordinatorApp:
    """ASGI: `/api/v1/nodes/…` for nodes. `on_failure` hears when a node or the engine cannot go on."""

    def __init__(self, dispatcher: Dispatcher, on_failure: Callable[[Failure], None]) -> None:
        self._dispatcher = dispatcher
        self._on_failure = on_failure
        self._changed = asyncio.Event()
        self.bug: Exception | None = None
        """What nobody foresaw, for whoever runs the server to raise."""
        self._routes: dict[str, tuple[Answer, msgspec.msgpack.Decoder[Any]]] = {
            name: (answer, msgspec.msgpack.Decoder(message))
            for name, answer, message in (
                ("setup", self._setup, SetupRequest),
                ("register", self._register, Register),
                ("work/request", self._work, WorkRequest),
                ("known", self._known, KnownRequest),
                ("results", self._results, Results),
                ("heartbeat", self._heartbeat, Heartbeat),
                ("failed", self._failed, Failure),
                ("leave", self._leave, SetupRequest),
            )
        }

    def work_may_have_come(self) -> None:
        """Wake the nodes that wait for work."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            body = await self._answer(scope, receive)
            await _reply(send, 200, body)
        except Refused as refused:
            error = {"error": {"code": refused.code, "message": str(refused), "hint": ""}}
            await _reply(send, refused.status, _encoder.encode(error))
        except DrumlinError as broken:
            self._on_failure(Failure(broken.message, broken.hint, broken.exit_code))
            error = {"error": {"code": "failed", "message": broken.message, "hint": broken.hint}}
            await _reply(send, 500, _encoder.encode(error))
        except Exception as bug:
            self.bug = self.bug or bug
            error = {"error": {"code": "bug", "message": repr(bug), "hint": ""}}
            await _reply(send, 500, _encoder.encode(error))

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> bytes:
        path: str = scope["path"]
        if path == "/healthz":
            return _encoder.encode(Done())
        parts = path.removeprefix("/api/v1/nodes/").split("/", 1)
        if not path.startswith("/api/v1/nodes/") or len(parts) != 2 or parts[1] not in self._routes:
            raise Refused(404, "not_found", f"There is nothing at {path}.")
        answer, decoder = self._routes[parts[1]]
        try:
            message = decoder.decode(await _body(receive))
        except msgspec.DecodeError as malformed:
            raise Refused(400, "malformed", f"The body is not what {path} takes: {malformed}") from malformed
        return _encoder.encode(await answer(parts[0], message))

    async def _setup(self, node: str, message: SetupRequest) -> Setup:
        dispatcher = self._dispatcher
        return Setup(
            msgspec.json.encode(dispatcher.config),
            dispatcher.config.config_hash(),
            dispatcher.scope_of_seeds(),
            dispatcher.scope_seeds,
        )

    async def _register(self, node: str, message: Register) -> Registered:
        self._dispatcher.register(node, time.time())
        self.work_may_have_come()
        return Registered(node, "registered", HEARTBEAT_S, self._dispatcher.config.config_hash())

    async def _work(self, node: str, request: WorkRequest) -> Work:
        """Answer at once when there is work, else wait a little for some to come."""
        changed = self._changed
        work = self._dispatcher.work(node, request, time.time())
        if work.leases or work.lost or not request.max_hosts or work.state is not CrawlState.RUNNING:
            return work
        self._dispatcher.hungry.add(node)
        try:
            await asyncio.wait_for(changed.wait(), LONG_POLL_S)
        except TimeoutError:
            pass
        finally:
            self._dispatcher.hungry.discard(node)
        return self._dispatcher.work(node, request, time.time())

    async def _known(self, node: str, request: KnownRequest) -> Any:
        return self._dispatcher.known(request)

    async def _results(self, node: str, results: Results) -> Any:
        accepted = self._dispatcher.results(results, time.time())
        self.work_may_have_come()
        return accepted

    async def _heartbeat(self, node: str, beat: Heartbeat) -> Any:
        return self._dispatcher.heartbeat(node, beat, time.time())

    async def _failed(self, node: str, failure: Failure) -> Done:
        self._on_failure(failure)
        return Done()

    async def _leave(self, node: str, message: SetupRequest) -> Done:
        self._dispatcher.leave(node, time.time())
        return Done()


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        event = await receive()
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > BODY_BYTES_MAX:
            raise Refused(413, "too_large", f"A body may have at most {BODY_BYTES_MAX} bytes.")
        chunks.append(chunk)
        more = event.get("more_body", False)
    return b"".join(chunks)


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
