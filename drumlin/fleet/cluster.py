"""A Redis or Valkey Cluster on loopback: its servers' settings, and how they become a cluster.

The cluster is formed by the commands of the servers themselves, so no program but the server is needed. Founding a
cluster that exists changes nothing, so a fleet can be brought up again on the data it left.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hiredis

from drumlin.disk import PRIVATE
from drumlin.engines.redis.commands import packed
from drumlin.engines.redis.topology import SLOTS
from drumlin.errors import ConfigError, EngineError
from drumlin.fleet.layout import FleetPlan, write_file

PROGRAMS = ("redis-server", "valkey-server")
ADDRESS = "127.0.0.1"
# How long a master may be silent before a replica takes over. Short, since recovery has to wait for it; but long enough
# for masters on a busy machine that are only slow.
NODE_TIMEOUT_MS = 3_000
FORM_WAIT_S = 60.0
POLL_S = 0.05
ANSWER_S_MAX = 5.0
READ_BYTES = 65_536
MASTERS_WITH_REPLICAS_MIN = 3
REWRITE_BYTES_MIN = 1 << 30
FIRST_PORT = 15_000
LAST_PORT = 32_000
PORT_ATTEMPTS = 10_000


def find_program() -> str:
    """The server's program; ConfigError says how to get one."""
    for name in PROGRAMS:
        found = shutil.which(name)
        if found:
            return found
    hint = "Install one: `apt install redis-server` (Debian, Ubuntu), `dnf install valkey` or `brew install redis`."
    raise ConfigError("Neither redis-server nor valkey-server is on the PATH.", hint)


