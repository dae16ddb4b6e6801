"""Answers for a crawl on one machine that is not running: the coordinator's own application, without a server.

So questions (`status`, `why`, ...) and most changes work on a finished, stopped or killed crawl as on a running one,
and both give the same answers. Meanwhile we hold the lock of the crawl directory, so no crawl can begin in it, and no
process of an earlier one is alive. Hence nodes that did not leave have died, and their leases are over. The first
question after a kill writes this down, if it can. Apart from that, questions write nothing, so they work on a full disk
and on a disk that we may only read.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from drumlin.access.tokens import SECRET_BYTES, OpenAccess, Permission, Role
from drumlin.api.app import CoordinatorApp
from drumlin.api.explaining.report import elapsed_before_s
from drumlin.api.explaining.why import left
from drumlin.api.messages.people import Reason, WhyIdle
from drumlin.api.routing import Call, Route
from drumlin.client.remote import CoordinatorError, Remote, read_answer
from drumlin.config import SETTINGS, CrawlConfig
from drumlin.config.record import CrawlRecord
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import StandingTime
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.engines.kept import CLOSED_KEY, Closed
from drumlin.errors import BusyError, EngineError, StorageError
from drumlin.local.directory import FRONTIER, CrawlDirectory, crawl_files
from drumlin.local.moved import moved_from, tell_moved
from drumlin.local.page import page_served
from drumlin.protocol import PRESENT, CrawlState, paths

ONLY_RUNNING = ("/crawl/pause", "/crawl/resume", "/crawl/stop", "/drain", "/quarantine")
"""The ends of paths of calls that make sense only while processes run: the next run begins with all its nodes."""
GO_ON = "The same `drumlin crawl` command goes on with it."
AS_IT_WAS = "This is how it was then."
"""Said of what is shown of a crawl that goes on elsewhere."""


class StandingCrawl(Remote):
    """Answers for the crawl in `out`, whose frontier is in that directory too. Must be closed."""

    standing = True

    def __init__(self, out: Path) -> None:
        super().__init__([])
        self._out = out
        self._directory = CrawlDirectory(out)
        self._directory.hold()
        self._writes = False
        self._told_moved = False
        self._runner = asyncio.Runner()
        self._engine: Engine | None = None
        self._app: CoordinatorApp
        self._dispatcher: Dispatcher
        self._time: StandingTime

    def show(self, on_page: Callable[[str], None]) -> None:
        """Serve the page of this crawl until a signal comes. It can be looked at and not changed, so after the first
        question nothing has to be written, and others may look meanwhile."""
        tell_moved(self._out, AS_IT_WAS)
        self._write_if_needed(must=False)
        if self._writes:
            self._read_only()
        self._runner.run(self._show(on_page))

    async def _show(self, on_page: Callable[[str], None]) -> None:
        if self._engine is None:
            await self._open()
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        async with page_served(self._app, on_page, role=Role.VIEWER, adapted=self._adapted):
            await ended.wait()

    def _adapted(self, route: Route) -> Route | None:
        """The calls that make sense for a crawl that does not run."""

        async def why_idle(call: Call, message: None) -> WhyIdle:
            return await self._why_idle()

        # Who takes data is noted in the frontier, which is only read here.
        if route.permission in (Permission.OPERATE, Permission.TAKE):
            return None
        return msgspec.structs.replace(route, answer=why_idle) if route.path == paths.WHY_IDLE else route

    def close(self) -> None:
        self._close_engine()
        self._runner.close()
        self._directory.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        if (method == "POST" and path.endswith(ONLY_RUNNING)) or (method == "PATCH" and path == paths.CRAWL):
            raise CoordinatorError(f"No crawl is running in {self._out}.", self._runner.run(self._go_on()))
        if method == "GET" and path != paths.WHY_IDLE and not self._told_moved:
            self._told_moved = True
            tell_moved(self._out, AS_IT_WAS)
        if not self._writes:
            self._write_if_needed(must=method != "GET")
        if method != "GET":
            self._runner.run(self._time.move_on())
        status, answer = self._runner.run(self._answer(method, path, body or b""))
        return read_answer(str(self._out), status, answer)

    def _write_if_needed(self, *, must: bool) -> None:
        """Open the frontier for writing, if the request changes something (`must`) or nodes of a killed crawl still
        count as present."""
        if must:
            self._begin_to_write()
        elif self._runner.run(self._was_killed()):
            try:
                self._begin_to_write()
            except (StorageError, BusyError):
                self._read_only()

    async def _was_killed(self) -> bool:
        if self._engine is None:
            await self._open()
        nodes = await self._dispatcher.node_records()
        return any(node.status in PRESENT for node in nodes)

    def _begin_to_write(self) -> None:
        self._close_engine()
        self._directory.close()
        self._directory.open()
        self._writes = True
        self._runner.run(self._open())

    def _read_only(self) -> None:
        """Open the frontier for reading only, when it is needed next."""
        self._close_engine()
        self._writes = False
        self._directory.close()
        self._directory.hold()

    def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            self._runner.run(engine.close())

    async def _open_engine(self) -> Engine:
        place = f"rocksdb:{self._out / FRONTIER}"
        if not self._writes:
            # This fails if another version or a process killed at its start left the frontier incomplete: then it has
            # to be completed, which needs writing.
            with contextlib.suppress(EngineError, OSError):
                return await open_engine(place, read_only=True)
        return await open_engine(place)

    async def _open(self) -> None:
        engine = self._engine = await self._open_engine()
        saved = await engine.get_meta(CONFIG_KEY)
        config = msgspec.json.decode(saved, type=CrawlConfig) if saved else CrawlConfig()
        record = CrawlRecord.read(self._out)
        seeds = record.seeds if record else []
        self._dispatcher = Dispatcher(
            engine,
            config,
            seeds,
            # It does not matter: it spreads retries and picks samples of what nodes send, and neither happens here.
            chance=random.Random(0),  # noqa: S311
            elapsed_s=await elapsed_before_s(engine),
            ends=False,
        )
        await self._dispatcher.open()
        engine_time = self._time = StandingTime(engine)
        # Calls that need no engine go by the time as it was last read, and sessions expire by it.
        await engine_time.now()
        if self._writes:
            await engine.release_nodes(await self._dispatcher.nodes.lose_all(engine), await engine_time.now())
        self._app = CoordinatorApp(
            self._dispatcher,
            access=OpenAccess(bytes(SECRET_BYTES)),
            on_failure=lambda _: None,
            engine_time=engine_time,
            store=self._out,
            files=crawl_files(self._out),
        )

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._engine is None:
            await self._open()
        if path == paths.WHY_IDLE:
            return 200, msgspec.json.encode(await self._why_idle())
        parts, sent = urlsplit(path), list[dict[str, Any]]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        headers = [(b"accept", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {
            "type": "http",
            "method": method,
            # Servers pass on paths without their escapes.
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [*headers, *([(b"content-type", b"application/json")] if body else [])],
            "client": None,
        }
        await self._app(scope, receive, send)
        return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])

    async def _why_idle(self) -> WhyIdle:
        if (moved := moved_from(self._out)) is not None:
            return WhyIdle(idle=True, reasons=[Reason("moved", f"{moved.sentence} {moved.hint}")])
        dispatcher = self._dispatcher
        if (closed := Closed.read(await dispatcher.engine.get_meta(CLOSED_KEY))) is not None:
            return WhyIdle(idle=True, reasons=[Reason("closed", f"{closed.sentence} {closed.hint}")])
        if dispatcher.state is not CrawlState.FINISHED:
            said = f"No process of this crawl runs. {await self._go_on()}"
            return WhyIdle(idle=True, reasons=[Reason("not_running", said)])
        queued = left(await dispatcher.totals(0.0), len(dispatcher.orders.budgets))
        said = " ".join(["The crawl is finished.", *([queued, await self._go_on()] if queued else [])])
        return WhyIdle(idle=True, reasons=[Reason("finished", said)])

    async def _go_on(self) -> str:
        """A sentence that says how to resume the crawl. If a budget is spent, it would stop again at once."""
        if (moved := moved_from(self._out)) is not None:
            return f"{moved.sentence} {moved.hint}"
        if self._engine is None:
            await self._open()
        dispatcher = self._dispatcher
        totals = await dispatcher.totals(0.0)
        spent = dispatcher.budget.exhausted(totals.pages, totals.bytes, await elapsed_before_s(dispatcher.engine))
        if not spent:
            return GO_ON
        return f"It has spent its {SETTINGS[spent].flag}: with a larger one the same `drumlin crawl` command goes on."
