"""The processes that a supervisor starts: their command lines, their environment, and when to start them again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from drumlin.config.key import VARIABLE_PREFIX
from drumlin.config.loading import TEST_VARIABLE_PREFIX
from drumlin.fleet.cluster import ADDRESS, write_settings
from drumlin.fleet.layout import FleetPaths, FleetPlan, FleetProcess, ProcessRole, read_secret
from drumlin.fleet.marks import ProcessMark
from drumlin.logs import message_of
from drumlin.tls import CertificateFiles

RESTART_WAIT_S = 0.5
RESTART_WAIT_S_MAX = 15.0
# If a process ran for at least this long, the way it was started was not the reason for its end. Then it is started
# again soon; otherwise after a pause that doubles each time.
HEALTHY_S = 15.0


class Child:
    """One process of the fleet. It is started again whenever it dies."""

    def __init__(self, record: FleetProcess, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.record = record
        self._command = command
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._wait_s = RESTART_WAIT_S
        self._ended = 0.0

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._log.parent.parent,
                env=self._environment,
                # Ctrl-C at the terminal should end the command that watches the fleet, not the fleet.
                start_new_session=True,
            )
        self._started = time.monotonic()
        self.record.mark = _mark(self._process)
        self.record.starts += 1
        self.record.exit_code = None

    def reap(self, within_s: float = 0.0) -> bool:
        """Whether the process has ended since the last call, or ends within this time."""
        if self._process is None:
            return False
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self.record.exit_code = self._process.returncode
        self.record.mark = None
        self._process = None
        self._ended = time.monotonic()
        brief = self._ended - self._started < HEALTHY_S
        self._wait_s = min(2 * self._wait_s, RESTART_WAIT_S_MAX) if brief else RESTART_WAIT_S
        return True

    @property
    def due(self) -> bool:
        """Whether the process has been dead for long enough to be started again."""
        return self._process is None and time.monotonic() - self._ended >= self._wait_s

    def last_words(self) -> str:
        """What the last line of its log says."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return next((message_of(line) for line in reversed(lines) if line.strip()), "it said nothing")


def _mark(process: subprocess.Popen[bytes]) -> ProcessMark | None:
    """The mark of a child; None if it has died already."""
    try:
        return ProcessMark.of(process.pid)
    except ProcessLookupError:
        return None


def redis_children(paths: FleetPaths, plan: FleetPlan) -> list[Child]:
    password = read_secret(paths.redis_password)
    children = []
    for number, ports in enumerate(plan.redis_ports):
        name = f"redis-{number}"
        settings = write_settings(paths.redis / str(number), ports, password)
        record = FleetProcess(name, ProcessRole.REDIS, f"{ADDRESS}:{ports[0]}")
        children.append(Child(record, [plan.redis_program, str(settings)], _environment(), paths.log(name)))
    return children


def coordinator_children(paths: FleetPaths, plan: FleetPlan) -> list[Child]:
    certificates = CertificateFiles.in_folder(paths.certs)
    # The engine's URL contains a password, so it must not be on the command line, which all users can see.
    environment = _environment() | {"DRUMLIN_ENGINE": read_secret(paths.engine_url)}
    children = []
    for number, port in enumerate(plan.coordinator_ports):
        name = f"coordinator-{number}"
        listen = f"{ADDRESS}:{port}"
        command = [*_drumlin("coordinator"), "--config", str(paths.crawl)]
        command += ["--input", str(paths.seeds)] if paths.seeds.stat().st_size else []
        command += [*_store(paths, plan), "--listen", listen]
        command += ["--finish" if plan.finish else "--no-finish"]
        command += ["--cert", str(certificates.server), "--key", str(certificates.server_key), *_telling(plan)]
        command += [*_events(plan), *_seeds(plan)]
        record = FleetProcess(name, ProcessRole.COORDINATOR, f"https://{listen}")
        children.append(Child(record, command, environment, paths.log(name)))
    return children


def node_children(paths: FleetPaths, plan: FleetPlan, coordinators: list[str]) -> list[Child]:
    children = []
    for number in range(plan.nodes):
        name = f"node-{number}"
        # Each node tries another coordinator first, so the coordinators share the load.
        first = number % len(coordinators)
        addresses = ",".join(coordinators[first:] + coordinators[:first])
        authority = CertificateFiles.in_folder(paths.certs).authority
        command = [*_drumlin("node"), "--config", str(paths.crawl), "--coordinator", addresses, "--name", name]
        command += [*_store(paths, plan), "--token-file", str(paths.join_token), "--ca", str(authority)]
        command += ["--concurrency", str(plan.concurrency), *_telling(plan)]
        # Of what is in a bucket, coordinators tell.
        command += _events(plan) if not plan.store else []
        children.append(Child(FleetProcess(name, ProcessRole.NODE), command, _environment(), paths.log(name)))
    return children


def _telling(plan: FleetPlan) -> list[str]:
    tracing = ["--trace-every", str(plan.trace_every)] if plan.trace_every else []
    return ["--log-format", plan.log.format, "--log-level", plan.log.level, *tracing]


def _events(plan: FleetPlan) -> list[str]:
    kafka = plan.kafka
    flags = ["--events-config", kafka.events_config] if kafka.events_config else []
    return [*flags, "--events", kafka.events, "--events-max", str(kafka.events_max_bytes)] if kafka.events else []


def _seeds(plan: FleetPlan) -> list[str]:
    kafka = plan.kafka
    if not kafka.seeds_from:
        return []
    flags = ["--events-config", kafka.events_config] if kafka.events_config and not kafka.events else []
    flags += ["--seeds-idle", f"{kafka.seeds_idle_s}s"] if kafka.seeds_idle_s is not None else []
    return [*flags, "--seeds-from", kafka.seeds_from]


def _store(paths: FleetPaths, plan: FleetPlan) -> list[str]:
    """The store of the fleet. If it is in a bucket, the fleet's folder holds what is not complete yet."""
    return ["--store", plan.store, "--spool", str(paths.store)] if plan.store else ["--store", str(paths.store)]


def _drumlin(verb: str) -> list[str]:
    # With -P nothing is imported from the working directory, into which others may have put a `drumlin.py`.
    return [sys.executable, "-P", "-m", "drumlin", verb]


def _environment() -> dict[str, str]:
    """Our environment without settings of drumlin: those of the crawl are in its file, the same for all processes."""

    def kept(name: str) -> bool:
        return not name.startswith(VARIABLE_PREFIX) or name.startswith(TEST_VARIABLE_PREFIX)

    # There is a process for each core, so numpy needs no threads; starting them would take each a tenth of a second.
    return {"OPENBLAS_NUM_THREADS": "1"} | {name: value for name, value in os.environ.items() if kept(name)}
