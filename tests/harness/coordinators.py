"""A real coordinator on loopback, in a thread of the test, and a client that is as simple as curl."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import random
import secrets
import socket
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from drumlin.access.signing import NONCE_BYTES, sign
from drumlin.access.tokens import PEOPLE, SECRET_BYTES, AccessControl, OpenAccess, Role
from drumlin.api.app import CoordinatorApp
from drumlin.api.listening import listening_on
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.engines import open_engine
from drumlin.logs import Event
from drumlin.logs.formats import fields_of
from drumlin.protocol import Failure
from drumlin.protocol.paths import SIGNATURE_HEADER
from drumlin.serving.service import Listen, run_server
from drumlin.store.files import StoreFiles

STARTS_WITHIN_S = 30.0
ANSWERS_WITHIN_S = 60.0
TICK_S = 0.05
LISTEN_BACKLOG = 100
CONFIG = CrawlConfig(allow_private=True, delay_s=0.0)

Value = TypeVar("Value")


class _Bugs(logging.Handler):
    """Collects what the coordinator in this thread logs as a bug, whoever's call it was."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.found: list[BaseException] = []
        self._thread = thread

    def emit(self, record: logging.LogRecord) -> None:
        bug = record.exc_info[1] if record.exc_info else None
        if bug and fields_of(record).get("event") == Event.BUG and record.thread == self._thread.ident:
            self.found.append(bug)


class Answer(msgspec.Struct):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a refusal. Also checks that the refusal has the documented form."""
        error = self.json["error"]
        assert set(error) == {"code", "message", "hint"}
        assert error["message"]
        code: str = error["code"]
        return code


class RunningCoordinator:
    """A coordinator, on a memory engine unless another is given. With `controlled` it asks for tokens; `tokens` has one
    for each role."""

    def __init__(
        self,
        *,
        controlled: bool = False,
        store: Path | None = None,
        files: StoreFiles | None = None,
        config: CrawlConfig = CONFIG,
        behind_s: float = 0.0,
        engine: str = "memory:",
        name: str = "coordinator",
    ) -> None:
        """`behind_s` is for how long the crawl did not run before: the engine's time is behind the wall clock by
        that."""
        self.access: AccessControl = (AccessControl if controlled else OpenAccess)(secrets.token_bytes(SECRET_BYTES))
        self.tokens: dict[str, str] = {}
        self.failures: list[Failure] = []
        self.app: CoordinatorApp
        self.dispatcher: Dispatcher
        self.time: EngineTime
        self.port = _free_port()
        self._config = config
        self._engine = engine
        self._name = name
        self._store, self._files = store, files
        self._behind_s = behind_s
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self._ready = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._bugs = _Bugs(self._thread)

    def __enter__(self) -> RunningCoordinator:
        logging.getLogger("drumlin.coordinator").addHandler(self._bugs)
        self._thread.start()
        assert self._ready.wait(STARTS_WITHIN_S), "the coordinator did not start"
        if self._trouble is not None:
            raise self._trouble
        return self

    def __exit__(self, *ending: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(STARTS_WITHIN_S)
        logging.getLogger("drumlin.coordinator").removeHandler(self._bugs)
        if self._bugs.found:
            raise self._bugs.found[0]

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as trouble:
            self._trouble = trouble
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        engine = await open_engine(self._engine, shard_count=4)
        self.dispatcher = Dispatcher(engine, self._config, [], chance=random.Random(1), ends=False, name=self._name)
        await self.access.refresh(engine)
        await self.dispatcher.open()
        if self.access.signed:
            for role in PEOPLE:
                self.tokens[role] = await self.access.issue(engine, role, f"a {role}", time.time())
        await engine.keep_time(time.time() - self._behind_s)
        self.time = EngineTime(engine)
        self.app = CoordinatorApp(
            self.dispatcher,
            access=self.access,
            on_failure=self.failures.append,
            engine_time=self.time,
            store=self._store,
            files=self._files,
        )
        listen = Listen("127.0.0.1", self.port)
        with listening_on(listen.host, listen.port, "", LISTEN_BACKLOG) as sockets:
            serving = run_server(self.app, listen, sockets, self.app.close, drain=False)
            async with self.time.running(), self.app.running(), serving:
                self._ready.set()
                while not self._ending.is_set():
                    await self.access.refresh(engine)
                    now = await self.time.now()
                    await self.app.ticked(await self.dispatcher.tick(now, 0.0), now)
                    await asyncio.sleep(TICK_S)
        await engine.close()

    def do(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine where the coordinator runs: its engine belongs to that loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWERS_WITHIN_S)

    # Asking

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        message: Any = None,
        *,
        token: str = "",
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Answer:
        """Send one request, with a message as JSON or with a body as it is."""
        sent = dict(headers)
        if message is not None:
            body = json.dumps(message).encode()
            sent.setdefault("Content-Type", "application/json")
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERS_WITHIN_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, message: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, message, **more)

    def enqueue(self, *urls: str) -> None:
        token = self.tokens.get(Role.OPERATOR, "")
        assert self.post("/api/v1/urls", {"urls": urls}, token=token).json["added"] == len(urls)


class RemoteNode:
    """A very simple node: it is registered, and has its token and key."""

    def __init__(self, coordinator: RunningCoordinator, name: str) -> None:
        self.name = name
        self.coordinator = coordinator
        join = coordinator.tokens.get(Role.JOIN, "")
        message = {"node_id": name, "capacity": 1, "instance": f"the one {name}"}
        answer = coordinator.post("/api/v1/nodes/register", message, token=join)
        assert answer.status == 200, answer.body
        self.registered = answer.json
        self.token: str = answer.json["token"] or ""
        self.key = bytes.fromhex(answer.json["key"] or "")

    def path(self, call: str = "") -> str:
        return f"/api/v1/nodes/{self.name}" + (f"/{call}" if call else "")

    def post(self, call: str, message: Any, **more: Any) -> Answer:
        return self.coordinator.post(self.path(call), message, token=self.token, **more)

    def take(self, count: int = 100) -> list[dict[str, Any]]:
        """Ask for work; the assignments."""
        work = self.post("work/request", {"max_tasks": count})
        assert work.status == 200, work.body
        assignments: list[dict[str, Any]] = work.json["assignments"]
        return assignments

    def signature(self, body: bytes, call: str = "results", *, at: float | None = None) -> dict[str, str]:
        """The header that signs a POST of this body."""
        now = time.time() if at is None else at
        return {SIGNATURE_HEADER: sign(self.key, "POST", self.path(call), body, now, secrets.token_bytes(NONCE_BYTES))}

    def send(self, body: bytes, headers: Mapping[str, str] = {}) -> Answer:
        """Send results, signed unless the headers say otherwise."""
        sent = {"Content-Type": "application/json", **self.signature(body), **headers}
        return self.coordinator.ask("POST", self.path("results"), body=body, token=self.token, headers=sent)


def result_of(assignment: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A page that was fetched."""
    fetched = {"status_code": 200, "content_hash": "ab" * 32, "links": [], "crawl_time": 1_790_000_000.0, "size": 1_000}
    return {"assignment_id": assignment["assignment_id"], "url": assignment["url"], **fetched, **more}


def results_body(assignments: list[dict[str, Any]], *, stored: bool = False, **more: Any) -> bytes:
    return json.dumps({"results": [result_of(one, **more) for one in assignments], "stored": stored}).encode()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