def write_settings(folder: Path, ports: tuple[int, int], password: str) -> Path:
    """The settings file of one server; a password keeps other users of this machine out."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [
        f"bind {ADDRESS}",
        f"port {ports[0]}",
        f"cluster-port {ports[1]}",
        f'dir "{folder}"',
        f"requirepass {password}",
        f"masterauth {password}",
        "cluster-enabled yes",
        "cluster-config-file nodes.conf",
        f"cluster-node-timeout {NODE_TIMEOUT_MS}",
        # The other masters go on while one is being replaced.
        "cluster-require-full-coverage no",
        # A write is in the kernel's copy of the log before it is acknowledged, so killing the server loses nothing.
        # Only a power loss can lose the last second.
        "appendonly yes",
        "appendfsync everysec",
        # Rewriting the log takes a core while it lasts. The default, every 64 MB, would come every few seconds.
        f"auto-aof-rewrite-min-size {REWRITE_BYTES_MIN}",
        'save ""',
        # A replica may become master however long it was cut off: it has everything that was confirmed to the writer.
        "cluster-replica-validity-factor 0",
        # The frontier must never be evicted: a full server refuses writes.
        "maxmemory-policy noeviction",
        # A replica gets its first copy at once, without waiting whether others want one too.
        "repl-diskless-sync-delay 0",
        "daemonize no",
        'logfile ""',
    ]
    path = folder / "redis.conf"
    write_file(path, "".join(f"{line}\n" for line in lines).encode(), PRIVATE)
    return path


class RedisServer:
    """Asks one server, one command at a time, and waits. The engine's client is for a cluster that stands: it sends a
    command to whichever server has the slot, and repeats it. Founding a cluster means to tell each server its part, and
    to hear its errors, which are raised as `hiredis.ReplyError`s."""

    def __init__(self, port: int, password: str) -> None:
        self.port = port
        self._socket = socket.create_connection((ADDRESS, port), timeout=ANSWER_S_MAX)
        self._reader = hiredis.Reader(encoding="utf-8", errors="replace")
        try:
            self.ask("AUTH", password)
        except BaseException:
            self.close()
            raise

    def ask(self, *words: str | int) -> Any:
        self._socket.sendall(packed(*words))
        answer = self._reader.gets()
        while answer is False:
            received = self._socket.recv(READ_BYTES)
            if not received:
                raise ConnectionResetError(f"Redis on port {self.port} closed the connection")
            self._reader.feed(received)
            answer = self._reader.gets()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def info(self, section: str) -> dict[str, str]:
        """The lines of CLUSTER INFO (section `cluster`) or of a section of INFO."""
        text = self.ask("CLUSTER", "INFO") if section == "cluster" else self.ask("INFO", section)
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def close(self) -> None:
        self._socket.close()


def connect(port: int, password: str) -> RedisServer | None:
    """The server if it answers and has loaded its data, else None."""
    server = None
    try:
        server = RedisServer(port, password)
        server.ask("PING")
    except (OSError, hiredis.HiredisError):
        if server is not None:
            server.close()
        return None
    return server


def form_cluster(plan: FleetPlan, password: str, alive: Callable[[], None]) -> None:
    """Form a cluster of the running servers and wait until it serves; `alive` raises if one of them has died."""
    deadline = time.monotonic() + FORM_WAIT_S
    servers: list[RedisServer] = []
    try:
        for port, _ in plan.redis_ports:
            servers.append(_wait_for(partial(connect, port, password), deadline, alive))
        seen = servers[0].info("cluster")
        if int(seen["cluster_known_nodes"]) < len(servers) or int(seen["cluster_slots_assigned"]) < SLOTS:
            _found_cluster(plan, servers, deadline, alive)
        _wait_for(lambda: all(map(_serves, servers)), deadline, alive)
    finally:
        for server in servers:
            server.close()


def _found_cluster(plan: FleetPlan, servers: Sequence[RedisServer], deadline: float, alive: Callable[[], None]) -> None:
    masters = servers[: plan.masters]
    for number, master in enumerate(masters):
        if int(master.info("cluster")["cluster_slots_assigned"]) == 0:
            first, after = number * SLOTS // len(masters), (number + 1) * SLOTS // len(masters)
            master.ask("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for port, bus in plan.redis_ports[1:]:
        servers[0].ask("CLUSTER", "MEET", ADDRESS, port, bus)
    _wait_for(lambda: all(_knows(server, len(servers)) for server in servers), deadline, alive)
    names = [master.ask("CLUSTER", "MYID") for master in masters]
    for number, replica in enumerate(servers[plan.masters :]):
        _wait_for(partial(_follow, replica, names[number % len(names)]), deadline, alive)


def _knows(server: RedisServer, count: int) -> bool:
    nodes = server.ask("CLUSTER", "NODES").splitlines()
    return len(nodes) == count and not any("handshake" in line for line in nodes)


def _follow(replica: RedisServer, master: str) -> bool:
    """Make a server the replica of a master. False if it has not heard of that master yet."""
    try:
        replica.ask("CLUSTER", "REPLICATE", master)
    except hiredis.ReplyError:
        return False
    return True


def _serves(server: RedisServer) -> bool:
    """Whether the server sees all slots served, and, if it is a replica, has its master's data."""
    replication = server.info("replication")
    copied = replication["role"] == "master" or replication["master_link_status"] == "up"
    cluster = server.info("cluster")
    return copied and cluster["cluster_state"] == "ok" and int(cluster["cluster_slots_ok"]) == SLOTS


def _wait_for(happened: Callable[[], Any], deadline: float, alive: Callable[[], None]) -> Any:
    while True:
        answer = happened()
        if answer:
            return answer
        alive()
        if time.monotonic() > deadline:
            raise EngineError(f"The Redis Cluster was not ready within {FORM_WAIT_S:.0f} s.", "See the fleet's logs.")
        time.sleep(POLL_S)


def engine_url(plan: FleetPlan, password: str) -> str:
    """The URL of the engine for coordinators."""
    addresses = ",".join(f"{ADDRESS}:{port}" for port, _ in plan.redis_ports)
    # One confirmation is enough, because the replica with the newest data is the one that is promoted.
    options = "?replicas=1" if plan.replicas else ""
    return f"redis://:{password}@{addresses}/{plan.namespace}{options}"


def free_ports(count: int) -> list[int]:
    """So many ports on which nobody listens now. They are below the range from which the kernel takes ports for
    outgoing connections, so a server that is started again finds its port free."""
    opened: list[socket.socket] = []
    try:
        for _ in range(PORT_ATTEMPTS):
            if len(opened) == count:
                return [one.getsockname()[1] for one in opened]
            one = socket.socket()
            try:
                one.bind((ADDRESS, FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)))
                opened.append(one)
            except OSError:
                one.close()
        raise EngineError("This machine has too few free ports.", f"A fleet takes them from {FIRST_PORT} upwards.")
    finally:
        for one in opened:
            one.close()
