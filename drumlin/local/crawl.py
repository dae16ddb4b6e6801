"""A whole crawl on one machine: this process coordinates, one child process per core fetches, and they talk over a Unix
socket.

The crawl directory holds everything: `frontier/` (the engine), `warc/`, `tables/`, `nodes/` (each node's journal),
`logs/`, `run/` (the socket), `crawl.json`, `report.json`. Whatever is killed, the same command resumes the crawl: the
engine knows what is settled, the journals know what was stored but not yet settled, and the leases of a dead process
end when its successor registers under the same name.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from drumlin.access.tokens import SECRET_BYTES, OpenAccess, crawl_secret
from drumlin.api.app import CoordinatorApp
from drumlin.api.explaining.report import (
    COMPLETE_KEY,
    ELAPSED_KEY,
    REPORT_NAME,
    YES,
    Report,
    elapsed_before_s,
    make_report,
)
from drumlin.api.explaining.seed_fates import fruitless_seeds
from drumlin.api.explaining.why import brokers_away
from drumlin.api.traces import CoordinatorTraces, coordinator_traces
from drumlin.api.unix_socket import private_socket
from drumlin.config import CrawlConfig, ProcessConfig
from drumlin.config.record import RECORD_NAME, CrawlRecord
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.patience import PATIENCE, TOPIC_LOST, Patience
from drumlin.coordinator.resketching import WHY, has_older_sketches, make_sketches_anew, note_sketches
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.coordinator.totals import Totals
from drumlin.disk import write_whole
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.errors import DrumlinError
from drumlin.events.options import EventsOptions, SeedsOptions
from drumlin.garbage_collection import collect_seldom, set_apart_what_is_loaded
from drumlin.lines import tell
from drumlin.local.bounds import Bounds
from drumlin.local.directory import FRONTIER, CrawlDirectory
from drumlin.local.keepers import Keepers
from drumlin.local.page import page_served
from drumlin.local.processes import failure_error
from drumlin.local.restarting import CONFIG_BEFORE_KEY, differences, follow_differences, still_set
from drumlin.local.storing import fetch_lost_again, found_crawl_store, open_crawl_store, segments_left, told_left
from drumlin.local.troubles import Troubles, standstill
from drumlin.logs import identify, logging_to
from drumlin.node.keeping.past import past_finds
from drumlin.node.limits import allow_open_files
from drumlin.node.main import NodeOptions
from drumlin.protocol import CrawlState, Failure
from drumlin.serving.seeding import Seeding
from drumlin.serving.service import (
    CONNECTIONS_WAITING_MAX,
    GC_THRESHOLDS,
    SEEDS_KEY,
    Listen,
    run_server,
)
from drumlin.serving.telling import kafka_used
from drumlin.store import discard_unfinished, merge
from drumlin.store.files import StoreFiles

# Few, since a batch of results touches most shards and each of them costs a write. Several nodes may share a shard.
SHARD_COUNT = 4
TICK_S = 0.25
LEAVE_WAIT_S = 90.0
STORE_WAIT_S = 30.0
"""How long nodes may take, after a signal, to store the pages that were in flight."""
SOCKET_FOLDER_BYTES_MAX = 95
SOCKET_ADDRESS = "address"
"""The name of the file in `run/` that holds the path of the socket."""
SOCKET_PROBE_S = 2.0
HEARTBEAT_S = 0.5


class LocalCrawl:
    """Runs one crawl to its end, its budget or its interruption."""

    def __init__(
        self,
        process: ProcessConfig,
        config: CrawlConfig,
        seeds: list[str],
        *,
        fresh: bool = False,
        on_progress: Callable[[Totals, LocalCrawl], None],
        on_page: Callable[[str], None] | None = None,
        tell: Callable[[str], None] = tell,
    ) -> None:
        """`fresh` removes the crawl that is in the directory and begins anew. `on_page` is called with the address of
        the crawl's page; without it there is no page. `tell` is called with sentences for the user: that another crawl
        is at work there, or what differs from the last start."""
        self.config = config
        self._process = process
        self._out = Path(process.out).absolute()
        self._fresh = fresh
        self.directory = CrawlDirectory(self._out, tell)
        self.dispatcher: Dispatcher
        self.started = time.monotonic()
        self.elapsed_before_s = 0.0
        self._troubles = Troubles(seeds)
        self._unusable: list[str] = []
        """What is wrong with the engine, the store or Kafka."""
        self.bounds = Bounds()
        self._patience = Patience(process.patience_s)
        self._seeds = seeds
        self._on_progress = on_progress
        self._on_page = on_page
        self._say = tell
        self._record = CrawlRecord()
        self._failure: Failure | None = None
        self._interrupts = 0
        self._interrupted_at = math.inf
        self._keepers = Keepers(self.directory.paths, process.nodes or os.cpu_count() or 1)
        self._socket_path = ""
        self._socket: socket.socket
        self._time: EngineTime
        self._events, self._seeds_from = EventsOptions.of(process), SeedsOptions.of(process)
        self._seeding: Seeding | None = None
        self._files: StoreFiles
        self._objects = ""
        """The address of the store, if it is in a bucket."""

    def run(self) -> Report:
        """Crawl; the report says how it ended. Raises DrumlinError if the crawl could not go on."""
        # Checked here so the user sees the error. Every node would only write it to its log and die, again and again.
        allow_open_files(self._process.concurrency)
        self.directory.open()
        if self._fresh:
            self.directory.clear()
            self.directory.make_folders()
        if not self._process.engine:
            self.directory.check_frontier()
        self._objects = self.directory.agree_on_store(self._process.store)
        self._socket_path = _socket_path(self._out)
        try:
            with private_socket(self._socket_path, CONNECTIONS_WAITING_MAX, "Choose another --out.") as self._socket:
                # Nodes are forked before the frontier is opened, because its threads would make forking unsafe. Their
                # first requests wait in the socket until the coordinator serves it.
                set_apart_what_is_loaded()
                self._keepers.fork_all(self._node_options(), self._socket, self.directory.lock_fd)
                return asyncio.run(self._run_on_frontier())
        finally:
            self._keepers.end_all()
            Path(self._socket_path).unlink(missing_ok=True)
            self.directory.close()

    def _node_options(self) -> NodeOptions:
        """What every node is told; each has a name of its own besides."""
        process, endpoint = self._process, f"unix:{self._socket_path}"
        pid, log, traces = os.getpid(), process.log, process.trace_every > 0
        return NodeOptions(
            "",
            endpoint,
            self._out,
            process.concurrency,
            process.sync,
            parent_pid=pid,
            bundled=bool(self._objects),
            store=self._objects,
            log=log,
            traces=traces,
            # Of what is in a bucket, this process tells.
            events=None if self._objects else self._events,
        )

    async def _run_on_frontier(self) -> Report:
        spec = self._process.engine or f"rocksdb:{self._out / FRONTIER}"
        shard_count = None if self._process.engine else SHARD_COUNT
        engine = await open_engine(spec, shard_count=shard_count, sync=self._process.sync)
        try:
            self._time = EngineTime(engine)
            # Begins when the engine is open: a person who waits for that should hear why.
            with logging_to(self._log("coordinator"), self._process.log):
                async with self._time.running():
                    report = await self._run(engine)
        except BaseException:
            # If the frontier could not be written, closing it fails too, with a less useful message than the first.
            with contextlib.suppress(DrumlinError):
                await engine.close()
            raise
        await engine.close()
        return report

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_before_s + time.monotonic() - self.started

    @property
    def in_flight(self) -> float:
        """How many requests are under way: the sum of the averages that nodes reported with their last heartbeats."""
        return sum(record.current_load for record in self.dispatcher.nodes.records())

    @property
    def lag_s(self) -> float:
        """How long the oldest page that was fetched but not settled has waited."""
        return max((record.lag_s for record in self.dispatcher.nodes.records()), default=0.0)

    async def _run(self, engine: Engine) -> Report:
        self._files = await open_crawl_store(self.directory, self._objects)
        self.elapsed_before_s = await elapsed_before_s(engine)
        self.dispatcher = Dispatcher(
            engine,
            self.config,
            self._seeds,
            chance=random.Random(),  # noqa: S311  # spreads retries; nothing secret
            elapsed_s=self.elapsed_before_s,
            heartbeat_s=HEARTBEAT_S,
        )
        # The settings of the last start are kept until everything that differs has been applied: if this process is
        # killed in between, the next one still sees the difference.
        saved = await engine.get_meta(CONFIG_BEFORE_KEY) or await engine.get_meta(CONFIG_KEY)
        await engine.put_meta(CONFIG_BEFORE_KEY, saved or b"")
        before = msgspec.json.decode(saved, type=CrawlConfig) if saved else None
        in_force = await self.dispatcher.steering.start_with(self.config, await self._time.now())
        await self.dispatcher.open()
        self._seeds = self.dispatcher.findings.removed.without(self._seeds)
        identify(crawl=self.dispatcher.crawl_id)
        await found_crawl_store(self._files, self.dispatcher.crawl_id)
        await self._begin_record(before, in_force or before)
        await engine.put_meta(CONFIG_BEFORE_KEY, b"")
        # For the coordinators of a fleet, if the frontier is ever moved to one.
        await engine.put_meta(SEEDS_KEY, msgspec.msgpack.encode(self._seeds))
        await self.dispatcher.seed(self._seeds, await self._time.now())
        await self._fetch_lost_again()
        totals = await self.dispatcher.totals(await self._time.now())
        left = bool(segments_left(self.directory)) or await self._events_left()
        was_finished = await engine.get_meta(COMPLETE_KEY) == YES and not left
        already_finished = was_finished and not totals.pending and self._seeds_from is None
        if not already_finished:
            await engine.put_meta(COMPLETE_KEY, b"")
            await self.dispatcher.resume()
            await self._keepers.release_all(self.dispatcher, self._time)
            await self._try_again()
            discard_unfinished(self.directory.paths.tables)
            await self._crawl_noted()
            await self._make_complete(engine)
        else:
            self.dispatcher.state = CrawlState.FINISHED
        elapsed_s = self.elapsed_before_s if already_finished else self.elapsed_s
        now = await self._time.now()
        if await self._events_left():
            self._say("Some events wait, because Kafka did not take them. The same command sends them.")
        report = await make_report(engine, self.dispatcher.state, self.dispatcher.stop_reason, elapsed_s, now)
        report.already_finished = already_finished
        report.interrupted = self._interrupts > 0
        report.fruitless_seeds = await fruitless_seeds(engine, self._files, self._seeds, report.pages)
        self._record.end(_ending(report), report.pages, self.dispatcher.config, self._time.today())
        write_whole(self._out / RECORD_NAME, self._record.file())
        report.crawl = self._record.told()
        report.write(self._out / REPORT_NAME)
        await asyncio.to_thread(self._files.replace, REPORT_NAME, self._out / REPORT_NAME)
        return report

    async def _make_complete(self, engine: Engine) -> None:
        """Merge the index, and only then count the crawl as complete: if we are killed before, the next run merges."""
        if self._objects:
            await self._fetch_lost_again()
            await asyncio.to_thread(self._files.complete, self._out)
        else:
            merge(self.directory.paths.warc)
        await engine.put_meta(COMPLETE_KEY, YES if self.dispatcher.state is CrawlState.FINISHED else b"")

    async def _try_again(self) -> None:
        """Try hosts that were out of reach at once, because the user has started the crawl again. (What a site asked
        for with Retry-After is still obeyed by the nodes.)"""
        engine, now = self.dispatcher.engine, await self._time.now()
        for shard in range(engine.shard_count):
            await engine.hurry(shard, now, delay_default_s=self.dispatcher.config.delay_s)

    async def _begin_record(self, before: CrawlConfig | None, in_force: CrawlConfig | None) -> None:
        """Note this run in `crawl.json`, say what differs from the last start, and apply it. `before` has the settings
        of the last start, and `in_force` those that held when it ended: `drumlin set` may have changed some."""
        engine = self.dispatcher.engine
        known, changed = CrawlRecord.read(self._out), list[str]()
        self._record = known or CrawlRecord()
        if before is not None and in_force is not None:
            seeds = self._record.seeds or self._seeds
            changed = differences(in_force, self.dispatcher.config, seeds, self._seeds)
            for line in changed:
                self._say(f"Different from the last start: {line}.")
            for line in still_set(self.config, self.dispatcher.config):
                self._say(line)
            discard_unfinished(self.directory.paths.tables)
            if self.config.near_duplicates and await has_older_sketches(engine):
                self._say(f"Different from the last start: {WHY}.")
                await make_sketches_anew(engine, self._files)
            past = past_finds(self.directory.paths, self._files, self.config)
            now, year = await self._time.now(), datetime.fromtimestamp(self._time.today(), UTC).year
            await follow_differences(self.dispatcher, before, seeds, self._seeds, past, now, year)
        else:
            await note_sketches(engine)
        self._record.begin(self._seeds, self.dispatcher.config, changed, self._time.today())
        write_whole(self._out / RECORD_NAME, self._record.file())

    async def _fetch_lost_again(self) -> None:
        await fetch_lost_again(self.dispatcher, self.directory, self._files, await self._time.now(), self._say)

    async def _events_left(self) -> bool:
        return self._events is not None and await told_left(self.directory, self._files)

    # Processes

    async def _crawl_noted(self) -> None:
        """Crawl. If the crawl cannot go on, `crawl.json` says why; otherwise it would look as if it had been killed."""
        try:
            with coordinator_traces(self._process.trace_every, self.dispatcher.name) as traces:
                await self._crawl(traces)
        except DrumlinError as broken:
            # Most often the disk is full, and then this cannot be written either.
            with contextlib.suppress(DrumlinError, OSError):
                reason, pages = f"failed: {broken.message}", self.dispatcher.latest.pages
                self._record.end(reason, pages, self.dispatcher.config, self._time.today())
                write_whole(self._out / RECORD_NAME, self._record.file())
            raise

    async def _crawl(self, traces: CoordinatorTraces | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt)
        listen = Listen(unix=self._socket_path)
        secret = await crawl_secret(self.dispatcher.engine, secrets.token_bytes(SECRET_BYTES))
        app = CoordinatorApp(
            self.dispatcher,
            access=OpenAccess(secret),
            on_failure=self._fail,
            on_broken=lambda broken: self._fail(Failure(broken.message, broken.hint, broken.exit_code)),
            engine_time=self._time,
            store=self._out,
            files=self._files,
            sync=self._process.sync,
            endpoint=listen.endpoint,
        )
        app.trace(traces)
        collect_seldom(*GC_THRESHOLDS)
        serving = run_server(app, listen, [self._socket], app.close, drain=False)
        watched = self.bounds.watched(app, self._time.now) if not self._process.quiet else contextlib.nullcontext()
        told = (self._events, self._seeds_from, self._out, self._time.now)
        kafka = kafka_used(app, self.dispatcher, *told, files=self._files, alone=True)
        async with kafka as self._seeding, app.running(), serving, page_served(app, self._on_page), watched:
            try:
                await self._supervise(app)
            finally:
                self._keepers.end_all()
        if self._failure is not None:
            raise failure_error(self._failure)

    async def _supervise(self, app: CoordinatorApp) -> None:
        keepers = self._keepers.keep_all(lambda: self._failure is not None)
        try:
            ended = await self._watch(app, keepers)
            if ended:
                await asyncio.wait(keepers, timeout=LEAVE_WAIT_S)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _watch(self, app: CoordinatorApp, keepers: list[asyncio.Task[None]]) -> bool:
        """Tick until the crawl has ended; False if it must stop at once."""
        while True:
            if app.bug is not None:
                raise app.bug
            if self._failure is not None or self._interrupts > 1 or self._waits_in_vain:
                return False
            if self._interrupts:
                await self.dispatcher.stop("interrupted")
            now = await self._time.now()
            if self._seeding is not None:
                self.dispatcher.ends = not self._seeding.waits
            totals = await self.dispatcher.tick(now, self.elapsed_s)
            await self.dispatcher.engine.put_meta(ELAPSED_KEY, repr(self.elapsed_s).encode())
            await app.ticked(totals, now)
            await self._heed_troubles(app, totals)
            self._on_progress(totals, self)
            self._keepers.end_hung_parses()
            self._keepers.end_kept_out()
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
            if all(keeper.done() for keeper in keepers):
                return True
            await self._until_tick(app, keepers)

    @property
    def _waits_in_vain(self) -> bool:
        """Whether a node seems to be stuck: since the first signal, nodes had more time to finish than one fetch takes.
        Killing it loses nothing, because what it has fetched is in its journal."""
        return time.monotonic() > self._interrupted_at + self.config.fetch_timeout_s + STORE_WAIT_S

    async def _heed_troubles(self, app: CoordinatorApp, totals: Totals) -> None:
        """Collect troubles for the display, and stop the crawl if for `--patience` nothing was left but hosts that are
        out of reach, or if nothing is left and seeds could not be read for `--seeds-idle`."""
        engine, now, at = self.dispatcher.engine, await self._time.now(), time.monotonic()
        await self._troubles.look(engine, totals, now, at)
        # Its nodes have the same broker, so one of them tells enough.
        away = [one.message for one in brokers_away(self.dispatcher.nodes.records(), app.kafka)[:1]]
        self._unusable = [*(trouble.message for trouble in app.health.troubles), *away]
        running = self.dispatcher.state is CrawlState.RUNNING
        if running and self._patience.is_out(totals, at) and await self._patience.nothing_else_left(engine, now):
            await self.dispatcher.stop(PATIENCE)
        if running and self._seeding is not None and self._seeding.in_vain and not totals.pending:
            await self.dispatcher.stop(f"{TOPIC_LOST} ({self._seeding.lost})")

    @property
    def troubles(self) -> list[str]:
        """What does not go well, in a few lines."""
        nodes = self.dispatcher.nodes.records()
        return [
            *self._unusable,
            *standstill(self.dispatcher.state, nodes, self._seeding),
            *self._keepers.sent_away,
            *self._troubles.lines,
        ]

    async def _until_tick(self, app: CoordinatorApp, keepers: list[asyncio.Task[None]]) -> None:
        """Sleep until the next tick, or until the last URL is settled or a node has left."""
        drained = asyncio.create_task(app.drained.wait())
        waited = [keeper for keeper in keepers if not keeper.done()] + [drained]
        await asyncio.wait(waited, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        app.drained.clear()

    def _log(self, name: str) -> Path:
        return self._out / "logs" / f"{name}.log"

    # Endings

    def _interrupt(self) -> None:
        self._interrupts += 1
        self._interrupted_at = min(self._interrupted_at, time.monotonic())

    def _fail(self, failure: Failure) -> None:
        self._failure = self._failure or failure


def _ending(report: Report) -> str:
    """How a run ended, in a word or two."""
    return "interrupted" if report.interrupted else report.stop_reason or report.state


def _socket_path(out: Path) -> str:
    """The path of the coordinator's socket, in a folder that other users cannot enter. It is in the crawl directory, or
    in the temporary folder if the path would be longer than the kernel allows."""
    own = folder = str(out / "run")
    os.makedirs(own, mode=0o700, exist_ok=True)
    os.chmod(own, 0o700)
    if len(os.fsencode(folder)) > SOCKET_FOLDER_BYTES_MAX:
        folder = tempfile.mkdtemp(prefix="drumlin-")
    path = f"{folder}/socket"
    Path(path).unlink(missing_ok=True)
    (out / "run" / SOCKET_ADDRESS).write_text(path)
    return path


def socket_of(out: Path) -> str | None:
    """The socket of the coordinator of the crawl that runs in this directory; None if no crawl runs here."""
    try:
        path = (out / "run" / SOCKET_ADDRESS).read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(SOCKET_PROBE_S)
            probe.connect(path)
    except OSError:
        return None
    return path
