"""Real Redis servers for tests: one alone, or a cluster, each in a folder of its own; ended with the test.

`REDIS_SERVER` in the environment names another server program, Valkey's for example.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import hiredis
import pytest

PROGRAM = shutil.which(os.environ.get("REDIS_SERVER", "redis-server"))
SLOTS = 16_384
START_S_MAX = 20.0
CLUSTER_S_MAX = 30.0
STOP_S_MAX = 10.0
POLL_S = 0.02
STARTS_MAX = 5
NODE_TIMEOUT_MS = 2_000


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until a condition is true, looking again and again."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} took more than {seconds:.0f} s")
        time.sleep(POLL_S)


class RedisServer:
    """One server process. It may be killed and started again; its data is in its folder."""

    def __init__(self, folder: Path, *options: str, clustered: bool = False) -> None:
        if PROGRAM is None:
            pytest.skip("redis-server is not installed: apt-get install redis-server")
        self.folder = folder
        self.port = free_port()
        self._bus = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())] if clustered else []
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert PROGRAM is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--save", "", "--logfile", str(self.folder / "log"), *self._bus, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(self._answers, START_S_MAX, "starting Redis")
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ConnectionError(f"Redis ended: {(self.folder / 'log').read_text()[-500:]}")
        try:
            # Any other answer means that it is ready, also that it wants a password.
            return not str(self.command("PING")).startswith("LOADING")
        except OSError:
            return False

    def command(self, *words: str | bytes | int) -> Any:
        """The answer to a command. Errors are returned, not raised."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=START_S_MAX)
        try:
            self._socket.sendall(hiredis.pack_command(cast("Any", words)))
            return self._answer(self._socket)
        except OSError:
            self._hang_up()
            raise

    @staticmethod
    def _answer(connection: socket.socket) -> Any:
        reader = hiredis.Reader()
        while (reply := reader.gets()) is False:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError("Redis hung up")
            reader.feed(data)
        return reply

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def info(self, section: str) -> dict[str, str]:
        return self._fields("INFO", section)

    def cluster_info(self) -> dict[str, str]:
        return self._fields("CLUSTER", "INFO")

    def _fields(self, *words: str) -> dict[str, str]:
        lines = self.command(*words).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def kill(self) -> None:
        """kill -9."""
        self._hang_up()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S_MAX)


class RedisCluster:
    """Some masters, each with some replicas."""

    def __init__(self, folder: Path, masters: int, replicas: int, options: Sequence[str]) -> None:
        count = masters * (1 + replicas)
        timeout = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--repl-diskless-sync-delay", "0")
        self.servers = [RedisServer(folder / str(n), *timeout, *options, clustered=True) for n in range(count)]
        self.masters = self.servers[:masters]
        self._replicas = self.servers[masters:]

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for number, server in enumerate(self.servers):
            server.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, master in enumerate(self.masters):
            first, last = (SLOTS * part // len(self.masters) for part in (number, number + 1))
            master.command("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        for server in self.servers[1:]:
            self.meet(server)
        wait_for(self._acquainted, CLUSTER_S_MAX, "meeting")
        for number, replica in enumerate(self._replicas):
            replica.command("CLUSTER", "REPLICATE", self.id_of(self.masters[number % len(self.masters)]))
        wait_for(self._whole, CLUSTER_S_MAX, "founding a cluster")

    def meet(self, server: RedisServer) -> None:
        first = self.servers[0]
        bus = int(first.command("CONFIG", "GET", "cluster-port")[1])
        server.command("CLUSTER", "MEET", "127.0.0.1", first.port, bus)

    @staticmethod
    def id_of(server: RedisServer) -> str:
        name: bytes = server.command("CLUSTER", "MYID")
        return name.decode()

    def _acquainted(self) -> bool:
        known = [server.cluster_info().get("cluster_known_nodes") for server in self.servers]
        return all(count == str(len(self.servers)) for count in known)

    def _whole(self) -> bool:
        well = [server.cluster_info().get("cluster_state") == "ok" for server in self.servers]
        return all(well) and all(self._follows(replica) for replica in self._replicas)

    @staticmethod
    def _follows(replica: RedisServer) -> bool:
        return replica.info("replication").get("master_link_status") == "up"

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """A single server. If its port is taken meanwhile, another one is tried."""
    for attempt in range(STARTS_MAX):
        server = RedisServer(folder / str(attempt), *options)
        try:
            server.start()
        except ConnectionError:
            if attempt == STARTS_MAX - 1:
                raise
            continue
        try:
            yield server
        finally:
            server.kill()
        return


@contextmanager
def redis_cluster(folder: Path, *options: str, masters: int = 3, replicas: int = 0) -> Iterator[RedisCluster]:
    """A cluster. If a port is taken meanwhile, it is tried again."""
    for attempt in range(STARTS_MAX):
        cluster = RedisCluster(folder / str(attempt), masters, replicas, options)
        try:
            try:
                cluster.start()
            except ConnectionError:
                if attempt == STARTS_MAX - 1:
                    raise
                continue
            yield cluster
        finally:
            cluster.kill()
        return


def url_of(*servers: RedisServer, namespace: str, options: str = "") -> str:
    """The URL of a frontier on these servers."""
    places = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"redis://{places}/{namespace}{options}"
