"""The real servers under load: Redis (one, or a cluster) and coordinators, started and accounted for.

CPU is read from /proc for each process, at the beginning and at the end of a measurement. All processes share the
machine's cores with the generator; the figures show how much it took.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from drumlin.fleet.cluster import RedisServer, connect, engine_url, find_program, form_cluster, free_ports
from drumlin.fleet.cluster import write_settings as write_cluster_settings
from drumlin.fleet.layout import FleetPlan

ADDRESS = "127.0.0.1"
PASSWORD = "load-test"  # noqa: S105 the servers live for the length of a benchmark, on loopback
NAMESPACE = "load"
REWRITE_NEVER = "64gb"
START_S_MAX = 60.0
STOP_S_MAX = 20.0
POLL_S = 0.05
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Server:
    """A process that this benchmark started."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        if self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-2_000:]
            raise SystemExit(f"{self.name} ended by itself with code {self._process.returncode}:\n{said}")

    def cpu_s(self) -> float:
        return cpu_s_of(self.pid)

    def resident_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def cpu_s_of(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def machine_cpu_s() -> float:
    """What all processes of this machine have used so far."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def wait_for(
    happened: Callable[[], bool], servers: Sequence[Server], what: str, seconds_max: float = START_S_MAX
) -> None:
    deadline = time.monotonic() + seconds_max
    while not happened():
        for server in servers:
            server.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} was not ready within {seconds_max:.0f} s.")
        time.sleep(POLL_S)


class Redis:
    """One server, or the masters of a cluster, with an append-only file as in production. `rewrite` is the size from
    which a single server rewrites that file, for which it forks. By default it is more than a run writes, so forks do
    not disturb the measurement. `start_s_max` is how long it may take to read what is in the folder already."""

    def __init__(
        self, folder: Path, masters: int, rewrite: str = REWRITE_NEVER, start_s_max: float = START_S_MAX
    ) -> None:
        self._start_s_max = start_s_max
        program = find_program()
        if masters == 1:
            ports = free_ports(1)
            self.url = f"redis://:{PASSWORD}@{ADDRESS}:{ports[0]}/{NAMESPACE}"
            commands = [_single_command(program, folder, ports[0], rewrite)]
        else:
            numbers = free_ports(2 * masters)
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
            ports = [port for port, _ in pairs]
            plan = FleetPlan(0, [], pairs, masters, 0, 0, program, namespace=NAMESPACE)
            self.url = engine_url(plan, PASSWORD)
            files = [write_cluster_settings(folder / str(pair[0]), pair, PASSWORD) for pair in pairs]
            commands = [[program, str(file)] for file in files]
        self.servers = [
            Server(f"redis {port}", command, folder / f"redis-{port}.log")
            for port, command in zip(ports, commands, strict=True)
        ]
        if masters > 1:
            form_cluster(plan, PASSWORD, self._check)
        self._clients = [self._client(port) for port in ports]

    def _client(self, port: int) -> RedisServer:
        found: list[RedisServer] = []

        def answers() -> bool:
            client = connect(port, PASSWORD)
            if client is not None:
                found.append(client)
            return client is not None

        wait_for(answers, self.servers, "Redis", self._start_s_max)
        return found[0]

    def _check(self) -> None:
        for server in self.servers:
            server.check()

    def used_bytes(self) -> int:
        """How much memory the data takes, as Redis counts it."""
        return sum(int(client.info("memory")["used_memory"]) for client in self._clients)

    def forks(self) -> int:
        """How often the servers have forked, which they do to rewrite the append-only file."""
        return sum(int(client.info("stats")["total_forks"]) for client in self._clients)

    def fork_ms_max(self) -> float:
        """The longest pause of a server for its latest fork."""
        return max(int(client.info("stats")["latest_fork_usec"]) for client in self._clients) / 1000

    def cpu_s(self) -> float:
        return sum(server.cpu_s() for server in self.servers)

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        for server in self.servers:
            server.stop()


def _single_command(program: str, folder: Path, port: int, rewrite: str) -> list[str]:
    settings = f"--bind {ADDRESS} --port {port} --appendonly yes --appendfsync everysec --requirepass {PASSWORD}"
    rewriting = ["--auto-aof-rewrite-min-size", rewrite]
    return [program, *settings.split(), *rewriting, "--save", "", "--dir", str(folder)]


class Security(NamedTuple):
    """How coordinators and nodes prove who they are; if nothing is set, they do not have to."""

    options: list[str]
    join_token: str
    client: ssl.SSLContext | None


def make_security(folder: Path, engine: str, *, auth: bool, tls: bool) -> Security:
    options, token, client = [] if auth else ["--no-auth"], "", None
    if auth:
        token = _drumlin("tokens", "create", "--role", "join", "--engine", engine)
    if tls:
        certificates = folder / "certificates"
        _drumlin("certs", "create", str(certificates), "--host", ADDRESS)
        options += ["--cert", str(certificates / "server.pem"), "--key", str(certificates / "server-key.pem")]
        client = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    return Security(options, token, client)


def _drumlin(*words: str) -> str:
    """The output of a command of drumlin."""
    done = subprocess.run([sys.executable, "-m", "drumlin", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"drumlin {words[0]} failed: {done.stderr}")
    return done.stdout.strip()


def start_coordinator(folder: Path, engine: str, port: int, security: Security, founding: Sequence[str]) -> Server:
    """Start a coordinator and wait until it is ready. With `founding` options the first one founds the crawl."""
    command = [sys.executable, "-m", "drumlin", "coordinator", "--engine", engine, "--store", str(folder / "store")]
    command += ["--listen", f"{ADDRESS}:{port}", *security.options, *founding]
    server = Server(f"coordinator {port}", command, folder / f"coordinator-{port}.log")
    wait_for(lambda: _listens(port), [server], server.name)
    return server


def _listens(port: int) -> bool:
    try:
        socket.create_connection((ADDRESS, port), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def stopping(servers: list[Server]) -> Iterator[list[Server]]:
    """Stop all servers at the end of the context, the last one first."""
    try:
        yield servers
    finally:
        for server in reversed(servers):
            server.stop()
