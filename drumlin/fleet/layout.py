"""What lies where in a fleet's directory, and `fleet.json`, which says who is at work."""

from __future__ import annotations

import os
import secrets
from enum import StrEnum
from pathlib import Path

import msgspec

from drumlin.errors import ConfigError, StorageError
from drumlin.fleet.marks import ProcessMark

VERSION = 1
SECRET_MODE = 0o600
FOLDER_MODE = 0o700


class Role(StrEnum):
    """What a process of a fleet is. They start in this order, and end in the other."""

    REDIS = "redis"
    COORDINATOR = "coordinator"
    NODE = "node"


class FleetState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    DOWN = "down"
    FAILED = "failed"


class FleetPlan(msgspec.Struct, frozen=True):
    """What a fleet consists of. Ports are chosen once: a Redis Cluster and nodes remember addresses."""

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


class FleetProcess(msgspec.Struct):
    """One process. `mark` is None before it was started; `exit_code` is that of its last end, negative for a signal."""

    name: str
    role: Role
    address: str = ""
    mark: ProcessMark | None = None
    starts: int = 0
    exit_code: int | None = None

    @property
    def alive(self) -> bool:
        return self.mark is not None and self.mark.alive


class FleetRecord(msgspec.Struct):
    """`fleet.json`. Only the supervisor writes it while it lives."""

    plan: FleetPlan
    state: FleetState
    created: float
    processes: list[FleetProcess] = []
    supervisor: ProcessMark | None = None
    failure: str = ""
    finished: bool = False
    """The crawl is finished and its store complete: nodes have left, and the index of the archive is made."""
    version: int = VERSION

    @property
    def coordinators(self) -> list[str]:
        return [f"https://127.0.0.1:{port}" for port in self.plan.coordinator_ports]

    def of(self, role: Role) -> list[FleetProcess]:
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
        """Make the folders; what is in them is nobody else's business."""
        try:
            for folder in (self.root, self.store, self.logs, self.redis, self.certs, self.secrets):
                folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self.secrets.chmod(FOLDER_MODE)
        except OSError as cause:
            raise StorageError(f"Cannot write to {self.root}: {cause.strerror}.", "Choose another --out.") from cause

    def read(self) -> FleetRecord:
        """The fleet that this directory holds; ConfigError when it holds none."""
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=FleetRecord)
        except FileNotFoundError as cause:
            hint = "Start one with `drumlin fleet up`, or name its directory."
            raise ConfigError(f"There is no fleet in {self.root}.", hint) from cause
        except OSError as cause:
            raise StorageError(f"Cannot read {self.record}: {cause.strerror}.") from cause
        except msgspec.DecodeError as cause:
            raise ConfigError(f"{self.record} is not of this version: {cause}.", "Start a fleet elsewhere.") from cause

    def write(self, record: FleetRecord) -> None:
        write_whole(self.record, msgspec.json.format(msgspec.json.encode(record), indent=1))

    def exists(self) -> bool:
        return self.record.exists()


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a file so that a reader sees the old or the new, never a part."""
    # Two processes of a fleet may write the same file at once; each then replaces it by a whole one.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)


def write_secret(path: Path, text: str) -> None:
    write_whole(path, f"{text}\n".encode(), SECRET_MODE)


def read_secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as cause:
        raise StorageError(f"Cannot read {path}: {cause.strerror}.") from cause
