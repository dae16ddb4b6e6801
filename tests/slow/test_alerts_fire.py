"""A real Prometheus and a real fleet: each alert fires by its cause and clears when the cause is gone, and every
expression of the dashboard has data. The rules are the shipped ones, with seconds in place of minutes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from drumlin.client.remote import CoordinatorError, Remote
from tests.harness.crawls import wait_until
from tests.harness.prometheus import Prometheus, prometheus, shortened
from tests.harness.redis import RedisServer
from tests.harness.shipped import ALERTS, RULES, expressions
from tests.harness.standing import free_port

pytestmark = pytest.mark.slow

HOSTS = [f"127.0.7.{number}" for number in range(1, 17)]
FOR_S, RANGE_S = 2, 10
START_S_MAX = 60.0
FIRES_S_MAX = 120.0
CLEARS_S_MAX = 120.0
LOOK_S = 5.0
PAUSE_MS = 700
PAGE = "<!DOCTYPE html><title>{path}</title><a href='/{0}'>a</a> <a href='/{1}'>b</a> <a href='/{2}'>c</a>"


class Web:
    """Sixteen hosts without an end, which can all be well, broken or silent, or out of reach."""

    def __init__(self) -> None:
        self.port = free_port()
        self.mode = "well"
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.open()

    def open(self) -> None:
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(START_S_MAX)

    def shut(self) -> None:
        """Refuse connections, and cut those that are there."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(START_S_MAX)

    async def _open(self) -> None:
        self._connections: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, HOSTS, self.port)

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                while self.mode == "silent":
                    await asyncio.sleep(0.1)
                writer.write(self._answer(path))
                await writer.drain()
        self._connections.discard(writer)
        writer.close()

    def _answer(self, path: str) -> bytes:
        if path == "/robots.txt":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        if self.mode == "broken":
            return b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"
        number = int(path.strip("/") or 0)
        body = PAGE.format(3 * number + 1, 3 * number + 2, 3 * number + 3, path=path).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


class Fleet:
    """Two coordinators on a Redis, and two nodes that are scraped. Each can be killed and started again."""

    def __init__(self, folder: Path, web: Web, redis: RedisServer) -> None:
        self.redis = redis
        self.coordinators = [free_port(), free_port()]
        self.nodes = [free_port(), free_port()]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._seeds = [f"http://{host}:{web.port}/" for host in HOSTS]
        self.remote = Remote([f"http://127.0.0.1:{port}" for port in self.coordinators])

    def start_coordinator(self, place: int) -> None:
        port = self.coordinators[place]
        engine = f"redis://127.0.0.1:{self.redis.port}/alerts"
        # The crawl is founded once; whoever starts later takes its settings.
        founds = ("--allow-private", "--delay", "0.3s", "--fetch-timeout", "5s", "--lease", "10s", "--no-finish")
        more = (*founds, *self._seeds) if place == 0 and "c0" not in self.processes else ()
        where = ("--engine", engine, "--listen", f"127.0.0.1:{port}", "--no-auth")
        self._start(f"c{place}", "coordinator", *where, *more)
        wait_until(lambda: self._is_ready(port), START_S_MAX, "a coordinator")

    @staticmethod
    def _is_ready(port: int) -> bool:
        try:
            Remote([f"http://127.0.0.1:{port}"]).get("/readyz")
        except CoordinatorError:
            return False
        return True

    def start_node(self, place: int) -> None:
        endpoints = ",".join(f"http://127.0.0.1:{port}" for port in self.coordinators)
        where = ("--coordinator", endpoints, "--store", str(self._folder / "store"))
        self._start(f"n{place}", "node", *where, "--name", f"n{place}", "--metrics", str(self.nodes[place]))

    def start_nodes(self) -> None:
        for place in range(len(self.nodes)):
            self.start_node(place)

    def _start(self, name: str, verb: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "drumlin", verb, *arguments]
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        for name in names:
            self.processes[name].send_signal(number)
        for name in names:
            self.processes[name].wait(START_S_MAX)

    def order(self, order: str) -> None:
        self.remote.post(f"/api/v1/nodes/n1/{order}")

    @contextmanager
    def slow_engine(self) -> Iterator[None]:
        """Have Redis answer nothing for most of each second."""
        ended = threading.Event()

        def pause() -> None:
            while not ended.is_set():
                self.redis.command("CLIENT", "PAUSE", PAUSE_MS, "ALL")
                time.sleep(PAUSE_MS / 1000 + 0.05)

        thread = threading.Thread(target=pause)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Scene:
    """Everything, and what is done to it."""

    def __init__(self, web: Web, fleet: Fleet, watcher: Prometheus) -> None:
        self.web = web
        self.fleet = fleet
        self.watcher = watcher

    def is_well(self) -> bool:
        pages = self.watcher.query("max without (instance) (rate(drumlin_pages_total[5s]))")
        return bool(pages) and float(pages[0]["value"][1]) > 0 and not self.watcher.firing()

    def leads(self, name: str) -> bool:
        port = self.fleet.coordinators[int(name.removeprefix("c"))]
        found = self.watcher.query(f'drumlin_leader{{instance="127.0.0.1:{port}"}}')
        return bool(found) and found[0]["value"][1] == "1"

    def elapsed_s(self) -> list[float]:
        """How long the crawl has run, by each coordinator."""
        ones = [Remote([f"http://127.0.0.1:{port}"]) for port in self.fleet.coordinators]
        return [one.get("/api/v1/crawl")["budgets"]["elapsed_s"] for one in ones]

    def fire(self, *alerts: str) -> None:
        wait_until(lambda: set(alerts) <= self.watcher.firing(), FIRES_S_MAX, f"{alerts}")

    def clear(self, *alerts: str) -> None:
        wait_until(lambda: not set(alerts) & self.watcher.firing(), CLEARS_S_MAX, f"{alerts} to clear")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("alerts")
    redis = RedisServer(folder / "redis", "--appendonly", "yes")
    redis.start()
    web = Web()
    fleet = Fleet(folder, web, redis)
    jobs = {"drumlin-coordinators": fleet.coordinators, "drumlin-nodes": fleet.nodes}
    try:
        with prometheus(folder, jobs, shortened(RULES.read_text(), FOR_S, RANGE_S)) as watcher:
            fleet.start_coordinator(0)
            fleet.start_coordinator(1)
            fleet.start_nodes()
            made = Scene(web, fleet, watcher)
            wait_until(made.is_well, START_S_MAX, "pages, and no alert")
            yield made
    finally:
        for process in fleet.processes.values():
            process.kill()
            process.wait()
        os.kill(redis.pid, signal.SIGCONT)
        redis.kill()


