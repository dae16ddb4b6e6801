"""A Redis or Valkey Cluster on loopback: its servers' settings, and how they become a cluster.

The servers are told with the cluster's own commands, so that no other program than the server is needed. Founding a
cluster that exists changes nothing, so a fleet can be brought up again on the data it left.
"""

from __future__ import annotations

import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hiredis

from drumlin.errors import ConfigError, EngineError
from drumlin.fleet.layout import FleetPlan, write_whole

PROGRAMS = ("redis-server", "valkey-server")
SLOTS = 16_384
ADDRESS = "127.0.0.1"
# How long a master may be silent before its replicas take over: short, since recovery waits for it, and long enough
# that a busy machine does not depose masters that are only slow.
NODE_TIMEOUT_MS = 3_000
FORM_WAIT_S = 60.0
POLL_S = 0.05
ANSWER_S_MAX = 5.0
READ_BYTES = 65_536
MASTERS_WITH_REPLICAS_MIN = 3
SECRET_FILE_MODE = 0o600
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
        # What was acknowledged is in the log before the answer is sent; everysec is for power loss only.
        "appendonly yes",
        "appendfsync everysec",
        # Rewriting the log forks, and takes a core while it lasts: not for every 64 MB, which are seconds of work.
        f"auto-aof-rewrite-min-size {REWRITE_BYTES_MIN}",
        'save ""',
        # A replica that was away for long is better than no master, for it has what was confirmed to the writer.
        "cluster-replica-validity-factor 0",
        # The frontier must never be evicted: a full server refuses writes.
        "maxmemory-policy noeviction",
        # A replica's first copy need not wait for others to ask for one too.
        "repl-diskless-sync-delay 0",
        "daemonize no",
        'logfile ""',
    ]
    path = folder / "redis.conf"
    write_whole(path, "".join(f"{line}\n" for line in lines).encode(), SECRET_FILE_MODE)
    return path


class RedisServer:
    """Asks one server, one command at a time. Errors of the server are `hiredis.ReplyError`s, raised."""

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
        self._socket.sendall(_packed(words))
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


def _packed(words: Sequence[str | int]) -> bytes:
    """A command as the protocol wants it: how many words, and each with its length."""
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


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
    """Make the running servers a cluster and wait until it serves; `alive` raises when one of them has died."""
    deadline = time.monotonic() + FORM_WAIT_S
    servers: list[RedisServer] = []
    try:
        for port, _ in plan.redis_ports:
            servers.append(_wait_for(partial(connect, port, password), deadline, alive))
        seen = servers[0].info("cluster")
        if int(seen["cluster_known_nodes"]) < len(servers) or int(seen["cluster_slots_assigned"]) < SLOTS:
            _found(plan, servers, deadline, alive)
        _wait_for(lambda: all(map(_serves, servers)), deadline, alive)
    finally:
        for server in servers:
            server.close()


def _found(plan: FleetPlan, servers: Sequence[RedisServer], deadline: float, alive: Callable[[], None]) -> None:
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
    """Have a server copy a master; refused until it has heard of that master."""
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


def master_ports(plan: FleetPlan, password: str) -> list[int]:
    """The ports of the servers that are masters now, by the view of the first that answers."""
    for port, _ in plan.redis_ports:
        server = connect(port, password)
        if server is None:
            continue
        lines = server.ask("CLUSTER", "NODES").splitlines()
        server.close()
        return [int(match[1]) for line in lines if (match := re.search(r":(\d+)@\S+ (?:myself,)?master -", line))]
    return []


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
    """What a coordinator opens; it finds the servers that are not named by asking those that are."""
    addresses = ",".join(f"{ADDRESS}:{port}" for port, _ in plan.redis_ports)
    # One confirmation is enough: the replica that has the newest data is the one that is promoted.
    options = "?replicas=1" if plan.replicas else ""
    return f"redis://:{password}@{addresses}/{plan.namespace}{options}"


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on at this moment, below those that the kernel gives to outgoing connections:
    a server that is started again must find its port free."""
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
