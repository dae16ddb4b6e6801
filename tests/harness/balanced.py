"""A fleet without a supervisor behind a load balancer: coordinators with TLS and tokens on one Redis, and nodes that
know only the balancer. Each is a process of its own, so a test can kill or freeze any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drumlin.client.remote import CoordinatorError, Remote
from drumlin.tls import create_certificates
from tests.harness.balancing import Balancer
from tests.harness.crawls import Web, wait_until
from tests.harness.logs import events
from tests.harness.redis import RedisServer, redis_server
from tests.harness.standing import free_port

READY_S_MAX = 120.0
PROGRESS_S_MAX = 90.0
LOST_BYTES = 1_000
"""About as many bytes as a few replies have."""
NAMESPACE = "balanced"


Environment = Callable[[str], dict[str, str]]


def _nothing(name: str) -> dict[str, str]:
    return {}


class Balanced:
    """Coordinators, which can be killed and started again, and nodes."""

    def __init__(
        self, folder: Path, redis: RedisServer, coordinators: int, *arguments: str, environment: Environment = _nothing
    ) -> None:
        """`environment` gives further variables for the process of a name."""
        self.folder = folder
        self._environment = environment
        self.store = folder / "store"
        self.redis = redis
        self.engine = f"redis://127.0.0.1:{redis.port}/{NAMESPACE}"
        self.ports = [free_port() for _ in range(coordinators)]
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.balancer = Balancer(self.ports)
        self._certificates = create_certificates(folder / "certs", ["127.0.0.1"], time.time())
        self._arguments = arguments
        self._coordinators: dict[int, subprocess.Popen[bytes]] = {}
        self._tokens: dict[str, Path] = {}

    # Coordinators

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.balancer.port}"

    def start(self, number: int) -> None:
        """Start a coordinator; it is ready when it answers."""
        files, port = self._certificates, self.ports[number]
        command = [*_drumlin("coordinator"), "--listen", f"127.0.0.1:{port}", "--store", str(self.store), "--finish"]
        command += ["--cert", str(files.server), "--key", str(files.server_key), "--public", self.endpoint]
        command += ["--allow-private", *self._arguments]
        self._coordinators[number] = self._start(f"coordinator-{number}", command, DRUMLIN_ENGINE=self.engine)
        wait_until(lambda: self._ready(number), READY_S_MAX, f"the first answer of coordinator {number}")

    def _ready(self, number: int) -> bool:
        assert self._coordinators[number].poll() is None, self.log(f"coordinator-{number}")
        try:
            self.remote(number).get("/readyz")
        except CoordinatorError:
            return False
        return True

    def remote(self, number: int) -> Remote:
        """One coordinator, asked as an operator, past the balancer."""
        token = self.token("operator").read_text().strip()
        return Remote([f"https://127.0.0.1:{self.ports[number]}"], token=token, ca=self._certificates.authority)

    def kill(self, number: int) -> None:
        self._coordinators[number].kill()
        self._coordinators[number].wait()

    def token(self, role: str) -> Path:
        """The file with the fleet's token of this role."""
        if role not in self._tokens:
            made = self.drumlin("tokens", "create", "--role", role, "--name", f"the {role}")
            assert made.returncode == 0, made.stderr
            self._tokens[role] = self.folder / f"{role}.token"
            self._tokens[role].write_text(made.stdout)
        return self._tokens[role]

    def drumlin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command on the fleet's engine that ends by itself."""
        command, environment = [*_drumlin(), *arguments], _environment(DRUMLIN_ENGINE=self.engine)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=READY_S_MAX, check=False
        )

    # Nodes

    def node(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        command = [*_drumlin("node"), "--coordinator", self.endpoint, "--name", name, "--store", str(self.store)]
        command += ["--token-file", str(self.token("join")), "--ca", str(self._certificates.authority), *more]
        self.nodes[name] = self._start(name, command)
        return self.nodes[name]

    def check_alive(self) -> None:
        """No node has exited, unless it was killed by the test and taken out of `nodes`."""
        for name, process in self.nodes.items():
            assert process.poll() is None, f"{name} exited with {process.returncode}: {self.log(name)[-800:]}"

    def wait_for_nodes(self, seconds_max: float) -> None:
        """Wait until every node has left by itself, with exit code 0."""
        nodes = self.nodes.values()
        wait_until(lambda: all(one.poll() is not None for one in nodes), seconds_max, "the end of the crawl", 0.2)
        codes = {name: process.returncode for name, process in self.nodes.items()}
        assert set(codes.values()) == {0}, [f"{name}: {code} {self.log(name)[-800:]}" for name, code in codes.items()]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        variables |= self._environment(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(**variables)
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a coordinator or a node."""
        coordinators = {f"coordinator-{number}": process for number, process in self._coordinators.items()}
        (self.nodes | coordinators)[name].send_signal(number)

    def end(self) -> None:
        for process in [*self.nodes.values(), *self._coordinators.values()]:
            if process.poll() is None:
                process.kill()
                process.wait()


def _drumlin(*verb: str) -> list[str]:
    return [sys.executable, "-m", "drumlin", *verb]


def _environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")} | more


@contextmanager
def balanced(
    folder: Path, *arguments: str, coordinators: int = 3, environment: Environment = _nothing
) -> Iterator[Balanced]:
    """A fleet whose coordinators all answer. Whatever the test does, no process is left afterwards."""
    with redis_server(folder / "redis", "--appendonly", "yes") as redis:
        made = Balanced(folder, redis, coordinators, *arguments, environment=environment)
        with made.balancer:
            try:
                for number in range(coordinators):
                    made.start(number)
                yield made
            finally:
                made.end()


def joined(crawl: Balanced, name: str) -> int:
    """How many processes of a node have said that they joined."""
    return events(crawl.log(name)).count("joined")


def kill_each(crawl: Balanced, web: Web, rounds: int, pages_between: int = 20) -> int:
    """Kill every coordinator in turn, `rounds` times. The crawl must go on without it, and then with it again; no node
    may exit or stop working. Each coordinator is killed after it did some work and before its answers arrived. Returns
    how many were killed before too little of the crawl was left."""
    turns = [number for _ in range(rounds) for number in range(len(crawl.ports))]
    for kills, number in enumerate(turns):
        if web.accounts()["missed"] <= 4 * pages_between:
            return kills
        lost = crawl.balancer.lost_bytes
        crawl.balancer.lose_replies()
        wait_until(lambda: crawl.balancer.lost_bytes - lost > LOST_BYTES, PROGRESS_S_MAX, "lost replies")  # noqa: B023
        crawl.kill(number)
        crawl.balancer.pass_replies()
        wait_for_progress(crawl, web, pages_between)
        crawl.start(number)
        crawl.check_alive()
    return len(turns)


def lose_replies(crawl: Balanced, windows: int, seconds: float, pages_between: int = 100) -> None:
    """Lose every reply for a while, again and again. In between, wait until further pages are settled. (The web's count
    of requests would not show that: nodes go on fetching what they have while nobody answers.)"""
    for _ in range(windows):
        crawl.balancer.lose_replies()
        time.sleep(seconds)
        crawl.balancer.pass_replies()
        settled = settled_pages(crawl)
        wait_until(
            lambda: settled_pages(crawl) >= settled + pages_between,  # noqa: B023
            PROGRESS_S_MAX,
            "settled pages",
            poll_s=0.2,
        )
        crawl.check_alive()


def settled_pages(crawl: Balanced) -> int:
    pages: int = crawl.remote(0).get("/api/v1/stats")["pages"]
    return pages


def wait_for_progress(crawl: Balanced, web: Web, pages: int) -> None:
    """Wait until so many further pages have been requested; every node must stay alive meanwhile."""
    wanted = web.accounts()["pages_distinct"] + pages
    assert wanted < web.pages, "the crawl ended before it was hurt"

    def reached() -> bool:
        crawl.check_alive()
        return bool(web.accounts()["pages_distinct"] >= wanted)

    wait_until(reached, PROGRESS_S_MAX, f"{pages} further pages", poll_s=0.1)