def quarantine(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.fleet.order("quarantine")
    return lambda: scene.fleet.order("release"), {"DrumlinNodesQuarantined"}


def kill_a_node(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.fleet.end("n1")
    return lambda: scene.fleet.start_node(1), {"DrumlinNodeDown", "DrumlinNodesSilent"}


def stop_all_nodes(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.fleet.end("n0", "n1", number=signal.SIGTERM)
    return scene.fleet.start_nodes, {"DrumlinNoActiveNode", "DrumlinNodeDown"}


def break_all_sites(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.web.mode = "broken"
    return lambda: setattr(scene.web, "mode", "well"), {"DrumlinManyFailures"}


def silence_all_sites(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.web.mode = "silent"
    return lambda: setattr(scene.web, "mode", "well"), {"DrumlinStandstill"}


def shut_all_sites(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.web.shut()
    return scene.web.open, {"DrumlinHostsOutOfReach"}


def freeze_the_engine(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    pid = scene.fleet.redis.pid
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT), {"DrumlinTrouble", "DrumlinCoordinatorErrors"}


def slow_the_engine(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    slow = scene.fleet.slow_engine()
    slow.__enter__()

    def undo() -> None:
        slow.__exit__(None, None, None)

    return undo, {"DrumlinEngineSlow", "DrumlinSettlingSlow"}


def kill_the_coordinators(scene: Scene) -> tuple[Callable[[], None], set[str]]:
    scene.fleet.end("c0", "c1")

    def start_again() -> None:
        scene.fleet.start_coordinator(0)
        scene.fleet.start_coordinator(1)

    return start_again, {"DrumlinCoordinatorDown", "DrumlinNoLeader", "DrumlinNodeCutOff"}


# This fleet has no broker; tests/slow/test_kafka.py has one. For the other nobody waits half an hour.
NOT_HERE = {"DrumlinBrokerAway", "DrumlinBundleOverdue"}
METRICS_OF_KAFKA = re.compile("drumlin_(events|seeds)_")
fired: set[str] = set()
CAUSES = [
    quarantine,
    kill_a_node,
    stop_all_nodes,
    break_all_sites,
    slow_the_engine,
    freeze_the_engine,
    kill_the_coordinators,
    silence_all_sites,
    shut_all_sites,
]
"""What each does returns how it is undone, and which alerts must fire meanwhile."""


@pytest.mark.parametrize("cause", CAUSES)
def test_an_alert_fires_by_its_cause_and_clears(
    scene: Scene, cause: Callable[[Scene], tuple[Callable[[], None], set[str]]]
) -> None:
    wait_until(scene.is_well, CLEARS_S_MAX, "pages, and no alert")
    undo, alerts = cause(scene)
    try:
        scene.fire(*alerts)
    finally:
        undo()
    scene.clear(*alerts)
    fired.update(alerts)


def test_pages_and_seconds_count_once_when_the_lead_goes_back_and_forth(scene: Scene) -> None:
    wait_until(scene.is_well, CLEARS_S_MAX, "pages, and no alert")
    began, before = time.monotonic(), scene.elapsed_s()
    for leader in ("c0", "c1", "c0"):
        other = "c1" if leader == "c0" else "c0"
        scene.fleet.processes[other].send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda leader=leader: scene.leads(leader), FIRES_S_MAX, f"{leader} to lead")  # type: ignore[misc]
        finally:
            scene.fleet.processes[other].send_signal(signal.SIGCONT)
    counted = float(scene.watcher.query("max without (instance) (increase(drumlin_pages_total[1h]))")[0]["value"][1])
    told = scene.fleet.remote.get("/api/v1/stats")["pages"]
    # Who does not lead knows the time too, and no second of a freeze counts twice. A look takes a moment.
    wait_until(lambda: max(at := scene.elapsed_s()) - min(at) <= LOOK_S, CLEARS_S_MAX, "one running time")
    passed, after = time.monotonic() - began, scene.elapsed_s()
    assert max(after) - min(before) <= passed + LOOK_S
    # Prometheus extends an increase by up to half a scrape on both sides.
    assert 0.5 * told < counted < 1.1 * told


def test_every_alert_has_fired(scene: Scene) -> None:
    assert fired == set(ALERTS) - NOT_HERE, "run the whole file"


@pytest.mark.parametrize("expression", [one for one in expressions() if not METRICS_OF_KAFKA.search(one)])
def test_every_expression_of_the_dashboard_has_data(scene: Scene, expression: str) -> None:
    found = scene.watcher.query(expression.replace("$__rate_interval", "10m"))
    assert found, json.dumps(expression)
