"""systemd's units in deploy/: their commands are run as written, with the example files of settings, against a real
Redis. What the service manager makes of how they end is read from the units."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumlin.client.remote import CoordinatorError, Remote
from drumlin.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from drumlin.protocol.paths import STATS
from drumlin.testing import FakeWeb
from drumlin.tls import CertificateFiles, create_certificates
from tests.harness.crawls import wait_until
from tests.harness.redis import free_port, redis_server
from tests.harness.units import FOLDER, Machine, Unit

PASSWORD = "hunter2"
COORDINATOR, NODE = "drumlin-coordinator.service", "drumlin-node@.service"
END_S_MAX = 60.0


class Place(Machine):
    """A machine with everything that docs/how-to/deploy.md asks for."""

    port: int = 0
    metrics_port: int = 0

    def install(self, redis_port: int, seed: str) -> None:
        self.etc.mkdir()
        self.state.mkdir()
        Path(f"{self.state}-node").mkdir()
        self.program.symlink_to(Path(sys.executable).with_name("drumlin"))
        create_certificates(self.etc / "certs", ["localhost", "127.0.0.1"], time.time())
        self.write("engine.toml", {"redis-1.example.org:6379,redis-2.example.org:6379": f"127.0.0.1:{redis_port}"})
        self.write("coordinator.env", {"0.0.0.0:8700": f"127.0.0.1:{self.port}"}, "DRUMLIN_ALLOW_PRIVATE=true\n")
        self.append("coordinator", "DRUMLIN_DELAY=0s\nDRUMLIN_COORDINATOR_FINISH=true\n")
        addresses = "https://coordinator-1.example.org:8700,https://coordinator-2.example.org:8700"
        self.write("node.env", {addresses: f"https://127.0.0.1:{self.port}"})
        (self.etc / "seeds.txt").write_text(f"{seed}\n")

    def write(self, name: str, filled: dict[str, str], more: str = "") -> None:
        """One file of settings, from its example."""
        text = self.there((FOLDER / f"{name}.example").read_text()).replace("PASSWORD", PASSWORD)
        for before, after in filled.items():
            assert before in text
            text = text.replace(before, after)
        (self.etc / name).write_text(text + more)

    def append(self, name: str, more: str) -> None:
        with (self.etc / f"{name}.env").open("a") as file:
            file.write(more)

    def coordinator(self) -> Unit:
        return Unit(COORDINATOR, self)

    def node(self) -> Unit:
        return Unit(NODE, self, str(self.metrics_port))

    def token(self, role: str) -> Path:
        """A token, made as the docs say."""
        file = self.etc / f"{role}.token"
        command = [str(self.program), "tokens", "create", "--config", str(self.etc / "engine.toml")]
        command += ["--role", role, "--name", role, "--out", str(file)]
        subprocess.run(command, env=environment(self.coordinator()), check=True, timeout=END_S_MAX, capture_output=True)
        return file

    def remote(self) -> Remote:
        authority = CertificateFiles.in_folder(self.etc / "certs").authority
        return Remote([f"https://127.0.0.1:{self.port}"], token=self.token("viewer").read_text().strip(), ca=authority)


def environment(unit: Unit) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")}
    return clean | {name: value for name, value in unit.environment().items() if name.startswith("DRUMLIN_")}


@contextmanager
def started(unit: Unit) -> Iterator[subprocess.Popen[str]]:
    """A service. Whatever the test does, it is gone afterwards."""
    command, cwd = unit.command(), unit.one("WorkingDirectory")
    with subprocess.Popen(command, cwd=cwd, env=environment(unit), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str], number: signal.Signals | None = None) -> int:
    if number is not None:
        process.send_signal(number)
    process.communicate(timeout=END_S_MAX)
    return process.returncode


def counts_as_success(unit: Unit, code: int) -> bool:
    """Whether the service manager leaves it at that, with `Restart=on-failure`."""
    assert unit.one("Restart") == "on-failure"
    return code == EXIT_OK or str(code) in unit.one("SuccessExitStatus").split()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with FakeWeb(hosts=0) as web, redis_server(tmp_path / "redis", "--requirepass", PASSWORD) as redis:
        made = Place(tmp_path / "etc", tmp_path / "state", tmp_path / "drumlin", free_port(), free_port())
        web.page("unit", "/item", "an item")
        made.install(redis.port, web.page("unit", "/", '<a href="/item">item</a>'))
        yield made


def test_the_units_crawl_and_a_crawl_that_has_ended_starts_no_node_again(place: Place) -> None:
    place.token("join")
    coordinator, node = place.coordinator(), place.node()
    with started(node) as early:
        assert early.stderr is not None
        early.stderr.readline()  # It says that it waits for a coordinator.
        assert ended(early, signal.SIGTERM) == EXIT_INTERRUPTED
        assert counts_as_success(node, EXIT_INTERRUPTED)
    with started(coordinator) as serving:
        remote = place.remote()
        wait_until(lambda: answers(remote), END_S_MAX, "the coordinator")
        with started(node) as working:
            assert counts_as_success(node, ended(working))
        assert remote.get(STATS)["pages"] == 2
        assert counts_as_success(coordinator, ended(serving, signal.SIGTERM))
    assert list((place.state / "store" / "warc").glob("*.warc.gz"))


def answers(remote: Remote) -> bool:
    try:
        return bool(remote.get(STATS))
    except CoordinatorError:
        return False


def test_wrong_settings_are_not_tried_again(place: Place) -> None:
    place.token("join")
    place.append("node", "DRUMLIN_NODE_SPOOLS=there\n")
    node = place.node()
    with started(node) as process:
        assert ended(process) == EXIT_USAGE
    assert str(EXIT_USAGE) in node.one("RestartPreventExitStatus").split()
    assert not counts_as_success(node, EXIT_USAGE)


def test_a_service_has_the_time_that_its_ending_takes(place: Place) -> None:
    from drumlin.node import agent, main
    from drumlin.serving import service

    place.token("join")
    assert float(place.node().one("TimeoutStopSec")) > agent.DRAIN_S + main.UPLOAD_WAIT_S + main.LEAVE_WAIT_S
    assert float(place.coordinator().one("TimeoutStopSec")) > service.DRAIN_S + service.FLUSH_S
    assert "SIGTERM" == place.node().one("KillSignal") == place.coordinator().one("KillSignal")
