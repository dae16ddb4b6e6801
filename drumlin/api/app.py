"""A coordinator on HTTP: one ASGI application for nodes, for workers that take one URL at a time, and for people.

Every request goes through the same steps: find its route, check who sent it and whether that sender may make it, read
its body within limits, check its signature, decode its message, call the route's function, and answer in JSON or
MessagePack. There is no framework: at hundreds of requests a second it would cost more than the work itself.

Guarantees: every refusal and failure is `{"error": {"code", "message", "hint"}}` with a fitting status; the bodies of
all requests together are held within `BODIES_BYTES_MAX`, and answers that nobody reads within `ANSWERS_BYTES_MAX`;
nothing that a client sends ends the process; every answer names the id of its request, by which the log can be
searched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from drumlin.access.audit import AuditLog
from drumlin.access.entry_code import EntryCode
from drumlin.access.tokens import AccessControl, Role, check_node_id
from drumlin.api.bodies import JSON, Receive, Send, UnreadAnswers, answers_in, decompress, encode, reply_refused
from drumlin.api.browsers import own_names, refuse_pages
from drumlin.api.calls.data import DataCalls
from drumlin.api.calls.history import HistoryCalls
from drumlin.api.calls.hosts import HostCalls
from drumlin.api.calls.metrics import CoordinatorMetrics, RequestMetrics
from drumlin.api.calls.nodes import NodeCalls
from drumlin.api.calls.page import PEOPLE_PERMISSIONS, PageCalls
from drumlin.api.calls.people import PeopleCalls
from drumlin.api.calls.settings import SettingsCalls
from drumlin.api.calls.single import SingleCalls
from drumlin.api.calls.taking import TakingCalls
from drumlin.api.explaining.orders import orders_in
from drumlin.api.explaining.shown import on_calendar
from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.api.gate import Gate, Origin
from drumlin.api.intake.bundles import QUOTA_BYTES
from drumlin.api.intake.workers import Intake
from drumlin.api.messages.people import WhyIdle
from drumlin.api.openapi import document
from drumlin.api.request_log import RefusalLog, request_ids
from drumlin.api.routing import (
    HEAD,
    Call,
    Door,
    PreparedRoute,
    Route,
    Router,
    Stream,
    Text,
    check_head,
    read_query,
    send_stream,
    written,
)
from drumlin.api.traces import CoordinatorTraces
from drumlin.api.watch import Watch
from drumlin.coordinator.breathing import LIGHT_WEIGHT, LIGHT_WEIGHT_REMOTE, LoopLanes
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.health import Health, Part, refusal
from drumlin.coordinator.totals import Totals
from drumlin.engines.watched import EngineCalls
from drumlin.errors import Cause, DrumlinError, StorageError
from drumlin.events.kafka import Kafka
from drumlin.http.refusal import Refused
from drumlin.logs import Event, current_request, event
from drumlin.protocol import Failure, paths
from drumlin.store.files import DirectoryFiles, StoreFiles

BODIES_BYTES_MAX = 512 * 1024 * 1024
"""How much the bodies of all requests under way may have together, decompressed."""
IGNORED_BODY_BYTES_MAX = 1024
"""A body of up to this size is read and ignored if the call takes none: some clients always send something."""
UNPACKED_AT_ONCE_BYTES = 1024 * 1024
TOO_LARGE = 413
BUSY_RETRY_S = 1.0
ENGINE_RETRY_S = 1.0
NOTE_FAILED_S = 0.5
"""How long writing to the audit log may take for a change that failed, probably because the engine did."""
# The server gives the names of headers in lower case, as bytes.
TIME_HEADER = paths.TIME_HEADER.lower().encode()
REQUEST_HEADER = paths.REQUEST_HEADER.lower().encode()
SIGNATURE_HEADER = paths.SIGNATURE_HEADER.lower().encode()
COMPRESSION_EXPECTED = 10
"""How many times larger a compressed body is expected to become; only used to reserve room for it."""

log = logging.getLogger("drumlin.coordinator")

Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
"""What a server serves: a request's ASGI scope, and how to receive its body and send its answer."""
Adapted = Callable[[Route], Route | None]
"""Changes a call into the one that is offered in its place; None if that call is not offered."""


