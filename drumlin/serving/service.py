"""One coordinator process: the engine, the dispatcher, the application on a server, and a tick every second.

`run_server` is what every coordinator has in common: `drumlin.local` runs one on a Unix socket beside its nodes, and
`serve` runs one by itself, for `drumlin coordinator`. A coordinator keeps nothing that others need: it can be killed at
any moment, and others on the same engine go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvicorn

from drumlin.access.tokens import SECRET_BYTES, AccessControl, OpenAccess, crawl_secret
from drumlin.api.app import Application, CoordinatorApp
from drumlin.api.intake.bundles import QUOTA_BYTES, sweep
from drumlin.api.listening import listening_on
from drumlin.api.traces import CoordinatorTraces, coordinator_traces
from drumlin.api.wire import LimitedProtocol
from drumlin.clock import monotonic
from drumlin.config import CoordinatorConfig, CrawlConfig, settings_of
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.health import Part
from drumlin.coordinator.resketching import make_sketches_anew_in_turn, note_sketches
from drumlin.coordinator.steering import CONFIG_KEY, Steering
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.errors import BusyError, ConfigError, DrumlinError, StorageError
from drumlin.events.options import EventsOptions, SeedsOptions
from drumlin.garbage_collection import collect_seldom
from drumlin.logs import Event, event, identify, without_secrets
from drumlin.serving.failure_log import FailureLog
from drumlin.serving.finishing import Finisher
from drumlin.serving.freed_memory import FreedMemory
from drumlin.serving.lost_bundles import LostBundles
from drumlin.serving.removals import RemovalWatch
from drumlin.serving.running_time import RunningTime
from drumlin.serving.seeding import Seeding
from drumlin.serving.telling import kafka_used
from drumlin.serving.upkeep import BucketUpkeep
from drumlin.store.files import StoreFiles
from drumlin.store.opening import in_bucket, open_store
from drumlin.tls import check_validity, server_context
from drumlin.urls import domain_of

if TYPE_CHECKING:
    from drumlin.store.objects.files import ObjectFiles

log = logging.getLogger("drumlin.coordinator")

TICK_S = 1.0
FOUND_AGAIN_S = 5.0
FOUND_S_MAX = 5.0
# Longer than any heartbeat interval: a node's connection is kept, and with it its TLS session.
KEEP_ALIVE_S = 75
CONNECTIONS_WAITING_MAX = 4096
DRAIN_S = 10
CERTIFICATES_CHECKED_EVERY_S = 86_400.0
FLUSH_S = 5.0
"""How long writing the last news of nodes to the engine may take when a coordinator ends."""
GC_THRESHOLDS = (100_000, 50, 100)
SHARDS_ASKED_MAX = 3
SHARD_COUNT_FLEET = 128
SEEDS_KEY = "seeds"
FINISH_KEY = "finish"
YES, NO = b"1", b"0"
STORED = ("warc/*.cdxj", "tables/fetches/*.parquet")
"""Files of every store in a directory in which something is stored."""


class Listen(msgspec.Struct, frozen=True):
    """Where a coordinator listens: a Unix socket, or an address with or without TLS."""

    host: str = ""
    port: int = 0
    unix: str = ""
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    """Only clients with a certificate of this authority may connect."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For is believed."""

    @property
    def endpoint(self) -> str:
        if self.unix:
            return f"unix:{self.unix}"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{name}:{self.port}"


