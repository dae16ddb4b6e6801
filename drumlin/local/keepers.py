"""Keeps the nodes of a local crawl running: starts them, starts them again when they die, and ends those that cannot be
told that the crawl is over.

Orders of people for such a node (drain, quarantine) hold for one run of the crawl: `release_all` cancels them when the
next run begins.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.taking.strikes import CRASHES_MAX, strike
from drumlin.errors import DrumlinError
from drumlin.fleet.marks import ending_of
from drumlin.local.processes import NodeProcess, fork_node, start_node
from drumlin.logs import Event, event
from drumlin.node.agent import ENDING
from drumlin.node.keeping.archive import CrawlPaths
from drumlin.node.keeping.blackbox import read_blackbox
from drumlin.node.main import NodeOptions
from drumlin.protocol import KILLS_MAX, NodeEvent, NodeStatus

PARSE_HANG_S = 30.0
RESTART_WAIT_S = 0.2
RESTARTS_IN_A_ROW_MAX = 5
CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS})

log = logging.getLogger("drumlin.coordinator")


class Keepers:
    """The node processes of one run, by name. `fork_all` must be called first, before this process has threads, and
    `release_all` once there is a dispatcher, before `keep_all`."""

    def __init__(self, paths: CrawlPaths, count: int) -> None:
        self._paths = paths
        self._names = [f"n{index}" for index in range(count)]
        self._processes: dict[str, NodeProcess] = {}
        self._options: dict[str, NodeOptions] = {}
        self._dispatcher: Dispatcher
        self._time: EngineTime
        self._lock_fd = -1

    def fork_all(self, shared: NodeOptions, listener: socket.socket, lock_fd: int) -> None:
        """Start every node with the options that they share and a name of its own."""
        self._lock_fd = lock_fd
        for name in self._names:
            options = msgspec.structs.replace(shared, node=name)
            self._options[name] = options
            self._processes[name] = fork_node(options, self._log(name), listener)

    async def release_all(self, dispatcher: Dispatcher, engine_time: EngineTime) -> None:
        """Cancel what people ordered for these nodes in an earlier run: whoever starts a crawl wants its nodes to
        work."""
        self._dispatcher, self._time = dispatcher, engine_time
        await dispatcher.orders.refresh()
        for name in self._names:
            await dispatcher.change_node(name, NodeEvent.LEAVES)

    def keep_all(self, is_broken: Callable[[], bool]) -> list[asyncio.Task[None]]:
        """Keep every node running until the crawl ends, or `is_broken` says that it cannot go on."""
        return [asyncio.create_task(self._keep(name, is_broken)) for name in self._names]

    def end_all(self) -> None:
        for process in self._processes.values():
            process.end(signal.SIGKILL)

    async def _keep(self, name: str, is_broken: Callable[[], bool]) -> None:
        """Run one node until it leaves by itself, starting it again whenever it dies."""
        in_a_row = 0
        while True:
            pages = (await self._dispatcher.totals(0.0)).pages
            code = await self._processes[name].wait()
            # When the crawl is over, a node that died still has to come back: its journal has results to send.
            if is_broken() or (self._is_over and (code == 0 or self._ordered(name))):
                return
            await self._note_crash(name, code)
            if self._ordered(name):
                if not await self._is_wanted_again(name):
                    return
            else:
                # A node that dies again and again without any page done would die for ever; with progress it may go on.
                in_a_row = in_a_row + 1 if (await self._dispatcher.totals(0.0)).pages == pages else 0
            if in_a_row > RESTARTS_IN_A_ROW_MAX:
                hint = f"See {self._log(name)}."
                raise DrumlinError(f"Node {name} died {in_a_row} times without finishing a page.", hint)
            await asyncio.sleep(RESTART_WAIT_S)
            ended = ending_of(code)
            said = event(Event.RESTARTED, node=name, ended=ended)
            log.warning("node %s ended (%s) and is started again", name, ended, extra=said)
            self._processes[name] = start_node(self._options[name], self._log(name), self._lock_fd)

    @property
    def _is_over(self) -> bool:
        return self._dispatcher.state in ENDING

    def _ordered(self, name: str) -> NodeStatus | None:
        return self._dispatcher.orders.nodes.get(name)

    async def _is_wanted_again(self, name: str) -> bool:
        """Wait until a node that a person has sent away is released; False if the crawl ends before."""
        while self._ordered(name) is not None:
            if self._is_over:
                return False
            await asyncio.sleep(RESTART_WAIT_S)
        return True

    async def _note_crash(self, name: str, code: int) -> None:
        """If a node died while it parsed a page, count that against the page."""
        path = self._paths.blackbox(name)
        url, _ = read_blackbox(path)
        if not url:
            return
        crashed = code > 0 or -code in CRASH_SIGNALS
        error = f"its process ended with {ending_of(code)} while parsing it"
        # A kill from outside may have hit this page by chance, so the page is given up only after more of them.
        limit = CRASHES_MAX if crashed else KILLS_MAX
        now = await self._time.now()
        await strike(self._dispatcher.engine, url, now, error=error, limit=limit)
        path.unlink(missing_ok=True)

    def end_hung_parses(self) -> None:
        """End nodes whose parser has not returned for `PARSE_HANG_S`: native code cannot be interrupted otherwise."""
        for name, process in self._processes.items():
            url, since = read_blackbox(self._paths.blackbox(name))
            if url and process.returncode is None and time.monotonic() - since > PARSE_HANG_S:
                process.send_signal(signal.SIGABRT)

    def end_kept_out(self) -> None:
        """End nodes in quarantine when the crawl is over. They get no answers, so they would never learn of it. What
        they have fetched is in their journals."""
        for name, process in self._processes.items():
            if self._is_over and self._ordered(name) is NodeStatus.QUARANTINED:
                process.send_signal(signal.SIGKILL)

    @property
    def sent_away(self) -> list[str]:
        """Sentences about nodes that do not work because a person ordered it."""
        words = {NodeStatus.QUARANTINED: "is in quarantine", NodeStatus.DRAINING: "was told to leave"}
        away = [(name, words.get(status)) for name in self._names if (status := self._ordered(name))]
        return [f"node {name} {word}; `drumlin nodes release {name}` lets it work again" for name, word in away if word]

    def _log(self, name: str) -> Path:
        return self._paths.root / "logs" / f"{name}.log"
