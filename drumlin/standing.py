"""A crawl on one machine that is not running, asked as if it were: the coordinator's own application, without a server.

So every look and most levers work on a finished, stopped or killed crawl as on a running one, and there is one answer
to each question. The crawl directory is held by its lock meanwhile: no crawl can begin in it.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from drumlin.config import CrawlConfig
from drumlin.coordinator.app import CoordinatorApp
from drumlin.coordinator.auth import SECRET_BYTES, OpenAccess
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.messages import Reason, WhyIdle
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.fleet.remote import CoordinatorError, Remote, read_answer
from drumlin.local import CrawlDirectory
from drumlin.protocol import CrawlState

ONLY_RUNNING = frozenset({"/api/v1/crawl/pause", "/api/v1/crawl/resume", "/api/v1/crawl/stop"})
GO_ON = "The same `drumlin crawl` command goes on with it."
WHY_IDLE = "/api/v1/why-idle"


class StandingCrawl(Remote):
    """Answers for the crawl in `out`, whose frontier is in that directory. Must be closed."""

    standing = True

    def __init__(self, out: Path) -> None:
        super().__init__([])
        self._out = out
        self._directory = CrawlDirectory(out)
        self._directory.open()
        self._runner = asyncio.Runner()
        self._engine: Engine | None = None
        self._app: CoordinatorApp
        self._dispatcher: Dispatcher

    def close(self) -> None:
        if self._engine is not None:
            self._runner.run(self._engine.close())
        self._runner.close()
        self._directory.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        if path in ONLY_RUNNING or (method == "PATCH" and path == "/api/v1/crawl"):
            raise CoordinatorError(f"No crawl is running in {self._out}.", GO_ON)
        status, answer = self._runner.run(self._answer(method, path, body or b""))
        return read_answer(str(self._out), status, answer)

    async def _open(self) -> None:
        engine = self._engine = await open_engine(f"rocksdb:{self._out / 'frontier'}")
        saved = await engine.get_meta(CONFIG_KEY)
        config = msgspec.json.decode(saved, type=CrawlConfig) if saved else CrawlConfig()
        # Chance spreads retries and picks samples of what nodes send; neither happens here.
        self._dispatcher = Dispatcher(engine, config, [], chance=random.Random(0), ends=False)  # noqa: S311
        await self._dispatcher.open()
        self._app = CoordinatorApp(
            self._dispatcher,
            access=OpenAccess(bytes(SECRET_BYTES)),
            on_failure=lambda _: None,
            engine_time=EngineTime(engine),
            store=self._out,
        )

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._engine is None:
            await self._open()
        if path == WHY_IDLE:
            return 200, msgspec.json.encode(self._why_idle())
        parts, sent = urlsplit(path), list[dict[str, Any]]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        headers = [(b"accept", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {
            "type": "http",
            "method": method,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [*headers, *([(b"content-type", b"application/json")] if body else [])],
            "client": None,
        }
        await self._app(scope, receive, send)
        return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])

    def _why_idle(self) -> WhyIdle:
        if self._dispatcher.state is CrawlState.FINISHED:
            return WhyIdle(idle=True, reasons=[Reason("finished", "The crawl is finished.")])
        return WhyIdle(idle=True, reasons=[Reason("not_running", f"No process of this crawl runs. {GO_ON}")])