class ServiceOptions(msgspec.Struct, frozen=True):
    """The options of one coordinator process. `finish`: whether the crawl ends when nothing is left, or waits for more
    URLs. This one belongs to the crawl, since any coordinator may lead it: None leaves it as it is, True and False
    change it for all coordinators."""

    engine: str
    listen: Listen
    store: Path | None = None
    """The store, or with `objects` a folder of this machine for what is not complete yet."""
    objects: str = ""
    """The address of a store in a bucket."""
    public_endpoint: str = ""
    auth: bool = True
    finish: bool | None = None
    shard_count: int | None = None
    name: str = ""
    sync: bool = False
    bundle_quota_bytes: int = QUOTA_BYTES
    lost_after_s: float = CoordinatorConfig().lost_after_s
    trace_every: int = 0
    """One URL in so many is traced; 0 for none."""
    events: EventsOptions | None = None
    seeds: SeedsOptions | None = None

    def __repr__(self) -> str:
        """Without the engine's password."""
        store = self.objects or self.store
        return f"<ServiceOptions {self.listen.endpoint}: engine {without_secrets(self.engine)}, store {store}>"


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: whoever runs it has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def run_server(
    app: Application, listen: Listen, sockets: list[socket.socket], close: Callable[[], None], *, drain: bool
) -> AsyncIterator[None]:
    """Serve `app` on these sockets for as long as the context lasts. At its end `close` is called, which must end
    answers that never end by themselves. With `drain`, requests that are under way then are still answered."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        log_config=None,
        # The application logs what goes wrong. uvicorn would also complain if it ends while nodes wait for answers,
        # which is not an error.
        log_level="critical",
        lifespan="off",
        access_log=False,
        server_header=False,
        # Anybody can send X-Forwarded-For, so it counts only from the proxies that the user named.
        proxy_headers=bool(listen.trusted_proxies),
        forwarded_allow_ips=list(listen.trusted_proxies),
        timeout_keep_alive=KEEP_ALIVE_S if not listen.unix else 3600,
        timeout_graceful_shutdown=DRAIN_S,
        backlog=CONNECTIONS_WAITING_MAX,
        ssl_context_factory=_context_factory(listen),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets))
    try:
        await _until_started(server, serving, listen)
        yield
    finally:
        close()
        if drain:
            server.should_exit = True
            await serving
        else:
            # uvicorn checks only every tenth of a second whether it should exit; with nobody to answer, that is wasted.
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            for listener in server.servers:
                listener.close()


def _context_factory(listen: Listen) -> Callable[..., ssl.SSLContext] | None:
    if listen.certificate is None or listen.key is None:
        return None
    context = server_context(listen.certificate, listen.key, listen.client_authority)
    return lambda *_: context


def _check_certificates(listen: Listen) -> None:
    """Warn of certificates that expire soon; ConfigError if one has expired. Clients would only see that the connection
    fails."""
    for path in (listen.certificate, listen.client_authority):
        if path is not None:
            for warning in check_validity(path, time.time()):
                log.warning("%s", warning)


async def _keep_checking_certificates(listen: Listen) -> None:
    """Check again every day, since certificates may expire while a long crawl runs."""
    while True:
        await asyncio.sleep(CERTIFICATES_CHECKED_EVERY_S)
        try:
            _check_certificates(listen)
        except ConfigError as expired:
            log.error("%s", expired)


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None], listen: Listen) -> None:
    while not server.started:
        if serving.done():
            with contextlib.suppress(SystemExit):
                serving.result()
            raise BusyError(f"Cannot listen on {listen.endpoint}.", "Is another program using it? Choose another.")
        await asyncio.sleep(0.01)


def shards_to_found(engine: str) -> int | None:
    """With how many shards the frontier of a fleet is founded; None for Redis, where it depends on the masters."""
    return None if engine.startswith("redis") else SHARD_COUNT_FLEET


async def serve(
    options: ServiceOptions, config: CrawlConfig | None, seeds: list[str], on_ready: Callable[[Dispatcher], None]
) -> None:
    """Be a coordinator until SIGTERM or SIGINT. `config` founds the crawl; if the crawl exists, it must have the same
    settings (see `found`)."""
    listen = options.listen
    _check_certificates(listen)
    with listening_on(listen.host, listen.port, listen.unix, CONNECTIONS_WAITING_MAX) as sockets:
        engine = await open_engine(options.engine, shard_count=options.shard_count, sync=options.sync)
        try:
            await _Service(options, engine, sockets).run(config, seeds, on_ready)
        finally:
            await engine.close()


class _Service:
    """One coordinator process."""

    def __init__(self, options: ServiceOptions, engine: Engine, sockets: list[socket.socket]) -> None:
        self.options = options
        self.engine = engine
        self._sockets = sockets
        self._name = options.name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.time = EngineTime(engine)
        self._stopping = asyncio.Event()
        self._running_time = RunningTime(engine)
        self._finisher: Finisher | None = None
        self._files: StoreFiles | None = None
        self._lost: LostBundles | None = None
        self._upkeep: BucketUpkeep | None = None
        self._failures = FailureLog()
        self._seeding: Seeding | None = None
        self._removals = RemovalWatch(engine)
        self._bucket: ObjectFiles | None = None
        """The store, if it is in a bucket and nobody knows yet whether it is the one of this crawl."""
        self._founding: asyncio.Task[None] | None = None

    async def run(self, config: CrawlConfig | None, seeds: list[str], on_ready: Callable[[Dispatcher], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        domain_of("example.com")  # loads the list of public suffixes, which takes half a second, before nodes wait
        async with self.time.running():
            with coordinator_traces(self.options.trace_every, self._name) as traces:
                await self._run(config, seeds, on_ready, traces)

    def _stop(self) -> None:
        log.info("answering the requests under way, then stopping", extra=event(Event.STOPPING))
        self._stopping.set()

    async def _run(
        self,
        config: CrawlConfig | None,
        seeds: list[str],
        on_ready: Callable[[Dispatcher], None],
        traces: CoordinatorTraces | None,
    ) -> None:
        options = self.options
        await self._check_new()
        config, scope_seeds = await found_crawl(self.engine, config, seeds)
        access = await self._access()
        dispatcher = Dispatcher(
            self.engine,
            config,
            scope_seeds,
            chance=random.Random(),  # noqa: S311  # spreads retries; nothing secret
            name=self._name,
            shards_asked_max=SHARDS_ASKED_MAX if options.engine.startswith("redis") else None,
            ends=False,
        )
        if options.finish is not None:
            await self.engine.put_meta(FINISH_KEY, YES if options.finish else NO)
        identify(coordinator=dispatcher.name)
        await self._removals.begin()
        await dispatcher.open()
        identify(crawl=dispatcher.crawl_id)
        await dispatcher.seed(seeds, await self.time.now())
        files = self._files = open_store(options.objects or options.store, self._name) if options.store else None
        app = CoordinatorApp(
            dispatcher,
            access=access,
            on_failure=lambda failure: self._failures.note(failure, monotonic()),
            engine_time=self.time,
            store=options.store,
            files=files,
            endpoint=options.public_endpoint or options.listen.endpoint,
            sync=options.sync,
            bundle_quota_bytes=options.bundle_quota_bytes,
        )
        app.trace(traces)
        if options.store is not None and files is not None:
            await self._begin_store(dispatcher, options.store, files)
        collect_seldom(*GC_THRESHOLDS)
        serving = run_server(app, options.listen, self._sockets, app.close, drain=True)
        kafka = kafka_used(app, dispatcher, options.events, options.seeds, options.store, self.time.now, files=files)
        try:
            async with kafka as self._seeding, app.running(), serving, _watching(app, options.listen):
                on_ready(dispatcher)
                ticking = asyncio.create_task(self._keep_ticking(app, access, dispatcher))
                resketching = asyncio.create_task(self._make_sketches_anew(dispatcher))
                stopping = asyncio.ensure_future(self._stopping.wait())
                founding = asyncio.create_task(self._keep_founding(dispatcher.crawl_id))
                await asyncio.wait([ticking, stopping, founding], return_when="FIRST_COMPLETED")
                await _cancelled(resketching)
                await _cancelled(founding)
                await _cancelled(ticking)
        finally:
            await self._leave(dispatcher)
        log.info("stopped", extra=event(Event.STOPPED))

    async def _check_new(self) -> None:
        """Refuse to found a crawl on a directory that has pages: somebody has mistyped the engine or the store of a
        crawl that exists, whose report would be written anew. (A bucket knows whose it is.)"""
        store = self.options.store
        if store is None or self.options.objects or await self.engine.get_meta(CONFIG_KEY) is not None:
            return
        if any(next(store.glob(pattern), None) for pattern in STORED):
            place = without_secrets(self.options.engine)
            hint = "Correct --engine, or choose another --store for a new crawl."
            raise ConfigError(f"{store} has pages of a crawl, and none has begun at {place}.", hint)

    async def _begin_store(self, dispatcher: Dispatcher, folder: Path, files: StoreFiles) -> None:
        """Begin what a coordinator with a store does for it. `folder` is one of this machine."""
        await asyncio.to_thread(sweep, folder, time.time())
        self._finisher = Finisher(dispatcher, folder, files)
        lost = self._lost = LostBundles(dispatcher, files, self.options.lost_after_s)

        async def may_end() -> bool:
            return not await lost.awaits(await self.time.now())

        dispatcher.may_end = may_end
        bucket = self._bucket = in_bucket(files)
        # A bucket that hangs answers after a minute that it does not, and nodes wait for this coordinator.
        self._founding = asyncio.create_task(self._found_store(dispatcher.crawl_id))
        await asyncio.wait([self._founding], timeout=FOUND_S_MAX)
        if self._founding.done():
            self._founding.result()
        self._upkeep = BucketUpkeep(dispatcher, bucket, folder) if bucket is not None else None

    async def _found_store(self, crawl: str) -> None:
        """Refuse a bucket that has the pages of another crawl. One that cannot be reached is asked again later: a
        coordinator begins without it too."""
        if self._bucket is not None:
            from drumlin.store.objects.founding import found_store

            try:
                await asyncio.to_thread(found_store, self._bucket, crawl)
                self._bucket = None
            except StorageError as away:
                log.debug("it is not known yet whether %s is the store of this crawl: %s", self._bucket, away)

    async def _keep_founding(self, crawl: str) -> None:
        if self._founding is not None:
            await self._founding
        while self._bucket is not None:
            await asyncio.sleep(FOUND_AGAIN_S)
            await self._found_store(crawl)
        await self._stopping.wait()

    async def _leave(self, dispatcher: Dispatcher) -> None:
        """Hand over what the others need of this coordinator; also if it ends because of a bug."""
        if self._finisher is not None:
            await self._finisher.close()
        if self._upkeep is not None:
            await self._upkeep.close()
        with contextlib.suppress(DrumlinError, TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await dispatcher.nodes.flush(self.engine)

    async def _make_sketches_anew(self, dispatcher: Dispatcher) -> None:
        """Make sketches in the present format for pages of an earlier version. If the engine or the store cannot be
        reached now, the next start does it."""
        files = self._files
        if files is not None and dispatcher.config.near_duplicates:
            try:
                await make_sketches_anew_in_turn(self.engine, files, dispatcher.name, self.time.now)
            except DrumlinError as broken:
                log.warning("near-duplicates of stored pages are not found yet: %s", broken.message)

    async def _keep_ticking(self, app: CoordinatorApp, access: AccessControl, dispatcher: Dispatcher) -> None:
        memory = FreedMemory()
        while True:
            await self._removals.check()
            await self._tick(app, access, dispatcher)
            await memory.look(monotonic())
            await asyncio.sleep(TICK_S)

    async def _access(self) -> AccessControl:
        secret = await crawl_secret(self.engine, secrets.token_bytes(SECRET_BYTES))
        access = AccessControl(secret) if self.options.auth else OpenAccess(secret)
        await access.refresh(self.engine)
        return access

    async def _tick(self, app: CoordinatorApp, access: AccessControl, dispatcher: Dispatcher) -> None:
        """Do what is due now. If the engine cannot be reached, the next tick tries again; nodes go on meanwhile."""
        try:
            now = await self.time.now()
            await access.refresh(self.engine)
            waits = self._seeding is not None and self._seeding.waits
            dispatcher.ends = await self.engine.get_meta(FINISH_KEY) == YES and not waits
            totals = await dispatcher.tick(now, await self._running_time.follow(now))
            dispatcher.nodes.let_go(now)
            await app.ticked(totals, now)
            if self._lost is not None:
                await self._lost.tick(now)
            if self._finisher is not None:
                await self._finisher.tick(now)
            if self._upkeep is not None:
                await self._upkeep.tick(now)
        except DrumlinError as broken:
            app.health.reported(Part.ENGINE, broken, self.time.today())
            app.watch.look_soon()
        # Its traceback is in the log; a coordinator goes on.
        app.bug = None


async def found_crawl(engine: Engine, config: CrawlConfig | None, seeds: list[str]) -> tuple[CrawlConfig, list[str]]:
    """The settings with which the crawl was founded, and the seeds of its scope. If there is no crawl yet, it is
    founded now with `config` and `seeds`.

    If several coordinators do so at once, the first one wins, since each value is written only if it is absent. The
    seeds are written before the settings: if the process is killed in between, the next one sees that there are no
    settings and writes what is missing. A `config` for a crawl that exists must be equal to the settings of its
    founding, or to those that are in force by now; otherwise ConfigError.
    """
    saved = await engine.get_meta(CONFIG_KEY)
    if saved is None:
        await note_sketches(engine)
        await engine.put_meta_if_absent(SEEDS_KEY, msgspec.msgpack.encode(seeds))
        saved = await engine.put_meta_if_absent(CONFIG_KEY, msgspec.json.encode(config or CrawlConfig()))
    known = msgspec.json.decode(saved, type=CrawlConfig)
    if config is not None and config != known and config != await _in_force(engine, known):
        crawl = settings_of("crawl")
        differing = ", ".join(one.name for one in crawl if getattr(config, one.field) != getattr(known, one.field))
        hint = (
            "Leave these options out to join the crawl as it is; `drumlin set` changes some of them while it runs. "
            "To begin another crawl, end --engine with another name."
        )
        raise ConfigError(f"The crawl on this engine was founded with other values of {differing}.", hint)
    stored = await engine.get_meta(SEEDS_KEY)
    return known, msgspec.msgpack.decode(stored, type=list[str]) if stored else []


async def _in_force(engine: Engine, founded: CrawlConfig) -> CrawlConfig:
    steering = Steering(engine, founded, "")
    await steering.follow()
    return steering.config


@contextlib.asynccontextmanager
async def _watching(app: CoordinatorApp, listen: Listen) -> AsyncIterator[None]:
    """Watch the engine, the store and the certificates for as long as the context lasts."""
    watching = [asyncio.create_task(app.watch.run()), asyncio.create_task(_keep_checking_certificates(listen))]
    try:
        yield
    finally:
        for one in watching:
            await _cancelled(one)


async def _cancelled(task: asyncio.Task[None]) -> None:
    """End a task that would go on for ever. If an exception has ended it before, that is raised here."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
