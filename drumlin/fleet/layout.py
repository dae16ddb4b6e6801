"""The files in a fleet's directory, and `fleet.json`, which lists the fleet's processes."""

from __future__ import annotations

import fcntl
import os
from enum import StrEnum
from pathlib import Path

import msgspec

from drumlin.config import ProcessConfig
from drumlin.disk import PRIVATE, READABLE, write_whole
from drumlin.errors import EXIT_ENGINE, EXIT_INTERNAL, BusyError, ConfigError, StorageError
from drumlin.fleet.marks import ProcessMark
from drumlin.logs import LogSettings

VERSION = 1
FOLDER_MODE = 0o700
STARTED = "`drumlin fleet status` shows it."


class ProcessRole(StrEnum):
    """What a process of a fleet is. Processes start in this order and end in the reverse order."""

    REDIS = "redis"
    COORDINATOR = "coordinator"
    NODE = "node"


class FleetState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    DOWN = "down"
    FAILED = "failed"


class KafkaPlan(msgspec.Struct, frozen=True):
    """What a fleet has to do with Kafka, as its settings say."""

    events: str | None = None
    events_config: str | None = None
    events_max_bytes: int = ProcessConfig().events_max_bytes
    seeds_from: str | None = None
    seeds_idle_s: float | None = None


class FleetPlan(msgspec.Struct, frozen=True):
    """What a fleet consists of. Its ports never change, because a Redis Cluster and nodes remember addresses."""

    nodes: int
    coordinator_ports: list[int]
    redis_ports: list[tuple[int, int]]
    masters: int
    replicas: int
    concurrency: int
    redis_program: str
    restart: bool = True
    finish: bool = True
    namespace: str = "fleet"
    log: LogSettings = LogSettings()
    trace_every: int = 0
    kafka: KafkaPlan = KafkaPlan()
    store: str = ""
    """The address of the store, if it is in a bucket."""


class FleetProcess(msgspec.Struct):
    """One process. `mark` is None while it does not run; `exit_code` is that of its last end, negative for a signal."""

    name: str
    role: ProcessRole
    address: str = ""
    mark: ProcessMark | None = None
    starts: int = 0
    exit_code: int | None = None

    @property
    def alive(self) -> bool:
        return self.mark is not None and self.mark.alive

    @property
    def frozen(self) -> bool:
        return self.mark is not None and self.mark.frozen

    @property
    def problem(self) -> int:
        """Now that it has ended, the exit code of a command that needs it."""
        if self.role is ProcessRole.REDIS:
            return EXIT_ENGINE
        return max(self.exit_code or 0, EXIT_INTERNAL)


class FleetRecord(msgspec.Struct):
    """The content of `fleet.json`. While the supervisor lives, only the supervisor writes it."""

    plan: FleetPlan
    state: FleetState
    created: float
    processes: list[FleetProcess] = []
    supervisor: ProcessMark | None = None
    failure: str = ""
    """Why it did not start, or ended; `failure_code` is the exit code that says whose problem that is."""
    failure_code: int = EXIT_INTERNAL
    finished: bool = False
    """The crawl is finished and its store is complete: nodes have left, and the index of the archive is merged."""
    version: int = VERSION

    @property
    def coordinators(self) -> list[str]:
        return [f"https://127.0.0.1:{port}" for port in self.plan.coordinator_ports]

    def of(self, role: ProcessRole) -> list[FleetProcess]:
        return [process for process in self.processes if process.role is role]

    @property
    def running(self) -> bool:
        """Whether anything of the fleet is at work."""
        supervised = self.supervisor is not None and self.supervisor.alive
        return supervised or any(process.alive for process in self.processes)


class FleetPaths:
    """The places in a fleet's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.record = root / "fleet.json"
        self.lock = root / "supervisor.lock"
        self.store = root / "store"
        self.logs = root / "logs"
        self.redis = root / "redis"
        self.certs = root / "certs"
        self.secrets = root / "secrets"
        self.crawl = root / "crawl.toml"
        self.seeds = root / "seeds.txt"
        self.engine_url = self.secrets / "engine.url"
        self.redis_password = self.secrets / "redis.password"
        self.operator_token = self.secrets / "operator.token"
        self.join_token = self.secrets / "join.token"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def make(self) -> None:
        """Make the folders, closed to other users."""
        try:
            for folder in (self.root, self.store, self.logs, self.redis, self.certs, self.secrets):
                folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self.secrets.chmod(FOLDER_MODE)
        except OSError as cause:
            raise StorageError(f"Cannot write to {self.root}: {cause.strerror}.", "Choose another --out.") from cause

    def take_lock(self) -> int:
        """The lock of whoever starts or ends processes of this fleet, until the descriptor is closed; BusyError if
        another one has it."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            message = f"A fleet is at work in {self.root}, or a command that works on it."
            raise BusyError(message, "`drumlin fleet down` ends a fleet; wait for a command.") from None
        return descriptor

    def read(self) -> FleetRecord:
        """The fleet in this directory; ConfigError if there is none."""
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=FleetRecord)
        except FileNotFoundError as cause:
            hint = "Start one with `drumlin fleet up`, or name its directory."
            raise ConfigError(f"There is no fleet in {self.root}.", hint) from cause
        except OSError as cause:
            raise StorageError(f"Cannot read {self.record}: {cause.strerror}.") from cause
        except msgspec.DecodeError as cause:
            message = f"{self.record} was not written by this version of drumlin: {cause}."
            raise ConfigError(message, "Start a fleet in another directory.") from cause

    def write(self, record: FleetRecord) -> None:
        write_file(self.record, msgspec.json.format(msgspec.json.encode(record), indent=1))

    def exists(self) -> bool:
        return self.record.exists()


def write_file(path: Path, content: bytes, mode: int = READABLE) -> None:
    """Replace a file as a whole. Two processes of a fleet may write the same one at the same time."""
    write_whole(path, content, mode=mode, rivals=True)


def write_secret(path: Path, text: str) -> None:
    write_file(path, f"{text}\n".encode(), PRIVATE)


def read_secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as cause:
        raise StorageError(f"Cannot read {path}: {cause.strerror}.") from cause
