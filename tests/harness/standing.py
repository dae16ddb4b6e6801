"""A coordinator and nodes as single processes on loopback, so a test can kill or freeze any of them. There is no Redis
and no supervisor, and TLS only if a test wants it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from drumlin.client.remote import CoordinatorError, Remote
from drumlin.tls import CertificateFiles
from tests.harness.crawls import wait_until

READY_S_MAX = 120.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Standing:
    """One coordinator on the rocksdb engine. It can be started again on the same frontier and port as often as wanted.
    `client` has the certificates for TLS, if its arguments ask for TLS; `founds` says whether it gives settings of the
    crawl."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        client: CertificateFiles | None = None,
        founds: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.store = folder / "store"
        self.port = free_port()
        self.endpoint = f"{'https' if client else 'http'}://127.0.0.1:{self.port}"
        pair = (client.client, client.client) if client else (None, None)
        self.remote = Remote([self.endpoint], ca=client.authority if client else None, cert=pair[0], key=pair[1])
        self._folder = folder
        self._environment = dict(environment or {})
        self._command = [
            *_drumlin("coordinator"),
            "--engine",
            f"rocksdb:{folder / 'frontier'}",
            "--no-auth",
            *(("--finish", "--allow-private") if founds else ()),
        ]
        self._command += [
            "--store",
            str(self.store),
            "--listen",
            f"127.0.0.1:{self.port}",
            *arguments,
        ]
        self._coordinator: subprocess.Popen[bytes] | None = None
        self._nodes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._coordinator = self._start("coordinator", self._command, self._environment)
        wait_until(self._ready, READY_S_MAX, "the coordinator's first answer")

    def _ready(self) -> bool:
        assert self._coordinator is not None
        assert self._coordinator.poll() is None, self.log("coordinator")
        try:
            self.remote.get("/readyz")
        except CoordinatorError:
            return False
        return True

    @property
    def pid(self) -> int:
        assert self._coordinator is not None
        return self._coordinator.pid

    def kill(self) -> None:
        assert self._coordinator is not None
        self._coordinator.kill()
        self._coordinator.wait()

    def freeze(self) -> None:
        """Stop the coordinator (SIGSTOP) until `thaw`."""
        assert self._coordinator is not None
        self._coordinator.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._coordinator is not None
        self._coordinator.send_signal(signal.SIGCONT)

    def node(
        self,
        name: str,
        *more: str,
        endpoints: tuple[str, ...] = (),
        store: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a node with this name. Without `store`, its arguments must name a spool folder."""
        command = [*_drumlin("node"), "--coordinator", ",".join(endpoints or (self.endpoint,)), "--name", name]
        command += ["--store", str(self.store)] if store else []
        process = self._start(name, [*command, *more], environment or {})
        self._nodes.append(process)
        return process

    def _start(self, name: str, command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")}
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**kept, **environment}
            )

    def drumlin(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that ends by itself."""
        command = [*_drumlin(verb), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=READY_S_MAX, check=False)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def wait_for_nodes(self, seconds_max: float) -> None:
        """Wait until every node has left by itself, with exit code 0."""
        wait_until(lambda: all(one.poll() is not None for one in self._nodes), seconds_max, "the end of the crawl")
        codes = [one.returncode for one in self._nodes if one.returncode not in (0, -signal.SIGKILL)]
        assert codes == [], f"exit codes {codes}: {[path.read_text()[-500:] for path in self._folder.glob('*.log')]}"

    def end(self) -> None:
        for process in [*self._nodes, self._coordinator]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _drumlin(verb: str) -> list[str]:
    return [sys.executable, "-m", "drumlin", verb]


@contextmanager
def standing(
    folder: Path,
    *arguments: str,
    client: CertificateFiles | None = None,
    founds: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Standing]:
    """A coordinator that answers. Whatever the test does, no process is left afterwards."""
    made = Standing(folder, *arguments, client=client, founds=founds, environment=environment)
    try:
        made.start()
        yield made
    finally:
        made.end()


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """The CPU time that a process has used."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)