class CoordinatorApp:
    """The ASGI application. `on_failure` is called when a node cannot go on, and `on_broken` when the engine or the
    store fails a request. `store` is a folder where bundles are checked and pages of workers grow that have no store
    themselves. They end up in `files`, which is the same folder if nothing else is said. `endpoint` is the address at
    which nodes reach this coordinator."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        access: AccessControl,
        on_failure: Callable[[Failure], None],
        on_broken: Callable[[DrumlinError], None] | None = None,
        engine_time: EngineTime,
        store: Path | None = None,
        files: StoreFiles | None = None,
        endpoint: str = "",
        sync: bool = False,
        bundle_quota_bytes: int = QUOTA_BYTES,
    ) -> None:
        self.bug: Exception | None = None
        """The first unexpected exception in a call of a node, which whoever runs the server should raise."""
        self._dispatcher, self._engine = dispatcher, dispatcher.engine
        self._access, self._endpoint, self._store = access, endpoint, store
        if files is None and store is not None:
            files = DirectoryFiles(store)
        self._on_broken, self._time = on_broken, engine_time
        self.health = Health(dispatcher.happened)
        self.watch = self._watch(files)
        dispatcher.lanes = LoopLanes(LIGHT_WEIGHT_REMOTE if dispatcher.engine.shared else LIGHT_WEIGHT)
        self._misdeeds = dispatcher.misdeeds
        self._audit = AuditLog(dispatcher.engine, orders_in(files) if files is not None else None)
        self._gate = Gate(dispatcher, self._audit)
        self._requests, self._refusals = RequestMetrics(), RefusalLog()
        self._request_ids, self._bodies_bytes, self._unread = request_ids(), 0, UnreadAnswers()
        self._intake = Intake(dispatcher, store, files, engine_time=engine_time, sync=sync)
        self._answers = StoreAnswers(files, self._intake)
        self._nodes = NodeCalls(
            dispatcher,
            access,
            self._gate,
            self._intake,
            engine_time=engine_time,
            on_failure=on_failure,
            store=store,
            files=files,
            endpoint=endpoint,
            bundle_quota_bytes=bundle_quota_bytes,
        )
        self._people = PeopleCalls(
            dispatcher,
            self._gate,
            self._audit,
            CoordinatorMetrics(self._requests, self._gate, EngineCalls(dispatcher.engine, time.perf_counter)),
            self.health,
            self.watch,
            engine_time=engine_time,
            work_may_have_come=self.work_may_have_come,
        )
        self._history, self._page = HistoryCalls(dispatcher), PageCalls(dispatcher, endpoint, self._gate, self._audit)
        self._described = [*self._routes(dispatcher, files), *self._page.described()]
        self._router = Router([*self._described, *self._page.routes()])
        self._door = Door(access=access, router=self._router, names=own_names(endpoint, socket.gethostname()))

    def _watch(self, files: StoreFiles | None) -> Watch:
        return Watch(
            self._engine, files, self.health, self._time.today, on_loss=self._note_loss, after_loss=self._loss_not_over
        )

    def page_door(self, access: AccessControl, code: EntryCode, adapted: Adapted | None = None) -> Application:
        """A second way in, for the browser of whoever started this crawl: the page and the calls of people, none of a
        node. If the crawl does not run, `adapted` makes of each call what is offered in its place."""
        people = [route for route in self._router.routes if route.permission in (*PEOPLE_PERMISSIONS, None)]
        routes = people if adapted is None else [new for route in people if (new := adapted(route)) is not None]
        door = Door(
            access=access,
            router=Router(routes),
            names=frozenset({code.name}),
            addresses=False,
            code=code,
            running=adapted is None,
        )
        self._page.own = code

        async def serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            await self._enter(door, scope, receive, send)

        return serve

    def _routes(self, dispatcher: Dispatcher, files: StoreFiles | None) -> list[Route]:
        """All calls, and the one that describes them."""
        routes = [
            *self._nodes.routes(),
            *SingleCalls(dispatcher, self._gate, self._intake, self.work_may_have_come).routes(),
            *HostCalls(dispatcher, self._answers, passes=self._time.passes).routes(),
            *DataCalls(self._answers, self._store, files).routes(),
            *TakingCalls(self._answers, files, self._audit).routes(),
            *self._history.routes(),
            *SettingsCalls(dispatcher, self.work_may_have_come).routes(),
            *self._people.routes(),
        ]
        description = Route(
            method="GET",
            path=paths.OPENAPI,
            summary="This document",
            answer=self._describe,
            permission=None,
            gives=dict,
            gives_media_types=(JSON,),
        )
        return [*routes, description]

    @property
    def described(self) -> list[Route]:
        """The calls that the OpenAPI document describes."""
        return self._described

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What is done beside answering, for as long as the context lasts. When it ends, everything that is settled is
        in complete tables."""
        async with self._intake.running(), self._answers.running():
            yield

    @cached_property
    def _document(self) -> bytes:
        """Made on the first request, so a crawl on one machine starts without it."""
        return encode(document(self._described, controlled=self._access.signed), JSON)

    async def _describe(self, call: Call, message: None) -> Text:
        return Text(self._document, JSON)

    @property
    def drained(self) -> asyncio.Event:
        """Set when the crawl may have nothing left, so a tick should look."""
        return self._nodes.drained

    def work_may_have_come(self) -> None:
        """Wake the nodes that wait for work."""
        self._nodes.work_may_have_come()

    async def ticked(self, totals: Totals, now: float) -> None:
        """To be called after each tick: nodes that wait may have work again, and the figures are new."""
        self.work_may_have_come()
        self._people.ticked(totals, now)
        await self._history.note(totals, now)

    def trace(self, traces: CoordinatorTraces | None) -> None:
        """Tell of some of the URLs that are given out and settled from now on."""
        self._nodes.traces = traces

    @property
    def kafka(self) -> Kafka | None:
        return self._people.kafka

    def use_kafka(self, kafka: Kafka) -> None:
        """Tell Kafka of what is stored here and given out from now on, and people of how that goes."""
        self._people.kafka = kafka
        self._nodes.use_kafka(kafka)
        self._intake.owe(kafka.owe)

    async def why(self, now: float) -> WhyIdle:
        """Why nothing is being fetched, or not more."""
        return await self._people.why(now)

    def close(self) -> None:
        """End the streams that would never end by themselves, so the server can stop."""
        self._people.close()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await self._enter(self._door, scope, receive, send)

    async def _enter(self, door: Door, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        media_type = answers_in(headers.get(b"accept", b"").decode("latin-1"))
        call = Call(scope, headers, receive, media_type, self._time.reading())
        call.door = door
        request = next(self._request_ids)
        # Each request is answered in a task of its own, so this holds for this request alone.
        current_request.set(request)

        async def send_dated(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = ((TIME_HEADER, b"%d" % (self._time.reading() * 1000)), (REQUEST_HEADER, request.encode()))
                message["headers"] = [*message["headers"], *own, *call.answer_headers]
            elif call.method == HEAD:
                message["body"] = b""
            await send(message)

        started = time.perf_counter()
        status = await self._attempt(call, send_dated)
        self._requests.observe(call.name, status, time.perf_counter() - started)

    async def _attempt(self, call: Call, send: Send) -> int:
        """Serve a request, or say why not; returns the status that was sent."""
        try:
            return await self._serve(call, send)
        except Refused as refused:
            failed = refused
        except DrumlinError as broken:
            self._note_broken(call, broken)
            code = broken.code or "unavailable"
            failed = Refused(503, code, broken.message, broken.hint, retry_after_s=ENGINE_RETRY_S)
        except Exception as bug:
            if call.is_of_nodes:
                # A node repeats what fails, so the crawl would stand still. A look that fails hurts nothing else.
                self.bug = self.bug or bug
            log.exception("a request failed in a way nobody foresaw: %s", call.name, extra=event(Event.BUG))
            failed = Refused(500, "bug", "The coordinator failed; its log says how.")
        # The traceback refers to this frame, and the frame to the exception. Such a cycle would keep the request's body
        # in memory until the garbage collector runs.
        failed = failed.with_traceback(None)
        failed.closes = failed.closes or call.body_unread
        self._refusals.note(call, failed, time.perf_counter())
        self._requests.refused(failed.code)
        await reply_refused(send, failed, call.media_type)
        return failed.status

    def _note_broken(self, call: Call, broken: DrumlinError) -> None:
        """Report a failure to `health`. Failures of the engine's own disk have other codes than those of the store."""
        in_store = isinstance(broken, StorageError) and broken.code.startswith(Part.STORE)
        self.health.reported(Part.STORE if in_store else Part.ENGINE, broken, self._time.today())
        self.watch.look_soon()
        if self._on_broken is not None:
            self._on_broken(broken)

    async def _note_loss(self) -> None:
        await self._dispatcher.losses.note(await self._time.now())

    def _loss_not_over(self) -> DrumlinError | None:
        return self._dispatcher.losses.problem(self._time.reading(), self._dispatcher.config.lease_s)

    async def _serve(self, call: Call, send: Send) -> int:
        check_head(call)
        prepared = call.door.router.find(call)
        self._refuse_after_loss(prepared.route)
        reserved = self._reserve(prepared, call)
        try:
            if prepared.route.streams_body:
                # A large body may take long even if the engine is well, so no limit on waiting applies.
                answer = written(await self._work(prepared, call), call.media_type)
            else:
                async with self.health.patience():
                    answer = written(await self._work(prepared, call), call.media_type)
        finally:
            self._bodies_bytes -= reserved
        return await self._respond(send, call, answer)

    async def _respond(self, send: Send, call: Call, answer: Text | Stream | None) -> int:
        status = call.route.status
        if isinstance(answer, Stream):
            await send_stream(send, call, answer, lambda: self._is_allowed(call))
        elif answer is None:
            status = 204
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            who, cut = call.identity.subject, call.cut
            await self._unread.reply(send, status, answer.body, answer.media_type, who=who, cut=cut)
        return status

    def _refuse_after_loss(self, route: Route) -> None:
        """Refuse calls that need the engine while it may have forgotten leases and URLs (`coordinator/losses.py`)."""
        trouble = self.health.trouble(Part.ENGINE)
        needs_engine = route.permission is not None and not route.without_engine
        if needs_engine and trouble is not None and trouble.code == Cause.LOST:
            raise refusal(trouble)

    async def _work(self, prepared: PreparedRoute, call: Call) -> Any:
        if prepared.route.without_engine and self.health.trouble(Part.ENGINE) is not None:
            call.now = self._time.reading()
        elif prepared.route.permission is not None:
            # If this coordinator was frozen or cut off, its time is stale and `now` asks the engine.
            call.now = await self._time.now()
        call.calendar = self._time.calendar
        await self._pass(call)
        message = await self._message(prepared, call)
        await self._pass_named(call, message)
        try:
            return on_calendar(await self._answer(call, message), call.calendar)
        finally:
            if self._misdeeds:
                await self._gate.account(call.identity, call.now, Origin(call.address, call.today))

    # The sender

    async def _pass(self, call: Call) -> None:
        """Check who sent a request before any of its body is read."""
        route = call.route
        if route.permission is None:
            return
        access = call.door.access
        if access.signed:
            call.credential = self._page.credential(call)
        else:
            refuse_pages(call.address, call.headers, self._endpoint)
        node_id = call.parameters.get("node_id")
        if node_id is not None:
            check_node_id(node_id)
        if route.node_of is None:
            call.identity = access.check(call.credential, route.permission, node_id, call.today)
            await self._gate.admit(call.identity, call.now, Origin(call.address, call.today))
        else:
            # The message says for which node it acts; whether it may act at all is checked now.
            call.identity = access.check_unnamed(call.credential, route.permission, call.today)

    async def _pass_named(self, call: Call, message: Any) -> None:
        """Check whether the sender may act for the node that its message names, or for itself if it names none."""
        route = call.route
        if route.node_of is None or route.permission is None:
            return
        own = call.identity.id if call.identity.role is Role.NODE else None
        node_id = route.node_of(message) or own
        call.identity = call.door.access.check(call.credential, route.permission, node_id, call.today)
        await self._gate.admit(call.identity, call.now, Origin(call.address, call.today))

    def _is_allowed(self, call: Call) -> bool:
        """Whether the sender of a call that is being answered may still have the rest: its token may have expired or
        been revoked since."""
        if call.route.permission is None:
            return True
        try:
            call.door.access.check(call.credential, call.route.permission, None, self._time.today())
        except Refused:
            return False
        return True

    # The message

    def _reserve(self, prepared: PreparedRoute, call: Call) -> int:
        """Reserve room for a body and its decompressed form; refused when the bodies under way have taken it all."""
        if prepared.format is None or not call.body_unread:
            return 0
        length = call.header(b"content-length")
        size = int(length) if length.isascii() and length.isdigit() else prepared.route.body_bytes_max
        if b"content-encoding" in call.headers:
            size *= COMPRESSION_EXPECTED
        size = min(size, prepared.route.body_bytes_max)
        if self._bodies_bytes + size > BODIES_BYTES_MAX:
            message = "Too many large requests are under way."
            raise Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=BUSY_RETRY_S)
        self._bodies_bytes += size
        return size

    async def _message(self, prepared: PreparedRoute, call: Call) -> Any:
        route = prepared.route
        if route.streams_body:
            return None
        if prepared.format is None:
            if call.body_unread:
                await call.read_body(IGNORED_BODY_BYTES_MAX)
            return read_query(call.query, route.takes) if route.takes is not None else None
        body = await call.read_body(route.body_bytes_max)
        if route.signed:
            header = call.header(SIGNATURE_HEADER)
            await self._access.verify(self._engine, call.node_id, header, call.method, call.target, body, call.now)
        encoding = call.header(b"content-encoding")
        if encoding:
            body = await _decompressed(body, encoding, route.body_bytes_max)
        self._gate.weigh(call.identity, len(body), call.now)
        return prepared.format.decode(body, call.header(b"content-type"))

    async def _answer(self, call: Call, message: Any) -> Any:
        """Call the route's function, and note in the audit log what a person changed."""
        route = call.route
        if not route.writes or call.identity.role is Role.NODE:
            return await route.answer(call, message)
        try:
            answer = await route.answer(call, message)
        except Refused as refused:
            await self._note(call, message, refused.code)
            raise
        except BaseException:
            # What made it fail, for instance an engine that hangs, may make writing the entry fail too.
            with contextlib.suppress(DrumlinError, TimeoutError):
                async with asyncio.timeout(NOTE_FAILED_S):
                    await self._note(call, message, "failed")
            raise
        await self._note(call, message, "done")
        return answer

    async def _note(self, call: Call, message: Any, outcome: str) -> None:
        said = call.note or (encode(message, JSON).decode() if message is not None else "")
        target = f"{call.path} {said}".strip()
        await self._audit.record(call.identity, call.route.writes, target, outcome, call.address, call.today)


async def _decompressed(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body without its encoding. A body that unpacks to many megabytes is unpacked in another thread."""
    try:
        return decompress(body, encoding, min(bytes_max, UNPACKED_AT_ONCE_BYTES))
    except Refused as refused:
        if refused.status != TOO_LARGE or bytes_max <= UNPACKED_AT_ONCE_BYTES:
            raise
    return await asyncio.to_thread(decompress, body, encoding, bytes_max)
