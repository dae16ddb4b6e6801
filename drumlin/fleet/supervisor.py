"""The process that keeps a fleet: starts everything in order, starts again what dies, ends everything when asked.

`drumlin fleet up` starts it with the fleet's directory as its only argument, and SIGTERM ends it. `fleet.json` names
every process that it started, so `drumlin fleet down` can end them even if the supervisor was killed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from drumlin.client.remote import CoordinatorError, Remote
from drumlin.errors import DrumlinError, StorageError
from drumlin.fleet.children import Child, coordinator_children, node_children, redis_children
from drumlin.fleet.cluster import form_cluster
from drumlin.fleet.endings import end_all
from drumlin.fleet.founding import make_tokens
from drumlin.fleet.layout import FleetPaths, FleetState, ProcessRole, read_secret
from drumlin.fleet.marks import ProcessMark, ending_of
from drumlin.fleet.up import remote_of
from drumlin.lines import tell
from drumlin.logs import Event, event, log_last_words, log_to_stderr
from drumlin.protocol import paths
from drumlin.store import discard_unfinished
from drumlin.tls import CertificateFiles

TICK_S = 0.1
ASK_S = 1.0
ENDED_S_MAX = 5.0
"""How long the kernel may take to say how a process ended whose last threads are just ending."""
READY_S_MAX = 120.0
WRITE_AGAIN_S = 1.0
# The states of a crawl in which it needs its nodes.
WORKING_STATES = ("running", "paused")

log = logging.getLogger("drumlin.fleet")


class Stopped(Exception):
    """The fleet was told to end while it was starting."""


class Supervisor:
    """Keeps the fleet of one directory."""

    def __init__(self, root: Path) -> None:
        self._paths = FleetPaths(root)
        self._record = self._paths.read()
        self._plan = self._record.plan
        self._children: list[Child] = []
        self._stopping = False
        self._remote: Remote
        self._asked = 0.0
        self._state = ""
        self._complete = False
        self._ordered: frozenset[str] = frozenset()
        """The nodes that a person has ordered to leave, or to stay out."""
        self._unwritten = False
        """Whether `fleet.json` lacks something, because it could not be written."""
        self._write_again = 0.0

    def run(self) -> None:
        """Keep the fleet until it is told to stop; raises DrumlinError if the fleet cannot be started."""
        lock = self._paths.take_lock()
        log_to_stderr(self._plan.log)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        self._record.supervisor = ProcessMark.of(os.getpid())
        self._record.processes = []
        self._record.finished = False
        self._enter(FleetState.STARTING)
        try:
            self._start()
            self._enter(FleetState.READY)
            log.info("the fleet is up", extra=event(Event.STARTED))
            self._keep()
        except Stopped:
            pass
        except DrumlinError as broken:
            self._record.failure, self._record.failure_code = str(broken), broken.exit_code
            raise
        finally:
            self._end()
            os.close(lock)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _enter(self, state: FleetState) -> None:
        self._record.state = state
        self._paths.write(self._record)

    def _try_to_write(self) -> bool:
        """Write `fleet.json`, and say whether that was possible. A disk that is full must not take the supervisor away:
        nobody would start again what ends because of it, nor end what is left."""
        try:
            self._paths.write(self._record)
        except StorageError as refused:
            if not self._unwritten:
                log.warning("the list of processes is written later: %s", refused)
            self._unwritten = True
        else:
            self._unwritten = False
        return not self._unwritten

    def _end(self) -> None:
        self._record.state = FleetState.STOPPING
        self._try_to_write()
        log.info("ending the processes of the fleet", extra=event(Event.STOPPING))
        end_all(self._record, on_poll=self._reap)
        for child in self._children:
            child.reap(ENDED_S_MAX)
        self._record.supervisor = None
        self._record.state = FleetState.FAILED if self._record.failure else FleetState.DOWN
        self._try_to_write()
        log.info("stopped", extra=event(Event.STOPPED))

    # Starting

    def _start(self) -> None:
        paths, plan = self._paths, self._plan
        self._begin(redis_children(paths, plan))
        form_cluster(plan, read_secret(paths.redis_password), self._check_starting)
        # One after the other: the first coordinator founds the crawl, and the others join it.
        for child, address in zip(coordinator_children(paths, plan), self._record.coordinators, strict=True):
            self._begin([child])
            self._wait_for_coordinator(address)
        make_tokens(paths)
        self._remote = remote_of(paths)
        # Before any node writes: nodes make again what killed ones left unfinished, from journals and WARC files.
        discard_unfinished(paths.store / "tables")
        self._begin(node_children(paths, plan, self._record.coordinators))
        self._wait_for_nodes()

    def _begin(self, children: list[Child]) -> None:
        for child in children:
            child.start()
            self._children.append(child)
            self._record.processes.append(child.record)
        self._paths.write(self._record)

    def _wait_for_coordinator(self, address: str) -> None:
        one = Remote([address], ca=CertificateFiles.in_folder(self._paths.certs).authority)
        deadline = time.monotonic() + READY_S_MAX
        while True:
            self._check_starting()
            try:
                one.get(paths.READINESS)
                return
            except CoordinatorError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(TICK_S)

    def _wait_for_nodes(self) -> None:
        """Wait until each node has registered, or has left already because there was little to do."""
        deadline = time.monotonic() + READY_S_MAX
        waiting = {f"node-{number}" for number in range(self._plan.nodes)}
        while waiting:
            self._check_starting()
            waiting -= {child.record.name for child in self._children if child.record.exit_code == 0}
            try:
                waiting -= {node["node_id"] for node in self._remote.get(paths.NODES)["nodes"]}
            except CoordinatorError:
                if time.monotonic() > deadline:
                    raise
            if waiting and time.monotonic() > deadline:
                raise DrumlinError(f"These nodes did not register: {', '.join(sorted(waiting))}.", "See their logs.")
            time.sleep(TICK_S)

    def _check_starting(self) -> None:
        """Raise an error if a process has died: one that dies while the fleet is starting would die again."""
        if self._stopping:
            raise Stopped
        self._reap()
        for child in self._children:
            if child.record.exit_code:
                words = child.last_words().removeprefix("drumlin: ")
                error = DrumlinError(f"{child.record.name} ended while starting: {words}", "See the logs.")
                error.exit_code = child.record.problem
                raise error

    # Keeping

    def _keep(self) -> None:
        while not self._stopping:
            changed = self._reap()
            if self._plan.restart:
                changed |= self._restart()
            changed |= self._finish()
            if changed or (self._unwritten and time.monotonic() >= self._write_again):
                self._write_again = time.monotonic() + WRITE_AGAIN_S
                self._try_to_write()
            time.sleep(TICK_S)

    def _reap(self) -> bool:
        ended = [child for child in self._children if child.reap()]
        return bool(ended)

    def _restart(self) -> bool:
        due = [child for child in self._children if child.due]
        if not due:
            return False
        # A node that left by itself had nothing to do, or was told to leave. It is started again only if there is work
        # by now, and nobody's order would make it leave again.
        left = [child for child in due if child.record.role is ProcessRole.NODE and child.record.exit_code == 0]
        if left:
            needed = self._crawl_state() in WORKING_STATES
            returning = [child for child in left if needed and child.record.name not in self._ordered]
            due = [child for child in due if child not in left or child in returning]
        for child in due:
            self._start_again(child)
        return bool(due)

    def _start_again(self, child: Child) -> None:
        code, name = child.record.exit_code, child.record.name
        ended = ending_of(code or 0)
        child.start()
        ids = {str(child.record.role): name} if child.record.role is not ProcessRole.REDIS else {"server": name}
        level = logging.INFO if code == 0 else logging.WARNING
        said = event(Event.RESTARTED, ended=ended, starts=child.record.starts, **ids)
        log.log(level, "%s ended (%s) and was started again", name, ended, extra=said)

    def _finish(self) -> bool:
        """Note in `fleet.json` when the crawl is finished, its nodes have left, and a coordinator has merged the index
        and written the report. Returns whether `fleet.json` has to be written."""
        nodes = self._record.of(ProcessRole.NODE)
        left = any(node.exit_code == 0 for node in nodes) and not any(node.alive for node in nodes)
        if self._record.finished or not left or self._crawl_state() != "finished" or not self._complete:
            # If URLs were added since, nodes are at work again and the crawl is not finished any more.
            reopened = self._record.finished and not left
            self._record.finished = self._record.finished and left
            return reopened
        self._record.finished = True
        return True

    def _crawl_state(self) -> str:
        """The state of the crawl; also notes which nodes people have sent away. Coordinators are asked at most once a
        second, since this is called often."""
        if time.monotonic() - self._asked >= ASK_S:
            self._asked = time.monotonic()
            try:
                crawl, nodes = self._remote.get(paths.CRAWL), self._remote.get(paths.NODES)["nodes"]
                self._state, self._complete = crawl["state"], crawl["complete"]
                self._ordered = frozenset(node["node_id"] for node in nodes if node["ordered"])
            except CoordinatorError:
                self._state, self._complete = "", False
        return self._state


def main() -> None:
    try:
        Supervisor(Path(sys.argv[1])).run()
    except DrumlinError as broken:
        if not log_last_words(str(broken)):
            tell(f"drumlin: {broken}")
        sys.exit(broken.exit_code)


if __name__ == "__main__":
    main()
