"""A whole crawl on one machine: this process coordinates, one child process per core fetches, a Unix socket between
them.

The crawl directory holds everything: `frontier/` (the engine), `warc/`, `tables/`, `nodes/` (each node's journal),
`logs/`, `seeds.txt`, `report.json`. Whatever is killed, running the same command again goes on from there: the engine
knows what is settled, the journals know what was stored and not yet settled, and leases of dead processes end when
their node's successor registers.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from drumlin.config import CrawlConfig
from drumlin.coordinator.app import CoordinatorApp
from drumlin.coordinator.auth import SECRET_BYTES, OpenAccess, crawl_secret
from drumlin.coordinator.crawl_record import RECORD_NAME, CrawlRecord
from drumlin.coordinator.dispatch import CRASHES_MAX, KILLS_MAX, Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.patience import PATIENCE, Patience, first_in_backoff
from drumlin.coordinator.report import COMPLETE_KEY, ELAPSED_KEY, REPORT_NAME, YES, Report, make_report
from drumlin.coordinator.restarting import differences, follow_differences
from drumlin.coordinator.seed_fates import fruitless_seeds
from drumlin.coordinator.service import (
    CONNECTIONS_WAITING_MAX,
    GC_THRESHOLDS,
    Listen,
    run_server,
)
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.coordinator.totals import Totals
from drumlin.coordinator.unix_socket import private_socket
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.errors import EXIT_INTERNAL, BusyError, DrumlinError, StorageError
from drumlin.garbage import collect_seldom, set_apart_what_is_loaded
from drumlin.lines import logging_to
from drumlin.model import FailureKind, HostState
from drumlin.node.archive import CrawlPaths
from drumlin.node.blackbox import read_blackbox
from drumlin.node.limits import allow_open_files
from drumlin.node.main import NodeOptions
from drumlin.processes import NodeProcess, fork_node, start_node
from drumlin.protocol import CrawlState, Failure
from drumlin.store import discard_unfinished, merge
from drumlin.store.spools import JOURNAL_SUFFIX, KEPT_SUFFIX

# Few, since every batch of results touches most of them, each with a write of its own; nodes share shards if they must.
SHARD_COUNT = 4
TICK_S = 0.25
LOCK_WAIT_S = 10.0
PARSE_HANG_S = 30.0
RESTART_WAIT_S = 0.2
RESTARTS_IN_A_ROW_MAX = 5
LEAVE_WAIT_S = 90.0
SOCKET_FOLDER_BYTES_MAX = 95
OWN_FOLDERS = ("frontier", "warc", "tables", "nodes", "logs", "run")
SOCKET_ADDRESS = "address"
"""A file that says where the socket is."""
SOCKET_PROBE_S = 2.0
HEARTBEAT_S = 0.5
PATIENCE_S = 600.0
OUT_OF_REACH_SHOWN = 3
OUT_OF_REACH_EVERY_S = 1.0
CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS})


class LocalOptions(msgspec.Struct, frozen=True):
    """How this machine runs the crawl."""

    out: Path
    nodes: int
    concurrency: int
    sync: bool
    engine: str = ""
    patience_s: float = PATIENCE_S
    fresh: bool = False
    """Whether to begin anew, without what is in the directory."""


class CrawlDirectory:
    """The crawl directory, held by a lock that lives as long as any process of the crawl."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = CrawlPaths(root)
        self._lock_fd = -1

    def open(self) -> None:
        try:
            self.make_folders()
            self._lock_fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as cause:
            reason = cause.strerror or str(cause)
            raise StorageError(f"Cannot write to {self.root}: {reason}.", "Choose another --out.") from cause
        self._lock()

    def make_folders(self) -> None:
        for folder in (self.root, self.paths.warc, self.paths.tables, self.paths.spools, self.root / "logs"):
            folder.mkdir(parents=True, exist_ok=True)

    def _lock(self) -> None:
        """Wait a moment for the processes of a killed crawl to be gone; then somebody else really is at work here."""
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    hint = "Wait for it, stop it, or choose another --out."
                    raise BusyError(f"Another crawl is running in {self.root}.", hint) from None
                time.sleep(0.05)

    @property
    def lock_fd(self) -> int:
        """Passed on to the nodes, so that the lock is held until the last of them is gone."""
        return self._lock_fd

    def clear(self) -> None:
        """Remove the crawl that is here; what else is in the directory stays."""
        for name in OWN_FOLDERS:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for name in (REPORT_NAME, RECORD_NAME):
            (self.root / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


class LocalCrawl:
    """Runs one crawl to its end, its budget or its interruption."""

    def __init__(
        self,
        options: LocalOptions,
        config: CrawlConfig,
        seeds: list[str],
        *,
        on_progress: Callable[[Totals, LocalCrawl], None],
        on_changes: Callable[[list[str]], None] = lambda changed: None,
    ) -> None:
        """`on_changes` hears what is another than at the last start, if anything is."""
        self.options = options
        self.config = config
        self.directory = CrawlDirectory(options.out)
        self.dispatcher: Dispatcher
        self.started = time.monotonic()
        self.elapsed_before_s = 0.0
        self.out_of_reach: list[HostState] = []
        """Some of the hosts in back-off, those that are tried next first."""
        self._looked_at = 0.0
        self._patience = Patience(options.patience_s)
        self._seeds = seeds
        self._on_progress = on_progress
        self._on_changes = on_changes
        self._record = CrawlRecord()
        self._failure: Failure | None = None
        self._interrupts = 0
        self._processes: dict[str, NodeProcess] = {}
        self._socket_path = ""
        self._socket: socket.socket
        self._time: EngineTime

    def run(self) -> Report:
        """Crawl; the report says how it ended. Raises DrumlinError when it could not go on."""
        # Said here once, since every node would only say it to its log, and die of it again and again.
        allow_open_files(self.options.concurrency)
        self.directory.open()
        if self.options.fresh:
            self.directory.clear()
            self.directory.make_folders()
        self._socket_path = _socket_path(self.options.out)
        try:
            with private_socket(self._socket_path, CONNECTIONS_WAITING_MAX, "Choose another --out.") as self._socket:
                # Before the frontier, whose threads would make forking unsafe. What nodes say waits in the socket
                # until the coordinator is there.
                set_apart_what_is_loaded()
                for index in range(self.options.nodes):
                    name = f"n{index}"
                    self._processes[name] = fork_node(self._node_options(name), self._log(name), self._socket)
                # After forking: what the nodes say goes to files of their own.
                with logging_to(self._log("coordinator")):
                    return asyncio.run(self._run_on_frontier())
        finally:
            for process in self._processes.values():
                process.end(signal.SIGKILL)
            Path(self._socket_path).unlink(missing_ok=True)
            self.directory.close()

    async def _run_on_frontier(self) -> Report:
        spec = self.options.engine or f"rocksdb:{self.options.out / 'frontier'}"
        shard_count = None if self.options.engine else SHARD_COUNT
        engine = await open_engine(spec, shard_count=shard_count, sync=self.options.sync)
        try:
            self._time = EngineTime(engine)
            async with self._time.running():
                report = await self._run(engine)
        except BaseException:
            # Closing a frontier that could not be written fails too, and says less than what failed first.
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
        """Requests under way, on average between two heartbeats."""
        return sum(record.current_load for record in self.dispatcher.nodes.records())

    @property
    def lag_s(self) -> float:
        """How long the oldest page that was fetched and is not settled has waited."""
        return max((record.lag_s for record in self.dispatcher.nodes.records()), default=0.0)

    async def _run(self, engine: Engine) -> Report:
        saved = await engine.get_meta(ELAPSED_KEY)
        self.elapsed_before_s = float(saved) if saved else 0.0
        self.dispatcher = Dispatcher(
            engine,
            self.config,
            self._seeds,
            chance=random.Random(),  # noqa: S311  # spreads retries; nothing secret
            elapsed_s=self.elapsed_before_s,
            heartbeat_s=HEARTBEAT_S,
        )
        before = await engine.get_meta(CONFIG_KEY)
        await self.dispatcher.steering.start_with(self.config, await self._time.now())
        await self.dispatcher.open()
        await self._begin_record(msgspec.json.decode(before, type=CrawlConfig) if before else None)
        await self.dispatcher.seed(self._seeds, await self._time.now())
        totals = await self.dispatcher.totals(await self._time.now())
        was_finished = await engine.get_meta(COMPLETE_KEY) == YES and not self._spools_left()
        if not (was_finished and not totals.pending):
            await engine.put_meta(COMPLETE_KEY, b"")
            await self.dispatcher.resume()
            await self._try_again()
            discard_unfinished(self.directory.paths.tables)
            await self._crawl()
            # A crawl is finished when its index is: killed in between, the next run merges again.
            merge(self.directory.paths.warc)
            await engine.put_meta(COMPLETE_KEY, YES if self.dispatcher.state is CrawlState.FINISHED else b"")
        else:
            self.dispatcher.state = CrawlState.FINISHED
        elapsed_s = self.elapsed_s if not was_finished else self.elapsed_before_s
        now = await self._time.now()
        report = await make_report(engine, self.dispatcher.state, self.dispatcher.stop_reason, elapsed_s, now)
        report.already_finished = was_finished and not totals.pending
        report.interrupted = self._interrupts > 0
        tables = self.directory.paths.tables
        report.fruitless_seeds = await fruitless_seeds(engine, tables, self._seeds, report.pages)
        report.write(self.options.out / REPORT_NAME)
        self._record.end(_ending(report), report.pages, self._time.today())
        self._record.write(self.options.out)
        return report

    async def _try_again(self) -> None:
        """Whoever runs a crawl again wants it to try what was out of reach. (Nodes keep to what a site asked for.)"""
        engine, now = self.dispatcher.engine, await self._time.now()
        for shard in range(engine.shard_count):
            await engine.hurry(shard, now)

    async def _begin_record(self, before: CrawlConfig | None) -> None:
        """Note this run in `crawl.json`, say what is another than at the last start, and follow it."""
        known, changed = CrawlRecord.read(self.options.out), list[str]()
        self._record = known or CrawlRecord()
        if before is not None:
            seeds = self._record.seeds or self._seeds
            changed = differences(before, self.config, seeds, self._seeds)
            self._on_changes(changed)
            discard_unfinished(self.directory.paths.tables)
            tables, now = self.directory.paths.tables, await self._time.now()
            await follow_differences(self.dispatcher, before, seeds, self._seeds, tables, now)
        self._record.begin(self._seeds, self.config, changed, self._time.today())
        self._record.write(self.options.out)

    def _spools_left(self) -> bool:
        return any(any(self.directory.paths.spools.glob(f"*/*{suffix}")) for suffix in (JOURNAL_SUFFIX, KEPT_SUFFIX))

    # Processes

    async def _crawl(self) -> None:
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
            store=self.options.out,
            sync=self.options.sync,
            endpoint=listen.endpoint,
        )
        collect_seldom(*GC_THRESHOLDS)
        async with app.intake.running(), run_server(app, listen, [self._socket], drain=False):
            try:
                await self._supervise(app)
            finally:
                for process in self._processes.values():
                    process.end(signal.SIGKILL)
        if self._failure is not None:
            raise _failure_error(self._failure)

    async def _supervise(self, app: CoordinatorApp) -> None:
        keepers = [asyncio.create_task(self._keep_node(f"n{index}")) for index in range(self.options.nodes)]
        try:
            ended = await self._watch(app, keepers)
            if ended:
                await asyncio.wait(keepers, timeout=LEAVE_WAIT_S)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _watch(self, app: CoordinatorApp, keepers: list[asyncio.Task[None]]) -> bool:
        """Let time pass until the crawl has ended; False when it must stop at once."""
        while True:
            if app.bug is not None:
                raise app.bug
            if self._failure is not None or self._interrupts > 1:
                return False
            if self._interrupts:
                await self.dispatcher.stop("interrupted")
            now = await self._time.now()
            totals = await self.dispatcher.tick(now, self.elapsed_s)
            await self.dispatcher.engine.put_meta(ELAPSED_KEY, repr(self.elapsed_s).encode())
            app.ticked(totals, now)
            await self._heed_hosts_out_of_reach(totals)
            self._on_progress(totals, self)
            self._end_hung_parses()
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
            if all(keeper.done() for keeper in keepers):
                return True
            await self._until_tick(app, keepers)

    async def _heed_hosts_out_of_reach(self, totals: Totals) -> None:
        """Know some of them for the display, and stop when nothing else was left for long enough."""
        engine, now, at = self.dispatcher.engine, await self._time.now(), time.monotonic()
        if not totals.hosts_in_backoff:
            self.out_of_reach = []
        elif at - self._looked_at >= OUT_OF_REACH_EVERY_S:
            self._looked_at = at
            self.out_of_reach = await first_in_backoff(engine, now, OUT_OF_REACH_SHOWN)
        running = self.dispatcher.state is CrawlState.RUNNING
        if running and self._patience.is_out(totals, at) and await self._patience.nothing_else_left(engine, now):
            await self.dispatcher.stop(PATIENCE)

    @property
    def engine_time(self) -> float:
        return self._time.reading()

    async def _until_tick(self, app: CoordinatorApp, keepers: list[asyncio.Task[None]]) -> None:
        """Sleep, but not past the moment when the last URL is settled or the last node has left."""
        drained = asyncio.create_task(app.drained.wait())
        waited = [keeper for keeper in keepers if not keeper.done()] + [drained]
        await asyncio.wait(waited, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        app.drained.clear()

    async def _keep_node(self, name: str) -> None:
        """Run one node until it leaves by itself, starting it again whenever it dies."""
        in_a_row = 0
        while True:
            pages = (await self.dispatcher.totals(0.0)).pages
            process = self._processes[name]
            code = await process.wait()
            if code == 0 and self.dispatcher.state is not CrawlState.RUNNING:
                return
            if self._failure is not None:
                return
            await self._note_crash(name, code)
            in_a_row = in_a_row + 1 if (await self.dispatcher.totals(0.0)).pages == pages else 0
            if in_a_row > RESTARTS_IN_A_ROW_MAX:
                hint = f"See {self._log(name)}."
                raise DrumlinError(f"Node {name} died {in_a_row} times without finishing a page.", hint)
            await asyncio.sleep(RESTART_WAIT_S)
            self._processes[name] = start_node(self._node_options(name), self._log(name), self.directory.lock_fd)

    def _node_options(self, name: str) -> NodeOptions:
        options = self.options
        return NodeOptions(
            name, f"unix:{self._socket_path}", options.out, options.concurrency, options.sync, parent_pid=os.getpid()
        )

    def _log(self, name: str) -> Path:
        return self.options.out / "logs" / f"{name}.log"

    async def _note_crash(self, name: str, code: int) -> None:
        """Hold the page that a node died on against that page."""
        path = self.directory.paths.blackbox(name)
        url, _ = read_blackbox(path)
        if not url:
            return
        crashed = code > 0 or -code in CRASH_SIGNALS
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        error = f"its process ended with {how} while parsing it"
        # A kill from outside may have hit this page by chance; only a habit of it is held against the page.
        limit = CRASHES_MAX if crashed else KILLS_MAX
        now = await self._time.now()
        await self.dispatcher.strike(url, now, kind=FailureKind.CRASH, error=error, limit=limit)
        path.unlink(missing_ok=True)

    def _end_hung_parses(self) -> None:
        """A native parser that does not come back cannot be interrupted; its process can be ended."""
        for name, process in self._processes.items():
            url, since = read_blackbox(self.directory.paths.blackbox(name))
            if url and process.returncode is None and time.monotonic() - since > PARSE_HANG_S:
                process.send_signal(signal.SIGABRT)

    # Endings

    def _interrupt(self) -> None:
        self._interrupts += 1

    def _fail(self, failure: Failure) -> None:
        self._failure = self._failure or failure


def _ending(report: Report) -> str:
    """How a run ended, in a word or two."""
    return "interrupted" if report.interrupted else report.stop_reason or report.state


def _socket_path(out: Path) -> str:
    """Where the coordinator listens: in a folder of the crawl directory that is closed to other users, or in one in the
    temporary folder where the name would be longer than the kernel takes."""
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
    """Where the coordinator of the crawl that runs in this directory listens; None when none does."""
    try:
        path = (out / "run" / SOCKET_ADDRESS).read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(SOCKET_PROBE_S)
            probe.connect(path)
    except OSError:
        return None
    return path


def _failure_error(failure: Failure) -> DrumlinError:
    error = DrumlinError(failure.message, failure.hint)
    error.exit_code = failure.exit_code or EXIT_INTERNAL
    return error
