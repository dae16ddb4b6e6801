"""Real fleets for tests: `drumlin fleet up` as a person runs it, ways to disturb it, and what must hold in the end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drumlin.client.remote import Remote
from drumlin.fleet.cluster import PROGRAMS, connect
from drumlin.fleet.layout import FleetPaths, FleetPlan, FleetProcess, FleetRecord, ProcessRole, read_secret
from drumlin.fleet.up import remote_of
from drumlin.tls import CertificateFiles
from tests.harness.crawls import Web, wait_until
from tests.harness.outputs import (
    check_index_matches_tables,
    check_no_leftovers,
    check_rows_lead_to_records,
    check_warcs,
    query,
)

UP_S_MAX = 240.0
DOWN_S_MAX = 240.0
needs_redis = pytest.mark.skipif(not any(map(shutil.which, PROGRAMS)), reason="needs redis-server or valkey-server")


class Fleet:
    """A local fleet in a directory, observed through its files and its answers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = FleetPaths(root)
        self.extra: list[subprocess.Popen[bytes]] = []

    @property
    def record(self) -> FleetRecord:
        return self.paths.read()

    @property
    def store(self) -> Path:
        return self.paths.store

    def remote(self) -> Remote:
        return remote_of(self.paths)

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.remote().get("/api/v1/stats")
        return stats

    def of(self, role: ProcessRole) -> list[FleetProcess]:
        return [process for process in self.record.of(role) if process.alive]

    def named(self, name: str) -> FleetProcess:
        return next(process for process in self.record.processes if process.name == name)

    def redis_masters(self) -> list[FleetProcess]:
        """The processes that are masters now."""
        ports = master_ports(self.record.plan, read_secret(self.paths.redis_password))
        return [one for one in self.of(ProcessRole.REDIS) if int(one.address.rpartition(":")[2]) in ports]

    def start_node(
        self, name: str, *endpoints: str, more: tuple[str, ...] = (), spool: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """A node beside those of the fleet, which finds its coordinators at `endpoints`; with `spool`, one that cannot
        write to the store."""
        authority = CertificateFiles.in_folder(self.paths.certs).authority
        command = [sys.executable, "-m", "drumlin", "node", "--coordinator", ",".join(endpoints), "--name", name]
        command += ["--spool", str(spool)] if spool is not None else ["--store", str(self.store)]
        command += ["--token-file", str(self.paths.join_token), "--ca", str(authority)]
        with self.paths.log(name).open("ab") as log:
            process = subprocess.Popen([*command, *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.extra.append(process)
        return process

    def wait_until_finished(self, seconds_max: float) -> None:
        def finished() -> bool:
            record = self.record
            assert record.running, f"the fleet ended by itself: {record.failure} {self.last_words()}"
            return record.finished and all(process.poll() is not None for process in self.extra)

        wait_until(finished, seconds_max, "the end of the crawl", poll_s=0.2)

    def last_words(self) -> str:
        """The end of every log, for the message of a test that fails."""
        logs = sorted(self.paths.logs.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in logs)


def kill(process: FleetProcess, number: signal.Signals = signal.SIGKILL) -> None:
    assert process.mark is not None
    assert process.mark.send(number), f"{process.name} is gone already"


def drumlin(folder: Path, *arguments: str, seconds_max: float = UP_S_MAX) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")}
    command = [sys.executable, "-m", "drumlin", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds_max, check=False
    )


@contextmanager
def fleet(folder: Path, *arguments: str) -> Iterator[Fleet]:
    """A fleet that is up. Whatever the test does, no process is left afterwards."""
    one = Fleet(folder / "fleet")
    try:
        done = drumlin(folder, "fleet", "up", "--out", str(one.root), "--json", "--allow-private", *arguments)
        assert done.returncode == 0, f"{done.stderr}\n{one.last_words() if one.paths.exists() else ''}"
        json.loads(done.stdout)
        yield one
    finally:
        for process in one.extra:
            if process.poll() is None:
                process.kill()
            process.wait()
        if one.paths.exists():
            ended = drumlin(folder, "fleet", "down", "--out", str(one.root), "--kill", seconds_max=DOWN_S_MAX)
            assert ended.returncode == 0, ended.stderr


def check_every_page_stored_once(web: Web, store: Path) -> dict[str, Any]:
    """Check that no page is lost or stored twice, and that nothing forbidden was requested. Returns the figures."""
    accounts = web.accounts()
    assert accounts["missed"] == 0
    assert accounts["denied_requests"] == 0
    assert accounts["unknown_requests"] == 0
    [(rows, urls)] = query(store, "SELECT count(*), count(DISTINCT url) FROM {pages} WHERE fetch_status = 200")
    assert (rows, urls) == (web.pages, web.pages)
    assert check_rows_lead_to_records(store) == web.pages
    check_no_leftovers(store)
    check_warcs(store)
    held = check_index_matches_tables(store)
    report = store / "report.json"
    assert not report.exists() or json.loads(report.read_text())["pages"] == web.pages
    return {"pages": rows, "asked again": accounts["doubles"], "stored again": held["surplus"]}


def check_politeness(web: Web, store: Path, delay_s: float) -> float:
    """Check that no host was contacted twice within its delay, by any node. Returns the shortest gap that the server
    saw."""
    accounts = web.accounts()
    assert accounts["gaps_under"] == 0, "\n".join(hurried(accounts["worst_hosts"], store, delay_s))
    least: float = accounts["least_gap_s"]
    assert least >= delay_s
    return least


def hurried(worst_hosts: dict[str, float], store: Path, delay_s: float) -> list[str]:
    """For each host that was contacted too soon, the lines of the fetch log about it, to explain what happened."""
    lines = [f"gaps under {delay_s}: {worst_hosts}"]
    sql = "SELECT epoch(fetch_time), node, duration_s, outcome, kind, error, url FROM {fetches} WHERE host LIKE ?"
    for host, gap_s in worst_hosts.items():
        if gap_s < delay_s:
            lines += [str(row) for row in sorted(query(store, sql, f"{host}%"))]
    return lines


def master_ports(plan: FleetPlan, password: str) -> list[int]:
    """The ports of the servers that are masters now, as the first server that answers sees it."""
    for port, _ in plan.redis_ports:
        server = connect(port, password)
        if server is None:
            continue
        lines = server.ask("CLUSTER", "NODES").splitlines()
        server.close()
        return [int(match[1]) for line in lines if (match := re.search(r":(\d+)@\S+ (?:myself,)?master -", line))]
    return []
