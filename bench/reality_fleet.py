"""The real side of `bench.reality`: a fleet of real processes, real signals, and a web on loopback."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from bench.pages import host_address
from bench.reality_plan import COORDINATORS, FREEZE, KILL, LATENCY_VARIES, NODES, Plan, Record, victim
from bench.run import TMPFS, Site, drumlin_program, serving
from drumlin.fleet.layout import FleetPaths, FleetProcess, ProcessRole
from drumlin.fleet.up import remote_of

FLEET_S_MAX = 120.0
SMALL_PAGES = ("--size-median", "4400", "--links", "20", "--distinct-hosts", "25")
HOSTS_ASKED_MAX = 1_000
LEADS, FOLLOWS = "leads the coordinators now", "leads no more"


class RealFleet:
    """A fleet that is up, and ways to hurt it. Nothing that dies is started again."""

    def __init__(self, root: Path, site: Site, plan: Plan) -> None:
        self.paths = FleetPaths(root / "fleet")
        self._numbers = {f"{host_address(number)}:{site.port}": number for number in range(plan.hosts)}
        shape = ["--nodes", str(NODES), "--coordinators", str(COORDINATORS), "--concurrency", str(plan.concurrency)]
        pace = ["--delay", str(plan.delay_s), "--lease", str(plan.lease_s), "--scope", "host"]
        flags = ["--allow-private", "--quiet", "--no-restart", "-i", str(site.seeds), *shape, *pace]
        up = [drumlin_program(), "fleet", "up", "--out", str(self.paths.root), *flags]
        subprocess.run(up, check=True, timeout=FLEET_S_MAX)

    def node(self, name: str) -> FleetProcess:
        return next(process for process in self.paths.read().of(ProcessRole.NODE) if process.name == name)

    def leader(self) -> FleetProcess:
        """The coordinator that leads, as the logs say."""
        coordinators = self.paths.read().of(ProcessRole.COORDINATOR)
        return max(coordinators, key=lambda one: self._leads(one.name))

    def _leads(self, name: str) -> bool:
        said = self.paths.log(name).read_text(errors="replace")
        return said.rfind(LEADS) > said.rfind(FOLLOWS)

    def held(self) -> dict[str, list[int]]:
        """The numbers of the hosts that each node holds."""
        held: dict[str, list[int]] = {}
        for host in remote_of(self.paths).get("/api/v1/hosts", state="leased", limit=HOSTS_ASKED_MAX)["hosts"]:
            held.setdefault(host["lease_node"], []).append(self._numbers[host["host"]])
        return held

    def close(self) -> None:
        down = [drumlin_program(), "fleet", "down", "--kill", "--quiet", "--out", str(self.paths.root)]
        if self.paths.exists():
            subprocess.run(down, check=True, timeout=FLEET_S_MAX)


def send(process: FleetProcess, number: signal.Signals) -> None:
    if process.mark is None or not process.mark.send(number):
        raise ProcessLookupError(f"{process.name} is gone already")


def run_fleet(plan: Plan) -> Record:
    """Carry a plan out with real processes."""
    root = Path(tempfile.mkdtemp(dir=TMPFS, prefix="drumlin-reality-"))
    latency = ("--latency-ms", str(plan.latency_s * 1000), "--latency-varies", str(LATENCY_VARIES))
    try:
        with serving(plan.hosts, plan.pages, "--log", *latency, *SMALL_PAGES) as site:
            fleet = RealFleet(root, site, plan)
            try:
                begun = time.monotonic()
                struck = _strike(fleet, plan, begun)
                _wait_until(begun + plan.ends_at)
                contacts = [(at - begun, host, page) for at, host, page in site.ask("/_log")["requests"]]
            finally:
                fleet.close()
        return Record(plan, contacts, struck)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _strike(fleet: RealFleet, plan: Plan, begun: float) -> dict[str, tuple[float, list[int]]]:
    struck = {}
    for fault, at in ((KILL, plan.kill_at), (FREEZE, plan.freeze_at)):
        _wait_until(begun + at)
        held = fleet.held()
        name = victim(held, plan.hosts)
        send(fleet.node(name), signal.SIGKILL if fault == KILL else signal.SIGSTOP)
        struck[fault] = (time.monotonic() - begun, held[name])
    _wait_until(begun + plan.freeze_at + plan.frozen_s)
    send(fleet.node(name), signal.SIGCONT)
    _wait_until(begun + plan.coordinator_at)
    send(fleet.leader(), signal.SIGKILL)
    return struck


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
