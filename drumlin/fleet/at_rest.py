"""The engine of a fleet that is down, for commands that need a crawl at rest: the fleet's Redis runs as long as they
work, and nothing else of the fleet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hiredis

from drumlin.disk import remove
from drumlin.errors import BusyError, EngineError
from drumlin.fleet.children import Child, redis_children
from drumlin.fleet.cluster import RedisServer, form_cluster
from drumlin.fleet.endings import end_all
from drumlin.fleet.layout import FleetPaths, FleetState, ProcessRole, read_secret

ENDED_S_MAX = 5.0
REWRITE_S_MAX = 3600.0
POLL_S = 0.1
REWRITING = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
UNDER_WAY = "already in progress"
COPIES = ("*/dump.rdb", "*/temp-*.rdb", "*/temp-*.aof", "*/appendonlydir/temp-*")
"""What a replica keeps of the copy that its master sent when it started, and what is left of rewriting a log if the
server was killed meanwhile. Nobody reads it: the log is what is loaded."""


def is_fleet(folder: Path) -> bool:
    return FleetPaths(folder).exists()


@contextmanager
def engine_of_fleet(paths: FleetPaths) -> Iterator[str]:
    """The address of the engine of a fleet, with its password; BusyError if the fleet is up. While this lasts, the
    fleet cannot be started. If it is killed, the next one, or `drumlin fleet down`, ends the servers that are left."""
    lock = paths.take_lock()
    try:
        record = paths.read()
        if any(process.alive for process in record.processes if process.role is not ProcessRole.REDIS):
            raise BusyError(f"Processes of the fleet in {paths.root} run.", "`drumlin fleet down` ends them.")
        end_all(record)
        children = redis_children(paths, record.plan)
        record.processes = [child.record for child in children]
        try:
            for child in children:
                child.start()
            paths.write(record)
            form_cluster(record.plan, read_secret(paths.redis_password), lambda: _check_alive(children))
            yield read_secret(paths.engine_url)
            # What kept it from starting may be settled now, such as a removal that was broken off.
            record.failure, record.state = "", FleetState.DOWN
        finally:
            end_all(record, on_poll=lambda: _reap(children))
            for child in children:
                child.reap(ENDED_S_MAX)
            paths.write(record)
            drop_copies(paths)
    finally:
        os.close(lock)


def drop_copies(paths: FleetPaths) -> None:
    """Delete the copies that replicas have left: they have the past too, as it was when the servers were started."""
    for path in [path for pattern in COPIES for path in paths.redis.glob(pattern)]:
        remove(path)


def rewrite_logs(paths: FleetPaths) -> None:
    """Have every running Redis server of a fleet write its append-only file anew: it has the past of what is there."""
    plan, password = paths.read().plan, read_secret(paths.redis_password)
    deadline = time.monotonic() + REWRITE_S_MAX
    for port, _ in plan.redis_ports:
        try:
            server = RedisServer(port, password)
            try:
                rewrite_log(server, deadline)
            finally:
                server.close()
        except (OSError, hiredis.HiredisError) as cause:
            raise _not_rewritten(port) from cause


def rewrite_log(server: RedisServer, deadline: float) -> None:
    """Have one server do it, and wait; EngineError if it cannot. A rewrite that is under way has begun too early, so
    another one has to follow it."""
    begun = False
    while not begun:
        _wait_for_rewrite(server, deadline)
        begun = _begin_rewrite(server)
    _wait_for_rewrite(server, deadline)
    if server.info("persistence")["aof_last_bgrewrite_status"] != "ok":
        raise _not_rewritten(server.port)


def _begin_rewrite(server: RedisServer) -> bool:
    """False if the server has begun one by itself meanwhile."""
    try:
        server.ask("BGREWRITEAOF")
    except hiredis.ReplyError as refused:
        if UNDER_WAY not in str(refused):
            raise
        return False
    return True


def _wait_for_rewrite(server: RedisServer, deadline: float) -> None:
    while "1" in {server.info("persistence")[name] for name in REWRITING}:
        if time.monotonic() > deadline:
            raise _not_rewritten(server.port)
        time.sleep(POLL_S)


def _not_rewritten(port: int) -> EngineError:
    hint = "See the fleet's logs (is its disk full?), and run the same command again."
    return EngineError(f"Redis on port {port} has not rewritten its log, which still has what was removed.", hint)


def _reap(children: list[Child]) -> list[Child]:
    return [child for child in children if child.reap()]


def _check_alive(children: list[Child]) -> None:
    for child in _reap(children):
        raise EngineError(f"{child.record.name} ended while starting: {child.last_words()}", "See the fleet's logs.")
